"""The benchmark of pre-training: all systems compute the same on the same batches, without being timed."""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are not installed
from benchmarks import pretraining_entrants as entrants
from benchmarks import pretraining_speed
from benchmarks.contest import Outcome

pytest.importorskip("transformers")
TINY: dict[str, Any] = {"rows": 4, "length": 16, "count": 2, "device": "cpu", "threads": 1, "words": 60}


def fixed_batches(objective: str = "masked_lm") -> tuple[Any, list[Any]]:
    task = entrants.task_of(objective, 60, 16)
    return task, entrants.batches_of(task, "fixed", "", 4, 16, 2)


def test_fixed_batches_have_one_shape_and_fifteen_percent_masks() -> None:
    _, batches = fixed_batches()
    assert len(batches) == 2 and {tuple(batch.tokens.shape) for batch in batches} == {(4, 16)}
    assert {len(batch.masked) for batch in batches} == {round(0.15 * 4 * 14)}
    assert all((batch.lengths == 16).all() for batch in batches)


def test_lengths_are_those_of_reviews() -> None:
    found = entrants.lengths_of("reviews", 50_000, 200) - 2
    wanted = np.quantile(found, np.linspace(0, 1, len(entrants.REVIEWS)))
    assert np.abs(wanted[1:-1] - entrants.REVIEWS[1:-1]).max() <= 1
    assert found.mean() == pytest.approx(17.2, abs=0.5) and found.min() >= 1
    assert entrants.lengths_of("reviews", 50_000, 128).max() == 128


@pytest.mark.parametrize("how", ["buckets", "packed", "grouped", "random"])
def test_every_text_is_in_one_batch_of_about_the_same_size(how: str) -> None:
    task = entrants.task_of("masked_lm", 60, 64, "packed" if how == "packed" else "texts")
    lengths = entrants.lengths_of("reviews", 3000, 64)
    groups = entrants.groups_of(how, lengths, 1024, task)
    used = [number for batch in groups for row in batch for number in row]
    assert len(used) == len(set(used)) >= 3000 - round(1024 / lengths.mean())
    sizes = [sum(int(lengths[number]) for row in batch for number in row) for batch in groups]
    assert np.mean(sizes) == pytest.approx(1024, rel=0.2)
    assert any(len(row) > 1 for batch in groups for row in batch) == (how == "packed")
    if how == "grouped":
        spread = np.mean([np.std([lengths[number] for (number,) in batch]) for batch in groups])
        assert spread < 0.3 * lengths.std(), "texts of a batch have similar lengths"


def test_both_heads_of_theirs_have_one_loss_and_their_modules_are_as_large_as_ours() -> None:
    task, batches = fixed_batches()
    theirs = entrants.their_bert("tiny", 60, dropout=0.0).eval()
    tables = entrants.their_tables(batches[0], needs_mask=True)
    whole, masked = (float(entrants.LOSSES[name](theirs, tables).detach()) for name in ("whole", "masked"))
    assert whole == pytest.approx(masked, rel=1e-5)
    ours = entrants.our_model("masked_lm", "tiny", task)
    assert sum(each.numel() for each in ours.parameters()) == sum(each.numel() for each in theirs.parameters())
    electra = entrants.our_model("replaced_token", "electra-tiny", entrants.task_of("replaced_token", 60, 16))
    other = entrants.their_electra("electra-tiny", 60)
    assert sum(each.numel() for each in electra.parameters()) == sum(each.numel() for each in other.parameters())


def test_the_two_electra_losses_are_those_of_chance_at_first() -> None:
    """MLM and 50 times RTD: log of the vocabulary, and about log 2 for every token."""
    _, batches = fixed_batches("replaced_token")
    theirs = entrants.their_electra("electra-tiny", 60, dropout=0.0)
    tables = entrants.their_tables(batches[0], needs_mask=False)
    loss = entrants.replaced(theirs, tables)
    assert float(loss.detach()) == pytest.approx(log(60) + 50 * log(2), rel=0.1)
    loss.backward()
    words = theirs.discriminator.electra.embeddings.word_embeddings.weight
    assert words.grad is not None and words is theirs.generator.generator_lm_head.weight


def test_turns_count_the_tokens_without_padding() -> None:
    fixed = {**TINY, "kind": "fixed", "how": ""}
    assert entrants.ours("masked_lm", "tiny", **fixed)() == 2 * 4 * 16
    assert entrants.theirs("masked", "tiny", **fixed)() == entrants.theirs("whole", "tiny", **fixed)() == 2 * 4 * 16
    assert entrants.ours("replaced_token", "electra-tiny", **fixed)() == 2 * 4 * 16
    assert entrants.theirs("electra", "electra-tiny", **fixed)() == 2 * 4 * 16
    reviews = {**TINY, "rows": 16, "length": 32, "kind": "reviews"}
    for function, computes, how in (("ours", "masked_lm", "buckets"), ("ours", "masked_lm", "packed"),
                                    ("theirs", "whole", "grouped"), ("theirs", "whole", "random")):  # fmt: skip
        work = getattr(entrants, function)(computes, "tiny", how=how, **reviews)()
        assert work == int(work) and 0.5 * 2 * 512 < work <= 1.5 * 2 * 512, how


def test_ours_learns_from_these_batches() -> None:
    torch.manual_seed(1)
    task, (batch, _) = fixed_batches()
    model = entrants.our_model("masked_lm", "tiny", task, dropout=0.0)
    optimizer, losses = torch.optim.Adam(model.parameters(), 0.01), []
    for _ in range(30):
        optimizer.zero_grad()
        loss = task.loss(model, batch, None).sums["mlm"]
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_entrant_names_a_function_and_its_options(device: str) -> None:
    parts = pretraining_speed.parts_of("all", device)
    made = [
        pretraining_speed.entrant_of(name, part[1], system, device, 0, 0, 128, 2)
        for name, part in parts.items()
        for system in part[2]
    ]
    assert len({each.label for each in made}) == len(made) == (3 if device == "cpu" else 9)
    for each in made:
        module, _, function = each.place.partition(":")
        inspect.signature(getattr(import_module(module), function)).bind(**each.options)
    assert list(pretraining_speed.parts_of("reviews", "cuda")) == ["reviews"]
    with pytest.raises(ValueError, match="is one of all, fixed, reviews, electra"):
        pretraining_speed.parts_of("nothing", "cuda")


def test_ratios_are_to_the_first_system_of_transformers() -> None:
    outcomes = {
        "mallang": Outcome(30.0, 2**20, "a"), "transformers": Outcome(10.0, 2**21, "b"),
        "transformers, head on masked tokens": Outcome(20.0, 2**20, "c"),
    }  # fmt: skip
    assert [row[3] for row in pretraining_speed.rows_of(outcomes)] == [3.0, 1.0, 2.0]
    found = pretraining_speed.results_of("fixed", "a title", outcomes, "cuda", 5, 1.0, 2)
    assert "pretraining-cuda-fixed-transformers-head-on-masked-tokens" in found
    assert "3.0 times transformers|a" in str(found["pretraining-cuda-fixed-mallang"].signature)
