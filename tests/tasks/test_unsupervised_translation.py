"""Unsupervised translation: noise and losses against loops, the course of training, exact resume, and a run's verbs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mallang import load
from mallang.data.batch import Batch
from mallang.decoding import contract as decoding
from mallang.errors import UserError
from mallang.find import find
from mallang.recipe import Recipe, read
from mallang.tasks.contract import Group
from mallang.tasks.unsupervised_translation import Config, Task, round_trip
from mallang.tasks.word_by_word import Lexicon, find_lexicon
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, EOS, PAD
from mallang.training import optimizer as optimizers
from mallang.training.loop import Loop
from mallang.training.train import Options, train

KOREAN = ["민수는 사과를 먹었다.", "유나는 물을 마셨다.", "그는 책을 읽었다."]
ENGLISH = ["Minsu ate an apple.", "Yuna drank some water.", "He read a book.", "She read it."]


def task_of(**config: Any) -> Task:
    texts = {"source": KOREAN, "target": ENGLISH}
    tokenizers = {name: Tokenizer.train(rows, TextConfig(unit="word", vocabulary=40)) for name, rows in texts.items()}
    return Task(Config(**config), tokenizers)


def model_of(task: Task, name: str = "lample", seed: int = 1) -> Any:
    module = find("models", name)
    torch.manual_seed(seed)
    return task.build(module, module.Config(**module.SIZES["tiny"])).eval()


def batch_of(task: Task, seed: int = 0) -> Batch:
    nothing = np.array([], int)
    sides = (task.source, KOREAN), (task.target, ENGLISH[1:])
    one, other = ([np.array(tokenizer.encode(text).ids) for text in texts] for tokenizer, texts in sides)
    rows = [((source, nothing), (nothing, target)) for source, target in zip(one, other, strict=True)]
    return task.prepare(rows, np.random.default_rng(seed))


def test_noise_drops_and_shuffles_whole_words_and_moves_none_too_far() -> None:
    task, random = task_of(word_drop=0.3, shuffle=2), np.random.default_rng(3)
    ids = np.array(task.target.encode("He, read, a, book, She, drank, some, water,").ids)
    words = [tuple(part) for part in np.split(ids, np.flatnonzero(task.begins_word[1][ids][1:]) + 1)]
    assert len(words) == 8 and all(len(word) == 2 for word in words)  # each with its comma
    counts = []
    for _ in range(300):
        changed = task.noise(ids, 1, random)
        found = [tuple(part) for part in np.split(changed, np.flatnonzero(task.begins_word[1][changed][1:]) + 1)]
        places = [words.index(word) for word in found]
        assert len(set(places)) == len(places) >= 1
        kept = sorted(places)
        assert all(abs(kept.index(place) - now) <= 2 for now, place in enumerate(places))
        counts.append(len(places))
    assert 8 * 0.7 - 0.4 < np.mean(counts) < 8 * 0.7 + 0.4
    still = task_of(word_drop=0.0, shuffle=0)
    assert np.array_equal(still.noise(ids, 1, random), ids)
    assert len(task_of(word_drop=0.99).noise(ids[:2], 1, random)) == 2  # one word stays


def restored(way: Any, source: list[int], target: list[int]) -> float:
    """The negative log-likelihood of one sentence, from a single row without padding."""
    given = Batch(tokens=torch.tensor([[BOS, *target]]), lengths=torch.tensor([len(target) + 1]),
                  source=torch.tensor([[*source, EOS]]), source_lengths=torch.tensor([len(source) + 1]))  # fmt: skip
    logits = way.output(way(given))[0]
    return float(F.cross_entropy(logits, torch.tensor([*target, EOS]), reduction="sum"))


def plain(row: torch.Tensor) -> list[int]:
    return [token for token in row.tolist() if token not in (PAD, EOS)]


@pytest.mark.parametrize("name", ["lample", "artetxe"])
@torch.no_grad()
def test_the_losses_are_those_of_single_sentences(name: str) -> None:
    task = task_of(denoising=2.0, back_translation=0.5, adversarial=3.0)
    model = model_of(task, name)
    batch = task.complete(model, batch_of(task))
    loss, counts = task.loss(model, batch, None), task.counts(batch)
    denoising = back = 0.0
    for side in (0, 1):
        for row in range(len(batch)):
            text, noisy = plain(batch.texts[row, side]), plain(batch.noisy[row, side])
            denoising += restored(model.between(side, side), noisy, text)
            back += restored(model.between(1 - side, side), plain(batch.translated[row, side]), text)
    assert float(loss.sums["denoising"]) == pytest.approx(2.0 * denoising, rel=1e-4)
    assert float(loss.sums["back_translation"]) == pytest.approx(0.5 * back, rel=1e-4)
    assert counts["denoising"] == counts["back_translation"] == int((batch.texts != PAD).sum())
    if name == "artetxe":
        assert float(loss.sums["adversarial"]) == float(loss.sums["discriminator"]) == 0.0
        return
    deceived = learned = states = right = 0.0
    for is_translated, given in ((False, batch.noisy), (True, batch.translated)):
        for side in (0, 1):
            language = 1 - side if is_translated else side
            for row in given[:, side]:
                source = torch.tensor([[*plain(row), EOS]])
                alone = Batch(tokens=torch.tensor([[BOS]]), lengths=torch.tensor([1]), source=source,
                              source_lengths=torch.tensor([source.shape[1]]))  # fmt: skip
                for logit in model.judge(model.states(alone, language, side)[1], frozen=False)[0].tolist():
                    p = 1 / (1 + math.exp(-logit))
                    label = 0.9 if language else 0.1
                    learned -= label * math.log(p) + (1 - label) * math.log(1 - p)
                    deceived -= math.log(1 - p if language else p)
                    right += (p > 0.5) == bool(language)
                    states += 1
    assert counts["adversarial"] == counts["discriminator"] == states
    assert float(loss.sums["adversarial"]) == pytest.approx(3.0 * deceived, rel=1e-4)
    assert float(loss.sums["discriminator"]) == pytest.approx(learned, rel=1e-4)
    assert int(loss.report["discriminator_accuracy"]) == right


@torch.no_grad()
def test_training_begins_with_denoising_then_words_then_the_model_itself() -> None:
    lexicon = Lexicon.of_pairs([("사과", "apple"), ("물", "water"), ("먹다", "ate")], "given")
    task = task_of(denoising_updates=2, word_by_word_updates=1, lexicon="identical")
    task.lexicon, model, batch = lexicon, model_of(task), batch_of(task)
    task.at_step(2)
    assert task.complete(model, batch) is batch
    assert float(task.loss(model, batch, None).sums["back_translation"]) == task.counts(batch)["back_translation"] == 0
    task.at_step(3)
    by_words = task.complete(model, batch)
    assert task.target.decode(plain(by_words.translated[0, 0])).split()[-2:] == ["apple", "ate."]
    task.at_step(4)
    own = task.complete(model.train(), batch)
    assert model.training, "dropout is off for the translation alone"
    way = model.eval().between(1, 0)
    given = Batch(tokens=batch.tokens[:, :1], lengths=batch.text_lengths[:, 1], source=batch.texts[:, 1],
                  source_lengths=batch.text_lengths[:, 1])  # fmt: skip
    state, tokens = way.start(given), torch.full((len(batch), 1), BOS)
    for place in range(3):
        logits, state = way.step(tokens, state)
        logits[..., [PAD, BOS]] = -math.inf
        tokens = logits[:, -1:].argmax(dim=-1)
        said = own.translated[:, 1, place]
        is_open = (said != PAD) & (said != EOS)
        assert place or is_open.any()
        assert torch.equal(said[is_open], tokens[is_open, 0])


def test_a_lexicon_looks_up_stems_and_copies_what_it_does_not_know() -> None:
    lexicon = Lexicon.of_pairs([("사과", "apple"), ("사", "buy"), ("마시다", "drink"), ("사과", "apology")], "given")
    assert lexicon.translate("사과를 마신다, Tom 42!", 0) == "apple drink, Tom 42!"
    assert lexicon.translate("Apple or drink", 1) == "사과 or 마시다"
    with pytest.raises(UserError, match="there is no lexicon"):
        find_lexicon("no-such-file.tsv", [], 8, 1)


def test_an_induced_lexicon_maps_identical_words_to_themselves() -> None:
    random = np.random.default_rng(0)
    topics = [[f"{chr(97 + topic)}{chr(97 + word)}" for word in range(6)] for topic in range(4)]
    texts = [[" ".join(random.choice(topics[number % 4], 6)) for number in range(400)] for _ in range(2)]
    lexicon = find_lexicon("identical", texts, 16, 1)
    again = find_lexicon("identical", texts, 16, 1)
    assert lexicon.tables == again.tables and lexicon.space is not None
    right = sum(word[0] == found[0] for word, found in lexicon.tables[0].items())
    assert right >= 20, "words of a topic have translations of the topic"
    with pytest.raises(UserError, match="too few"):
        find_lexicon("identical", [["a b"], ["c d"]], 8, 1)


def test_two_optimizers_step_as_one_and_are_saved_together() -> None:
    torch.manual_seed(1)
    weights = {name: torch.nn.Parameter(torch.randn(3, 2)) for name in ("a", "b")}
    alone = {name: weight.detach().clone().requires_grad_() for name, weight in weights.items()}
    config = optimizers.Config(learning_rate=0.1)
    groups = [Group([("a", weights["a"])]), Group([("b", weights["b"])], scale=2.0, optimizer="rmsprop")]
    both = optimizers.build(config, groups)
    first = torch.optim.Adam([alone["a"]], lr=0.05, betas=config.betas, eps=config.epsilon)
    squares = torch.zeros(3, 2)
    optimizers.set_rate(both, 0.05)
    for step in range(1, 4):
        for name, weight in weights.items():
            gradient = torch.randn(3, 2, generator=torch.Generator().manual_seed(step))
            weight.grad, alone[name].grad = gradient, gradient.clone()
        both.step()
        first.step()
        squares = 0.99 * squares + 0.01 * gradient**2
        with torch.no_grad():  # RMSProp with the bias correction of Adam
            alone["b"] -= 0.1 * gradient / ((squares / (1 - 0.99**step)).sqrt() + 1e-8)
    for name, weight in weights.items():
        torch.testing.assert_close(weight, alone[name], rtol=1e-5, atol=1e-6)
    names = {weight: name for name, weight in weights.items()}
    saved = optimizers.optimizer_tensors(both, names)
    assert {key.partition("/")[2] for key in saved} == {"a", "b"}
    fresh = optimizers.build(config, groups)
    optimizers.restore_optimizer(fresh, names, {key: value.clone() for key, value in saved.items()})
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    results = []
    for each in (both, fresh):
        with torch.no_grad():
            for name, weight in weights.items():
                weight.copy_(before[name])
        optimizers.set_rate(each, 0.05)
        each.step()
        results.append({name: weight.detach().clone() for name, weight in weights.items()})
    assert all(torch.equal(results[0][name], results[1][name]) for name in weights)


def small(name: str, *changes: str) -> Recipe:
    return read(
        name,
        ["model.dim=32", "train.batch_tokens=128", "train.log_every=4", "train.validate_every=100",
         "task.word_by_word_updates=2", "train.metric=loss", *changes],
    ).build()  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six updates: two word by word, four of the model's own translations."""
    folder = tmp_path_factory.mktemp("runs") / "lample"
    train(small("lample-miniworld", "train.steps=6"), Options(folder=folder, device="cpu", quiet=True))
    return folder


