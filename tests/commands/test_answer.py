"""`mallang answer` and `mallang choose`, and runs trained on one's own files by the real commands."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from commands.running import as_served, mallang
from mallang.commands.answer import read_context, show
from mallang.errors import UserError
from mallang.tasks.answerer import Answered

QUICK = ("model.size=tiny", "text.unit=space", "train.epochs=1", "train.workers=0", "train.validate_every=99")
NAMES = ("Anna", "Bob", "Kim", "Lee")
PLACES = ("Seoul", "Busan", "Paris")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with questions as SQuAD, TSV and JSONL, and a run of each task."""
    folder = tmp_path_factory.mktemp("answers")
    rows = [(NAMES[n % 4], PLACES[n % 3]) for n in range(24)]
    contexts = [f"{name} lives in {place} ." for name, place in rows]
    paragraphs = [
        {
            "context": context,
            "qas": [{"id": str(n), "question": "Who ?", "answers": [{"text": name, "answer_start": 0}]}],
        }
        for n, (context, (name, _)) in enumerate(zip(contexts, rows, strict=True))
    ]
    folder.joinpath("my.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}), "utf-8")
    lines = [f"Where ?\t{context}\t{place}" for context, (_, place) in zip(contexts, rows, strict=True)]
    folder.joinpath("my.tsv").write_text("\n".join(["question\tcontext\tanswer", *lines]), "utf-8")
    choices = [json.dumps({"question": f"{n} w", "choices": ["a", "b"], "answer": "AB"[n % 2]}) for n in range(12)]
    folder.joinpath("my.jsonl").write_text("\n".join(choices), "utf-8")
    for task, data, name in (("question_answering", "my.json", "qa"), ("multiple_choice", "my.jsonl", "mc")):
        windows = ("task.window=24", "task.stride=8", "task.no_answer=true") if name == "qa" else ()
        model = "rnn_tagger" if name == "qa" else "rnn_classifier"
        splits = [f"data.{split}={data}" for split in ("train", "valid", "test")]
        given = [f"task.name={task}", *windows, *splits, *QUICK, "--name", name]
        done = mallang("train", model, *given, cwd=folder)
        assert done.code == 0, done.err
    return folder


def test_answers_as_lines_and_as_json(home: Path) -> None:
    text = "Bob lives in Paris ."
    asked = ("answer", "runs/qa", "--context", text, "Who ?", "Where ?")
    done = mallang(*asked, cwd=home)
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) == 2 and all(line in text for line in done.out.splitlines())
    found = [json.loads(line) for line in mallang(*asked, "--json", "--nbest", "3", cwd=home).out.splitlines()]
    assert [each["input"] for each in found] == ["Who ?", "Where ?"]
    assert found == as_served(home / "runs/qa", "answer", [("Who ?", text), ("Where ?", text)], nbest=3)
    for each in found:
        assert len(each["nbest"]) == 3 and 0.0 <= each["no_answer"] <= 1.0
        assert all(text[part["start"] : part["end"]] == part["text"] for part in each["nbest"])
    for context, question, part in ((text, " ", "question"), (" ", "Who ?", "context")):
        empty = mallang("answer", "runs/qa", "--context", context, question, "--json", cwd=home)
        assert empty.code == 2 and f"the {part} is empty" in empty.err and not empty.out
    lines = mallang(*asked[:-1], "--nbest", "3", cwd=home).out.splitlines()
    shares = [float(line.split("\t")[0]) for line in lines]
    assert len(lines) == 3 and shares == sorted(shares, reverse=True)


def test_answers_of_files(home: Path) -> None:
    home.joinpath("text.txt").write_text("Kim lives in Busan .\n", "utf-8")
    alone = mallang("answer", "runs/qa", "--context", "text.txt", "Who ?", cwd=home)
    assert alone.code == 0 and alone.out.strip() in "Kim lives in Busan ."
    for file in ("my.json", "my.tsv"):
        done = mallang("answer", "runs/qa", "--file", file, "--out", "found.txt", cwd=home)
        assert done.code == 0, done.err
        assert len(home.joinpath("found.txt").read_text("utf-8").splitlines()) == 24
    home.joinpath("other.json").write_text('[{"a": 1}]', "utf-8")
    done = mallang("answer", "runs/qa", "--file", "other.json", cwd=home)
    assert done.code == 2 and "not a SQuAD file" in done.err and "Traceback" not in done.err


