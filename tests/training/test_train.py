"""Choosing the weights a run ends with, and the sample that tokenizers learn from."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mallang.data.corpus import Rows
from mallang.data.loader import BatchDataset, BatchRequest, Position
from mallang.find import find
from mallang.models.contract import longest_of
from mallang.recipe import read
from mallang.training import checkpoint
from mallang.training.checkpoint import Checkpoint
from mallang.training.finishing import final_weights
from mallang.training.materials import Materials, learn_tokenizers, prepare_data, thin
from mallang.training.options import Config
from mallang.training.train import source_of


def choose(folder, best_step, **options):
    said = []
    weights = final_weights(folder, Config(**options), best_step, said.append)
    return float(weights["w"][0]), said


@pytest.fixture
def folder(tmp_path):
    for step in (1, 2, 3):
        tensors = {"model": {"w": torch.full((2,), float(step))}, "average": {"w": torch.full((2,), step + 0.5)}}
        checkpoint.write(tmp_path, Checkpoint(step, {"validated": True}, {**tensors, "optimizer": {}}))
    return tmp_path


def damage(folder, step):
    (folder / checkpoint.name_of(step) / "model.safetensors").write_bytes(b"broken")


def test_each_kind_of_final_weights(folder):
    assert choose(folder, 2, final="last")[0] == 3.5, "the mean, of a training that keeps one"
    assert choose(folder, 2, final="ema", ema_decay=0.9)[0] == 3.5
    assert choose(folder, 2, final="best", ema_decay=0.9)[0] == 2.5, "what was validated was the moving average"
    assert choose(folder, 2, final="average", keep=2)[0] == 2.5
    assert choose(folder, 2, final="average", keep=3)[0] == 2.0


def test_without_a_mean_the_last_weights_are_the_last(tmp_path):
    for step in (1, 2):
        tensors = {"model": {"w": torch.full((2,), float(step))}, "optimizer": {}}
        checkpoint.write(tmp_path, Checkpoint(step, {"validated": True}, tensors))
    assert choose(tmp_path, 1, final="last")[0] == 2.0 and choose(tmp_path, 1, final="best")[0] == 1.0


def test_a_damaged_checkpoint_is_passed_over_at_the_end(folder):
    damage(folder, 2)
    value, said = choose(folder, 2, final="best", ema_decay=0.9)
    assert value == 3.5 and "damaged" in said[0]
    value, said = choose(folder, 3, final="average", keep=3)
    assert value == 2.0 and "damaged" in said[0], "the mean of the first and the third"


@given(st.integers(1, 500), st.integers(1, 60))
def test_a_sample_is_even_bounded_and_begins_at_the_first_row(count, most):
    kept = [int(text) for (text,) in thin(((str(i),) for i in range(count)), most)]
    assert 1 <= len(kept) <= most and kept[0] == 0
    assert len(kept) >= min(count, (most + 1) // 2)
    steps = {b - a for a, b in pairwise(kept)}
    assert len(steps) <= 1, "every k-th row"


def test_each_side_is_cut_by_its_own_unit():
    recipe = read("transformer-miniworld", ["text.source_unit=syllable", "text.vocabulary=100"]).build()
    rows = Rows.of([("나는 먹었다.", "I ate."), ("너는 갔다.", "You went.")], ("source", "target"))
    tokenizers = learn_tokenizers(recipe, rows, ("source", "target"))
    assert [tokenizers[side].config.unit for side in ("source", "target")] == ["syllable", "bpe"]
    assert tokenizers["source"].encode("나는").tokens == ["나", "는"]
    assert tokenizers["target"].encode("I ate.").tokens == ["▁I", "▁ate", "."]


class Planner:
    """A task that remembers how it was asked for batches."""

    prepare = examples = staticmethod(lambda *given: [])

    def plan(self, rows, **options):
        self.asked = options
        return []


@pytest.mark.parametrize(
    ("device", "engine", "rounded"), [("cpu", "eager", False), ("cuda", "eager", False), ("cuda", "cuda-graphs", True)]
)
def test_lengths_are_rounded_up_only_for_engines_that_prepare_for_each_shape(device, engine, rounded):
    """Elsewhere a batch has no more padding than it needs."""
    recipe = read("transformer-miniworld", [f"train.engine={engine}", "train.batch_sentences=7"]).build()
    materials = object.__new__(Materials)  # the text itself is not looked at
    task = Planner()
    for name, value in (("task", task), ("train", [])):
        object.__setattr__(materials, name, value)
    source = source_of(recipe, materials, torch.device(device))
    source.plan(3)
    assert (source.shapes is not None) is rounded
    assert task.asked["multiple"] == (source.shapes.multiple if rounded else 1)
    assert (task.asked["multiple"] > 1) is rounded
    assert task.asked["sentences"] == 7 and task.asked["epoch"] == 3


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("bert", []),
        ("transformer_encoder", ["model.positions=learned"]),
        ("gpt", ["data.columns=[1]"]),
    ],
)
def test_no_batch_for_a_captured_graph_is_wider_than_the_positions_of_the_model(tmp_path, name, options):
    """Of ten positions, widths rounded up to eight and sixteen would leave the table."""
    rows = [f"{'말 ' * length}\t{'ab'[length % 2]}" for length in (1, 2, 3, 5, 7, 8, 8)]
    (tmp_path / "rows.tsv").write_text("\n".join(rows) + "\n", "utf-8")
    files = [f"data.{split}={tmp_path / 'rows.tsv'}" for split in ("train", "valid")]
    sizes = ["model.size=tiny", "model.max_length=10", "train.batch_tokens=24", "train.engine=cuda-graphs"]
    recipe = read(name, [*files, *sizes, "text.unit=space", "data.drop_duplicates=false", *options]).build()
    materials = prepare_data(recipe, None)
    model = materials.task.build(find("models", recipe.model_name), recipe.model)
    source = source_of(recipe, materials, torch.device("cuda"), longest=longest_of(model))
    dataset = BatchDataset(source)
    batches = [dataset[BatchRequest(0, 0, rows), Position()][0] for rows in source.plan(0)]
    assert {batch.tokens.shape[1] for batch in batches} == {8, 10}
    for batch in batches:
        assert materials.task.loss(model, batch, None).sums["loss"].isfinite()
