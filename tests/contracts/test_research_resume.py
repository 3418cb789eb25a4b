"""Systems of research resume exactly: killed after a checkpoint and started again, a run ends with the same weights."""

from pathlib import Path

import pytest

from gpu.stand_ins import shortened
from mallang import recipe
from mallang.training.loop import Loop
from mallang.training.train import Options, train

FEW = (
    "train.epochs=none", "train.steps=6", "train.validate_every=none", "train.save_every=3", "train.workers=0",
    "train.threads=1", "data.first=200",
)  # fmt: skip
SHORT = ("decoding.max_length=8", "decoding.max_ratio=1")
"""Untrained translators write until they may no longer."""
TINY = {
    "transe-miniworld": (
        "data.first=none", "model.dim=8", "model.entity_dropout=0.2", "task.negatives=16", "optimizer.name=adagrad",
    ),
    "deep-srl-miniworld": ("model.size=tiny", "train.batch_tokens=128"),
    "dependency-srl-miniworld": ("model.size=tiny", "train.batch_tokens=128", "task.word_dropout=0.1"),
    "ernie-dea-miniworld-links": ("model.size=tiny", "train.batch_tokens=256"),
    "artetxe-miniworld": ("model.size=tiny", "train.batch_tokens=128", "task.word_by_word_updates=2", *SHORT),
    "unsupervised-transformer-miniworld": (
        "model.size=tiny", "model.dropout=0.1", "train.batch_tokens=128", "task.word_by_word_updates=2",
        "text.vocabulary=400", *SHORT,
    ),
}  # fmt: skip


class KilledError(Exception):
    """What ends a run in the middle."""


@pytest.fixture(scope="module", autouse=True)
def few_rows():
    """Untrained translators write until they may no longer: few rows are validated."""
    with shortened(valid=8):
        yield


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """The run of a small graph."""
    built = recipe.read("transe-miniworld", [*FEW[:3], "model.dim=8"]).build()
    folder = tmp_path_factory.mktemp("graph") / "run"
    return train(built, Options(folder=folder, device="cpu", quiet=True)).folder


@pytest.mark.parametrize("name", TINY)
def test_a_run_resumes_bit_for_bit(name: str, graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = (f"given.entities={graph}",) if name.startswith("ernie") else ()
    built = recipe.read(name, [*FEW, *TINY[name], *given]).build()
    look_up = Loop.look_up

    def kill(loop: Loop) -> None:
        look_up(loop)
        if loop.step == 4:
            raise KilledError

    whole = train(built, Options(folder=tmp_path / "whole", device="cpu", quiet=True))
    parts = Options(folder=tmp_path / "parts", device="cpu", quiet=True)
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(Loop, "look_up", kill)
        train(built, parts)
    assert [each.name for each in (tmp_path / "parts" / "checkpoints").iterdir()], "there is something to resume"
    again = train(built, parts)
    ours, wanted = ((each.folder / "model.safetensors").read_bytes() for each in (again, whole))
    assert ours == wanted
