"""Gradient by distance: the norm of the gradient of a token's loss with respect to tokens read before it.

    curve = gradient_by_distance(mallang.load("runs/rnn-lm-miniworld"), [("나는 학교에 간다.",)])
    curve.relative(8)       # the gradient 8 tokens back, as a share of that of the last token read

For every token that a model predicts, the log-probability is differentiated with respect to the vector of every token
that was read before it. The Euclidean norm of that gradient is reported by distance. A recurrent network multiplies one
Jacobian per step, so that the gradient vanishes or explodes exponentially; attention reads every position directly.
Gradients are those of training: where a model scales them in the backward pass, as ConvS2S does, they are scaled here.

The inputs of a language model are its earlier tokens: the last token read is at distance 0. A backward language model
reads each line from its end. The inputs of a translation model include the source tokens, at the number of steps of a
recurrent encoder and decoder: from the token to the end of the source, and on to the position in the output. Distance 0
is then the last output token read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.data.streams import windows_batch
from mallang.decoding.contract import device_of, evaluating
from mallang.errors import UserError, require
from mallang.inspection.figures import check_format, families, save
from mallang.inspection.loss_by_position import Words, fitting, layout_of, read, streamed, tokens_by_word
from mallang.models.contract import Fitted, longest_of
from mallang.tasks import language_modeling

ROWS = 16
"""Texts per batch."""
WIDTH = 64
"""Words of a window, where a model reads a stream of text."""


@dataclass(frozen=True)
class GradientCurve:
    """Sums of gradient norms by distance, over all predicted tokens of all texts."""

    norms: Float64[np.ndarray, " distances"]
    """Sum of the norms at each distance."""
    nearest: Float64[np.ndarray, " distances"]
    """Sum of the norms at distance 0 for the predicted tokens that have an input at this distance."""
    counts: Float64[np.ndarray, " distances"]
    """Number of pairs of a predicted token and an input at each distance."""

    def relative(self, low: int, high: int | None = None) -> float:
        """The mean norm at these distances as a share of that at distance 0; NaN where there is no such pair."""
        part = slice(low, (low if high is None else high) + 1)
        below = float(self.nearest[part].sum())
        return float(self.norms[part].sum()) / below if below else math.nan

    def ranges(self) -> list[tuple[int, int]]:
        """0, 1, 2-3, 4-7 … as far as there are pairs."""
        last = len(self.counts) - 1
        bounds = [(0, 0), *((2**power, 2 ** (power + 1) - 1) for power in range(max(last, 1).bit_length()))]
        return [(low, min(high, last)) for low, high in bounds if low <= last and self.counts[low : high + 1].any()]

    def to_json(self) -> dict[str, list[Any]]:
        """Numbers by distance; null where there are none."""
        mean = [float(norm / count) if count else None for norm, count in zip(self.norms, self.counts, strict=True)]
        shares = [self.relative(distance) for distance in range(len(self.counts))]
        return {
            "count": [int(count) for count in self.counts],
            "gradient": mean,
            "relative": [None if math.isnan(share) else share for share in shares],
        }


def gradient_by_distance(model: Any, rows: Sequence[tuple[str, ...]]) -> GradientCurve:
    """The curve of a loaded run over texts, or over pairs of source and target."""
    if isinstance(model.model, Fitted):
        raise UserError("this model learns without gradients, so there is none to measure", todo="give another run")
    parts = [by_distance(gradient_norms(model.model, batch), batch) for batch in batches_of(model, rows)]
    if not parts:
        raise UserError("there is no text to differentiate", todo="give texts that are not empty")
    sums = np.zeros((3, max(part.shape[1] for part in parts)))
    for part in parts:
        sums[:, : part.shape[1]] += part
    return GradientCurve(*sums)


def batches_of(model: Any, rows: Sequence[tuple[str, ...]]) -> Iterator[Batch]:
    """The texts as batches with labels, on the model's device."""
    device, task = device_of(model.model), model.task
    if "source" in task.columns:
        pairs = [((task.source.encode(source).ids, task.target.encode(target).ids),) for source, target in rows]
        for begin in range(0, len(pairs), ROWS):
            yield task.prepare(pairs[begin : begin + ROWS], np.random.default_rng(0)).to(device)
        return
    if not isinstance(task, language_modeling.Task):
        name = model.task_name.replace("_", " ")
        raise UserError(
            f"gradients by distance are not measured of a run for {name}",
            todo="give a run for language modeling, translation or dialogue",
        )
    lines = [tokens_by_word(model.tokenizer, text) for (text,) in rows if text.strip()]
    lines = [turned(line) for line in lines] if task.backward else lines
    windows = lines if layout_of(task) == "lines" else streamed(lines, WIDTH)
    kept = [fitting(window, longest_of(model.model)) for window in windows]
    labels = [np.array([token for word in window for token in word]) for window in kept if window]
    for begin in range(0, len(labels), ROWS):
        yield windows_batch([(read(label), label) for label in labels[begin : begin + ROWS]]).to(device)


