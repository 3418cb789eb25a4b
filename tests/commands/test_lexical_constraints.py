"""Search features on the command line: ensembles, prefixes, required and forbidden words, coverage."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from commands.running import TINY, mallang

SENTENCE = "민수는 물을 산다."


@pytest.fixture(scope="module")
def second(trained: Path) -> Path:
    """A second run of the same recipe, with another seed."""
    ended = mallang(
        "train", "transformer", *TINY, "train.steps=60", "seed=2", "--name", "second", cwd=trained.parent.parent
    )
    assert ended.code == 0, ended.err
    return trained.parent / "second"


def output(trained: Path, *arguments: object) -> str:
    ended = mallang("translate", trained, SENTENCE, *arguments, cwd=trained)
    assert ended.code == 0, ended.err
    return ended.out.rstrip("\n")


def test_demands_on_all_texts(trained: Path) -> None:
    assert output(trained) == "Minsu buys water."
    assert output(trained, "--prefix", "Sora").startswith("Sora ")
    assert output(trained, "--prefix", "Sora", "--search", "method=greedy").startswith("Sora ")
    assert "buys" not in output(trained, "--forbid", "buys", "--forbid", "sees").split()
    both = output(trained, "--require", "likes", "--require", "apples")
    assert "likes" in both and "apples" in both
    assert output(trained, "--search", "coverage=0.2") == "Minsu buys water."


def test_demands_on_each_text(trained: Path, tmp_path: Path) -> None:
    lines = [
        {"text": SENTENCE, "require": ["cats"]},
        {"text": SENTENCE},
        {"text": SENTENCE, "prefix": "Jiho", "forbid": ["water"]},
    ]
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    ended = mallang("translate", trained, "--file", file, cwd=tmp_path)
    assert ended.code == 0, ended.err
    first, plain, third = ended.out.splitlines()
    assert "cats" in first and plain == "Minsu buys water."
    assert third.startswith("Jiho ") and not re.search(r"\bwater\b", third)
    found = [
        json.loads(line) for line in mallang("translate", trained, "-f", file, "--json", cwd=tmp_path).out.splitlines()
    ]
    assert [line["input"] for line in found] == [SENTENCE] * 3 and [line["output"] for line in found] == [
        first,
        plain,
        third,
    ]


def test_what_was_not_done_is_told(trained: Path) -> None:
    ended = mallang("translate", trained, SENTENCE, "--require", "漢字", cwd=trained)
    assert (ended.code, ended.out) == (0, "Minsu buys water.\n")
    assert "the required '漢字' is missing: the vocabulary cannot spell it" in ended.err
    line = json.loads(mallang("translate", trained, SENTENCE, "--require", "漢字", "--json", cwd=trained).out)
    assert "required '漢字' is missing" in line["note"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--require", "cats", "--search", "method=greedy"], ["required words need beam search", "method=beam"]),
        (["--prefix", "Minsu", "--forbid", "Minsu"], ["the prefix 'Minsu' holds 'Minsu'"]),
        (["--require", "cats", "--forbid", "cat*"], ["the required 'cats' holds 'cat*', which is forbidden"]),
        (["--require", "cats", "--search", "runner=plain"], ["runner = plain has no effect on required words"]),
        (["--search", "max_ratio=nan"], ["max_ratio is nan", "finite"]),
        (["--int8", "--search", "precision=bf16"], ["precision is bf16", "8-bit integers"]),
        (["--forbid", " "], ["forbid must be a list of words"]),
        (["--replace-unknown"], ["replace_unknown has no effect on the unit bpe"]),
        (["--lexicon", "words.tsv"], ["no effect without replace_unknown"]),
        (["--search", "coverage=0.2", "--search", "method=greedy"], ["coverage = 0.2 has no effect"]),
        (["--with", "nowhere"], ["there is no run folder nowhere"]),
    ],
    ids=lambda value: value[0].strip("-") if isinstance(value, list) else None,
)
def test_what_cannot_be_asked(trained: Path, arguments: list[str], words: list[str]) -> None:
    ended = mallang("translate", trained, SENTENCE, *arguments, cwd=trained)
    assert ended.code == 2 and "Traceback" not in ended.err
    for word in words:
        assert word in ended.err


def test_bad_lines_of_demands_are_named(trained: Path, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    for content, word in (
        ("{", "no JSON"),
        ('{"text": "a", "reqire": []}', "did you mean require"),
        ("[1]", "no text"),
    ):
        file.write_text(f'{{"text": "{SENTENCE}"}}\n{content}\n', encoding="utf-8")
        ended = mallang("translate", trained, "--file", file, cwd=tmp_path)
        assert ended.code == 2 and word in ended.err and "in.jsonl, line 2" in ended.err


def test_an_ensemble_of_two_runs(trained: Path, second: Path) -> None:
    joined = json.loads(mallang("translate", trained, SENTENCE, "--with", second, "--json", cwd=trained).out)
    scores = [
        float(mallang("score", run, SENTENCE, joined["output"], *others, cwd=trained).out)
        for run, others in ((trained, ["--with", second]), (second, ["--with", trained]), (trained, []), (second, []))
    ]
    assert scores[0] == pytest.approx(joined["score"], abs=1e-3)
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)  # the order of the runs does not matter
    # Normalizing a mean of logarithms can only add to it.
    assert scores[0] >= (scores[2] + scores[3]) / 2 - 1e-3


def test_an_ensemble_is_evaluated_under_a_name_of_its_own(run: Path, second: Path) -> None:
    plain = mallang("evaluate", run, "--json", cwd=run.parent.parent)
    joined = mallang("evaluate", run, "--with", second, "--json", cwd=run.parent.parent)
    assert plain.code == joined.code == 0, joined.err
    assert plain.out != joined.out
    assert (run / "outputs" / "test.txt").exists() and (run / "outputs" / "test+second.txt").exists()
    kept = json.loads((run / "scores" / "test+second.json").read_text("utf-8"))
    assert kept["search"]["with"] == [str(second)]
    assert "with" not in json.loads((run / "scores" / "test.json").read_text("utf-8"))["search"]