def test_a_run_that_stops_and_resumes_ends_bit_identical(run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """Two optimizers, a lexicon that is needed again, and translations by the weights of the moment."""
    look_up = Loop.look_up

    class KilledError(Exception):
        pass

    for at in (1, 3):

        def kill(loop: Loop, at: int = at) -> None:
            look_up(loop)
            if loop.step == at:
                loop.save(validated=False)
            if loop.step == at + 1:
                raise KilledError

        folder, options = tmp_path / str(at), Options(folder=tmp_path / str(at), device="cpu", quiet=True)
        monkeypatch.setattr(Loop, "look_up", kill)
        with pytest.raises(KilledError):
            train(small("lample-miniworld", "train.steps=6"), options)
        monkeypatch.setattr(Loop, "look_up", look_up)
        train(small("lample-miniworld", "train.steps=6"), options)
        assert (folder / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()


def test_a_run_translates_both_ways_and_says_what_it_cannot(run: Path) -> None:
    model = load(run, device="cpu")
    there, back = model.translate("민수는 사과를 먹었다."), model.translate("Minsu ate an apple.", reverse=True)
    assert there.output == model.translate(["민수는 사과를 먹었다."])[0].output
    assert back.output == model.reversed.translate("Minsu ate an apple.").output
    assert model.reversed.task.target.fingerprint == model.task.source.fingerprint
    rows = [("민수는 사과를 먹었다.", "Minsu ate an apple."), ("유나는 물을 마셨다.", "Yuna drank water.")]
    _, outputs = model.evaluate(rows, reverse=True, method="greedy")
    assert outputs == [str(each) for each in model.translate([row[1] for row in rows], reverse=True, method="greedy")]
    with pytest.raises(UserError, match="one side each"):
        model.evaluate([("민수는", ""), ("", "Minsu")])
    assert 0 <= round_trip(model, [row[0] for row in rows], is_back=False).value <= 100


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="need a lexicon"):
        Config(word_by_word_updates=5)
    with pytest.raises(UserError, match="one direction only"):
        task_of().build(find("models", "luong"), None)
    with pytest.raises(UserError, match="reads no unpaired text"):
        train(
            read("transformer-miniworld", ["data.unpaired=halves"]).build(), Options(folder=tmp_path / "a", quiet=True)
        )
    with pytest.raises(UserError, match="min_length"):
        task_of().filters(read("lample-miniworld", ["data.min_length=3"]).build().data)


@pytest.mark.slow
def test_miniworld_is_learned_far_beyond_words(tmp_path: Path) -> None:
    recipe = read("unsupervised-transformer-miniworld").build()
    result = train(recipe, Options(folder=tmp_path / "run", device="cpu", quiet=True))
    from mallang.data.corpus import open_corpus

    rows = list(open_corpus(result.data(), ("source", "target")).split("test"))[:300]
    lexicon, model = find_lexicon("miniworld-dictionary", [], 1, 1), load(result.folder, device="cpu")
    from mallang.evaluation.quality import MEASURES

    for side in (0, 1):
        gold = [row[1 - side] for row in rows]
        by_words = MEASURES["bleu"]([lexicon.translate(row[side], side) for row in rows], gold).score().value
        texts = [row[side] for row in rows]
        outputs = [str(each) for each in model.translate(texts, reverse=bool(side), method="greedy")]
        assert MEASURES["bleu"](outputs, gold).score().value > by_words + 5
    assert decoding.device_of(model.model).type == "cpu"
