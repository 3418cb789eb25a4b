"""The contract of autoregressive models, `start` and `step`: every decoder works with any of them.

    state = model.start(batch)                 reads the source only
    logits, state = model.step(tokens, state)  one token or many per row: a prompt, a forced prefix, a search step

rows = sentences × width, with the hypotheses of one sentence in adjacent rows. A step may modify the state it is given.
Every score is a sum of natural log-probabilities and includes that of `</s>`. `<pad>` and `<s>` are never generated,
yet the scores are the model's own: they are not renormalized over the other tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Literal, Protocol, get_args, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.errors import UserError, nearest
from mallang.kernels.attention import SHORT, sdpa_backend
from mallang.kernels.log_softmax import log_softmax
from mallang.layers.cache import Nest, State
from mallang.models.contract import longest_of
from mallang.text.vocabulary import Vocabulary

__all__ = [
    "Autoregressive",
    "Config",
    "Hypothesis",
    "Nest",
    "Rules",
    "State",
    "advance",
    "begin",
    "inference",
    "limits",
    "normalize",
]

Method = Literal["greedy", "beam", "sampling", "best-first", "exhaustive"]
LengthPenalty = Literal["average", "gnmt", "none"]
Stop = Literal["optimal", "complete"]
RunnerName = Literal["auto", "plain", "static"]
Precision = Literal["auto", "fp32", "bf16"]
METHODS: tuple[str, ...] = get_args(Method)
CHOICES = {
    "method": Method,
    "length_penalty": LengthPenalty,
    "stop": Stop,
    "runner": RunnerName,
    "precision": Precision,
}

USED_BY = {
    "beam": ("beam", "best-first"),
    "stop": ("beam",),
    "coverage": ("beam",),
    "nbest": ("beam", "sampling", "best-first", "exhaustive"),
    "max_expansions": ("best-first",),
    "temperature": ("sampling",),
    "top_k": ("sampling",),
    "top_p": ("sampling",),
    "seed": ("sampling",),
    "runner": ("greedy", "beam", "sampling"),
    "compile": ("greedy", "beam", "sampling"),
}
"""The methods that use an option; options not listed here are used by all methods."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Search options."""

    method: Method = "beam"
    """Greedy search, beam search, sampling, exact best-first search, or exhaustive search of every output."""
    beam: int = 5
    """Beam width: hypotheses per sentence; best-first search starts from the outputs of such a beam search."""
    length_penalty: LengthPenalty = "average"
    """The divisor of a score: the length, ((5 + length) / 6) ** alpha, or 1; the length counts `</s>`."""
    alpha: float = 0.6
    """The exponent of the gnmt length penalty: 0 is no penalty."""
    stop: Stop = "optimal"
    """Stop when no open hypothesis can still win, or as soon as `beam` hypotheses are complete."""
    coverage: float = 0.0
    """β of the coverage penalty, for source tokens that the output does not attend to; 0.2 in GNMT."""
    max_length: int = 256
    """The maximum output length in tokens, `</s>` counted."""
    min_length: int = 1
    """The minimum output length in tokens, `</s>` counted: before that, `</s>` is not generated."""
    max_ratio: float = 3.0
    """With a source, an output has at most this many tokens per source token, plus 10."""
    nbest: int = 1
    """Outputs per sentence: the best ones, or independent samples."""
    max_expansions: int = 2000
    """Prefixes that best-first search may expand per sentence; then it returns the best output found, unproven."""
    temperature: float = 1.0
    """Sampling divides the logits by it: below 1 sharpens, above 1 flattens."""
    top_k: int = 0
    """Sampling draws from the k most probable tokens; 0: from all."""
    top_p: float = 1.0
    """Sampling draws from the smallest set of most probable tokens that reaches this probability."""
    seed: int = 1
    """The random seed of sampling."""
    runner: RunnerName = "auto"
    """A dynamic KV cache (plain), or a static one, with CUDA graphs on a GPU (static); auto: static where possible."""
    precision: Precision = "auto"
    """Compute in float32 or bfloat16; auto: bfloat16 on a GPU that supports it, but float32 for exact search."""
    compile: bool = False
    """Compile the steps on a GPU before they are captured: half a minute for each new shape, then faster."""

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            if (value := getattr(self, name)) not in get_args(known):
                raise UserError(f"decoding.{name} cannot be {value!r}", todo=nearest(value, get_args(known)))
        self._check_numbers()
        self._check_used()

    def _check_numbers(self) -> None:
        least: dict[str, float] = {
            "beam": 1,
            "max_length": 1,
            "min_length": 1,
            "nbest": 1,
            "max_expansions": 1,
            "alpha": 0,
            "max_ratio": 0,
            "coverage": 0,
            "top_k": 0,
            "seed": 0,
        }
        for name, value in least.items():
            if getattr(self, name) < value:
                raise UserError(f"decoding.{name} is {getattr(self, name)}, but must be at least {value:g}")
        if self.min_length > self.max_length:
            raise UserError(
                f"decoding.min_length is {self.min_length}, more than decoding.max_length {self.max_length} allows"
            )
        if not self.temperature > 0:
            raise UserError(
                f"decoding.temperature is {self.temperature}, but must be above 0",
                todo='method = "greedy" always takes the most probable token',
            )
        if not 0 < self.top_p <= 1:
            raise UserError(f"decoding.top_p is {self.top_p}, but must be above 0 and at most 1")
        for name, default in DEFAULTS.items():
            if isinstance(default, float) and not math.isfinite(getattr(self, name)):
                raise UserError(f"decoding.{name} is {getattr(self, name)}, but must be a finite number")
        if self.method == "beam" and self.nbest > self.beam:
            raise UserError(
                f"decoding.nbest is {self.nbest}, more than the beam of {self.beam} can give",
                todo=f"beam={self.nbest}",
            )

    def _check_used(self) -> None:
        for name, methods in USED_BY.items():
            if self.method not in methods and getattr(self, name) != DEFAULTS[name]:
                raise UserError(
                    f"decoding.{name} = {getattr(self, name)} has no effect on the method {self.method}",
                    todo=f"leave {name} out, or choose the method {' or '.join(methods)}",
                )
        if self.compile and self.runner == "plain":
            raise UserError(
                "decoding.compile has no effect on the plain runner", todo='leave it out, or runner = "auto"'
            )
        if self.length_penalty != "gnmt" and self.alpha != DEFAULTS["alpha"]:
            raise UserError(
                f"decoding.alpha = {self.alpha} has no effect on the length penalty {self.length_penalty}",
                todo='leave alpha out, or choose length_penalty = "gnmt"',
            )

    def with_method(self, method: Method) -> Config:
        """These options for another method, without those that it does not use."""
        options = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name != "method" and method in USED_BY.get(field.name, METHODS)
        }
        return Config(method=method, **options)


