"""Token attribution: how much every token of a text adds to a score, by gradients of the input embeddings.

    found = model.attribution("a funny story")          # integrated gradients of the predicted class
    found.tokens, found.weights                          # signed: above 0 a token raises the score
    model.attribution("a funny story", method="gradient", label="bad")

    gradient      gradient × input: the derivative of the score with respect to the vector of a token, times that vector
    integrated    integrated gradients (Sundararajan, Taly and Yan 2017, arXiv:1703.01365): the gradient is averaged on
                  the straight line from a baseline to the text, and multiplied by the difference of the two

    weight of token i = (x_i − b_i) · ∫₀¹ ∂score(b + α (x − b)) / ∂x_i dα

The weights of integrated gradients sum to score(text) − score(baseline): completeness. The integral is computed by
Gauss-Legendre quadrature, with twice as many steps until the sum is right to 1 % and no weight changes by more than 1 %
of all weights. The baseline is a text of as many `<mask>` tokens, or `<pad>` where a vocabulary has no `<mask>`;
special tokens keep their own vectors, so their integrated gradient is 0. A linear score has equal weights in both
methods if the vector of the baseline is zero.

Copies of one example make a batch, each at another point of the line: `copies(n)` gives that batch, and `score(batch)`
one number per copy. Nothing else is known of the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.decoding.contract import evaluating
from mallang.errors import UserError, nearest
from mallang.layers.quantization import Int8Linear
from mallang.models.contract import token_lookups
from mallang.text.vocabulary import Vocabulary

Method = Literal["gradient", "integrated"]
METHODS: tuple[str, ...] = get_args(Method)
Copies = Callable[[int], Batch]
Score = Callable[[Batch], Float[Tensor, " copies"]]
FEWEST, MOST = 16, 1024
"""Steps of the integral: the first number that is tried, and the last."""
TOLERANCE = 0.01
"""How far the sum of the weights may be from the difference of the scores, as a share of that difference."""
ROUNDING = 1e-4
"""An error of the sum below this is rounding."""
BATCH_TOKENS = 2048
"""Tokens per batch of copies, whose activations are kept for the backward pass."""


@dataclass(frozen=True)
class TokenWeights:
    """The weight of every token of one example, and the scores that they explain."""

    weights: Float64[np.ndarray, "rows time"]
    score: float
    baseline_score: float | None
    """The score of the baseline; None for gradient × input, which has none."""
    steps: int
    """The number of gradients in the integral; 1 for gradient × input."""


@dataclass(frozen=True)
class AttributedRow:
    """The tokens that the model read as one sequence, special ones included, with their weights."""

    tokens: tuple[str, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True)
class Attribution:
    """A text, a label, and how much every token adds to the score of that label."""

    input: Any
    """The text, or both of a pair."""
    label: str
    probability: float
    score_name: str
    """What is explained: the logit of a class, for example."""
    method: Method
    rows: tuple[AttributedRow, ...]
    """One row; of a document one per sentence."""
    score: float
    baseline_score: float | None
    baseline: str
    """The token that the baseline consists of."""
    kept: tuple[str, ...]
    """The special tokens of the text, which have their own vector in the baseline too."""
    steps: int
    word: str = ""
    """The word that the label belongs to, where every word has one."""
    constant: tuple[str, ...] = ()
    """What else the score is computed from, which is the same for the text and the baseline."""

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens of all rows."""
        return tuple(token for row in self.rows for token in row.tokens)

    @property
    def weights(self) -> tuple[float, ...]:
        """The weights of those tokens."""
        return tuple(weight for row in self.rows for weight in row.weights)

    @property
    def difference(self) -> float | None:
        """The score of the text minus that of the baseline, which integrated gradients sum to."""
        return None if self.baseline_score is None else self.score - self.baseline_score

    @property
    def error(self) -> float | None:
        """How far the sum of the weights is from that difference, as a share of it; None for gradient × input."""
        return None if self.difference is None else relative_error(sum(self.weights), self.difference)

    def notes(self) -> list[str]:
        """The method and all that is needed to read the numbers, for display."""
        name = {"gradient": "gradient × input", "integrated": "integrated gradients"}[self.method]
        lines = [f"{name} of {self.score_name}, {self.score:.3f}"]
        if self.baseline_score is not None and self.error is not None:
            lines[0] += f"; {self.baseline_score:.3f} for the baseline, where every token is {self.baseline}"
            right = "the weights sum" if self.error <= TOLERANCE else "too few, the weights do not sum"
            total = f"{sum(self.weights):+.3f}, with an error of {self.error:.2%}"
            lines.append(f"{self.steps} steps: {right} to the difference, {total}")
            if self.kept:
                lines.append(f"special tokens keep their own vectors, so their weight is 0: {' '.join(self.kept)}")
        if self.constant:
            lines.append(f"not attributed, and the same for the baseline: {', '.join(self.constant)}")
        return lines

    def __str__(self) -> str:
        pairs = zip(self.tokens, self.weights, strict=True)
        return " ".join(f"{token}[{weight:+.3f}]" for token, weight in pairs)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "input": self.input,
            **({"word": self.word} if self.word else {}),
            "output": self.label,
            "score": self.probability,
            "method": self.method,
            "of": self.score_name,
            "value": self.score,
            "baseline": self.baseline if self.baseline_score is not None else None,
            "baseline_value": self.baseline_score,
            "steps": self.steps,
            "error": self.error,
            "kept": list(self.kept),
            "constant": list(self.constant),
        }


