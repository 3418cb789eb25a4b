"""Only files that mallang wrote are ever removed from a run folder, and what a kill left there is swept."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
import torch

from mallang import recipe as recipes
from mallang.errors import UserError
from mallang.runs import own_files
from mallang.runs.beginning import begin, check_place, locked
from mallang.runs.files import replace_file
from mallang.runs.own_files import INFO
from mallang.training import checkpoint
from mallang.training.checkpoint import Checkpoint

RECIPE = recipes.read("transformer-miniworld", ["model.size=tiny"]).build()
OTHER = recipes.read("transformer-miniworld", ["model.size=tiny", "seed=2"]).build()
FOREIGN = {
    "thesis.txt": "years of work",
    "notes/day1.txt": "a folder of one's own",
    "model.safetensors.bak": "a copy",
    "checkpoints/why.txt": "about the checkpoints",
    "checkpoints/step-000000002/plot.png": "about this one",
    "checkpoints/step-000000002.bak/model.safetensors": "a copy of it",
    "checkpoints/step-best/model.safetensors": "another copy",
    "outputs/by-hand.txt": "my own translations",
    "scores/by-hand.json": '{"mine": 1}',
    "tensorboard/notes.txt": "what I saw",
}


def make_run(folder: Path) -> Path:
    """A run with everything that mallang writes, and two checkpoints."""
    with locked(folder):
        begin(folder, RECIPE, fresh=False)
    for name in (
        "model.safetensors", "metrics.jsonl", "card.md", "cost.json", "tokenizer.json", "text.json",
        "tokenizer.source.json", "tokenizer.source.text.json", "tokenizer.json.partial", ".draft-card.md",
        "outputs/test.txt", "tensorboard/events.out.tfevents.1.host",
    ):  # fmt: skip
        write(folder / name, "ours")
    write(folder / "scores/test.json", json.dumps({"split": "test", "search": {}, "scores": []}))
    for step in (1, 2):
        checkpoint.write(folder / "checkpoints", make(step))
    checkpoint.write(folder / "checkpoints", make(3)).rename(folder / "checkpoints" / "damaged-step-000000003")
    write(folder / "checkpoints/.draft-step-000000004/model.safetensors", "half")
    return folder


def make(step: int) -> Checkpoint:
    return Checkpoint(step, {"validated": True}, {"model": {"w": torch.ones(2)}, "optimizer": {}})


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text("utf-8", errors="replace")
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.parametrize("begun_anew", [False, True])
def test_files_of_others_stay_and_are_reported(tmp_path, begun_anew):
    """Both ways to begin again: --fresh, and another recipe before there is a checkpoint."""
    run = make_run(tmp_path / "run")
    for name, content in FOREIGN.items():
        write(run / name, content)
    if begun_anew:
        shutil.rmtree(run / "checkpoints")
    left = {name: content for name, content in FOREIGN.items() if not (begun_anew and "checkpoints" in name)}
    said: list[str] = []
    with locked(run):
        begin(run, OTHER, fresh=not begun_anew, say=said.append)
    found = contents(run)
    assert json.loads(found.pop(INFO))["seed"] == 2 and found.pop("recipe.toml") == OTHER.resolved.to_toml()
    assert found == left
    told = said[-1]
    assert len(said) == 1 + begun_anew  # without --fresh it also says that nothing was learned
    assert all(name in told for name in left if not name.startswith(("notes/", "checkpoints/step-")))
    assert "notes" in told and "model.safetensors," not in told


def test_without_files_of_others_nothing_is_left_or_said(tmp_path):
    run, said = make_run(tmp_path / "run"), []
    begin(run, OTHER, fresh=True, say=said.append)
    assert set(contents(run)) == {INFO, "recipe.toml"} and not said
    assert {path.name for path in run.iterdir()} == {INFO, "recipe.toml", ".lock"}


def test_a_run_folder_behind_a_link(tmp_path):
    """The link is the user's way to the folder: it stays, and so does what is not ours behind it."""
    real = make_run(tmp_path / "disk" / "real")
    write(real / "thesis.txt", "years of work")
    (tmp_path / "run").symlink_to(real, target_is_directory=True)
    begin(tmp_path / "run", OTHER, fresh=True)
    assert (tmp_path / "run").is_symlink()
    assert set(contents(real)) == {INFO, "recipe.toml", "thesis.txt"}