DEFAULTS = {field.name: field.default for field in fields(Config)}


@runtime_checkable
class Autoregressive(Protocol):
    """A model that predicts the next token."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of its output ids."""

    def start(self, batch: Batch) -> State:
        """Encode the source; the width of the state is 1."""

    def step(
        self, tokens: Int[Tensor, "rows time"], state: State
    ) -> tuple[Float[Tensor, "rows time vocabulary"], State]:
        """Read tokens; the logits of the next token after each of them, and the new state."""


@runtime_checkable
class Rules(Protocol):
    """Constraints on outputs: they change the log-probabilities before every choice (a logits processor).

    A frozen dataclass whose tensors have one row per sentence, so that a captured graph can hold them: `apply` must not
    branch on tensor values.
    """

    def apply(
        self,
        log_probs: Float[Tensor, "rows vocabulary"],
        labels: Int[Tensor, "rows limit"],
        said: Int[Tensor, ""],
    ) -> Float[Tensor, "rows vocabulary"]:
        """The log-probabilities to choose by, in float32: −∞ for tokens that must not follow.

        rows = sentences × width, with the hypotheses of one sentence in adjacent rows. `labels[:, :said]` are the
        tokens generated so far, followed by `<pad>`.
        """

    def keep(self, sentences: Int[Tensor, " kept"]) -> Rules:
        """The rules of these sentences only, in this order."""


