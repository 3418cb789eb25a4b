"""The benchmark of kernels names kernels that there are, and every kernel has a line."""

import importlib
import re
from pathlib import Path

import pytest
import torch
from benchmarks import encoder_entrants
from benchmarks.ablation import LINES

from mallang.kernels import c_bag, c_library, dispatch, glove, varlen_attention
from mallang.models import bert
from mallang.text.vocabulary import PAD

KERNELS = Path(__file__).parents[1] / "src" / "mallang" / "kernels"
NAMES = {
    name
    for path in KERNELS.glob("*.py")
    for name in re.findall(r"(?:is_off|is_left_out|tried_once)\(\"([a-z0-9-]+)\"\)", path.read_text("utf-8"))
}


def test_every_kernel_has_an_end_to_end_line():
    measured = {kernel for line in LINES.values() for kernel in line.kernels}
    assert len(NAMES) > 15 and measured == NAMES == set(dispatch.NAMES)


def test_lines_are_of_one_device():
    for name, line in LINES.items():
        assert line.options["device"] == {"gpu": "cuda", "cpu": "cpu"}[name.split("-")[0]], name


@pytest.mark.parametrize(
    ("place", "options"),
    [
        ("bag_entrants:ours", {"texts": 40, "letters": 8, "orders": [1, 2], "device": "cpu"}),
        ("word_vectors_entrants:our_glove", {"words": 30, "dim": 4, "tokens": 200, "device": "cpu"}),
        ("word_vectors_entrants:ours", {"words": 30, "dim": 4, "tokens": 200, "device": "cpu"}),
    ],
)
def test_a_turn_of_a_fitted_model_does_all_its_work(place, options):
    module, name = place.split(":")
    turn = getattr(importlib.import_module(f"benchmarks.{module}"), name)(**options)
    assert turn() == turn() == options.get("texts", options.get("tokens"))


def test_a_turn_of_an_encoder_reads_batches_with_padding(monkeypatch):
    config = bert.Config(**bert.SIZES["tiny"])
    monkeypatch.setattr(bert, "Config", lambda: config)
    read = []
    monkeypatch.setattr(bert.Model, "encode", lambda model, batch: read.append(batch))
    turn = encoder_entrants.ours(texts=20, batch=8, longest=30, weights="bfloat16", device="cpu")
    assert turn() == 20 and sum(len(batch) for batch in read) == 20
    shares = [float(batch.lengths.sum()) / batch.tokens.numel() for batch in read]
    assert max(shares) < varlen_attention.PADDED  # else nothing would be saved
    assert all(int((batch.tokens != PAD).sum()) == int(batch.lengths.sum()) for batch in read)


@pytest.mark.parametrize("name", ["c-bag", "c-glove"])
def test_a_kernel_alone_can_be_left_out(name, monkeypatch):
    monkeypatch.delenv("MALLANG_KERNELS", raising=False)
    if c_library.library() is None or c_bag.library() is None:
        pytest.skip("there are no C functions here")
    called, nothing = [], torch.zeros(1, dtype=torch.float64)
    monkeypatch.setattr(glove, "c_glove_updates_", lambda *given: called.append("c-glove") or nothing)
    monkeypatch.setattr(c_bag, "compiled", lambda: called.append("c-bag"))

    def use():
        called.clear()
        table = glove.Table(torch.ones(2, 3), torch.ones(2, 3), 2)
        some = torch.zeros(1, dtype=torch.int32)
        glove.glove_updates_(table, table, glove.Entries(some, some, torch.ones(1), torch.ones(1)), 0.1, 1)
        c_bag.library()
        return set(called)

    assert use() == {"c-glove", "c-bag"}
    monkeypatch.setenv("MALLANG_KERNELS", f"-{name}")
    assert use() == {"c-glove", "c-bag"} - {name}
    monkeypatch.setenv("MALLANG_KERNELS", "-c-word-vectors")
    assert use() == {"c-glove", "c-bag"}
