"""`mallang translate` when all is well: where texts come from, in which order they leave, and what is told of them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from commands.running import clauses, mallang
from mallang.commands.outputs import several
from mallang.decoding.contract import Config
from mallang.decoding.options import change_search

SENTENCE = "민수는 물을 산다."


def texts(count: int) -> list[str]:
    """Sentences of mixed length, no two alike in order, blank ones among them."""
    draw = random.Random(7)
    made = [clauses(draw, draw.choice((1, 1, 2, 3)))[0] for _ in range(count)]
    for place in range(0, count, 50):
        made[place] = " " if place % 100 else ""
    return made


@pytest.fixture(scope="module")
def single(trained: Path) -> list[dict[str, object]]:
    """Forty texts translated one at a time."""
    lines = []
    for text in texts(600)[:200:25] + texts(600)[1:8]:
        ended = mallang("translate", trained, "--json", cwd=trained, text=text + "\n")
        assert ended.code == 0, ended.err
        lines.append(json.loads(ended.out))
    return lines


def test_it_has_learned_something(trained: Path) -> None:
    ended = mallang("translate", trained, SENTENCE, "지호는 책을 본다.", cwd=trained)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "Minsu buys water.\nJiho sees books.\n"


def test_arguments_file_and_standard_input_are_alike(trained: Path, tmp_path: Path) -> None:
    chosen = texts(6)
    (tmp_path / "in.txt").write_text("\n".join(chosen), encoding="utf-8")  # the last line does not end
    by_file = mallang("translate", trained, "--file", "in.txt", cwd=tmp_path)
    by_stdin = mallang("translate", trained, cwd=tmp_path, text="\r\n".join(chosen) + "\r\n")
    by_arguments = mallang("translate", trained, *chosen, cwd=tmp_path)
    assert by_file.code == by_stdin.code == by_arguments.code == 0
    assert by_file.out == by_stdin.out == by_arguments.out
    assert len(by_file.out.splitlines()) == 6


def test_an_empty_file_or_pipe_is_no_error_but_is_told(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "empty.jsonl").touch()
    told = "note: there was nothing to translate\n"
    for more, err in (
        ((), told),
        (("--file", "empty.txt"), told),
        (("-f", "empty.jsonl", "--json"), told),
        (("-q",), ""),
    ):
        ended = mallang("translate", trained, *more, cwd=tmp_path)
        assert (ended.code, ended.out, ended.err) == (0, "", err)
    blank = mallang("translate", trained, cwd=tmp_path, text="\n")
    assert (blank.code, blank.out, blank.err) == (0, "\n", "")  # a blank line is a text, and its output another


def test_order_is_kept_and_batching_changes_nothing(trained: Path, single: list[dict[str, object]]) -> None:
    chosen = texts(600)
    ended = mallang("translate", trained, "--json", cwd=trained, text="".join(f"{text}\n" for text in chosen))
    assert ended.code == 0, ended.err
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert [line["input"] for line in lines] == chosen
    for text, line in zip(chosen, lines, strict=True):
        assert bool(line["output"]) == bool(text.strip())
    together = {line["input"]: line for line in lines}
    assert len(single) > 10
    for alone in single:
        found = together[alone["input"]]
        assert found["output"] == alone["output"]
        assert found["tokens"] == alone["tokens"]
        assert found["score"] == pytest.approx(alone["score"], abs=1e-4)


def test_no_input_is_no_output(trained: Path) -> None:
    ended = mallang("translate", trained, cwd=trained)
    assert (ended.code, ended.out) == (0, "")


def test_json_tells_all(trained: Path) -> None:
    ended = mallang("translate", trained, SENTENCE, "--json", "--nbest", "3", cwd=trained)
    (line,) = map(json.loads, ended.out.splitlines())
    assert list(line) == ["input", "output", "score", "tokens", "nbest", "finished"]
    assert line["input"] == SENTENCE
    assert "".join(line["tokens"]).replace("▁", " ").strip() == line["output"] == "Minsu buys water."
    assert line["score"] < 0
    assert line["nbest"][0]["output"] == line["output"]
    scores = [each["score"] for each in line["nbest"]]
    assert len(scores) == 3
    assert scores == sorted(scores, reverse=True)


def test_nbest_and_scores_as_text(trained: Path) -> None:
    best = mallang("translate", trained, SENTENCE, "--scores", cwd=trained)
    value, output = best.out.rstrip("\n").split("\t")
    assert output == "Minsu buys water."
    assert float(value) < 0
    several = mallang("translate", trained, SENTENCE, "--scores", "--nbest", "3", cwd=trained)
    rows = [line.split("\t") for line in several.out.splitlines()]
    assert len(rows) == 3
    assert rows[0][1] == output
    assert len({row[1] for row in rows}) == 3
    wide = mallang("translate", trained, SENTENCE, "--nbest", "8", cwd=trained)  # more than the usual beam
    assert len(wide.out.splitlines()) == 8


@pytest.mark.parametrize(
    ("decoding", "options", "expected"),
    [
        (Config(beam=10), {}, Config(beam=10, nbest=3)),
        (Config(beam=2), {}, Config(beam=3, nbest=3)),
        (Config(beam=2), {"beam": 4}, Config(beam=4, nbest=3)),
        (Config(method="sampling"), {}, Config(method="sampling", nbest=3)),
        (Config(method="greedy"), {"method": "beam"}, Config(nbest=3)),
        (Config(beam=10), {"method": "sampling"}, Config(method="sampling", nbest=3)),
    ],
)
def test_several_outputs_do_not_narrow_the_search(decoding: Config, options: dict[str, Any], expected: Config) -> None:
    assert change_search(decoding, several(3, options, decoding)) == expected


def test_several_outputs_of_a_run_that_samples(run: Path) -> None:
    recipe = run / "recipe.toml"
    text = recipe.read_text("utf-8")
    assert text.count('method = "beam"') == 1
    recipe.write_text(text.replace('method = "beam"', 'method = "sampling"'), encoding="utf-8")
    ended = mallang("translate", run, SENTENCE, "--nbest", "8", cwd=run)
    assert (ended.code, len(ended.out.splitlines())) == (0, 8), ended.err


def test_scores_and_json_give_both(trained: Path) -> None:
    both = json.loads(mallang("translate", trained, SENTENCE, "--scores", "--json", cwd=trained).out)
    alone = json.loads(mallang("translate", trained, SENTENCE, "--json", cwd=trained).out)
    assert sum(both.pop("token_scores")) == pytest.approx(both["score"], abs=1e-5) and both == alone


def test_the_search_can_be_changed(trained: Path) -> None:
    greedy = mallang("translate", trained, SENTENCE, "--json", "--search", "method=greedy", cwd=trained)
    beam = mallang("translate", trained, SENTENCE, "--json", "--search", "beam=1", cwd=trained)
    assert json.loads(greedy.out)["tokens"] == json.loads(beam.out)["tokens"]
    first, again, other = (
        mallang(
            "translate", trained, SENTENCE, "--search", "method=sampling", "--search", f"seed={seed}",
            "--search", "temperature=5.0", cwd=trained,
        ).out
        for seed in (1, 1, 2)
    )  # fmt: skip
    assert first == again != other


def test_a_long_text_is_split_with_a_note(trained: Path) -> None:
    """The model was trained on at most 40 tokens: sentences are translated apart and joined again."""
    pieces = ["민수는 물을 산다.", "지호는 책을 본다.", "소라는 사과를 먹는다.", "유나는 고양이를 좋아한다."] * 5
    long = " ".join(pieces)
    ended = mallang("translate", trained, long, cwd=trained)
    assert ended.code == 0, ended.err
    assert "split into" in ended.err
    assert "longer than the model" in ended.err
    assert len(ended.out.splitlines()) == 1
    assert ended.out.count("Minsu buys water.") == ended.out.count("Jiho sees books.") == 5
    quiet = mallang("translate", trained, long, "-q", cwd=trained)
    assert (quiet.out, quiet.err) == (ended.out, "")
    line = json.loads(mallang("translate", trained, long, "--json", cwd=trained).out)
    assert "split into" in line["note"]
    assert line["output"] + "\n" == ended.out
    no_spaces = mallang("translate", trained, "물을" * 60, cwd=trained)  # nowhere to cut but within a word
    assert no_spaces.code == 0
    assert "split into" in no_spaces.err


def test_strange_texts_pass(trained: Path) -> None:
    """Characters never seen, emoji, decomposed Hangul, a special token spelled out: an output each, on its line."""
    strange = ["ñ漢字🙂", "<s></s><pad>", "민수는 물을 산다.", "a\u2028b\x0bc", "\ufeff물", "." * 30]
    ended = mallang("translate", trained, "--json", cwd=trained, text="\n".join(strange) + "\n")
    assert ended.code == 0, ended.err
    inputs = [json.loads(line)["input"] for line in ended.out.rstrip("\n").split("\n")]
    assert inputs == strange
