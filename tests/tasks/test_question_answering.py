"""Question answering: windows that lose no answer, targets and spans against explicit loops, and what is refused."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.answers import offsets_of
from mallang.data.batch import IGNORE
from mallang.errors import UserError
from mallang.evaluation.label_predictions import Calibration
from mallang.find import find
from mallang.layers.head import SpanHead
from mallang.loading import load
from mallang.recipe import read
from mallang.tasks import answerer, question_reading
from mallang.tasks.question_answering import Config, Task
from mallang.tasks.windows import NO_ANSWER, Windows, span_table, span_within
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer
from mallang.training.train import Options, train

WORDS = [f"w{number}" for number in range(40)]
some = settings(deadline=None, max_examples=60)


def task_of(*special: str, **config: Any) -> Task:
    tokenizer = Tokenizer.train([" ".join(WORDS)], TextConfig(unit="space", vocabulary=60), special=special)
    return Task(Config(**config), {"question": tokenizer, "context": tokenizer})


def model_of(task: Task, name: str = "rnn_tagger", **changes: Any) -> Any:
    module = find("models", name)
    torch.manual_seed(1)
    return task.build(module, module.Config(**{**module.SIZES["tiny"], **changes})).eval()


@some
@given(
    window=st.integers(8, 60), stride=st.integers(1, 40), most=st.integers(1, 12),
    question=st.integers(0, 20), context=st.integers(1, 120),
)  # fmt: skip
def test_windows_cover_the_context_and_hold_every_answer(
    window: int, stride: int, most: int, question: int, context: int
) -> None:
    windows = Windows(window, stride, most, frame=3)
    if window - 3 - question < 1:
        with pytest.raises(UserError, match="no room for its context"):
            windows.starts(question, context)
        return
    room, starts = windows.room(question), windows.starts(question, context)
    assert starts[0] == 0 and starts == sorted(set(starts)) and starts[-1] == max(0, context - room)
    held = min(most, max(1, room // 2))
    for first in range(context):
        for last in range(first, min(context, first + held)):
            assert any(start <= first and last < start + room for start in starts), (first, last)
    assert all(later - start <= stride for start, later in itertools.pairwise(starts))


@some
@given(data=st.data())
def test_every_span_that_fits_in_one_window_can_be_predicted(data: st.DataObject) -> None:
    """The logits of the right begin and end are the highest, in every window that holds them: the span is found."""
    most = data.draw(st.integers(1, 8))
    task = task_of(
        "cls", "sep", window=data.draw(st.integers(10, 24)), stride=data.draw(st.integers(1, 12)), max_answer=most
    )
    size = data.draw(st.integers(1, 40))
    context, question = " ".join(WORDS[:size]), " ".join(WORDS[: data.draw(st.integers(1, 3))])
    reading = question_reading.read(task, question, context, {})
    starts = task.windows.starts(len(reading.question), size)
    room = task.windows.room(len(reading.question))
    window = data.draw(st.sampled_from(starts))
    first = data.draw(st.integers(window, min(size, window + room) - 1))
    last = data.draw(st.integers(first, min(size, window + room, first + most) - 1))

    def logits(model: Any, batch: Any) -> Any:
        found = torch.where(batch.candidates, 0.0, -1e30)[:, None, :].repeat(1, 2, 1)
        in_context = batch.token_types == 1
        for side, token in enumerate((reading.context[first], reading.context[last])):
            found[:, side] += 20.0 * ((batch.tokens == token) & in_context & batch.candidates)
        return found, {}

    task.logits = logits  # type: ignore[method-assign]
    (scored,) = question_reading.score_spans(task, model_of(task), [reading])
    found, _ = answerer.candidates(task, reading, context, scored, 1)
    assert found[0].text == context[found[0].start : found[0].end] == " ".join(WORDS[first : last + 1])


@some
@given(seed=st.integers(0, 99), tokens=st.integers(1, 12), most=st.integers(1, 15), parts=st.integers(1, 3))
def test_span_tables_against_loops(seed: int, tokens: int, most: int, parts: int) -> None:
    random, windows = np.random.default_rng(seed), []
    for _ in range(parts):
        start = int(random.integers(0, tokens))
        size = int(random.integers(1, tokens - start + 1))
        windows.append((start, random.normal(size=size), random.normal(size=size)))
    table = span_table(windows, tokens, most)
    for first in range(tokens):
        for last in range(first, min(tokens, first + most)):
            held = [
                begins[first - start] + ends[last - start]
                for start, begins, ends in windows
                if start <= first and last < start + len(begins)
            ]
            assert table[first, last - first] == (max(held) if held else -np.inf)


def test_targets_by_hand() -> None:
    task = task_of("cls", "sep", window=12, stride=4, max_answer=2)
    question, context = np.array([10, 11]), np.arange(20, 26)
    batch = task.collate([(question, context, (1, 2)), (question[:1], context[:4], (NO_ANSWER, NO_ANSWER)),
                          (question, context, (IGNORE, IGNORE))])  # fmt: skip
    cls, sep = task.text.vocabulary.cls, task.text.vocabulary.sep
    assert batch.tokens[0].tolist() == [cls, 10, 11, sep, 20, 21, 22, 23, 24, 25, sep]
    assert batch.answers is not None and batch.answers.tolist() == [[5, 6], [0, 0], [IGNORE, IGNORE]]
    assert batch.candidates is not None
    assert batch.candidates.nonzero()[:, 1].tolist() == [0, *range(4, 10), 0, *range(3, 7), 0, *range(4, 10)]
    assert batch.token_types is not None and batch.token_types[1].tolist() == [0] * 3 + [1] * 5 + [0] * 3


def test_without_cls_the_first_separator_means_no_answer() -> None:
    task = task_of(window=12, stride=4, max_answer=2)
    batch = task.collate([(np.array([10, 11]), np.arange(20, 23), (NO_ANSWER, NO_ANSWER))])
    eos = task.text.vocabulary.eos
    assert batch.tokens[0].tolist() == [10, 11, eos, 20, 21, 22, eos]
    assert batch.answers is not None and batch.answers.tolist() == [[2, 2]]
    assert batch.candidates is not None and batch.candidates.nonzero()[:, 1].tolist() == [2, 3, 4, 5]


def test_a_window_has_the_first_answer_that_lies_whole_in_it() -> None:
    spans = np.array([0, 3, 8, 9])
    assert [span_within(spans, begin, begin + 5) for begin in (0, 1, 5, 9)] == [(0, 3), (-1, -1), (3, 4), (-1, -1)]
    assert span_within(np.array([-1, -1]), 0, 5) == (IGNORE, IGNORE)
    assert span_within(np.array([-1, -1, 2, 2]), 0, 5) == (2, 2)
    assert span_within(np.zeros(0, dtype=np.int64), 0, 5) == (NO_ANSWER, NO_ANSWER)


def test_the_loss_is_the_mean_of_two_cross_entropies() -> None:
    task = task_of("cls", "sep", window=12, stride=4, max_answer=2)
    model = model_of(task, "bert", max_length=16)
    rows = [(np.array([10, 11]), np.arange(20, 26), (1, 2)), (np.array([12]), np.arange(30, 33), (NO_ANSWER,) * 2),
            (np.array([12]), np.arange(30, 33), (IGNORE,) * 2)]  # fmt: skip
    batch = task.collate(rows)
    with torch.no_grad():
        logits, _ = task.logits(model, batch)
    expected = 0.0
    for row, (begin, end) in enumerate(batch.answers.tolist()[:2]):  # type: ignore[union-attr]
        places = batch.candidates[row].nonzero()[:, 0]  # type: ignore[index]
        for side, gold in enumerate((begin, end)):
            shares = logits[row, side, places].softmax(0)
            expected -= float(shares[places.tolist().index(gold)].log()) / 2
    loss = task.loss(model, batch, None)
    assert float(loss.sums["loss"].detach()) == pytest.approx(expected, rel=1e-5)
    assert task.counts(batch)["loss"] == 2


def test_rows_that_fill_up_a_batch_have_no_gradient() -> None:
    head, vectors = SpanHead(4), torch.randn(2, 3, 4)
    logits = head(vectors, torch.tensor([[True, True, False], [False] * 3]))
    answers = torch.tensor([[0, 1], [IGNORE, IGNORE]])
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), answers.flatten(), ignore_index=IGNORE).backward()
    assert head.linear.weight.grad is not None and head.linear.weight.grad.isfinite().all()
    assert (logits[1] == torch.finfo(torch.float32).min).all()


def questions(folder: Path, *, missing: bool = False) -> Path:
    """A SQuAD file: the answer is the word after the one that is asked for; with `missing` every third has none."""
    paragraphs = []
    for number in range(30):
        context = " ".join(WORDS[(number * 7 + k) % 30] for k in range(9))
        word = context.split()[number % 7]
        answer = context.split()[number % 7 + 1]
        given = [{"text": answer, "answer_start": context.index(f" {answer}") + 1}]
        none = missing and number % 3 == 0
        asked = {"id": f"q{number}", "question": "w39" if none else word, "answers": given, "is_impossible": none}
        paragraphs.append({"context": context, "qas": [asked]})
    path = folder / "my.json"
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}), "utf-8")
    return path


QUICK = ("task.name=question_answering", "task.window=32", "task.stride=8", "task.max_answer=3", "text.unit=space",
         "train.workers=0", "model.size=tiny", "train.precision=fp32", "train.threads=1")  # fmt: skip


def trained(folder: Path, *changes: str, missing: bool = False) -> Any:
    path = questions(folder, missing=missing)
    built = read("rnn_tagger", [*QUICK, f"data.train={path}", f"data.valid={path}", f"data.test={path}", *changes])
    return load(train(built.build(), Options(folder=folder / "run", device="cpu", quiet=True)).folder, device="cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Trained on a SQuAD file until it knows the answers."""
    return trained(
        tmp_path_factory.mktemp("qa"), "train.epochs=60", "optimizer.learning_rate=0.02", "schedule.name=constant"
    )


