"""`--int8`: the commands that take it, and where it is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from commands.running import mallang
from mallang.errors import UserError
from mallang.loading import check_weights

SENTENCES = ("민수는 물을 산다.", "지호는 책을 본다.")


def test_translate_says_the_same(trained: Path) -> None:
    plain = mallang("translate", trained, "--scores", *SENTENCES, cwd=trained)
    rounded = mallang("translate", trained, "--scores", *SENTENCES, "--int8", cwd=trained)
    assert (rounded.code, rounded.err) == (0, "")
    (scores, texts), (other_scores, other_texts) = (
        zip(*(line.split("\t") for line in ended.out.splitlines()), strict=True) for ended in (plain, rounded)
    )
    assert texts == other_texts
    assert scores != other_scores
    assert [float(x) for x in other_scores] == pytest.approx([float(x) for x in scores], abs=0.2)


def test_evaluate_writes_down_that_it_was_used(run: Path) -> None:
    scores = {}
    for options in ([], ["--int8"]):
        ended = mallang("evaluate", run, "--split", "valid", "--json", *options, cwd=run.parent.parent)
        assert ended.code == 0, ended.err
        kept = json.loads((run / "scores" / "valid.json").read_text("utf-8"))
        assert kept["search"] == ({"weights": "int8"} if options else {})
        scores[bool(options)] = kept["scores"][0]["value"]
    assert scores[True] == pytest.approx(scores[False], abs=2)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UserError, match="CPU"):
        check_weights("int8", torch.device("cuda", 0))
    check_weights("float32", torch.device("cuda", 0))
    with pytest.raises(UserError, match="int7"):
        check_weights("int7", torch.device("cpu"))
