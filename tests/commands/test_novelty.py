"""`mallang novelty`: texts, files and samples against corpora, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands.running import Ended, mallang

CORPUS = "민수는 사과를 먹는다.\nThe dog sat on the mat.\n유나는 물을 본다 그리고 책을 산다.\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "corpus.txt").write_text(CORPUS, "utf-8")
    (tmp_path / "more.txt").write_text("그는 잔다.\n", "utf-8")
    (tmp_path / "more.tsv").write_text("ko\ten\n그는 잔다.\tHe sleeps.\n", "utf-8")
    (tmp_path / "texts.txt").write_text("민수는 사과를 먹는다.\n\nA dog sat on the hat.\n", "utf-8")
    return tmp_path


def refused(ended: Ended, *words: str) -> None:
    assert ended.code == 2 and "Traceback" not in ended.err, ended
    for word in words:
        assert word in ended.err, ended.err


def test_what_is_found_is_marked_and_named(home: Path) -> None:
    arguments = ("novelty", "--file", "texts.txt", "--corpus", "corpus.txt", "--corpus", "more.txt", "--least", "3")
    ended = mallang(*arguments, cwd=home)
    assert ended.code == 0, ended.err
    first, second, *_ = ended.out.splitlines()
    assert first == "= ⟦민수는 사과를 먹는다.⟧"  # = is a whole line
    assert second == "  A ⟦dog sat on the⟧ hat."
    assert "whole lines found: 1 of 2 (50.00 %)" in ended.out
    assert "corpus.txt, line 2" in ended.out and "unit:word" in ended.out
    assert "2 texts against corpus.txt + more.txt: 4 rows" in ended.err


def test_json_has_numbers_and_places(home: Path) -> None:
    ended = mallang(
        "novelty", "He sleeps.", "--corpus", "more.tsv", "--column", "en", "--json", "--least", "2", cwd=home
    )
    found = json.loads(ended.out)
    (text,) = found["texts"]
    assert text["is_row"] and text["longest"]["where"] == "more.tsv, row 1" and text["longest"]["units"] == 3
    assert [score["name"] for score in found["scores"]][:2] == ["1-grams found", "2-grams found"]
    same = mallang(
        "novelty", "--corpus", "more.tsv", "--column", "en", "--json", "--least", "2", cwd=home, text="He sleeps.\n"
    )
    assert json.loads(same.out) == found


def test_characters_and_lines_that_go_on(home: Path) -> None:
    arguments = ("novelty", "먹는다.The dog", "--corpus", "corpus.txt", "--unit", "char", "--least", "5", "-q")
    apart, joined = mallang(*arguments, cwd=home), mallang(*arguments, "--across-lines", cwd=home)
    assert "7 characters: The dog" in apart.out
    assert "11 characters: 먹는다.The dog" in joined.out and "corpus.txt, line 1" in joined.out


def test_miniworld_by_name(tmp_path: Path) -> None:
    ended = mallang(
        "novelty", "유나는 지난주에 배를 탔다.", "--corpus", "miniworld-topics", "--split", "test", cwd=tmp_path
    )
    assert ended.code == 0 and "against miniworld-topics test: 48 rows" in ended.err, ended.err


def test_samples_of_a_run_against_what_it_learned(writer: Path) -> None:
    home = writer.parent.parent
    arguments = ("novelty", "--run", "runs/gpt", "--samples", "20", "--json")
    found = json.loads(mallang(*arguments, cwd=home).out)
    assert len(found["texts"]) == 20 and found["corpus_rows"] == 300
    assert len({text["text"] for text in found["texts"]}) > 3
    lines = (home / "train.txt").read_text("utf-8").splitlines()
    for text in found["texts"]:
        assert text["is_row"] == (text["text"] in lines)
        if text["longest"]:
            name, _, number = text["longest"]["where"].rpartition(" ")
            assert name == "train.txt, line" and text["longest"]["text"] in lines[int(number) - 1]
    assert found == json.loads(mallang(*arguments, cwd=home).out)
    other = mallang(*arguments, "--search", "seed=2", cwd=home)
    assert json.loads(other.out)["texts"] != found["texts"]
    tokens = mallang("novelty", lines[0], "--run", "runs/gpt", "--unit", "token", "-q", cwd=home)
    assert "whole lines found: 1 of 1" in tokens.out and "unit:token (bpe)" in tokens.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["물"], ["nothing to look in", "--corpus NAME or FILE"]),
        (["물", "--corpus", "corpus.text"], ["no file corpus.text", "corpus.txt"]),
        (["물", "--corpus", "miniwrld"], ["no corpus 'miniwrld'", "did you mean miniworld"]),
        (["물", "--corpus", "corpus.txt", "--unit", "letter"], ["compared by 'letter'", "word"]),
        (["물", "--corpus", "corpus.txt", "--unit", "token"], ["tokenizer of a run", "--run RUN"]),
        (["물", "--corpus", "corpus.txt", "--orders", "0"], ["at least 1 unit"]),
        (["물", "--corpus", "corpus.txt", "--samples", "3"], ["--samples needs a run"]),
        (["물", "--corpus", "corpus.txt", "--search", "seed=2"], ["--search has no effect"]),
        (["물", "--corpus", "corpus.txt", "--split", "test"], ["--split test has no effect", "corpus.txt"]),
        (["물", "--corpus", "more.tsv", "--column", "de"], ["no column 'de'"]),
        (["물", "--file", "texts.txt", "--corpus", "corpus.txt"], ["both given"]),
        ([" ", "--corpus", "corpus.txt"], ["no text to examine"]),
        (["물", "--run", "runs/none"], ["no run folder"]),
    ],
)
def test_what_cannot_be_done(home: Path, arguments: list[str], words: list[str]) -> None:
    refused(mallang("novelty", *arguments, cwd=home), *words)


def test_what_a_run_cannot_do(trained: Path, writer: Path) -> None:
    home = trained.parent.parent
    refused(
        mallang("novelty", "--run", trained, "--samples", "2", cwd=home),
        "trained for translation",
        "a run for language modeling",
    )
    refused(mallang("novelty", "--run", writer, "--samples", "0", cwd=home), "nothing to look at")
    refused(mallang("novelty", "물", "--run", writer, "--samples", "2", cwd=home), "both given")
    refused(mallang("novelty", "물", "--run", writer, "--corpus", "train.tsv", cwd=home), "--run", "has no effect")
    outputs = mallang("novelty", "Minsu sees cats.", "--run", trained, "-q", cwd=home)
    assert "1-grams found      100.00 %" in outputs.out  # a translation, against the target side it learned from