def turned(line: Words) -> Words:
    """A line with its tokens reversed; `</s>` stays at the end."""
    *words, end = line
    return [*(word[::-1] for word in reversed(words)), end]


def gradient_norms(model: nn.Module, batch: Batch) -> dict[str, Float[Tensor, "rows outputs inputs"]]:
    """The norm of d log p(label) / d embedding for every label and every input: `tokens`, and `source` if there is one.

    Rows are independent, so one backward pass gives the gradients of one position in all rows.
    """
    assert batch.labels is not None
    with evaluating(model), input_vectors(model, batch) as vectors:
        log_probs = model.output(model(batch)).float().log_softmax(dim=-1)  # type: ignore[operator]
        said = log_probs.gather(2, batch.labels[..., None])[..., 0]
        if "tokens" not in vectors:
            raise UserError(f"{type(model).__name__} has no vector per token to differentiate by", todo="another run")
        norms = []
        for place in range(said.shape[1]):
            gradients = torch.autograd.grad(said[:, place].sum(), list(vectors.values()), retain_graph=True)
            norms.append([gradient.float().norm(dim=-1).cpu() for gradient in gradients])
    found = {name: torch.stack(each, dim=1) for name, each in zip(vectors, zip(*norms, strict=True), strict=True)}
    return {name: each[..., -inputs_of(batch)[name].shape[1] :] for name, each in found.items()}


@contextmanager
def input_vectors(model: nn.Module, batch: Batch) -> Iterator[dict[str, Tensor]]:
    """The embeddings that a model looks up for tokens and source while it runs, each as a leaf with a gradient.

    They are found by the ids that are looked up, whatever the name of the table. A window model also looks up padding
    before the first token: the tokens are then the last columns.
    """
    found: dict[str, Tensor] = {}

    def replace(module: nn.Module, given: tuple[Any, ...], output: Tensor) -> Tensor | None:
        for name, ids in inputs_of(batch).items():
            looked_up = given[0][:, -ids.shape[1] :] if given[0].ndim == 2 else given[0]
            if name not in found and looked_up.shape == ids.shape and torch.equal(looked_up, ids):
                found[name] = output.detach().requires_grad_()
                return found[name]
        return None

    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    hooks = [table.register_forward_hook(replace) for table in tables]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def inputs_of(batch: Batch) -> dict[str, Tensor]:
    """The ids that a model reads; the source comes first, as it is read."""
    return {"tokens": batch.tokens} if batch.source is None else {"source": batch.source, "tokens": batch.tokens}


def by_distance(
    norms: Mapping[str, Float[Tensor, "rows outputs inputs"]], batch: Batch
) -> Float64[np.ndarray, "3 distances"]:
    """Sums of the norms, of the nearest norms of the same outputs, and of the pairs, by distance."""
    assert batch.labels is not None
    own = norms["tokens"].double().numpy()
    rows, outputs, inputs = np.meshgrid(*map(np.arange, own.shape), indexing="ij")
    is_asked = batch.mask.cpu().numpy()[rows, outputs]
    nearest = own[rows, outputs, outputs]
    kept = is_asked & (inputs == outputs if "source" in norms else inputs <= outputs)
    parts = [(outputs - inputs, own, nearest, kept)]
    if "source" in norms:
        assert batch.source_lengths is not None
        source = norms["source"].double().numpy()
        rows, outputs, inputs = np.meshgrid(*map(np.arange, source.shape), indexing="ij")
        lengths = batch.source_lengths.cpu().numpy()[rows]
        kept = batch.mask.cpu().numpy()[rows, outputs] & (inputs < lengths)
        parts.append((outputs + lengths - inputs, source, own[rows, outputs, outputs], kept))
    distances, values, near = (np.concatenate([part[place][part[3]] for part in parts]) for place in range(3))
    return np.stack([np.bincount(distances, weights) for weights in (values, near, np.ones_like(near))])


def draw_gradients(path: Path, curves: Mapping[str, GradientCurve]) -> Path:
    """One line per run: the gradient by distance, as a share of the nearest, on a logarithmic scale."""
    check_format(path)
    figure = require("matplotlib.figure", "plots").Figure(figsize=(6.4, 4.2), layout="constrained")
    field = figure.subplots()
    for name, curve in curves.items():
        shares = [curve.relative(distance) for distance in range(len(curve.counts))]
        field.plot(range(len(shares)), shares, marker=".", label=name)
    field.set_yscale("log")
    field.set_xlabel("distance in tokens")
    field.set_ylabel("gradient norm, distance 0 = 1")
    field.grid(alpha=0.3)
    field.legend(prop={"family": families(), "size": 9})
    for text in field.get_legend().get_texts():
        text.set(fontfamily=families(), parse_math=False)
    save(figure, path)
    return path
