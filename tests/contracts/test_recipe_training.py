"""What every recipe that comes with mallang gets for nothing: it trains as it would on a GPU, small and on a CPU.

The recipe keeps its task, its kind of model with all options, its unit, optimizer and schedule; sizes shrink, and a
corpus that would have to be downloaded is a stand-in. The gradients of two updates are taken under bf16 autocast by
`torch.autograd.grad`, as on a GPU. On a GPU itself, at full size, the same recipes are tried by `make test-gpu`.

The first losses of each are compared with those before the last change (golden_losses.py), in fp32.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from contracts import golden_losses
from gpu.gate import one_output
from mallang import load, recipe
from mallang.kernels import c_library
from mallang.training.step import Step
from mallang.training.train import Options, train

RECIPES = recipe.names()
TRAINED = [name for name in RECIPES if not golden_losses.is_fitted(name)]
FITTED = [name for name in RECIPES if golden_losses.is_fitted(name)]


def small(name: str) -> recipe.Recipe:
    return golden_losses.small(name, dim=32, batch_tokens=256, context=16, steps=2, precision="bf16")


@pytest.fixture(scope="module", autouse=True)
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Small stand-ins of all corpora that the recipes name."""
    c_library.library()  # else it would be compiled again for the new cache folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MALLANG_CACHE", str(tmp_path_factory.mktemp("cache")))
        with golden_losses.corpora():
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
        for (name, parameter), gradient in zip(trained_weights(self.model), taken, strict=True):
            if gradient is not None:
                assert parameter.grad is not None
                assert facts(gradient) == facts(parameter) == facts(parameter.grad), name
                assert gradient.isfinite().all(), name
                self.reached.add(name)


made: list[AsOnGPU] = []


def trained_weights(model: torch.nn.Module) -> list[tuple[str, torch.nn.Parameter]]:
    """All but those that are frozen: static word vectors, and biases that must be zero."""
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


def facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What fused optimizers compare; gradients with other strides are also added one by one instead of at once."""
    return tensor.dtype, tensor.shape, tensor.stride()


@pytest.mark.parametrize("name", TRAINED)
def test_two_updates_as_on_a_gpu(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = small(name)  # trains the runs that it is given
    monkeypatch.setattr("mallang.training.loop.Step", AsOnGPU)
    made.clear()
    run = train(built, Options(folder=tmp_path / name, device="cpu", quiet=True))
    [step] = made
    assert run.is_finished and run.info["steps"] == 2
    assert step.reached == dict(trained_weights(step.model)).keys(), "some weights are not trained"


@pytest.mark.parametrize("name", FITTED)
def test_a_fit_and_an_output(name: str, tmp_path: Path) -> None:
    built = small(name)
    run = train(built, Options(folder=tmp_path / name, device="cpu", quiet=True))
    assert one_output(load(run.folder, device="cpu"), built)


GOLDEN = json.loads(golden_losses.GOLDEN.read_text("utf-8"))


def kind(name: str) -> tuple[str, str]:
    """The model and the task of a recipe."""
    values = recipe.read(name).resolved()
    return values["model"]["name"], values["task"]["name"]


FIRST = set({kind(name): name for name in reversed(RECIPES)}.values())
"""The first recipe of each kind: all its losses are compared, of the others the first few."""
FEW = 5


def check_losses(name: str, folder: Path, updates: int) -> None:
    """To four digits: processors, and the kernels they have, round otherwise. Bit for bit: golden_losses.py check."""
    found = golden_losses.losses(name, folder, updates)
    whole = name in FITTED or updates == golden_losses.STEPS
    assert len(found) == len(GOLDEN[name]) if whole else len(found) >= updates
    assert found == pytest.approx(GOLDEN[name][: len(found)], rel=1e-4)


@pytest.mark.parametrize("name", RECIPES)
def test_the_first_losses_are_as_before(name: str, tmp_path: Path) -> None:
    check_losses(name, tmp_path / name, golden_losses.STEPS if name in FIRST else FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TRAINED if name not in FIRST])
def test_the_losses_after_the_first_few_are_as_before(name: str, tmp_path: Path) -> None:
    check_losses(name, tmp_path / name, golden_losses.STEPS)


def test_golden_losses_are_of_the_recipes_that_there_are() -> None:
    assert sorted(GOLDEN) == sorted(RECIPES)


def test_differences_of_losses_are_told_by_recipe() -> None:
    told = golden_losses.differences({"a": [1.0, 2.0], "b": [1.0]}, {"a": [1.0, 2.5], "b": [1.0], "c": [3.0]})
    assert [line.split(":")[0] for line in told] == ["a", "c"] and "from number 1 on [2.0], not [2.5]" in told[0]