def test_it_learns_and_cuts_answers_out_of_the_text(model: Any) -> None:
    context = "  w1 \n w8, w3  w4 "
    found = model.answer("w8,", context, nbest=4)
    assert found.answer == context[found.start : found.end] and len(found.nbest) == 4
    assert all(each.text == context[each.start : each.end] == each.text.strip() for each in found.nbest)
    shares = [each.probability for each in found.nbest]
    assert shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1.0001 and str(found) == found.answer
    several = model.answer(["w1", "w8,"], context)
    assert [each.question for each in several] == ["w1", "w8,"] and several[1].answer == found.answer


def test_probabilities_of_all_spans_sum_to_one(model: Any) -> None:
    found = model.answer("w1", "w1 w2 w3 w4 w5", nbest=99)
    assert len(found.nbest) == 5 + 4 + 3 and sum(each.probability for each in found.nbest) == pytest.approx(1.0)


def test_scores_after_training(model: Any) -> None:
    rows = [("w7", "w7 w8 w9", "w8"), ("w7", "w1 w2 w3", '["w9", "w2 w3"]')]
    with pytest.raises(UserError, match="is not in its context") as caught:
        model.evaluate(rows)
    assert caught.value.where == "row 2"
    scores, outputs = model.evaluate([("w7", "w7 w8 w9 w10 w11 w12", "w8")])
    assert [each.name for each in scores] == ["EM", "F1"] and len(outputs) == 1