class NoOutputError(UserError):
    """No output has a finite score."""


@dataclass(frozen=True)
class Hypothesis:
    """One output of a model."""

    tokens: tuple[int, ...]
    """Its ids, without `<s>` and `</s>`."""
    score: float
    """The sum of its natural log-probabilities, that of `</s>` included."""
    normalized: float
    """The score after the length penalty, and the coverage penalty if there is one; hypotheses are ranked by it."""
    finished: bool
    """Whether it ended with `</s>`, rather than at the length limit."""
    token_scores: tuple[float, ...]
    """The log-probability of each token, and of `</s>` when it is finished."""
    proven: bool | None = None
    """Whether best-first search has proven that no output is better; None for other methods."""

    def labels(self, eos: int) -> tuple[int, ...]:
        """The generated tokens, `</s>` included if it was generated: one for each of `token_scores`."""
        return (*self.tokens, eos) if self.finished else self.tokens


def limits(batch: Batch, config: Config, model: object = None) -> list[int]:
    """The maximum length of each sentence's output, `</s>` counted; a `Bounded` model has its own limit too."""
    longest = min(config.max_length, longest_of(model) or config.max_length)
    if batch.source_lengths is None:
        return [longest] * len(batch)
    return [min(longest, int(config.max_ratio * length) + 10) for length in batch.source_lengths.tolist()]


@contextmanager
def inference(model: object) -> Iterator[None]:
    """Inference mode: no gradients, no dropout; afterwards every module is back in its previous mode."""
    with without_dropout(model), torch.inference_mode(), sdpa_backend(device_of(model), longest=SHORT):
        yield


@contextmanager
def evaluating(model: object) -> Iterator[None]:
    """Evaluation mode with gradients; without cuDNN, which differentiates recurrent layers in training mode only."""
    with without_dropout(model), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        yield


@contextmanager
def without_dropout(model: object) -> Iterator[None]:
    """All modules in evaluation mode; afterwards each is back in its previous mode."""
    training = [part for part in model.modules() if part.training] if isinstance(model, nn.Module) else []
    try:
        for part in training:
            part.training = False
        yield
    finally:
        for part in training:
            part.training = True


def is_in_training(model: nn.Module) -> bool:
    """Whether the first module with weights of its own is in training mode; containers are by default, so they are
    skipped."""
    having = (part for part in model.modules() if next(part.parameters(recurse=False), None) is not None)
    return next(having, model).training


def device_of(model: object) -> torch.device:
    """The device of a model's weights."""
    weight = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return torch.device("cpu") if weight is None else weight.device


def begin(model: Autoregressive, batch: Batch) -> tuple[Float[Tensor, "sentences vocabulary"], State]:
    """Read the source and `<s>`; the log-probabilities of the first token, one row per sentence, and the state."""
    first = torch.full((len(batch), 1), model.vocabulary.bos, device=batch.tokens.device)
    return advance(model, first, model.start(batch))


def advance(
    model: Autoregressive, tokens: Int[Tensor, "rows time"], state: State
) -> tuple[Float[Tensor, "rows vocabulary"], State]:
    """Read tokens; the log-probabilities of the next one, −∞ for `<pad>` and `<s>`, and the state."""
    logits, state = model.step(tokens, state)
    return normalize(logits[:, -1], model.vocabulary), state


def normalize(logits: Float[Tensor, "rows vocabulary"], vocabulary: Vocabulary) -> Float[Tensor, "rows vocabulary"]:
    """Log-probabilities in float32, −∞ for `<pad>` and `<s>`, which are never generated."""
    log_probs = log_softmax(logits)
    log_probs[:, vocabulary.pad].fill_(-torch.inf)
    log_probs[:, vocabulary.bos].fill_(-torch.inf)
    return log_probs