@dataclass(frozen=True)
class Explained:
    """The prediction whose score is attributed."""

    input: Any
    """What was read: a text, or several."""
    label: str
    probability: float
    score_name: str
    constant: tuple[str, ...] = ()
    """What else the score is computed from, which is the same for the text and the baseline."""


def explain(
    model: nn.Module,
    encoder: object,
    copies: Copies,
    score: Score,
    vocabulary: Vocabulary,
    method: Method,
    about: Explained,
) -> Attribution:
    """The attribution of one prediction, with a row of tokens for every sequence that the model reads."""
    found, batch = attribute(model, encoder, copies, score, vocabulary, method), copies(1)
    return Attribution(
        input=about.input,
        label=about.label,
        probability=about.probability,
        score_name=about.score_name,
        method=method,
        rows=attributed_rows(found, batch, vocabulary),
        score=found.score,
        baseline_score=found.baseline_score,
        baseline=vocabulary.tokens[baseline_token(vocabulary)],
        kept=kept_tokens(batch, vocabulary),
        steps=found.steps,
        constant=about.constant,
    )


def check_method(method: str) -> None:
    """Refuse an unknown method."""
    if method not in METHODS:
        raise UserError(f"there is no attribution {method!r}", todo=nearest(method, METHODS))


def attribute(
    model: nn.Module, encoder: object, copies: Copies, score: Score, vocabulary: Vocabulary, method: Method
) -> TokenWeights:
    """The weights of all tokens of an example, by the gradient of its score with respect to the vectors of tokens.

    `encoder` is the part of the model that reads the tokens.
    """
    check_method(method)
    if any(isinstance(part, Int8Linear) for part in model.modules()):
        raise UserError("int8 weights have no gradients", todo='load the run with weights="float32"')
    with evaluating(model):
        line = Line.of(encoder, copies, score, vocabulary)
        (first, last), gradients = line.gradients([0.0, 1.0])
        if method == "gradient":
            inputs = [(gradients[part][1] * ends.text).sum(dim=-1) for part, ends in line.ends.items()]
            return TokenWeights(torch.stack(inputs).sum(dim=0).double().cpu().numpy(), last, None, 1)
        weights, steps = integrate(line, last - first)
    return TokenWeights(weights, last, first, steps)


def integrate(line: Line, difference: float) -> tuple[Float64[np.ndarray, "rows time"], int]:
    """Integrated gradients and the number of steps: it is doubled until the sum is right and the weights settle."""
    steps, before = FEWEST, None
    while True:
        weights = line.integral(steps)
        settled = before is not None and np.abs(weights - before).max() <= TOLERANCE * np.abs(weights).sum() + ROUNDING
        if (settled and relative_error(float(weights.sum()), difference) <= TOLERANCE) or steps >= MOST:
            return weights, steps
        steps, before = 2 * steps, weights


def relative_error(total: float, difference: float) -> float:
    """How far a sum is from a difference, as a share of it; 0 where it is as near as rounding allows."""
    missed = abs(total - difference)
    return 0.0 if missed <= ROUNDING else missed / max(abs(difference), ROUNDING)


class Ends(NamedTuple):
    """The vectors of all tokens at both ends of the line, as one lookup gives them."""

    baseline: Float[Tensor, "rows time dim"]
    text: Float[Tensor, "rows time dim"]


