"""The end of a training run: final weights, model card, and the status `finished`."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from mallang.layers.lora import are_adapted, merge_adapters
from mallang.recipe import Recipe
from mallang.runs.files import replace_file, sha256
from mallang.runs.folder import Run
from mallang.runs.own_files import ADAPTER, WEIGHTS
from mallang.runs.weights import own_weights, set_weights
from mallang.training import checkpoint as checkpoints
from mallang.training.checkpoint import mean_weights
from mallang.training.options import Config


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a training run."""

    model: nn.Module
    weights: Mapping[str, Tensor]
    """The final weights; those in the model may be others."""
    device: torch.device
    license: str
    steps: int
    """Updates, or passes over the text where there are no gradients."""
    tokens: int
    seconds: float
    best: float | None
    """The best validation score."""
    best_step: int
    skipped_updates: int = 0


def finish(run: Run, recipe: Recipe, outcome: Outcome) -> Run:
    """Write the weights and the model card, and mark the run as finished."""
    mixes = mixes_of(outcome.weights)
    run.write_weights(merged(run, outcome))
    replace_file(run.folder / "card.md", card_of(recipe, run, outcome).encode("utf-8", "backslashreplace"))
    return run.update(
        status="finished",
        weights=sha256(run.folder / WEIGHTS),
        steps=outcome.steps,
        seconds=round(outcome.seconds, 3),
        parameters=sum(parameter.numel() for parameter in outcome.model.parameters()),
        tokens=outcome.tokens,
        best={"step": outcome.best_step, recipe.train.metric: finite(outcome.best)},
        **({"skipped_updates": outcome.skipped_updates} if outcome.skipped_updates else {}),
        **mixes,
    )


def mixes_of(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """How the head weighs layers, from the lowest, and scales their sum: its own layers, and those of features."""
    found: dict[str, Any] = {}
    for key, name in (("layer_mix", "head.mix"), ("features_mix", "head.features_mix")):
        if (scores := weights.get(f"{name}.scores")) is not None:
            shares = [round(each, 4) for each in scores.softmax(dim=0).tolist()]
            found[key] = {"weights": shares, "scale": round(float(weights[f"{name}.scale"]), 4)}
    return found


def merged(run: Run, outcome: Outcome) -> Mapping[str, Tensor]:
    """The final weights; with LoRA merged ones, and what was trained is also written apart, to a small file."""
    if not are_adapted(outcome.weights):
        return outcome.weights
    set_weights(outcome.model, outcome.weights, run.folder)
    trained = {name for name, each in outcome.model.named_parameters() if each.requires_grad}
    adapter = {name: value.cpu().contiguous() for name, value in outcome.weights.items() if name in trained}
    replace_file(run.folder / ADAPTER, safetensors.torch.save(adapter, metadata={"format": "pt"}))
    merge_adapters(outcome.model)
    return own_weights(outcome.model)


def final_weights(folder: Path, config: Config, best_step: int, say: Callable[[str], None]) -> Mapping[str, Tensor]:
    """The weights that `train.final` selects; a damaged checkpoint is reported and skipped."""
    kind = config.final
    if kind == "average":
        whole = [path for path in checkpoints.validated(folder) if checkpoints.damage(path) is None]
        if len(whole) < min(config.keep, len(checkpoints.validated(folder))):
            say("a checkpoint is damaged: the mean is taken over the others")
        return mean_weights(whole[-config.keep :])
    path = folder / checkpoints.name_of(best_step) if kind == "best" else checkpoints.found(folder)[-1]
    if checkpoints.damage(path) is not None:
        say(f"the checkpoint {path.name} is damaged: the last whole one is taken instead")
        path = [each for each in checkpoints.found(folder) if checkpoints.damage(each) is None][-1]
    tensors = checkpoints.read(path).tensors
    # Validation scores the average where there is one, so the best score is that of the average.
    return tensors.get("average", tensors["model"])


def finite(value: float | None) -> float | None:
    """The value, or None (null in JSON) for infinity and NaN, such as the loss of an impossible text."""
    return value if value is not None and math.isfinite(value) else None


def card_of(recipe: Recipe, run: Run, outcome: Outcome) -> str:
    """The model card, in Markdown."""
    data = run.info.get("data", {})
    lines = [
        f"# {run.folder.name}",
        "",
        f"A {recipe.model_name} trained by mallang {run.info['mallang']} for {recipe.task_name.replace('_', ' ')}.",
        "",
        f"- paper: {recipe.paper or 'not named'}",
        f"- data: {data.get('corpus', 'unknown')} (sha256 {str(data.get('train', ''))[:16]}…)",
        f"- license of the data: {outcome.license or 'not stated'}",
        f"- training: {outcome.steps} steps, {outcome.tokens:,} tokens, {outcome.seconds:.0f} s",
        f"- machine: {platform.machine()}, {outcome.device}, torch {torch.__version__}",
        f"- seed: {recipe.seed}",
        f"- best {recipe.train.metric} in validation: {outcome.best} at step {outcome.best_step}",
        "",
        "All values are in `recipe.toml`, all measurements in `metrics.jsonl`.",
    ]
    return "\n".join(lines) + "\n"
