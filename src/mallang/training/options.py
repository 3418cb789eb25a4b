"""The options of a training loop, a recipe's section [train]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mallang.training.precision import COPIED, Precision
from mallang.training.step import Engine


@dataclass(frozen=True, kw_only=True)
class Config:
    """Length of training, batch size, validation, checkpoints, precision and engine."""

    steps: int | None = None
    """Total number of updates; either this or `epochs`."""
    epochs: int | None = None
    """Passes over the data; 10 where neither is given, nor `seconds`."""
    batch_tokens: int = 4096
    """Padded tokens per micro-batch, counted on its longer side."""
    batch_sentences: int | None = None
    """Maximum number of examples per micro-batch."""
    gradient_accumulation: int = 1
    """Gradient accumulation: micro-batches per process and update."""
    micro_batches: int | None = None
    """Micro-batches per update over all processes, independent of their number; replaces `gradient_accumulation`."""
    first_micro_batches: int | None = None
    """Micro-batches of the first update: their number then grows to `micro_batches` (batch-size warm-up)."""
    batch_growth: float = 0.6
    """The share of all updates within which it grows, linearly."""
    validate_every: int | None = None
    """Updates between validations; default: once per epoch."""
    save_every: int | None = None
    """Updates between checkpoints, besides those that every validation writes."""
    log_every: int = 50
    """Updates between two log lines."""
    metric: str = "loss"
    """The validation metric that selects the best checkpoint: `loss`, or another metric of the task."""
    patience: int | None = None
    """Early stopping: validations without improvement before training stops."""
    seconds: float | None = None
    """Alone: as many updates as fit into this time, measured when the run starts and written to run.json. With steps
    or epochs: training stops at the first validation after this many seconds."""
    keep: int = 1
    """Validated checkpoints that are kept, and averaged with `final = "average"`."""
    final: Literal["best", "last", "average", "ema"] = "best"
    """Final weights: best validation, last step, average of the kept checkpoints, or EMA."""
    ema_decay: float = 0.0
    """Decay of the exponential moving average (EMA) of the weights, such as 0.999; 0: no EMA."""
    precision: Precision = "auto"
    """auto: bf16 autocast on a GPU, fp32 on a CPU; bf16-weights: all in bf16 with fp32 master weights, faster; fp8:
    bf16-weights with FP8 matmuls, faster still."""
    initialization: Literal["paper", "default"] = "paper"
    """Initialization as in the model's paper, or PyTorch's defaults for each layer, as an ablation."""
    auto_micro_batch: bool = False
    """Split the tokens of an update into as few micro-batches as fit into the GPU's memory."""
    engine: Engine = "auto"
    """Run a step eagerly, as replayed CUDA graphs, or compiled; auto: cuda-graphs on a GPU, eager on a CPU."""
    gradient_checkpointing: bool = False
    """Keep only the inputs of the blocks for the backward pass, and compute the rest again: less memory, more time."""
    workers: int = 1
    """Data loader processes; 0: batches are prepared in the training process."""
    threads: int | None = None
    """CPU threads: one is fastest for tiny models, and another number changes the last bits of the results."""
    tensorboard: bool = False
    """Also write TensorBoard files."""

    def __post_init__(self) -> None:
        if self.steps is not None and self.epochs is not None:
            raise ValueError(f"steps = {self.steps} and epochs = {self.epochs} cannot both decide how long to train")
        if self.final == "ema" and not self.ema_decay:
            raise ValueError('final = "ema" needs ema_decay above 0, such as 0.999')
        if not 0.0 <= self.ema_decay < 1.0:
            raise ValueError(f"ema_decay must lie between 0 and 1, but is {self.ema_decay}")
        if self.ema_decay and self.final not in ("ema", "best"):
            raise ValueError(f'ema_decay has no effect on final = "{self.final}": choose best or ema')
        if self.keep > 1 and self.final != "average":
            raise ValueError(f'keep = {self.keep} checkpoints are only of use with final = "average"')
        if self.auto_micro_batch and self.micro_batches is not None:
            raise ValueError("auto_micro_batch chooses the number of micro-batches: leave micro_batches out")
        if self.micro_batches is not None and self.gradient_accumulation > 1:
            raise ValueError("micro_batches and gradient_accumulation cannot both be given")
        if self.first_micro_batches is not None:
            self.check_growth(self.first_micro_batches)
        elif self.batch_growth != Config.batch_growth:
            raise ValueError(f"batch_growth = {self.batch_growth} has no effect without first_micro_batches")
        for name in ("steps", "epochs", "batch_tokens", "batch_sentences", "gradient_accumulation", "micro_batches",
                     "first_micro_batches", "validate_every", "save_every", "log_every", "patience", "seconds", "keep",
                     "threads"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, but is {value}")
        if self.gradient_checkpointing and self.engine not in ("auto", "eager"):
            raise ValueError(f'gradient_checkpointing needs engine = "eager", and engine is "{self.engine}"')
        if self.gradient_checkpointing and self.precision in COPIED:
            raise ValueError(f'gradient_checkpointing needs precision = "bf16" or "fp32", not "{self.precision}"')
        if self.workers < 0:
            raise ValueError(f"workers must not be negative, but is {self.workers}")

    def check_growth(self, first: int) -> None:
        """Refuse a number of micro-batches that cannot grow."""
        if self.micro_batches is None or first >= self.micro_batches:
            raise ValueError(
                f"first_micro_batches = {first} grows to micro_batches, which must be larger, not {self.micro_batches}"
            )
        if self.steps is None:
            raise ValueError("first_micro_batches needs steps: how long an epoch takes depends on what it grows to")
        if not 0.0 < self.batch_growth <= 1.0:
            raise ValueError(f"batch_growth = {self.batch_growth} is a share of the updates: above 0, and at most 1")

    def micro_batches_at(self, step: int, processes: int) -> int:
        """The number of micro-batches of an update, from 1, over all processes."""
        most = self.micro_batches or self.gradient_accumulation * processes
        if self.first_micro_batches is None or self.steps is None:
            return most
        share = min(1.0, (step - 1) / max(1.0, self.batch_growth * self.steps))
        return self.first_micro_batches + int(share * (most - self.first_micro_batches))
