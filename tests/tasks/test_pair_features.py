"""Features of pairs and of the tokens of questions and contexts, against the given encoder on each text alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import mallang
from mallang.data.batch import Batch, Shapes, pad_texts
from mallang.data.columns import LabelSet
from mallang.errors import UserError
from mallang.find import find
from mallang.recipe import read
from mallang.runs.folder import Run
from mallang.runs.given import Given
from mallang.tasks import answerer, pairs, question_answering, question_reading
from mallang.tasks.pair_features import Aligned, TokenFeatures
from mallang.tasks.windows import WindowExamples
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.training.train import Options, train
from tasks.test_features import WORDS, given

LABELS = {"label": LabelSet(("no", "yes"))}
PAIRS = [("EU rejects", "서울 . 민수는"), ("don't", "EU rejects Germany ."), ("민수는 서울", "서울")]
CONTEXT = "EU rejects Germany . 민수는 서울 don't rejects . EU"
few = settings(deadline=None, max_examples=40)


def own_tokenizer(*special: str, unit: Any = "space") -> Tokenizer:
    return Tokenizer.train([" ".join(WORDS)], Text(unit=unit, vocabulary=60), special=special)


def pair_task(features: Given, model: str = "rnn_classifier", **config: Any) -> tuple[pairs.Task, Any]:
    tokenizer, module = own_tokenizer(), find("models", model)
    both = {"first": tokenizer, "second": tokenizer}
    task = pairs.Task(pairs.Config(**config), both, LABELS, {"features": features})
    torch.manual_seed(1)
    return task, task.build(module, module.Config(**module.SIZES["tiny"])).eval()


def question_task(features: Given, *special: str, unit: Any = "space", **config: Any) -> tuple[Any, Any]:
    tokenizer, module = own_tokenizer(*special, unit=unit), find("models", "rnn_tagger")
    options = question_answering.Config(**{"window": 12, "stride": 3, "max_answer": 2, **config})
    both = {"question": tokenizer, "context": tokenizer}
    task = question_answering.Task(options, both, given={"features": features})
    torch.manual_seed(1)
    return task, task.build(module, module.Config(**module.SIZES["tiny"])).eval()


def pair_rows(task: pairs.Task, texts: list[tuple[str, str]]) -> list[tuple[Any, ...]]:
    """Examples as a prepared corpus has them."""
    cells: Any = [[one for one, _ in texts], [two for _, two in texts], ["yes"] * len(texts)]
    columns = [each.encoder.encode_batch(cells[each.place]) for each in task.arrays()]  # type: ignore[union-attr]
    return [tuple(np.array(ids, dtype=np.int64) for ids in row) for row in zip(*columns, strict=True)]


def alone(features: Given, ids: Any) -> Any:
    """What the given encoder makes of one text by itself."""
    tokens, lengths = pad_texts([ids], features.tokenizer.vocabulary)
    return features.model.encode(Batch(tokens=tokens, lengths=lengths))  # type: ignore[operator]


@pytest.mark.parametrize("name", ["elmo", "rnn_lm", "transformer_encoder"])
@pytest.mark.parametrize("both", ["both", "second"])
@torch.no_grad()
def test_a_pair_has_both_vectors_their_difference_and_their_product(name: str, both: Any) -> None:
    features = given(name)
    task, model = pair_task(features, read=both)
    batch = task.collate(pair_rows(task, PAIRS))
    wanted = []
    for texts in PAIRS:
        one, two = (alone(features, features.tokenizer.encode(text).ids).pooled[0] for text in texts)
        wanted.append(torch.cat((one, two, (one - two).abs(), one * two)) if both == "both" else two)
    for each in (batch, Shapes(tokens=256, multiple=8).fill(batch)):
        joined = task.features.join(torch.zeros(len(each), 1), model.features, each)  # type: ignore[union-attr]
        torch.testing.assert_close(joined[:3, 1:], torch.stack(wanted), rtol=1e-5, atol=1e-5)
    assert model.head.linear.weight.shape[1] == model.model.encoder_dims().pooled + len(wanted[0])


def test_the_layers_of_a_pair_share_one_mix_and_swapping_swaps_the_features() -> None:
    features = given("elmo", unit="space")
    task, model = pair_task(features, features_mix=True, features_l2=0.5, symmetric=True, word_dropout=0.5)
    with torch.no_grad():
        model.head.features_mix.scores.copy_(torch.tensor([0.5, -1.0, 0.2]))
    shares = model.features_mix.weights()
    examples = pair_rows(task, PAIRS)
    with torch.no_grad():
        found = task.features.join(torch.zeros(3, 0), model.features, task.collate(examples), model.features_mix)  # type: ignore[union-attr]
        for row, texts in enumerate(PAIRS):
            for place, text in enumerate(texts):
                layers = alone(features, features.tokenizer.encode(text).ids).layers
                mixed = sum(share * layer[0].mean(dim=0) for share, layer in zip(shares, layers, strict=True))
                size = found.shape[1] // 4
                torch.testing.assert_close(found[row, place * size : (place + 1) * size], mixed, rtol=1e-5, atol=1e-5)
    orders = set()
    for seed in range(8):
        batch = task.prepare([(example,) for example in examples], np.random.default_rng(seed))
        for row, (one, _, two, first, second) in enumerate(examples):
            read = batch.feature_tokens[row, : len(first)].tolist() == first.tolist()  # type: ignore[index]
            wanted = (first, second) if read else (second, first)
            own = (len(one), len(two)) if read else (len(two), len(one))
            assert batch.second_feature_tokens[row, : len(wanted[1])].tolist() == wanted[1].tolist()  # type: ignore[index]
            assert batch.lengths[row] == sum(own) + 2
            orders.add((row, read))
    assert len(orders) == 6, "both orders of every pair are read, and words of the features are never dropped"
    task.loss(model.train(), task.collate(examples), None).sums["loss"].backward()
    assert model.features_mix.scores.grad.abs().min() > 0
    assert all(each.grad is None for each in features.model.parameters())


@few
@drawn(st.lists(st.sampled_from((*WORDS, "unseen")), max_size=12), st.sampled_from(["char", "jamo", "bpe", "word"]))
def test_a_token_is_aligned_with_the_token_that_holds_its_first_character(words: list[str], unit: Any) -> None:
    text, own = " ".join(words), own_tokenizer(unit="wordpiece")
    other = Tokenizer.train([" ".join(WORDS)], Text(unit=unit, vocabulary=90))
    (found,) = Aligned(own, other).encode_batch([text])
    here, there = question_reading.offsets_of(own, text)[1], question_reading.offsets_of(other, text)[1]
    assert len(found) == len(here)
    for place, (start, _) in zip(found, here, strict=True):
        holders = [number for number, (begin, end) in enumerate(there) if begin <= start < end]
        assert place in holders if holders else place <= len(there)


@pytest.mark.parametrize("special", [(), ("cls", "sep", "mask")])
@pytest.mark.parametrize("task_name", ["language_modeling", "backward_language_modeling"])
@torch.no_grad()
def test_every_token_of_a_window_has_the_vector_of_its_text_alone(special: tuple[str, ...], task_name: str) -> None:
    features = given(unit="char", task=task_name)
    task, model = question_task(features, *special)
    reading = question_reading.read(task, "EU rejects", CONTEXT, {})
    windows = question_reading.cut(task, reading, None)
    assert len(windows) >= 2
    batch = task.collate([window[1:] for window in windows])
    filled = Shapes(tokens=256, multiple=8).fill(batch)
    for each in (batch, filled):
        joined = task.features.join(torch.zeros(*each.tokens.shape, 0), model.features, each)
        for row, (start, question, context, *_) in enumerate(windows):
            known = {
                int(special != ()): ("EU rejects", 0, 2),
                task.context_start(len(question)): (CONTEXT, start, start + len(context)),
            }
            wanted = torch.zeros_like(joined[row])
            for begin, (text, first, end) in known.items():
                read = features.tokenizer.encode(text)
                words = [match.start() for match in re.finditer(r"\S+", text)]
                places = [next(n for n, (one, two) in enumerate(read.offsets) if one <= word < two) for word in words]
                ids = read.ids[places[first] : places[end] if end < len(words) else None]
                backward = task_name.startswith("backward")
                vectors = alone(features, ids[::-1] if backward else ids).layers[-1][0]
                for number in range(first, end):
                    place = places[number] - places[first]
                    wanted[begin + number - first] = vectors[len(ids) - 1 - place if backward else place]
            torch.testing.assert_close(joined[row], wanted, rtol=1e-5, atol=1e-5)
    logits = [task.logits(model, each)[0] for each in (batch, filled)]
    torch.testing.assert_close(logits[0], logits[1][: len(windows), :, : logits[0].shape[2]], rtol=1e-4, atol=1e-4)


def test_the_answer_of_a_run_with_features_is_explained() -> None:
    task, model = question_task(given(unit="char"), "cls", "sep", "mask")
    found = answerer.Verbs(task, model, None, 0).attribution(("EU rejects", CONTEXT))
    assert found.constant == ("the given features",) and found.label in CONTEXT
    assert sum(found.weights) == pytest.approx(found.difference, rel=0.01, abs=2e-4)


@torch.no_grad()
def test_training_reads_the_windows_that_prediction_reads() -> None:
    features = given(unit="bpe")
    task, _ = question_task(features, unit="wordpiece", max_question=2, window=14)
    cells: Any = ["EU rejects", CONTEXT, "Germany"]
    spans, *others = sorted(task.arrays(), key=lambda column: not column.beside)
    first, second, *more = (each.encoder.encode_batch([cells[each.place]])[0] for each in others)
    arrays = [first, second, spans.encoder.encode_rows([(cells[2], cells[1])])[0], *more]
    row = [np.array(each, np.int64) for each in arrays]

    class Corpus:
        lengths = np.array([[len(each) for each in row[:3]]])

        def __getitem__(self, number: int) -> Any:
            return row

    trained = list(WindowExamples(Corpus(), task.windows, task.features.window))
    predicted = question_reading.cut(task, question_reading.read(task, cells[0], cells[1], {}), row[2].tolist())
    assert len(trained) == len(predicted) > 1
    for one, (_, *two) in zip(trained, predicted, strict=True):
        assert all(np.array_equal(mine, theirs) for mine, theirs in zip(one, two, strict=True))


def test_what_cannot_be_features_is_refused() -> None:
    for kind in (pairs.Config, question_answering.Config):
        with pytest.raises(ValueError, match="features_l2 has no effect without features_mix"):
            kind(features_l2=0.1)
    with pytest.raises(UserError, match="has no vector for a single word"):
        question_task(given("autoencoder"))
    with pytest.raises(UserError, match="features_mix has no effect without features"):
        tokenizer = own_tokenizer()
        pairs.Task(pairs.Config(features_mix=True), {"first": tokenizer, "second": tokenizer}, LABELS)
    assert TokenFeatures(given("elmo"), question_answering.Config(features_mix=True), own_tokenizer()).layers == 3


@pytest.mark.parametrize("name", ["pairs", "question_answering"])
def test_a_run_with_features_of_elmo_mixes_its_layers_and_is_loaded_again(
    name: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("\n".join(f"{one} {two}" for one, two in PAIRS * 20) + "\n", "utf-8")
    usual = ["train.steps=4", "train.batch_tokens=128", "train.validate_every=2", "train.workers=0"]
    size = [f"model.{key}={json.dumps(value)}" for key, value in find("models", "elmo").SIZES["tiny"].items()]
    text = ["data.train=text.txt", "data.valid=text.txt", "text.unit=space", "text.vocabulary=40"]
    options = Options(folder=Path("runs/elmo"), device="cpu", quiet=True)
    train(read("elmo", [*usual, *size, *text]).build(), options)
    if name == "pairs":
        lines = [f"{one}\t{two}\t{('no', 'yes')[len(one) % 2]}" for one, two in PAIRS * 10]
        more = ["task.name=pairs", "train.batch_sentences=8"]
    else:
        lines = [f"{one}\t{CONTEXT}\tGermany" for one, _ in PAIRS * 10]
        more = ["task.name=question_answering", "task.window=12", "task.stride=4", "text.unit=space"]
    Path("rows.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    more += ["data.train=rows.tsv", "data.valid=rows.tsv", "given.features=runs/elmo", "task.features_mix=true"]
    resolved = read("rnn_tagger", [*usual, *more, "text.vocabulary=40", "model.dim=8"])
    run = train(resolved.build(), Options(folder=Path("runs/tuned"), device="cpu", quiet=True))
    assert len(Run.open(run.folder).info["features_mix"]["weights"]) == 3
    assert not any("features." in name for name in run.read_weights() if "features_mix" not in name)
    model = mallang.load("runs/tuned", device="cpu")
    if name == "pairs":
        found = model.classify(PAIRS)
        assert [each.probability for each in found] == pytest.approx(
            [model.classify(pair).probability for pair in PAIRS], abs=1e-5
        )
        assert len(model.attribution(PAIRS[0]).rows) == 1
    else:
        found = model.answer([one for one, _ in PAIRS], CONTEXT)
        singles = [model.answer(one, CONTEXT) for one, _ in PAIRS]
        assert [each.answer for each in found] == [each.answer for each in singles]
        assert [each.probability for each in found] == pytest.approx([each.probability for each in singles], abs=1e-5)