@dataclass(frozen=True)
class Line:
    """The straight line from the vectors of the baseline to those of the text, and the score on it."""

    copies: Copies
    score: Score
    tokens: Int[Tensor, "rows time"]
    ends: Mapping[nn.Module, Ends]
    """The two ends of every module that looks up a vector per token."""

    @classmethod
    def of(cls, encoder: object, copies: Copies, score: Score, vocabulary: Vocabulary) -> Line:
        """The line of an example."""
        tokens = copies(1).tokens
        baseline = torch.where(is_kept(tokens, vocabulary), tokens, baseline_token(vocabulary))
        with torch.no_grad():
            ends = {part: Ends(part(baseline), part(tokens)) for part in token_lookups(encoder)}
        return cls(copies, score, tokens, ends)

    def gradients(
        self, places: Sequence[float]
    ) -> tuple[list[float], dict[nn.Module, Float[Tensor, "places rows time _"]]]:
        """The score at some places between baseline (0) and text (1), and its gradient at each."""
        scores, found = list[float](), {part: list[Tensor]() for part in self.ends}
        size = max(1, BATCH_TOKENS // self.tokens.numel())
        for begin in range(0, len(places), size):
            some = places[begin : begin + size]
            points = {part: self.points(part, some) for part in self.ends}
            with replaced(points, self.tokens.repeat(len(some), 1)) as used:
                values = self.score(self.copies(len(some)))
            if not used:
                raise UserError(
                    "this model looks up no vector per token, so no token has a gradient", todo="use another"
                )
            own = torch.autograd.grad(values.sum(), list(points.values()), materialize_grads=True)
            scores += values.tolist()
            for part, gradient in zip(points, own, strict=True):
                found[part].append(gradient.view(len(some), *self.tokens.shape, -1))
        return scores, {part: torch.cat(each) for part, each in found.items()}

    def points(self, part: nn.Module, places: Sequence[float]) -> Float[Tensor, "copies time dim"]:
        """The vectors at some places of the line, as leaves of the graph."""
        baseline, text = self.ends[part]
        share = torch.tensor(places).to(text)[:, None, None, None]
        return torch.lerp(baseline, text, share).flatten(0, 1).requires_grad_()

    def integral(self, steps: int) -> Float64[np.ndarray, "rows time"]:
        """The weight of every token: the mean gradient on the line, times the difference of the vectors at its ends."""
        nodes, shares = np.polynomial.legendre.leggauss(steps)  # on −1 … 1
        _, gradients = self.gradients(((nodes + 1) / 2).tolist())
        total = torch.zeros(self.tokens.shape, dtype=torch.float64)
        for part, (baseline, text) in self.ends.items():
            at_place = (gradients[part] * (text - baseline)).sum(dim=-1).double().cpu()
            total += torch.einsum("prt,p->rt", at_place, torch.from_numpy(shares / 2))
        return total.numpy()


@contextmanager
def replaced(points: Mapping[nn.Module, Tensor], tokens: Int[Tensor, "copies time"]) -> Iterator[list[nn.Module]]:
    """While it lasts, lookups of these tokens give other vectors; yields the modules that were asked for them.

    A model may read more before the tokens, such as `<s>`: the tokens are then the last columns.
    """
    used, width = list[nn.Module](), tokens.shape[1]

    def replace(module: nn.Module, given: tuple[Any, ...], output: Tensor) -> Tensor | None:
        if given[0].ndim != 2 or not torch.equal(given[0][:, -width:], tokens):
            return None
        used.append(module)
        return torch.cat((output[:, :-width], points[module]), dim=1)

    hooks = [module.register_forward_hook(replace) for module in points]
    try:
        yield used
    finally:
        for hook in hooks:
            hook.remove()


def baseline_token(vocabulary: Vocabulary) -> int:
    """The token that the baseline consists of."""
    return dict(vocabulary.optional).get("mask", vocabulary.pad)


def is_kept(tokens: Int[Tensor, "rows time"], vocabulary: Vocabulary) -> Bool[Tensor, "rows time"]:
    """Whether each token keeps its vector in the baseline: special ones do, except `<unk>`, which replaces a word."""
    special = torch.tensor(sorted(vocabulary.specials - {vocabulary.unk}), device=tokens.device)
    return torch.isin(tokens, special)


def attributed_rows(weights: TokenWeights, batch: Batch, vocabulary: Vocabulary) -> tuple[AttributedRow, ...]:
    """The tokens of every row of an example, without padding, and their weights."""
    return tuple(
        AttributedRow(tuple(vocabulary.tokens[number] for number in ids[:length]), tuple(own[:length]))
        for ids, own, length in zip(
            batch.tokens.tolist(), weights.weights.tolist(), batch.lengths.tolist(), strict=True
        )
    )


def kept_tokens(batch: Batch, vocabulary: Vocabulary) -> tuple[str, ...]:
    """The special tokens of an example."""
    found = batch.tokens[is_kept(batch.tokens, vocabulary) & batch.mask].tolist()
    return tuple(vocabulary.tokens[number] for number in dict.fromkeys(found))