def test_links_inside_are_neither_followed_nor_removed(tmp_path):
    run, outside = make_run(tmp_path / "run"), tmp_path / "outside"
    write(outside / "thesis.txt", "years of work")
    write(outside / "model.safetensors", "someone's weights")
    (run / "corpus").symlink_to(outside, target_is_directory=True)
    (run / "best").symlink_to(outside / "model.safetensors")
    (run / "outputs" / "linked.txt").symlink_to(outside / "thesis.txt")
    said: list[str] = []
    begin(run, OTHER, fresh=True, say=said.append)
    assert contents(outside) == {"thesis.txt": "years of work", "model.safetensors": "someone's weights"}
    assert (run / "corpus").is_symlink() and (run / "best").is_symlink() and (run / "outputs/linked.txt").is_symlink()
    assert "best, corpus, outputs/linked.txt" in said[0]


@pytest.mark.parametrize("name", ["checkpoints", "checkpoints/step-000000002", "model.safetensors", "metrics.jsonl"])
def test_a_link_where_the_training_would_write(tmp_path, name):
    """It cannot stay where it is, and it is not ours: nothing at all is removed."""
    run = make_run(tmp_path / "run")
    moved = tmp_path / "elsewhere"
    (run / name).rename(moved)
    (run / name).symlink_to(moved)
    before = contents(run) | contents(tmp_path)
    with pytest.raises(UserError, match=f"{name} is a symbolic link"):
        begin(run, OTHER, fresh=True)
    assert contents(run) | contents(tmp_path) == before


@pytest.mark.parametrize("name", ["model.safetensors", "checkpoints"])
def test_a_thing_of_another_kind_where_the_training_would_write(tmp_path, name):
    run = tmp_path / "run"
    begin(run, RECIPE, fresh=False)
    write(run / name / "mine.txt" if name != "checkpoints" else run / name, "mine")
    with pytest.raises(UserError, match=f"{name} is no fil|{name} is no folder"):
        begin(run, OTHER, fresh=True)
    assert "mine" in contents(run).values()


@pytest.mark.parametrize("info", ["[1]", '{"name": "a run of another program"}', "not JSON"])
def test_the_run_json_of_another_program(tmp_path, info):
    """A folder that has files of these names is not a run for that: it is refused, and not even a lock is left."""
    mine = tmp_path / "mine"
    for name, content in {INFO: info, "model.safetensors": "weights", "checkpoints/last.pt": "more"}.items():
        write(mine / name, content)
    before = contents(mine)
    with pytest.raises(UserError, match=r"is no run folder: it holds checkpoints"):
        check_place(mine, RECIPE, fresh=True)
    with pytest.raises(UserError, match="is no run folder"):
        begin(mine, RECIPE, fresh=True)
    assert contents(mine) == before


def test_a_damaged_run_json_can_be_trained_from_the_start(tmp_path):
    run = make_run(tmp_path / "run")
    (run / INFO).write_text('{"form')
    begin(run, RECIPE, fresh=True)
    assert json.loads((run / INFO).read_text())["status"] == "training"
    assert set(contents(run)) == {INFO, "recipe.toml"}


def test_a_run_without_its_run_json_is_removed_only_where_that_is_asked_for(tmp_path):
    run = make_run(tmp_path / "run")
    (run / INFO).unlink()
    before = contents(run)
    for recipe in (RECIPE, OTHER):
        with pytest.raises(UserError, match="is not empty and is no run folder"):
            begin(run, recipe, fresh=False)
        assert contents(run) == before
    begin(run, OTHER, fresh=True)
    assert set(contents(run)) == {INFO, "recipe.toml"}