def test_batched_is_single_and_padding_changes_nothing(model: Any) -> None:
    pairs = [("w1", " ".join(WORDS[:n])) for n in (3, 30, 12)]
    together = model.answer([q for q, _ in pairs], [c for _, c in pairs])
    for (question, context), found in zip(pairs, together, strict=True):
        alone = model.answer(question, context)
        assert alone.answer == found.answer and alone.probability == pytest.approx(found.probability, abs=1e-4)


def test_questions_without_an_answer(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="10 of 30 questions have no answer") as caught:
        trained(tmp_path, "train.steps=1", missing=True)
    assert "task.no_answer=true" in (caught.value.todo or "")
    path = tmp_path / "two"
    path.mkdir()
    model = trained(path, "task.no_answer=true", "train.epochs=40", "optimizer.learning_rate=0.02",
                    "schedule.name=constant", missing=True)  # fmt: skip
    context = " ".join(WORDS[:9])
    found = model.answer("w39", context, nbest=3)
    assert (found.answer, found.start) == ("", None) and found.probability == found.no_answer > 0.5
    assert found.no_answer + sum(
        each.probability for each in model.answer("w39", context, nbest=99).nbest
    ) == pytest.approx(1.0)
    model.calibration = Calibration(1.0, (1e9,))
    assert model.answer("w39", context).answer != ""
    rows = [("w39", context, ""), ("w1", context, "w2")]
    fitted = model.fit_calibration(rows)
    model.calibration = fitted
    scores, outputs = model.evaluate(rows)
    assert {each.name: each.value for each in scores}["EM unanswerable"] == 100.0 and outputs[0] == ""


@pytest.mark.parametrize(
    ("question", "context", "message"),
    [
        ("", "w1", "the question is empty"),
        ("w1", " \n ", "the context is empty"),
        (" ".join(WORDS), "w1 w2", "a question has 40 tokens, and task.window = 32"),
    ],
)
def test_what_cannot_be_answered_is_refused(model: Any, question: str, context: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        model.answer(question, context)
    assert caught.value.todo


def test_what_does_not_belong_together_is_refused(model: Any) -> None:
    with pytest.raises(UserError, match="2 questions, but 1 contexts"):
        model.answer(["w1", "w2"], ["w1"])
    with pytest.raises(UserError, match="nbest = 0"):
        model.answer("w1", "w1", nbest=0)


def test_models_that_cannot_are_refused() -> None:
    task = task_of("cls", "sep", window=32)
    with pytest.raises(UserError, match="modern_gpt encodes no text"):
        model_of(task, "modern_gpt")
    with pytest.raises(UserError, match="char_cnn has no vector for a single token"):
        model_of(task, "char_cnn")
    with pytest.raises(UserError, match="task.window = 32 is longer than the 16 positions of bert") as caught:
        model_of(task, "bert", max_length=16)
    assert "task.window=16" in (caught.value.todo or "")


def test_long_questions_can_be_cut() -> None:
    task = task_of("cls", "sep", window=16, max_question=4)
    reading = question_reading.read(task, " ".join(WORDS), "w1 w2 w3", {})
    assert [len(question) for _, question, _, _ in question_reading.cut(task, reading, None)] == [4]
    (scored,) = question_reading.score_spans(task, model_of(task), [reading])
    assert np.isfinite(scored.table[0, 0])


def test_offsets_hold_no_white_space() -> None:
    tokenizer = Tokenizer.train(["a b"], TextConfig(unit="word"))
    assert offsets_of(tokenizer, "a  b")[1].tolist() == [[0, 1], [2, 2], [3, 4]]
