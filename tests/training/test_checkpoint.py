"""A checkpoint is whole or not there, and a damaged one is never used."""

import json
import shutil
import subprocess
import sys

import pytest
import torch

from mallang.errors import UserError
from mallang.training import checkpoint
from mallang.training.checkpoint import Checkpoint, mean_weights


def make(step, value=1.0, validated=True):
    tensors = {"model": {"w": torch.full((3, 2), value)}, "optimizer": {"step/w": torch.tensor(float(step))}}
    return Checkpoint(step, {"validated": validated, "loss": 0.1 + 0.2}, tensors)


def test_what_is_written_is_read_bit_for_bit(tmp_path):
    path = checkpoint.write(tmp_path, make(7, 0.1))
    back = checkpoint.read(path)
    assert back.step == 7 and back.state == {"validated": True, "loss": 0.1 + 0.2}
    assert torch.equal(back.tensors["model"]["w"], torch.full((3, 2), 0.1))


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def truncate(path):
    path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("harm", [flip, truncate, lambda path: path.unlink()], ids=["flipped", "truncated", "removed"])
def test_a_damaged_one_is_passed_over(tmp_path, file, harm):
    checkpoint.write(tmp_path, make(1, 1.0))
    harm(checkpoint.write(tmp_path, make(2, 2.0)) / file)
    said = []
    newest = checkpoint.newest(tmp_path, said.append)
    assert newest is not None and newest.step == 1
    assert "step-000000002" in said[0] and "damaged" in said[0]
    with pytest.raises(UserError, match="damaged"):
        checkpoint.read(tmp_path / "step-000000002")


def without(name):
    return lambda path: {key: value for key, value in json.loads(path.read_text()).items() if key != name}


@pytest.mark.parametrize(
    "manifest",
    [lambda path: {}, lambda path: [], lambda path: None, lambda path: {"state.json": None}]
    + [without(name) for name in ("model.safetensors", "optimizer.safetensors", "average.safetensors", "state.json")],
    ids=["empty", "list", "null", "no-sums", "no-model", "no-optimizer", "no-average", "no-state"],
)
def test_a_manifest_that_does_not_vouch_for_every_file(tmp_path, manifest):
    checkpoint.write(tmp_path, make(1))
    one = make(2)
    path = checkpoint.write(tmp_path, Checkpoint(2, one.state, {**one.tensors, "average": {"w": torch.ones(1)}}))
    said = []
    assert checkpoint.newest(tmp_path, said.append).step == 2 and not said
    (path / "manifest.json").write_text(json.dumps(manifest(path / "manifest.json")))
    assert checkpoint.resume(tmp_path, said.append).step == 1
    assert "step-000000002 is damaged (manifest.json" in said[0]


@pytest.mark.parametrize("name", ["step-000000002.bak", "step-x", "step-2", "step-", "step-000000002 (copy)"])
def test_copies_beside_the_checkpoints_are_ignored(tmp_path, name):
    for step in (1, 2):
        checkpoint.write(tmp_path, make(step))
    shutil.copytree(tmp_path / "step-000000002", tmp_path / name)
    (tmp_path / "step-000000009").touch()  # a file, not a folder
    said = []
    assert checkpoint.resume(tmp_path, said.append).step == 2 and not said
    checkpoint.write(tmp_path, make(3))
    checkpoint.clear(tmp_path, keep=1, best=3)
    assert [checkpoint.step_of(path) for path in checkpoint.found(tmp_path)] == [2, 3]
    assert (tmp_path / name / "model.safetensors").exists()


def test_a_copy_that_is_called_another_step_is_no_checkpoint(tmp_path):
    shutil.copytree(checkpoint.write(tmp_path, make(1)), tmp_path / "step-000000008")
    said = []
    assert checkpoint.resume(tmp_path, said.append).step == 1
    assert "step-000000008 is damaged (state.json is of step 1)" in said[0]


def test_other_files_in_a_checkpoint_are_not_read(tmp_path):
    path = checkpoint.write(tmp_path, make(1))
    (path / "mine.safetensors").write_bytes(b"no tensors at all")
    assert set(checkpoint.newest(tmp_path, print).tensors) == {"model", "optimizer"}


def test_what_follows_damaged_ones_is_not_cleared_for_them(tmp_path):
    for step in (1, 5, 6):
        checkpoint.write(tmp_path, make(step))
    for step in (5, 6):
        flip(tmp_path / f"step-00000000{step}" / "model.safetensors")
    assert checkpoint.resume(tmp_path, [].append).step == 1
    checkpoint.write(tmp_path, make(2))
    checkpoint.clear(tmp_path, keep=1, best=1)
    assert checkpoint.resume(tmp_path, print).step == 2
    assert (tmp_path / "damaged-step-000000006").is_dir(), "nothing is thrown away"


def test_without_a_whole_one_the_training_starts_over(tmp_path):
    flip(checkpoint.write(tmp_path, make(3)) / "model.safetensors")
    said = []
    assert checkpoint.resume(tmp_path, said.append) is None and "starts over" in said[-1]
    assert checkpoint.found(tmp_path) == []
    assert checkpoint.resume(tmp_path, said.clear) is None


def test_a_half_written_one_is_not_seen(tmp_path):
    checkpoint.write(tmp_path, make(1))
    (tmp_path / ".draft-step-000000002").mkdir()
    assert [path.name for path in checkpoint.found(tmp_path)] == ["step-000000001"]
    checkpoint.write(tmp_path, make(2))
    assert checkpoint.newest(tmp_path, print).step == 2


def test_old_ones_are_cleared_but_not_those_needed(tmp_path):
    for step in range(1, 9):
        checkpoint.write(tmp_path, make(step, validated=step % 2 == 0))
    checkpoint.clear(tmp_path, keep=3, best=2)
    assert [checkpoint.step_of(path) for path in checkpoint.found(tmp_path)] == [2, 4, 6, 7, 8]


@pytest.mark.parametrize(
    ("keep", "left"), [(1, [4, 12, 13, 14]), (2, [4, 9, 12, 13, 14]), (4, [3, 4, 6, 9, 12, 13, 14])]
)
def test_the_newest_that_were_validated_stay(tmp_path, keep, left):
    for step in range(1, 15):
        checkpoint.write(tmp_path, make(step, validated=step % 3 == 0))
    checkpoint.clear(tmp_path, keep=keep, best=4)
    assert [checkpoint.step_of(path) for path in checkpoint.found(tmp_path)] == left


def test_the_mean_of_several_is_their_mean(tmp_path):
    paths = [checkpoint.write(tmp_path, make(step, float(step))) for step in (1, 2, 6)]
    assert torch.equal(mean_weights(paths)["w"], torch.full((3, 2), 3.0))


def test_a_disk_that_takes_no_more_leaves_the_old_one_whole(tmp_path):
    checkpoint.write(tmp_path, make(1))
    code = f"""
import resource, torch
from pathlib import Path
from mallang.training import checkpoint
from mallang.errors import UserError
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    tensors = {{"model": {{"w": torch.zeros(100_000)}}}}
    checkpoint.write(Path({str(tmp_path)!r}), checkpoint.Checkpoint(2, {{}}, tensors))
except UserError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "cannot write" in done.stdout and "last checkpoint" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001"]
    assert checkpoint.newest(tmp_path, print).step == 1