def test_a_recipe_of_ones_own_is_not_replaced(tmp_path):
    write(tmp_path / "mine" / "recipe.toml", OTHER.resolved.to_toml())
    with pytest.raises(UserError, match=r"is no run folder: it holds recipe\.toml"):
        begin(tmp_path / "mine", RECIPE, fresh=False)
    assert contents(tmp_path / "mine") == {"recipe.toml": OTHER.resolved.to_toml()}


@pytest.mark.parametrize("moment", ["removing", "the recipe", "run.json"])
def test_a_kill_while_a_run_is_begun_anew_leaves_nothing_of_the_old_one(tmp_path, monkeypatch, moment):
    run = make_run(tmp_path / "run")
    info = json.loads((run / INFO).read_text())
    (run / INFO).write_text(json.dumps({**info, "budget": {"steps": 9}, "fitted": {}, "data": {"train": "old"}}))

    def killed(*given):
        raise KeyboardInterrupt

    def killed_later(path, content):
        if (path.name, json.loads(content)["status"] if path.name == INFO else "") in ends[moment]:
            raise KeyboardInterrupt
        replace_file(path, content)

    ends = {"removing": [], "the recipe": [("recipe.toml", "")], "run.json": [(INFO, "training")]}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if moment == "removing":
            patch.setattr(own_files, "remove_one", killed)
        for module in ("beginning", "folder"):
            patch.setattr(f"mallang.runs.{module}.replace_file", killed_later)
        begin(run, OTHER, fresh=True)
    begun = begin(run, OTHER, fresh=False)
    assert begun.info["status"] == "training" and not {"budget", "fitted", "data"} & begun.info.keys()
    assert set(contents(run)) == {INFO, "recipe.toml"}
    assert (run / "recipe.toml").read_text() == OTHER.resolved.to_toml()


def test_a_lock_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "run").mkdir()
    write(tmp_path / "mine", "mine")
    (tmp_path / "run" / ".lock").symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match="cannot write"), locked(tmp_path / "run"):
        pass
    assert (tmp_path / "mine").read_text() == "mine"


def test_old_checkpoints_go_without_the_files_of_others(tmp_path):
    for step in (1, 2, 3):
        checkpoint.write(tmp_path, make(step))
    write(tmp_path / "step-000000001" / "plot.png", "mine")
    checkpoint.clear(tmp_path, keep=1, best=3)
    assert [path.name for path in checkpoint.found(tmp_path)] == ["step-000000002", "step-000000003"]
    assert contents(tmp_path / "step-000000001") == {"plot.png": "mine"}
    checkpoint.write(tmp_path, make(1))
    assert checkpoint.damage(tmp_path / "step-000000001") is None
    assert contents(tmp_path / "other-step-000000001") == {"plot.png": "mine"}


def test_what_a_kill_left_is_swept_when_the_run_resumes(tmp_path):
    run = make_run(tmp_path / "run")
    trial = f"{own_files.TRIAL}/checkpoints/.draft-step-000000007/model.safetensors"
    for name in (".draft-run.json", ".draft-recipe.toml", "text.json.partial", "outputs/.draft-old.txt", trial):
        write(run / name, "half")
    write(run / "outputs/.draft-now.txt", "an evaluation is writing this")
    write(run / ".draft-thesis.txt", "mine")
    os.utime(run / "outputs/.draft-old.txt", (time.time() - 2 * own_files.HOUR,) * 2)
    before = set(contents(run))
    with locked(run):
        begin(run, RECIPE, fresh=False)
    assert before - set(contents(run)) == {
        ".draft-run.json", ".draft-recipe.toml", ".draft-card.md", "text.json.partial", "tokenizer.json.partial",
        "outputs/.draft-old.txt", "checkpoints/.draft-step-000000004/model.safetensors", trial,
    }  # fmt: skip
    assert not (run / own_files.TRIAL).exists()
    assert not (run / "checkpoints" / ".draft-step-000000004").exists()
