"""`mallang score`: what it says of an output is what `mallang translate` said when it found it; and texts alone."""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path

import pytest

from commands.running import as_served, clauses, mallang
from mallang.commands.score import paint, readable
from mallang.tasks.surprisal import Scored


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
    assert scored[:9] == as_served(trained, "score", [(each["input"], each["output"]) for each in found[:9]])
    answers = as_served(trained, "translate", [each["input"] for each in found[:9]])
    assert [{**each, "token_scores": None} for each in found[:9]] == [
        {**each, "token_scores": None} for each in answers
    ]
    # An output may be spelled by other pieces than the tokenizer would take: then it is another sequence of tokens.
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


# Language models score texts by themselves.


def test_a_text_is_scored_token_by_token(writer: Path, tmp_path: Path) -> None:
    texts = ["민수는 책을 본다.", "책을 책을 책을"]
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    by_file = mallang("score", writer, "--file", "texts.txt", "--json", cwd=tmp_path)
    assert by_file.code == 0, by_file.err
    right, wrong = map(json.loads, by_file.out.splitlines())
    assert [right, wrong] == as_served(writer, "score", texts)
    for each in (right, wrong):
        assert each["score"] == pytest.approx(sum(each["token_scores"]), abs=1e-6)
        assert each["bits"] == pytest.approx(-each["score"] / math.log(2), abs=1e-6)
        assert each["surprisals"] == pytest.approx([-score / math.log(2) for score in each["token_scores"]])
        assert len(each["tokens"]) == len(each["token_scores"]) and each["tokens"][-1] == "</s>"
    assert right["bits"] < wrong["bits"]
    assert mallang("score", writer, *texts, "--json", cwd=tmp_path).out == by_file.out
    assert mallang("score", writer, "--json", cwd=tmp_path, text="\n".join(texts)).out == by_file.out
    totals = mallang("score", writer, *texts, "--total", cwd=tmp_path).out.split()
    assert totals == [f"{each['score']:.4f}" for each in (right, wrong)]
    shown = mallang("score", writer, *texts, cwd=tmp_path).out.splitlines()
    assert len(shown) == 5 and shown[0].startswith(f"{right['score']:.4f} = {right['bits']:.2f} bits")
    assert shown[1].split("  ")[0] == f"{right['tokens'][0]} {right['surprisals'][0]:.2f}"
    assert shown[4].startswith(f"together  {right['score'] + wrong['score']:.4f}")
    assert "漢" in mallang("score", writer, "漢", cwd=tmp_path).err


