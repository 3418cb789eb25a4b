"""Reports on tags in Python: predictions are those of the verbs, and all that is shown follows from them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mallang.evaluation.spans import Span, span_scores
from mallang.evaluation.tag_predictions import TagPredictions
from mallang.inspection import tag_report as reporting
from mallang.inspection.reports import Report, as_plain_text, write_report
from mallang.inspection.tag_report import TagReport, tag_report
from mallang.tasks.tagger import Verbs
from tasks.test_tagging import ROWS, learn, model_of, task

GOLDS = [["B-PER", "I-PER", "O"], ["O", "B-LOC"], ["O", "O"]]
OUTPUTS = [["B-PER", "O", "O"], ["O", "B-PER"], ["O", "B-LOC"]]
FOUND = TagPredictions(
    [["안나", "Kim", "left"], ["to", "Seoul"], ["no", "name"]],
    GOLDS,
    OUTPUTS,
    [[0.5, 0.5, 0.5], [0.5, 0.9], [0.5, 0.6]],
    [{Span("PER", 0, 1): 0.7}, {Span("PER", 1, 2): 0.8}, {Span("LOC", 1, 2): 0.6}],
    "iob2",
)


@pytest.mark.parametrize("name", ["rnn_tagger", "lstm_crf"])
def test_predictions_are_those_of_the_verbs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    the_task = task()
    verbs = Verbs(the_task, learn(the_task, model_of(the_task, name), steps=8), None, 0)
    found = verbs.tag_predictions(ROWS)
    _, outputs = verbs.evaluate(ROWS)
    assert [" ".join(tags) for tags in found.outputs] == outputs and found.scheme == "iob1"
    for words, tags, shares, spans in zip(
        found.words, found.outputs, found.probabilities, found.confidences, strict=True
    ):
        tagged = verbs.tag([words])[0]
        assert tuple(tags) == tagged.tags and list(shares) == pytest.approx(tagged.probabilities, abs=1e-5)
        texts = {(span.type, " ".join(words[span.start : span.end])): sure for span, sure in spans.items()}
        assert texts == pytest.approx({(span.type, span.text): span.confidence for span in tagged.spans}, abs=1e-5)
    monkeypatch.setattr(reporting, "seen_in_training", lambda *_: (np.array([True, *[False] * 4]), ""))
    report = tag_report(Path("none"), verbs, ROWS, "test")
    assert report.outputs == outputs and len(report.parts["unseen"]) == 4 and "1 of 5 sentences are" in report.notes[0]
    expected = span_scores(found.outputs[1:], found.golds[1:])["F1"]
    assert report.measured["unseen"][2].value == expected.value


def test_all_that_is_shown_follows_from_the_predictions(tmp_path: Path) -> None:
    report = TagReport(name="test", found=FOUND, is_seen=np.array([False, True, False]))
    assert isinstance(report, Report)
    text = as_plain_text(report)
    assert "3 sentences" in text and "2 unseen" in text
    rows = [line.split() for line in text.splitlines()]
    assert all([kind, "0.00", "0.00", "0.00", "1"] in rows for kind in ("PER", "LOC"))
    kinds = report.to_json()["errors"]
    assert kinds == {"wrong type": 1, "wrong boundary": 1, "spurious": 1}
    assert [line[1] for line in report.errors()] == ["wrong type", "wrong boundary", "spurious"]
    assert next(report.errors()) == (2, "wrong type", "LOC", "PER", 0.8, 2, 2, "Seoul", "Seoul", "yes", "to Seoul")
    assert list(report.errors())[1][7:9] == ("안나 Kim", "안나")
    assert write_report(report, tmp_path)[-1] == "confusion.svg"
    plain = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert plain["confusion"] == {"classes": ["LOC", "PER", "–"], "table": [[0, 1, 0], [0, 1, 0], [1, 0, 0]]}
    assert plain["unseen"]["sentences"] == 2 and plain["seen"] == 1


def test_sentences_without_words_or_spans_have_a_report() -> None:
    nothing = TagPredictions([[], ["a"]], [[], ["O"]], [[], ["O"]], [[], [1.0]], [{}, {}], "iob2")
    report = TagReport(name="x", found=nothing)
    assert report.to_json()["types"] == {} and report.to_json()["seen"] is None and list(report.errors()) == []
    bare = TagReport(name="x", found=TagPredictions([[]], [[]], [[]], [[]], [{}], None))
    assert bare.to_json()["types"] == {} and "tag accuracy" in as_plain_text(bare)
