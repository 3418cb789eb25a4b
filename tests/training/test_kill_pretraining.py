"""Killed with SIGKILL and started again: two networks of ELECTRA, and a student whose teacher is given."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from commands.running import metrics, ran, start

ROWS = ("민수가 사과를 먹는다\tgood", "영희는 서울에 간다\tbad", "고양이가 작은 물을 마신다\tgood", "개가 간다\tbad")
USUAL = (
    "data.train=some.tsv", "data.valid=some.tsv", "text.unit=space", "text.vocabulary=60", "train.batch_tokens=128",
    "train.steps=24", "train.save_every=3", "train.log_every=4", "train.validate_every=8", "model.dim=16",
    "model.heads=2", "model.dropout=0.1", "model.max_length=64", "schedule.warmup=2",
)  # fmt: skip
ELECTRA = (
    "electra", *USUAL, "task.name=replaced_token", "task.length=32", "data.columns=[1]", "model.layers=1",
    "model.embedding_dim=8", "model.generator_width=0.5", "model.pretraining_heads=both",
)  # fmt: skip
TEACHER = ("bert", *USUAL, "data.columns=[1, 2]", "model.layers=2")
STUDENT = (
    "distilbert", *USUAL, "data.columns=[1, 2]", "model.layers=1", "task.name=distilled_classification",
    "given.teacher=runs/teacher", "task.label_weight=0.5",
)  # fmt: skip


def newest(run: Path) -> int:
    """The step of the newest checkpoint of a run."""
    return max((int(path.name[5:]) for path in (run / "checkpoints").glob("step-*")), default=0)


@pytest.mark.parametrize(("recipe", "before"), [(ELECTRA, ()), (STUDENT, TEACHER)], ids=["electra", "student"])
def test_a_run_that_was_killed_twice_ends_with_the_same_weights(
    recipe: tuple[str, ...], before: tuple[str, ...], tmp_path: Path
) -> None:
    """Dropout, masks, samples of the generator and the teacher's losses are all drawn, or computed, again."""
    homes = [tmp_path / name for name in ("whole", "killed")]
    for home in homes:
        home.mkdir()
        (home / "some.tsv").write_text("\n".join(ROWS * 20) + "\n", "utf-8")
    if before:
        ran("train", *before, "--name", "teacher", cwd=homes[0])
        shutil.copytree(homes[0] / "runs", homes[1] / "runs")
    command = ("train", *recipe, "--name", "run")
    ran(*command, cwd=homes[0])
    killed = homes[1] / "runs" / "run"
    for step in (3, 12):
        job = start(*command, cwd=homes[1])
        job.until(lambda step=step: newest(killed) >= step)
        job.send(signal.SIGKILL)
        assert job.wait().code == -signal.SIGKILL
        assert not (killed / "model.safetensors").exists()
    assert "resuming from step" in ran(*command, cwd=homes[1]).err
    runs = [home / "runs" / "run" for home in homes]
    assert len({(run / "model.safetensors").read_bytes() for run in runs}) == 1
    assert metrics(runs[0]) == metrics(runs[1])
    infos = [json.loads((run / "run.json").read_text("utf-8")) for run in runs]
    assert infos[0]["weights"] == infos[1]["weights"]
