"""Masked language modeling: the loss against an explicit one, filled-up batches, packing, resume, evaluation, fill."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import mallang
from mallang.data.batch import IGNORE, Shapes
from mallang.data.corpus import Rows
from mallang.data.filters import Filters
from mallang.data.loader import Position, Source, load
from mallang.data.passages import Documents
from mallang.data.prepared import prepare
from mallang.errors import UserError
from mallang.find import find
from mallang.layers.head import masked_rows
from mallang.recipe import read
from mallang.tasks.masked_lm import Config, Task
from mallang.tasks.masked_scores import measure
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.training.train import Options, train

DOCUMENTS = [
    "the dog runs. the cat sleeps. a bird sings.",
    "my dog is hairy. the man went to the store. he bought milk. it was cold.",
    "one two three. four five. six seven eight nine.",
    "the store was open. the man came home.",
]


def tokenizer():
    return Tokenizer.train(DOCUMENTS, Text(unit="word", vocabulary=60), special=("cls", "sep", "mask"))


def task(**config):
    return Task(Config(**{"length": 16, **config}), {"text": tokenizer()})


def model_of(the_task, seed=1, **config):
    torch.manual_seed(seed)
    module = find("models", "bert")
    heads = "both" if the_task.config.pairs != "none" else "masked-lm"
    sizes = {"layers": 2, "dim": 16, "heads": 2, "max_length": 32, "pretraining_heads": heads}
    return the_task.build(module, module.Config(**{**sizes, **config})).eval()


def prepared(the_task, folder, texts=DOCUMENTS):
    rows = Rows.of([(text,) for text in texts], ("text",))
    return prepare(rows, the_task.arrays(), Filters(max_length=0), folder)


def batch_of(the_task, folder, seed=0, rate=None):
    corpus = prepared(the_task, folder)
    examples = the_task.examples(corpus, 1, 0)
    rows = [tuple(examples[number] for number in row) for row in the_task.plan(corpus, tokens=512, seed=1, epoch=0)[0]]
    return the_task.prepare(rows, np.random.default_rng(seed))


@pytest.mark.parametrize("pairs", ["none", "next", "order"])
def test_the_loss_is_the_formula_at_the_masked_positions_alone(pairs, tmp_path):
    the_task = task(pairs=pairs, rate=0.4)
    model, batch = model_of(the_task), batch_of(the_task, tmp_path)
    found, counts = the_task.loss(model, batch, None), the_task.counts(batch)
    log_probs = model.output(model(batch)).log_softmax(dim=2).detach()
    expected, right = 0.0, 0
    for row, place, original in batch.masked.tolist():
        expected -= float(log_probs[row, place, original])
        right += int(log_probs[row, place].argmax()) == original
    assert float(found.sums["mlm"].detach()) == pytest.approx(expected, rel=1e-5)
    assert int(found.report["mlm_accuracy"]) == right and counts["mlm"] == counts["mlm_accuracy"] == len(batch.masked)
    part = the_task.pair_part
    assert the_task.parts == (("mlm",) if part is None else ("mlm", part)) and set(found.sums) == set(the_task.parts)
    if part is not None:
        told = model.next_sentence_logits(model(batch)).log_softmax(dim=1).detach()
        labels = [(row, label) for row, label in enumerate(batch.classes.tolist()) if label != IGNORE]
        assert float(found.sums[part].detach()) == pytest.approx(-sum(float(told[at]) for at in labels), rel=1e-5)
        assert counts[part] == len(labels) > 0


@pytest.mark.parametrize("config", [{}, {"pairs": "next"}, {"layout": "packed"}, {"exact": True}])
def test_filling_up_changes_neither_loss_nor_gradients(config, tmp_path):
    the_task = task(rate=0.3, **config)
    model, batch = model_of(the_task), batch_of(the_task, tmp_path)
    filled = Shapes(1024, multiple=24).fill(batch)
    assert filled.tokens.shape != batch.tokens.shape and len(filled.masked) % 8 == 0
    before, after = the_task.counts(batch), the_task.counts(filled)
    assert all(before[name] == after[name] for name in before if name != "tokens")
    losses = [the_task.loss(model, each, None) for each in (batch, filled)]
    for part in the_task.parts:
        assert float(losses[0].sums[part].detach()) == pytest.approx(float(losses[1].sums[part].detach()), rel=1e-5)
    gradients = [torch.autograd.grad(sum(each.sums.values()), list(model.parameters()), allow_unused=True)
                 for each in losses]  # fmt: skip
    for one, other in zip(*gradients, strict=True):
        assert one is None or torch.allclose(one, other, atol=1e-5)


def test_the_head_runs_on_the_masked_rows_only(tmp_path):
    the_task = task()
    model, batch = model_of(the_task), batch_of(the_task, tmp_path)
    seen, before = [], model.output
    model.output = lambda hidden: seen.append(tuple(hidden.shape)) or before(hidden)
    the_task.loss(model, batch, None)
    assert seen == [(len(batch.masked), 16)]


def test_rows_without_a_token_are_any_row():
    hidden = torch.arange(12.0).view(2, 3, 2)
    masked = torch.tensor([[1, 2, 0], [0, 1, 5], [-1, -1, -1]])
    assert masked_rows(hidden, masked)[:2].tolist() == [[10.0, 11.0], [2.0, 3.0]]


def test_packed_texts_have_the_hidden_vectors_of_single_ones(tmp_path):
    packed, single = task(layout="packed", length=32), task()
    model = model_of(packed)
    texts = [single.collate([((np.array(ids), np.zeros(0, int), IGNORE),)]) for ids in ([9, 10, 11], [12, 13])]
    both = packed.collate([tuple((np.array(ids), np.zeros(0, int), IGNORE) for ids in ([9, 10, 11], [12, 13]))])
    assert both.segments.tolist() == [[1] * 5 + [2] * 4]
    together = model(both)[0]
    assert torch.allclose(together[:5], model(texts[0])[0], atol=1e-5)
    assert torch.allclose(together[5:], model(texts[1])[0], atol=1e-5)


def test_pairs_are_framed_as_the_paper_has_them():
    the_task = task(pairs="next")
    names = the_task.text.vocabulary
    first, second, none = np.array([9, 10]), np.array([11]), np.zeros(0, int)
    batch = the_task.collate([((first, second, 1),), ((first, none, IGNORE),)])
    assert batch.tokens.tolist() == [
        [names.cls, 9, 10, names.sep, 11, names.sep],
        [names.cls, 9, 10, names.sep, names.pad, names.pad],
    ]
    assert batch.token_types.tolist() == [[0, 0, 0, 0, 1, 1], [0] * 6] and batch.classes.tolist() == [1, IGNORE]


def test_batches_are_within_the_length_and_read_every_token(tmp_path):
    the_task = task()
    corpus = prepared(the_task, tmp_path)
    plan, examples = the_task.plan(corpus, tokens=64, seed=1, epoch=0), the_task.examples(corpus, 1, 0)
    batches = [the_task.collate([tuple(examples[i] for i in row) for row in rows]) for rows in plan]
    assert max(batch.tokens.shape[1] for batch in batches) <= 16
    specials = the_task.text.vocabulary.specials
    read = sorted(t for batch in batches for t in batch.tokens.flatten().tolist() if t not in specials)
    assert read == sorted(t for text in DOCUMENTS for t in the_task.text.encode(text).ids)


@pytest.mark.parametrize("layout", ["texts", "packed"])
def test_the_first_epochs_read_shorter_passages(layout, tmp_path):
    """Each epoch reads every token once; held-out text is read at the full length from the start."""
    the_task = task(layout=layout, length=24, short_length=12, short_epochs=2)
    corpus = prepared(the_task, tmp_path)
    every = sorted(t for text in DOCUMENTS for t in the_task.text.encode(text).ids)
    for epoch, longest in enumerate((12, 12, 24, 24)):
        plan = the_task.plan(corpus, tokens=48, seed=1, epoch=epoch)
        examples = the_task.examples(corpus, 1, epoch)
        batches = [the_task.collate([tuple(examples[i] for i in row) for row in rows]) for rows in plan]
        widths = [batch.tokens.shape[1] for batch in batches]
        assert longest - 8 < max(widths) <= longest
        assert all(len(batch) <= 48 // width for batch, width in zip(batches, widths, strict=True))
        specials = the_task.text.vocabulary.specials
        assert every == sorted(t for batch in batches for t in batch.tokens.flatten().tolist() if t not in specials)
    full = the_task.passages(Documents.of(corpus), "none")
    assert int(the_task.lengths(full).max()) > 12 and the_task.first_phase == 2
    shapes = the_task.shapes(48, None)
    assert shapes.multiple == (12 if layout == "packed" else 8)
    assert task(layout="packed").shapes(48, None).multiple == 16


@pytest.mark.parametrize("pairs", ["none", "next", "short", "packed"])
def test_masks_are_drawn_again_in_every_epoch_and_resume_is_exact(pairs, tmp_path):
    others = {"short": {"short_length": 8, "short_epochs": 1}, "packed": {"layout": "packed"}}
    config = others.get(pairs, {"pairs": pairs})
    the_task = task(**config)
    corpus = prepared(the_task, tmp_path)

    def batches(start, count):
        fresh = task(**config)
        source = Source(
            examples=lambda epoch: fresh.examples(corpus, 3, epoch),
            plan=lambda epoch: fresh.plan(corpus, tokens=48, seed=3, epoch=epoch), prepare=fresh.prepare, seed=3,
        )  # fmt: skip
        return list(itertools.islice(load(source, start), count))

    whole = batches(Position(), 12)
    again = batches(whole[4][1], 7)
    for (one, _), (other, _) in zip(whole[5:], again, strict=True):
        assert torch.equal(one.tokens, other.tokens) and torch.equal(one.masked, other.masked)
        assert (one.segments is None) == (pairs != "packed")
        assert one.segments is None or torch.equal(one.segments, other.segments)
    assert whole[-1][1].epoch >= 1
    masked = [(epoch, tuple(map(tuple, batch.masked.tolist()))) for batch, (_, epoch) in
              ((batch, (0, position.epoch)) for batch, position in whole)]  # fmt: skip
    assert len({each for _, each in masked}) > len(masked) // 2


def test_seed_0_is_a_seed_and_the_last_batch_of_an_epoch_is_read(tmp_path):
    the_task = task()
    corpus = prepared(the_task, tmp_path)

    def first_batches(seed, count):
        source = Source(
            examples=lambda epoch: the_task.examples(corpus, seed, epoch),
            plan=lambda epoch: the_task.plan(corpus, tokens=32, seed=seed, epoch=epoch),
            prepare=the_task.prepare, seed=seed,
        )  # fmt: skip
        return [(batch.tokens.tolist(), len(batch)) for batch, _ in itertools.islice(load(source, Position()), count)]

    count = len(the_task.plan(corpus, tokens=32, seed=0, epoch=0))
    assert first_batches(0, count) == first_batches(0, count) != first_batches(1, count)
    sizes = [size for _, size in first_batches(0, count)]
    assert sum(sizes) == len(the_task.examples(corpus, 0, 0)) and len(set(sizes)) > 1, "no batch is left out"


def test_evaluation_asks_for_the_same_tokens_whatever_the_rate_and_the_batches(tmp_path, monkeypatch):
    one, other = task(), task(rate=0.4, unit="word")
    model = model_of(one)
    corpus = prepared(one, tmp_path)
    first = measure(one, model, one.examples(corpus, 0, 0))
    monkeypatch.setattr("mallang.tasks.masked_scores.BATCH_TOKENS", 20)
    second = measure(other, model, other.examples(corpus, 0, 0))
    assert first.count.tolist() == second.count.tolist() and first.count.sum() > 0
    assert np.allclose(first.nats, second.nats, atol=1e-4) and np.allclose(first.unigram, second.unigram)


def test_validation_gives_the_mean_loss_and_the_loss_of_frequencies(tmp_path):
    the_task = task(pairs="order")
    model, corpus = model_of(the_task), prepared(the_task, tmp_path)
    scores = {score.name: score for score in the_task.validate(model, corpus, [], "loss")}
    assert scores["loss"].value == pytest.approx(scores["mlm"].value + scores["sop"].value)
    assert set(scores) == {"loss", "mlm", "mlm_accuracy", "unigram", "sop", "sop_accuracy"}
    ids = [number for text in DOCUMENTS for number in the_task.text.encode(text).ids]
    assert 0 < scores["unigram"].value < math.log(len(ids)) and "rate:0.15" in scores["mlm"].signature
    with pytest.raises(UserError, match="nsp_accuracy needs pairs"):
        the_task.validate(model, corpus, [], "nsp_accuracy")


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"length": 4}, "no room"), ({"rate": 0.0}, "rate"), ({"random": 0.6, "kept": 0.5}, "at most 1 together"),
        ({"exact": True, "unit": "word"}, "several together"), ({"layout": "packed", "pairs": "next"}, "fill a row"),
        ({"short_length": 64}, "go together"), ({"short_epochs": 2}, "go together"),
        ({"short_length": 128, "short_epochs": 1}, "below length = 128"),
        ({"short_length": 48, "short_epochs": 1, "layout": "packed"}, "a multiple of it"),
    ],
)  # fmt: skip
def test_contradictions_are_refused(config, told):
    with pytest.raises(ValueError, match=told):
        Config(**config)


@pytest.mark.parametrize(
    ("config", "heads", "told"),
    [
        ({}, "none", "no head for masked tokens"), ({"pairs": "next"}, "masked-lm", "needs a head for pairs"),
        ({}, "both", "never trains"), ({"length": 64}, "masked-lm", "more than the 32"),
    ],
)  # fmt: skip
def test_models_that_do_not_fit_are_refused(config, heads, told):
    with pytest.raises(UserError, match=told):
        model_of(task(**config), pretraining_heads=heads)
    with pytest.raises(UserError, match="predicts no masked tokens"):
        task().build(find("models", "gpt"), find("models", "gpt").Config())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that has learned two sentences by heart."""
    folder = tmp_path_factory.mktemp("filled")
    (folder / "train.txt").write_text("the man went to the store .\nmy dog is very hairy .\n" * 60)
    changes = [
        f"data.train={folder}/train.txt", f"data.valid={folder}/train.txt", f"data.test={folder}/train.txt",
        "task.name=masked_lm", "task.length=16", "task.rate=0.3", "model.pretraining_heads=masked-lm",
        "model.layers=1", "model.dim=32", "model.heads=2", "model.max_length=16", "model.dropout=0",
        "model.attention_dropout=0", "text.unit=word", "text.vocabulary=40", "train.steps=150",
        "train.batch_tokens=256", "train.workers=0", "train.validate_every=150", "optimizer.learning_rate=0.01",
        "schedule.warmup=10",
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MALLANG_CACHE", str(folder / "cache"))
        train(read("bert", changes).build(), Options(folder=folder / "run", device="cpu", quiet=True))
    return folder / "run"


def test_gaps_are_filled(run):
    model = mallang.load(run, device="cpu")
    found = model.fill("the man went to [MASK] store .", count=3)
    assert found.nbest[0].tokens == ("▁the",) and str(found) == "the man went to the store ."
    assert [each.token for each in found.gaps[0]] == [each.tokens[0] for each in found.nbest]
    assert math.exp(found.nbest[0].score) == pytest.approx(found.gaps[0][0].probability, rel=1e-6)
    assert model.fill(["my dog is <mask> hairy ."])[0].nbest[0].tokens == ("▁very",)
    with pytest.raises(UserError, match="no gap"):
        model.fill("the man")
    with pytest.raises(UserError, match="reads 16"):
        model.fill("the " * 20 + "[MASK]")


def test_several_gaps_are_filled_as_enumeration_says(run):
    """A beam that is as wide as the vocabulary finds the best of all pairs of words."""
    model = mallang.load(run, device="cpu")
    vocabulary = model.tokenizer.vocabulary
    ordinary = [number for number in range(len(vocabulary)) if number not in vocabulary.specials]
    found = model.fill("my [MASK] is [MASK] hairy .", count=len(ordinary))
    assert found.nbest[0].tokens == ("▁dog", "▁very")
    ids = [vocabulary.cls, *model.tokenizer.encode("my dog is very hairy .").ids, vocabulary.sep]
    ids[2] = ids[4] = vocabulary.mask
    first = model.log_probs([ids], [2])[0, 0]
    filled = [[*ids[:2], word, *ids[3:]] for word in ordinary]
    second = model.log_probs(filled, [4])[:, 0]
    best = max((float(first[a] + second[row, b]), a, b) for row, a in enumerate(ordinary) for b in ordinary)
    assert found.nbest[0].score == pytest.approx(best[0], abs=1e-6)
    assert found.nbest[0].tokens == (vocabulary.tokens[best[1]], vocabulary.tokens[best[2]])
    scores = [each.score for each in found.nbest]
    assert scores == sorted(scores, reverse=True)


def test_a_known_text_has_a_higher_pseudo_log_likelihood(run):
    model = mallang.load(run, device="cpu")
    right, wrong = (
        model.pseudo_log_likelihood(text) for text in ("my dog is very hairy .", "my store is went hairy .")
    )
    assert wrong < right < 0


def test_evaluation_gives_loss_accuracy_and_a_line_per_row(run):
    model = mallang.load(run, device="cpu")
    rows = [("the man went to the store .",), ("",), ("my dog is very hairy .",)] * 20
    scores, lines = model.evaluate(rows)
    values = {score.name: score for score in scores}
    assert list(values) == ["mlm loss", "pseudo-perplexity", "mlm accuracy", "unigram loss"]
    assert values["pseudo-perplexity"].value == pytest.approx(math.exp(values["mlm loss"].value))
    assert values["mlm loss"].value < values["unigram loss"].value and values["mlm loss"].low is not None
    total = sum(map(float, lines))
    assert len(lines) == len(rows) and lines[1] in ("0.0000", "-0.0000") and total < 0
    with pytest.raises(UserError, match="no effect"):
        model.evaluate(rows, beam=3)


def test_training_writes_the_loss_of_every_part(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["kind"] == "train"]
    assert all(line["loss"] == line["mlm"] and 0 <= line["mlm_accuracy"] <= 1 for line in trained)


def test_a_run_of_pairs_is_scored_on_both_kinds(tmp_path):
    the_task = task(pairs="next")
    verbs = find("tasks", "masked_lm").Verbs(the_task, model_of(the_task), None, 0)
    names = [score.name for score in verbs.evaluate([(text,) for text in DOCUMENTS])[0]]
    assert names[4:] == ["nsp accuracy", "nsp loss", "sop accuracy", "sop loss"]
    assert replace(the_task.config, pairs="order").pairs == "order"


def test_masked_texts_have_the_special_tokens_of_bert_alone() -> None:
    for name in ("masked_lm", "replaced_token", "distillation"):
        module = find("tasks", name)
        assert module.Task.special_tokens(module.Config()) == ("mask", "cls", "sep")
