"""Classification of pairs: joined rows, truncation, the control, and the same logits as transformers on one pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import mallang
from mallang.data.batch import Shapes
from mallang.data.columns import LabelSet
from mallang.data.corpus import Rows
from mallang.data.filters import Filters
from mallang.data.prepared import prepare
from mallang.errors import UserError
from mallang.find import find
from mallang.inspection.label_report import label_report
from mallang.recipe import read
from mallang.tasks.pair_layout import PairLayout, as_pairs, shares
from mallang.tasks.pairs import Config, Task
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.training.train import Options, train

PAIRS = [("a b c", "b"), ("b", "c c c c a"), ("a a", "b c d"), ("", "a"), ("d d d", "")]
LABELS = ("neither", "same")


def task(marks: tuple[str, ...] = ("cls", "sep"), **config: Any) -> Task:
    tokenizer = Tokenizer.train(["a b c d"], Text(unit="space", vocabulary=50), (), marks)
    kind = "labels" if config.get("kind") == "multi" else "label"
    given_labels = {"label": LabelSet(LABELS, kind, (3, 2))}
    return Task(Config(**config), dict.fromkeys(("first", "second"), tokenizer), given_labels)


def examples(the_task: Task, pairs: list[tuple[str, str]] = PAIRS, label: int = 1) -> list[tuple[np.ndarray, ...]]:
    sides = [the_task.text.encode_batch([pair[place] for pair in pairs]) for place in (0, 1)]
    return [(np.array(a, np.int64), np.array([label]), np.array(b, np.int64)) for a, b in zip(*sides, strict=True)]


def words(the_task: Task, row: torch.Tensor) -> str:
    return " ".join(the_task.text.vocabulary.tokens[number] for number in row.tolist())


def small(the_task: Task, name: str = "bert", **config: Any) -> torch.nn.Module:
    module = find("models", name)
    torch.manual_seed(1)
    return the_task.build(module, module.Config(**{**module.SIZES["tiny"], **config})).eval()


def test_both_texts_are_one_row_with_a_segment_each() -> None:
    batch = task().collate(examples(task())[:2])
    assert words(task(), batch.tokens[0][: batch.lengths[0]]) == "<cls> a b c <sep> b <sep>"
    assert batch.token_types is not None
    assert batch.token_types.tolist() == [[0, 0, 0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 1, 1, 1, 1, 1]]
    plain = task(()).collate(examples(task(()))[:1])
    assert words(task(()), plain.tokens[0]) == "a b c </s> b </s>"


@pytest.mark.parametrize(("read", "expected"), [("first", "<cls> a b c <sep>"), ("second", "<cls> b <sep>")])
def test_a_control_reads_one_text_alone(read: str, expected: str) -> None:
    the_task = task(read=read)
    batch = the_task.collate(examples(the_task)[:1])
    assert words(the_task, batch.tokens[0]) == expected and batch.token_types is None
    model = small(the_task)
    place = {"first": 0, "second": 1}[read]
    changed = [("d d", "d d"), ("d d", "d d")]
    changed[0] = (PAIRS[0][0], "d d") if place == 0 else ("d d", PAIRS[0][1])
    logits, _ = the_task.logits(model, the_task.collate(examples(the_task, [PAIRS[0], *changed])))
    torch.testing.assert_close(logits[0], logits[1])
    assert not torch.allclose(logits[0], logits[2])


def test_a_model_with_a_level_of_sentences_reads_a_pair_as_a_document() -> None:
    the_task = task(())
    small(the_task, "han")
    batch = the_task.collate(examples(the_task)[:2])
    assert [words(the_task, row[:n]) for row, n in zip(batch.tokens, batch.lengths, strict=True)] == [
        "a b c </s>", "b </s>", "b </s>", "c c c c a </s>",
    ]  # fmt: skip
    assert batch.sentences is not None and batch.sentences.tolist() == [[0, 1], [2, 3]]
    control = task((), read="second")
    logits, _ = control.logits(small(control, "han"), control.collate(examples(control)))
    assert logits.shape == (len(PAIRS), 2)


@settings(deadline=None, max_examples=200)
@given(first=st.integers(0, 30), second=st.integers(0, 30), room=st.integers(2, 40))
def test_the_longer_text_loses_tokens_as_in_the_tokenizers_library(first: int, second: int, room: int) -> None:
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, "a"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.enable_truncation(room, strategy="longest_first")
    theirs = backend.encode(" ".join("a" * first), " ".join("b" * second)).ids
    one, two = shares(first, second, room)
    assert (theirs.count(0), theirs.count(1)) == (one, two)


def test_what_is_cut_is_counted_and_said() -> None:
    the_task = task()
    small(the_task, max_length=8)
    layout = the_task.layout
    lengths = np.array([(3, 1), (4, 1), (5, 5), (0, 9)])
    assert layout.most == 8 and layout.widths(lengths).tolist() == [7, 8, 8, 8]
    assert layout.count_cut(lengths) == 2
    assert layout.note_cut(lengths) == ("2 of 4 pairs are longer than 8 tokens: the end of the longer text is not read")
    assert layout.note_cut(lengths[:2]) == ""
    batch = the_task.collate(examples(the_task, [("a b c d a", "b b b b"), ("a", "b b b b b b")]))
    assert [words(the_task, row) for row in batch.tokens] == [
        "<cls> a b c <sep> b b <sep>", "<cls> a <sep> b b b b <sep>",
    ]  # fmt: skip
    with pytest.raises(UserError, match="no room for two texts and 3 special tokens"):
        small(task(max_tokens=4))
    assert PairLayout(the_task.text.vocabulary, "joined").count_cut(lengths) == 0


def test_a_pair_is_the_same_in_any_batch() -> None:
    the_task = task()
    model, rows = small(the_task), examples(the_task)
    batch = the_task.collate(rows)
    logits, _ = the_task.logits(model, Shapes(128, multiple=8).fill(batch))
    for place, row in enumerate(rows):
        torch.testing.assert_close(the_task.logits(model, the_task.collate([row]))[0][0], logits[place])
    assert the_task.counts(Shapes(128, multiple=8).fill(batch))["loss"] == len(rows)


def test_symmetric_pairs_are_read_in_both_orders_in_training_only() -> None:
    the_task = task(symmetric=True)
    rows = examples(the_task, [("a", "b c")])
    drawn = np.random.default_rng(0)
    seen = {words(the_task, the_task.prepare([(rows[0],)], drawn).tokens[0]) for _ in range(20)}
    assert seen == {"<cls> a <sep> b c <sep>", "<cls> b c <sep> a <sep>"}
    assert words(the_task, the_task.collate(rows).tokens[0]) == "<cls> a <sep> b c <sep>"


def test_word_dropout_reads_unknown_tokens_in_both_texts() -> None:
    the_task = task(word_dropout=0.5)
    rows = [(each,) for each in examples(the_task, [("a a a a", "b b b b")] * 50)]
    tokens = the_task.prepare(rows, np.random.default_rng(1)).tokens
    share = (tokens == the_task.text.vocabulary.unk).float().mean(dim=0)
    assert all(0.2 < float(share[place]) < 0.8 for place in (1, 2, 3, 4, 6, 7, 8, 9))
    assert all(float(share[place]) == 0.0 for place in (0, 5, 10))


def test_batches_are_filled_by_the_length_of_both_texts(tmp_path: Path) -> None:
    the_task = task()
    labeled = Rows.of([("a b", "c d a", "same")] * 8, the_task.columns)
    corpus = prepare(labeled, the_task.arrays(), Filters(), cache=tmp_path)
    plan = the_task.plan(corpus, tokens=16, seed=1, epoch=0)
    assert [len(plan[number]) for number in range(len(plan))] == [2, 2, 2, 2]


@pytest.mark.parametrize(
    "wrong", [{"symmetric": True, "read": "first"}, {"max_tokens": -1}, {"kind": "multi", "label_smoothing": 0.1}]
)
def test_options_without_effect_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Config(**wrong)


@pytest.mark.parametrize("wrong", ["a b", [("a", "b"), "c"], [("a", "b", "c")], [("a", 1)]])
def test_what_is_no_pair_is_refused(wrong: Any) -> None:
    with pytest.raises(UserError, match="a pair is two texts"):
        as_pairs(wrong)


@pytest.mark.parametrize("marks", [(), ("cls", "sep")])
def test_tokenizers_of_their_own_are_refused(marks: tuple[str, ...]) -> None:
    one, two = (Tokenizer.train([text], Text(unit="space", vocabulary=50), (), marks) for text in ("a b", "c d"))
    with pytest.raises(UserError, match="one encoder reads both texts"):
        Task(Config(), {"first": one, "second": two}, {"label": LabelSet(LABELS)})


# ---- a run ----

ANIMALS = ("dog", "cat", "cow", "hen")


def write_rows(path: Path) -> Path:
    """The label is whether both texts name the same animal, so one text alone says nothing."""
    pairs = [(f"a {one}", f"the {two} ran", LABELS[one == two]) for one in ANIMALS for two in ANIMALS * 2]
    pairs += [(f"a {one}", f"the {one} ran", "same") for one in ANIMALS * 4]
    path.write_text("premise\thypothesis\tlabel\n" + "".join("\t".join(row) + "\n" for row in pairs), "utf-8")
    return path


def train_here(folder: Path, *changes: str, start: Path | None = None, name: str = "run", steps: int = 80) -> Any:
    data = write_rows(folder / "nli.tsv")
    given_values = [
        f"data.train={data}", f"data.valid={data}", f"data.test={data}", "task.name=pairs", "text.unit=space",
        "text.vocabulary=60", "model.layers=1", "model.dim=32", "model.hidden_dim=64", "model.heads=2",
        "model.norm=pre", "model.dropout=0", "model.positions=learned", "model.max_length=40", f"train.steps={steps}",
        "train.validate_every=80", "train.workers=0", "train.threads=1", "train.batch_tokens=512",
        "optimizer.learning_rate=0.01",
    ]  # fmt: skip
    built = read("transformer-encoder", [*given_values, *changes]).build()
    return train(built, Options(folder=folder / name, fresh=True, quiet=True, start=start))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_here(tmp_path_factory.mktemp("pairs")).folder


def test_a_tsv_trains_classifies_and_evaluates(run: Path) -> None:
    model = mallang.load(run)
    assert str(model.classify(("a dog", "the dog ran"))) == "same"
    found = model.classify([("a dog", "the cat ran"), ("a hen", "the hen ran")])
    assert [str(each) for each in found] == ["neither", "same"] and found[0].input == ("a dog", "the cat ran")
    assert sum(found[0].probabilities.values()) == pytest.approx(1.0)
    rows = [("a dog", "the dog ran", "same"), ("a dog", "the cat ran", "same")]
    scores, labels = model.evaluate(rows)
    assert {each.name: each.value for each in scores}["accuracy"] == 50.0 and labels == ["same", "neither"]
    with pytest.raises(UserError, match="'other' does not occur") as raised:
        model.evaluate([*rows, ("a", "b", "other")])
    assert raised.value.where == "row 3"
    assert model.embed([("a dog", "a cat")]).shape == (1, 32) and model.embed(("a dog", "a cat")).shape == (32,)
    weights = model.attribution(("a dog", "the dog ran"), method="gradient")
    assert weights.tokens == ("a", "dog", "</s>", "the", "dog", "ran", "</s>")
    assert "longer than 40 tokens" in model.note_cut([("a " * 50, "b")]) and not model.note_cut([("a", "b")])
    assert str(model.classify(("a dog " + "a " * 60, "the dog ran"))) in LABELS


def test_the_report_shows_the_control_or_how_to_train_it(run: Path) -> None:
    model, rows = (
        mallang.load(run),
        [tuple(line.split("\t")) for line in (run.parent / "nli.tsv").read_text().split("\n")[1:-1]],
    )
    report = label_report(run, model, rows, "test")
    assert report.texts[0] == "a dog\tthe dog ran" and report.is_seen is not None and report.is_seen.all()
    assert {score.name: score.value for score in report.scores}["accuracy"] > 90
    (note,) = [note for note in report.notes if "control" in note]
    assert f"mallang train {run} task.read=second --name run-control" in note
    control = train_here(run.parent, "task.read=second", name="hypothesis", steps=30).folder
    train_here(run.parent, "task.read=second", "seed=2", name="another", steps=30)
    other = train_here(run.parent, name="same-length", steps=30).folder
    (note,) = [note for note in label_report(other, model, rows, "test").notes if "control" in note]
    assert f"the control (task.read=second) is {control}, which is not scored on test yet" in note
    from mallang.inspection.outputs import keep

    found = label_report(control, mallang.load(control), rows, "test")
    assert not [note for note in found.notes if "control" in note]
    keep(control, "test", found.outputs, found.scores, {})
    (note,) = [note for note in label_report(other, model, rows, "test").notes if "control" in note]
    value = {score.name: score.value for score in found.scores}["accuracy"]
    assert note == f"the control (task.read=second), {control}, has accuracy {value:.2f} on test"
    assert value < 80  # one text alone says nothing but how frequent the labels are


def test_pairs_longer_than_the_positions_are_said_when_training_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from mallang.console import drawing

    built = read("bert", [
        f"data.train={write_rows(tmp_path / 'nli.tsv')}", f"data.valid={tmp_path / 'nli.tsv'}", "task.name=pairs",
        "text.unit=char", "text.vocabulary=60", "model.layers=1", "model.dim=8", "model.heads=2", "model.max_length=16",
        "train.steps=1", "train.workers=0",
    ]).build()  # fmt: skip
    train(built, Options(folder=tmp_path / "run", device="cpu", console=drawing(stderr=True)))
    told = capsys.readouterr().err
    assert "train: 48 of 48 pairs are longer than 16 tokens" in told.replace("\n", " ")


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        ("premise\tlabel", "a\tsame", "has 2 columns, but 3 are needed: first, second, label"),
        ("premise\thypothesis\tlabel", "a\tb", "2 columns where the first line has 3"),
        ("premise\thypothesis\tlabel", "a\tb\tother", "the label 'other' does not occur"),
    ],
)
def test_files_that_hold_no_labeled_pairs_are_refused(header: str, row: str, message: str, tmp_path: Path) -> None:
    path = write_rows(tmp_path / "nli.tsv")
    other = tmp_path / "other.tsv"
    other.write_text(f"{header}\n{row}\n", "utf-8")
    which = "valid" if "other" in row else "train"
    files = {"train": path, "valid": path} | {which: other}
    values = [f"data.{name}={file}" for name, file in files.items()]
    built = read("bert", [*values, "task.name=pairs", "model.size=tiny", "train.steps=1"]).build()
    with pytest.raises(UserError, match=message):
        train(built, Options(folder=tmp_path / "run", quiet=True))


def test_empty_texts_are_left_out_of_training_and_classified(tmp_path: Path, run: Path) -> None:
    model = mallang.load(run)
    assert {str(each) for each in model.classify([("", ""), ("a dog", ""), ("", "the dog ran")])} <= set(LABELS)
    assert model.classify([]) == []


@pytest.mark.parametrize(("name", "marks"), [("bert", ("cls", "sep")), ("gpt", ("start", "delimiter", "extract"))])
def test_both_orders_are_read_and_their_vectors_are_added(name: str, marks: tuple[str, ...]) -> None:
    the_task, alone = task(marks, both_orders=True), task(marks)
    model, rows = small(the_task, name), examples(the_task)
    batch = the_task.collate(rows)
    begin, between, end = [f"<{mark}>" for mark in (marks if len(marks) == 3 else ("cls", "sep", "sep"))]
    assert words(the_task, batch.tokens[0][: batch.lengths[0]]) == f"{begin} a b c {between} b {end}"
    assert words(the_task, batch.tokens[1][: batch.lengths[1]]) == f"{begin} b {between} a b c {end}"
    logits = the_task.logits(model, batch)[0]
    for place, (first, label, second) in enumerate(rows):
        one, two = (
            alone.encoded(model.model, alone.collate([each])).pooled
            for each in ((first, label, second), (second, label, first))
        )
        torch.testing.assert_close(model.head(one + two)[0], logits[place], rtol=1e-4, atol=1e-5)
    filled = Shapes(256, multiple=8).fill(batch)
    torch.testing.assert_close(the_task.logits(model, filled)[0][: len(rows)], logits, rtol=1e-4, atol=1e-5)
    assert the_task.counts(filled)["loss"] == len(rows)
    swapped = the_task.collate([each[::-1] for each in rows])
    torch.testing.assert_close(the_task.logits(model, swapped)[0], logits, rtol=1e-4, atol=1e-5)


def test_both_orders_are_refused_where_they_mean_nothing() -> None:
    for wrong in ({"symmetric": True}, {"read": "second"}, {"mix_layers": True, "freeze": True}):
        with pytest.raises(ValueError, match="both_orders"):
            Config(both_orders=True, **wrong)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="does not read it in both orders"):
        small(task(both_orders=True), "han")
