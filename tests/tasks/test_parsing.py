"""Parsing as translation: sentences in, linear trees out, and the brackets decide which weights are kept."""

from __future__ import annotations

import json
from pathlib import Path

from commands.running import TINY, mallang, metrics

TREES = {
    "Minsu ate an apple.": "(S (NP XX )NP (VP XX (NP XX XX )NP )VP )S",
    "Yuna took the ship.": "(S (NP XX )NP (VP XX (NP XX XX )NP )VP )S",
    "Yuna is hungry.": "(S (NP XX )NP (VP XX (ADJP XX )ADJP )VP )S",
    "Is she a singer?": "(SQ XX (NP XX )NP (NP XX XX )NP )SQ",
}
OPTIONS = (*TINY, "text.unit=word", "decoding.max_ratio=10", "train.metric=brackets", "train.workers=0")


def test_trees_are_learned_and_brackets_decide(tmp_path: Path) -> None:
    rows = "".join(f"{text}\t{tree}\n" for text, tree in TREES.items())
    for name in ("train", "valid"):
        (tmp_path / f"{name}.tsv").write_text(rows, "utf-8")
    ended = mallang("train", "transformer", *OPTIONS, "train.steps=400", "train.validate_every=200", cwd=tmp_path)
    assert ended.code == 0, ended.err
    run = tmp_path / "runs" / "transformer"
    assert [entry["brackets"] for entry in metrics(run) if "brackets" in entry][-1] == 100
    scores = json.loads(mallang("evaluate", run, "--json", cwd=tmp_path).out)
    named = {score["name"]: score["value"] for score in scores}
    assert named["bracket F1"] == named["whole trees"] == named["exact match"] == 100 and "BLEU" not in named
    parsed = mallang("translate", run, "Yuna is hungry.", cwd=tmp_path)
    assert parsed.out.strip() == TREES["Yuna is hungry."]


def test_brackets_of_plain_text_are_refused(tmp_path: Path) -> None:
    for name in ("train", "valid"):
        (tmp_path / f"{name}.tsv").write_text("a b\tc d\ne f\tg h\n", "utf-8")
    ended = mallang("train", "transformer", *OPTIONS, "train.steps=2", cwd=tmp_path)
    assert ended.code == 2 and "is not a parse tree: 'c d'" in ended.err and "Traceback" not in ended.err
