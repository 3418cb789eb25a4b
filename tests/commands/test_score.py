"""`mallang score`: what it says of an output is what `mallang translate` said when it found it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from commands.running import clauses, mallang


def test_the_score_of_an_output_is_its_own(trained: Path) -> None:
    draw = random.Random(3)
    text = "".join(f"{clauses(draw, draw.randint(1, 3))[0]}\n" for _ in range(60))
    lines = mallang("translate", trained, "--json", cwd=trained, text=text).out.splitlines()
    found = [json.loads(line) for line in lines]
    pairs = "".join(f"{each['input']}\t{each['output']}\n" for each in found)
    ended = mallang("score", trained, "--json", cwd=trained, text=pairs)
    assert ended.code == 0, ended.err
    scored = [json.loads(line) for line in ended.out.splitlines()]
    assert [each["source"] for each in scored] == [each["input"] for each in found]
    # An output may be spelt by other pieces than the tokenizer would take: then it is another sequence of tokens.
    # And one that was cut off has no `</s>` to be scored.
    pairs_found = zip(found, scored, strict=True)
    same = [(a, b) for a, b in pairs_found if a["tokens"] == b["tokens"][:-1] and "note" not in a]
    assert len(same) > 50
    for translated, given in same:
        assert given["score"] == pytest.approx(translated["score"], abs=1e-4)
        assert given["score"] == pytest.approx(sum(given["token_scores"]), abs=1e-4)
        assert len(given["tokens"]) == len(given["token_scores"])
        assert given["tokens"][-1] == "</s>"


def test_a_pair_a_file_and_standard_input_are_alike(trained: Path, tmp_path: Path) -> None:
    source, target = "민수는 물을 산다.", "Minsu buys water."
    (tmp_path / "pairs.tsv").write_text(f"{source}\t{target}\n{source}\tJiho sees books.\n", encoding="utf-8")
    by_file = mallang("score", trained, "--file", "pairs.tsv", cwd=tmp_path)
    by_stdin = mallang("score", trained, cwd=tmp_path, text=(tmp_path / "pairs.tsv").read_text("utf-8"))
    by_arguments = mallang("score", trained, source, target, cwd=tmp_path)
    right, wrong = by_file.out.splitlines()
    assert by_stdin.out == by_file.out
    assert by_arguments.out == f"{right}\n"
    assert 0 > float(right) > float(wrong) + 5


def test_an_empty_side_has_a_score(trained: Path) -> None:
    ended = mallang("score", trained, cwd=trained, text="\t\n물\t\n\twater\n")
    assert ended.code == 0, ended.err
    assert all(float(line) < 0 for line in ended.out.splitlines())
    assert len(ended.out.splitlines()) == 3