def test_evaluating_fits_the_threshold_and_keeps_it(home: Path) -> None:
    done = mallang("evaluate", "runs/qa", "--data", "my.tsv", "--json", cwd=home)
    assert done.code == 0, done.err
    names = [score["name"] for score in json.loads(done.out)]
    assert names == ["EM", "F1"] and home.joinpath("runs/qa/calibration.json").is_file()
    assert len(home.joinpath("runs/qa/outputs/data-my.txt").read_text("utf-8").splitlines()) == 24
    again = mallang("evaluate", "runs/qa", "--split", "valid", cwd=home)
    assert again.out.startswith("EM ") and "was fitted on the 24 questions of valid" in again.err
    home.joinpath("bad.tsv").write_text("question\tcontext\tanswer\nWho ?\tAnna is here .\tBob\n", "utf-8")
    bad = mallang("evaluate", "runs/qa", "--data", "bad.tsv", cwd=home)
    assert bad.code == 2 and "'Bob' is not in its context" in bad.err and "bad.tsv, row 1" in bad.err


def test_choices(home: Path) -> None:
    done = mallang("choose", "runs/mc", "1 w", "a", "b", "--scores", cwd=home)
    assert done.code == 0, done.err
    assert {line.split("\t")[1] for line in done.out.splitlines()} == {"a", "b"}
    found = [
        json.loads(line)
        for line in mallang("choose", "runs/mc", "--file", "my.jsonl", "--json", cwd=home).out.splitlines()
    ]
    assert len(found) == 12 and all(each["output"] in ("a", "b") and each["name"] in "AB" for each in found)
    assert found[:1] == as_served(home / "runs/mc", "choose", [(found[0]["input"], ("a", "b"))])
    scored = mallang("evaluate", "runs/mc", "--data", "my.jsonl", cwd=home)
    assert scored.code == 0 and scored.out.startswith("accuracy "), scored.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("answer", "runs/qa", "Who ?"), "there is no context"),
        (("answer", "runs/qa", "--context", "x"), "there is no question"),
        (("answer", "runs/qa", "--file", "my.tsv", "Who ?"), "--file has questions and contexts of its own"),
        (("answer", "runs/qa", "--context", "  ", "Who ?"), "the context is empty"),
        (("answer", "runs/mc", "--context", "x", "Who ?"), "was trained for multiple choice"),
        (("choose", "runs/mc", "1 w", "a"), "there are 1 choices"),
        (("choose", "runs/mc"), "there is no question"),
        (("evaluate", "runs/qa", "--explain", "1"), "what runs/qa gives are answers"),
        (("evaluate", "runs/mc", "--report", "r"), "--report is for runs that give labels or tags"),
    ],
)
def test_mistakes_have_one_clear_message(home: Path, arguments: tuple[str, ...], message: str) -> None:
    done = mallang(*arguments, cwd=home)
    assert done.code == 2 and message in done.err and "Traceback" not in done.err


def test_a_context_is_a_file_or_a_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n", "utf-8")
    assert read_context(str(path)) == "one\ntwo" and read_context("one two") == "one two"
    assert read_context("long " * 500) == "long " * 500


def test_on_a_terminal_the_answer_is_marked_in_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Escape sequences of ours are there, those of a context are not."""
    context = "Kim\x1b[2J lives in Seoul ."
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    start = context.index("Seoul")
    show(Answered("Where ?", context, "Seoul", start, start + 5, 0.5))
    shown = stream.getvalue()
    assert "\x1b[7mSeoul\x1b[0m" in shown and "0.50" in shown and "\x1b[2J" not in shown and "\\u001b[2J" in shown
    show(Answered("Why ?", context, "", None, None, 0.75, 0.75))
    assert "no answer" in stream.getvalue()


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_context_that_is_the_name_of_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no file .*nothing\.txt"):
        read_context(str(tmp_path / "nothing.txt"))
    assert read_context("She wrote to notes.txt") == "She wrote to notes.txt"


def test_a_run_for_neither_numbers_nor_vectors_is_told_of_similarity(home: Path) -> None:
    ended = mallang("similarity", "runs/qa", "a", "b", cwd=home)
    assert ended.code == 2 and "`mallang similarity` needs" in ended.err, ended
