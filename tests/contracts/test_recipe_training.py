"""What every recipe that comes with mallang gets for nothing: it trains as it would on a GPU, small and on a CPU.

The recipe keeps its task, its kind of model with all options, its unit, optimizer and schedule; sizes shrink, and a
corpus that would have to be downloaded is a stand-in. The gradients of two updates are taken under bf16 autocast by
`torch.autograd.grad`, as on a GPU. On a GPU itself, at full size, the same recipes are tried by `make test-gpu`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu import stand_ins
from gpu.gate import one_output
from mallang import load, recipe
from mallang.find import find
from mallang.layers import native
from mallang.training import fitting
from mallang.training.step import Step
from mallang.training.train import Options, train

RECIPES = recipe.names()
SMALL = {"layers": 2, "decoder_layers": 2, "blocks": 2, "block_layers": 2, "heads": 4, "filters": 6}
"""The most of each size of a model; of all that ends in `dim` or `dims` DIM."""
DIM = 32


def is_fitted(name: str) -> bool:
    return fitting.is_fitted(find("models", recipe.read(name).resolved()["model"]["name"]))


TRAINED = [name for name in RECIPES if not is_fitted(name)]
FITTED = [name for name in RECIPES if is_fitted(name)]


def shrunk(value: Any, most: int) -> Any:
    return [min(each, most) for each in value] if isinstance(value, list | tuple) else min(value, most)


def small(name: str) -> recipe.Recipe:
    """The recipe with smaller sizes: options, units and schedules stay as they are."""
    values = recipe.read(name).resolved()
    most = {key: DIM if key.endswith(("dim", "dims")) else SMALL.get(key) for key in values["model"]}
    changes = {
        f"model.{key}": shrunk(values["model"][key], limit)
        for key, limit in most.items()
        if limit is not None and values["model"][key] is not None
    }
    changes["text.vocabulary"] = min(values["text"]["vocabulary"], 400)
    changes["train.batch_tokens"] = min(values["train"]["batch_tokens"], 256)
    changes |= {f"task.{key}": min(values["task"][key], 16) for key in ("context", "stride") if values["task"].get(key)}
    if not is_fitted(name):
        changes |= {"train.steps": 2, "train.precision": "bf16", "train.workers": 0}
    return recipe.read(name, [f"{key}={value}" for key, value in changes.items()]).build()


@pytest.fixture(scope="module", autouse=True)
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Small stand-ins of all corpora that the recipes name."""
    names = {corpus for name in RECIPES for corpus in stand_ins.corpora_of(recipe.read(name).resolved()["data"])}
    native.library()  # else it would be compiled again for the new cache folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MALLANG_CACHE", str(tmp_path_factory.mktemp("cache")))
        entries = stand_ins.write(sorted(names), stand_ins.SMALL)
        with stand_ins.in_registry(entries), stand_ins.shortened(train=300, valid=8):
            yield


class AsOnGPU(Step):
    """Gradients by `torch.autograd.grad`, kept in place; each is compared with its parameter."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.keeps_gradients = True
        self.reached: set[str] = set()
        made.append(self)

    def add_gradients(self, loss: torch.Tensor) -> None:
        taken: list[torch.Tensor | None] = []
        take = torch.autograd.grad

        def note(*given: Any, **options: Any) -> list[torch.Tensor | None]:
            taken.extend(take(*given, **options))
            return taken

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.autograd, "grad", note)
            super().add_gradients(loss)
        for (name, parameter), gradient in zip(self.model.named_parameters(), taken, strict=True):
            if gradient is not None:
                assert parameter.grad is not None
                assert facts(gradient) == facts(parameter) == facts(parameter.grad), name
                assert gradient.isfinite().all(), name
                self.reached.add(name)


made: list[AsOnGPU] = []


def facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What fused optimizers compare; gradients with other strides are also added one by one instead of at once."""
    return tensor.dtype, tensor.shape, tensor.stride()


@pytest.mark.parametrize("name", TRAINED)
def test_two_updates_as_on_a_gpu(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mallang.training.loop.Step", AsOnGPU)
    made.clear()
    run = train(small(name), Options(folder=tmp_path / name, device="cpu", quiet=True))
    [step] = made
    assert run.is_finished and run.info["steps"] == 2
    assert step.reached == dict(step.model.named_parameters()).keys(), "some weights are not trained"


@pytest.mark.parametrize("name", FITTED)
def test_a_fit_and_an_output(name: str, tmp_path: Path) -> None:
    built = small(name)
    run = train(built, Options(folder=tmp_path / name, device="cpu", quiet=True))
    assert one_output(load(run.folder, device="cpu"), built)
