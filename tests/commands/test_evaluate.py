"""`mallang evaluate`: every number with its signature, and the outputs it was counted on."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from commands.running import mallang


def test_scores_have_signatures_and_are_kept(run: Path) -> None:
    home = run.parent.parent
    ended = mallang("evaluate", run, "--json", cwd=home)
    assert ended.code == 0, ended.err
    scores = json.loads(ended.out)
    assert all(score["signature"] for score in scores)
    kept = json.loads((run / "scores" / "test.json").read_text("utf-8"))
    assert kept["scores"] == scores
    pairs = [line.split("\t") for line in (home / "valid.tsv").read_text("utf-8").splitlines()]
    outputs = (run / "outputs" / "test.txt").read_text("utf-8").splitlines()
    translated = mallang("translate", run, cwd=home, text="".join(f"{source}\n" for source, _ in pairs))
    assert translated.out.splitlines() == outputs
    by_name = {score["name"]: score for score in scores}
    expected = BLEU().corpus_score(outputs, [[target for _, target in pairs]]).score
    assert by_name["BLEU"]["value"] == pytest.approx(expected)
    assert by_name["BLEU"]["low"] <= expected <= by_name["BLEU"]["high"]
    valid = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines() if "valid" in line]
    best = min(entry["nll"] for entry in valid)
    perplexity = next(score for score in scores if "perplexity" in score["name"] and "token" in score["name"])
    assert perplexity["value"] == pytest.approx(math.exp(best), rel=1e-4)


def test_ones_own_pairs_and_another_search(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").write_text("민수는 물을 산다.\tMinsu buys water.\n지호는 책을 본다.\tJiho sees books.\n")
    ended = mallang("evaluate", run, "--data", "mine.tsv", "--search", "method=greedy", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "2 pairs of data-mine" in ended.err
    first = ended.out.splitlines()[0]
    assert first.startswith("BLEU 100.00")
    assert "tok:13a" in first
    assert (run / "outputs" / "data-mine.txt").read_text("utf-8") == "Minsu buys water.\nJiho sees books.\n"
    assert json.loads((run / "scores" / "data-mine.json").read_text("utf-8"))["search"] == {"method": "greedy"}


def test_a_split_and_ones_own_pairs_exclude_each_other(trained: Path) -> None:
    both = mallang("evaluate", trained, "--split", "valid", "--data", "valid.tsv", cwd=trained.parent.parent)
    assert both.code == 2 and "--split and --data were both given" in both.err and "Traceback" not in both.err