@pytest.mark.parametrize("plain", [False, True], ids=["color", "NO_COLOR"])
def test_surprise_is_colored_at_a_terminal(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1") if plain else monkeypatch.delenv("NO_COLOR", raising=False)
    painted = [paint("물", bits) for bits in (0.0, 3.0, 7.0, 12.0, math.inf)]
    assert len(set(painted)) == (1 if plain else 4) and all("물" in each for each in painted)


def test_bytes_of_a_character_are_shown_as_one() -> None:
    scored = Scored("a물", -3.0, ("a", "ë", "¬", "¼", "</s>"), (0.0,) * 5, ((0, 1), (1, 2), (1, 2), (1, 2), (2, 2)))
    assert readable(scored) == ["a", "물", "·", "·", "</s>"]


def test_the_better_of_two_texts(writer: Path) -> None:
    good, bad = "민수는 책을 본다.", "민수는 책을 물을."
    for texts in ((good, bad), (bad, good)):
        ended = mallang("score", writer, *texts, "--compare", cwd=writer)
        assert ended.out.splitlines()[-1].startswith(f"better formed: {good}  (by ")
        line = json.loads(mallang("score", writer, *texts, "--compare", "--json", "--by", "token", cwd=writer).out)
        assert line["better"] == good and line["by"] == "token" and line["texts"] == list(texts)
        assert [line] == as_served(writer, "prefer", [texts], by="token")
    assert "equally probable" in mallang("score", writer, good, good, "--compare", cwd=writer).out


def test_minimal_pairs(writer: Path, tmp_path: Path) -> None:
    rows = [
        ("민수는 책을 본다.", "민수는 책을 물을.", "order"),
        ("소라는 물을 산다.", "소라는 산다 물을.", "order"),
        ("지호는 물을 물을 물을", "지호는 책을 산다.", "wrong"),
    ]
    (tmp_path / "pairs.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    ended = mallang("score", writer, "--pairs", "pairs.tsv", cwd=tmp_path)
    assert ended.code == 0, ended.err
    all_of_them, order, wrong = ended.out.splitlines()
    assert all_of_them.startswith("accuracy 66.67 [") and "by:total" in all_of_them and "3 pairs" in all_of_them
    assert order.startswith("accuracy of order 100.00") and wrong.startswith("accuracy of wrong 0.000")
    lines = mallang("score", writer, "--pairs", "pairs.tsv", "--json", "--by", "token", cwd=tmp_path).out.splitlines()
    *pairs, last = map(json.loads, lines)
    assert [pair["right"] for pair in pairs] == [True, True, False] and pairs[0]["kind"] == "order"
    assert last["scores"][0]["count"] == 3 and "by:token" in last["scores"][0]["signature"]


def test_unknown_tokens_of_pairs_are_counted(writer: Path, tmp_path: Path) -> None:
    known, strange = "민수는 책을 본다.\t민수는 책을 물을.\n", "漢 책을 본다.\t漢 字 책을.\n"
    (tmp_path / "known.tsv").write_text(known, encoding="utf-8")
    (tmp_path / "strange.tsv").write_text(known + strange, encoding="utf-8")
    lines = mallang("score", writer, *strange.strip().split("\t"), "--json", cwd=tmp_path).out.splitlines()
    assert [json.loads(line)["unknown"] for line in lines] == [["漢"], ["漢", "字"]]
    ended = mallang("score", writer, "--pairs", "strange.tsv", cwd=tmp_path)
    assert ended.code == 0 and ended.err.startswith("note: strange.tsv: 3 of "), ended.err
    assert ended.err.endswith(" tokens are unknown to the model, and read as <unk>: '漢', '字'\n")
    quiet = mallang("score", writer, "--pairs", "strange.tsv", "-q", cwd=tmp_path)
    assert (quiet.out, quiet.err) == (ended.out, "")
    assert mallang("score", writer, "--pairs", "known.tsv", cwd=tmp_path).err == ""
    as_json = mallang("score", writer, "--pairs", "strange.tsv", "--json", cwd=tmp_path)
    first, second, _ = map(json.loads, as_json.out.splitlines())
    assert as_json.err == "" and "unknown" not in first and second["unknown"] == ["漢", "漢", "字"]


def test_pairs_of_miniworld_are_at_hand(writer: Path) -> None:
    ended = mallang("score", writer, "--pairs", "miniworld-en", cwd=writer)
    assert ended.code == 0, ended.err
    assert [line.split()[0:3] for line in ended.out.splitlines()][1:] == [
        ["accuracy", "of", "agreement"],
        ["accuracy", "of", "article"],
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "size"), [("gpt-miniworld", ["model.size=tiny"]), ("rnn-lm-miniworld", [])])
def test_a_model_learns_which_particle_follows(recipe: str, size: list[str], tmp_path: Path) -> None:
    few = ("train.epochs=none", "train.steps=400", "train.validate_every=none")
    assert mallang("train", recipe, *size, *few, cwd=tmp_path).code == 0
    ended = mallang("score", tmp_path / "runs" / recipe, "--pairs", "miniworld-ko", "--json", cwd=tmp_path)
    assert json.loads(ended.out.splitlines()[-1])["scores"][0]["value"] > 95


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--compare"], "needs two texts, but 1"),
        (["a", "--pairs", "bad.tsv"], "both given"),
        (["--pairs", "bad.tsv"], "bad.tsv, line 2"),
        (["--pairs", "same.tsv"], "are the same"),
        (["--pairs", "empty.tsv"], "there are no pairs"),
        (["--pairs", "miniworld"], "miniworld"),
        (["a", "--by", "token"], "--by has no effect"),
        (["a", "b", "--compare", "--by", "tokens"], "did you mean token"),
        (["a", "--total", "--json"], "--total has no effect"),
        (["a", "--domain", "bible"], "--domain has no effect"),
        (["a", "--file", "bad.tsv"], "both given"),
        (["--file", "empty.tsv"], "empty.tsv has no lines"),
        (["--file", "empty.tsv", "--json"], "empty.tsv has no lines"),
        (["--file", "missing.tsv"], "cannot read missing.tsv"),
    ],
)
def test_bad_input(writer: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "bad.tsv").write_text("a\tb\na\n", encoding="utf-8")
    (tmp_path / "same.tsv").write_text("a\ta\n", encoding="utf-8")
    (tmp_path / "empty.tsv").touch()
    ended = mallang("score", writer, *arguments, cwd=tmp_path)
    assert ended.code == 2 and ended.err.startswith("mallang: ") and "Traceback" not in ended.err
    assert message in ended.err and not ended.out


def test_a_file_of_no_pairs(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.tsv").touch()
    ended = mallang("score", trained, "--file", "empty.tsv", cwd=tmp_path)
    assert ended.code == 2 and not ended.out
    assert ended.err.splitlines() == ["mallang: empty.tsv has no lines", "  try:   give a file with at least one line"]


def test_an_empty_pipe_has_no_scores(trained: Path, writer: Path) -> None:
    for run in (trained, writer):
        ended = mallang("score", run, cwd=run, text="")
        assert (ended.code, ended.out, ended.err) == (0, "", "note: there was nothing to score\n")


@pytest.mark.parametrize("flag", [["--compare"], ["--pairs", "x"], ["--by", "token"], ["--total"]])
def test_what_only_language_models_do_is_refused(trained: Path, flag: list[str]) -> None:
    ended = mallang("score", trained, "물", "water", *flag, cwd=trained)
    assert ended.code == 2 and f"{flag[0]} needs a language model" in ended.err
