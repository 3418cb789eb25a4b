"""Fine-tuning: what of an encoder under the head of a task is trained, at which rate, and from when on.

    full               all weights, at one learning rate
    freeze             the head alone; mix_layers: it reads a learned mix of the layers (ELMo, BERT's section 5.3)
    layer_decay        all weights; a layer's rate is that of the layer above it times the decay, the head's is 1
                       (Howard and Ruder 2018, arXiv:1801.06146; ELECTRA, arXiv:2003.10555)
    unfreeze_every     first the head, then one layer more after so many updates, the highest first (Howard and Ruder)
    lora_rank          low-rank updates of frozen matrices (layers/lora.py)
    r_drop             every batch is read twice, and both predictions should agree (kernels/r_drop.py)

A task with a head adopts all of it by four names:

    class Config(FineTuning)      the options; its __post_init__ calls `check_tuning`
    class Task(FineTuned)         `updates` and `unfreeze`
    head_dims, put_head           the sizes that the head reads, and the head on the encoder; in `build`
    read_layers                   what the head reads of a batch
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, get_args, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.layers.dropout import drops
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.frozen import Frozen
from mallang.layers.head import Headed
from mallang.layers.lora import Target, adapt
from mallang.layers.mix import LayerMix
from mallang.layers.pooling import masked_mean
from mallang.models.contract import Layered, encode_text
from mallang.tasks.contract import Group, Loss

WAYS = ("freeze", "layer_decay", "unfreeze_every", "lora_rank")
"""The options that say which weights of the encoder are trained, and how fast."""


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """What of the encoder is trained, and how."""

    freeze: bool = False
    """Train the head alone; the encoder, usually from another run (--from), stays as it is."""
    mix_layers: bool = False
    """The head reads a learned mix of all layers of the encoder; the vector of a text is the mean over its tokens."""
    layer_decay: float = 1.0
    """Layer-wise learning-rate decay: the factor from one layer to the next lower one, such as 0.8; the head has 1."""
    unfreeze_every: int = 0
    """Gradual unfreezing: updates until the next lower layer is trained as well, the head being the first; 0: none."""
    lora_rank: int = 0
    """LoRA: rank of the updates of the frozen matrices of the encoder, such as 8; 0: no LoRA."""
    lora_alpha: float | None = None
    """LoRA: the updates are scaled by lora_alpha / lora_rank; default: lora_rank, a scale of 1."""
    lora_dropout: float = 0.0
    """LoRA: dropout on the input of the updates."""
    lora_targets: tuple[Target, ...] = ("query", "value")
    """LoRA: the matrices that are updated: query, key, value and output of attention, ffn: both of the feed-forward."""
    r_drop: float = 0.0
    """R-Drop: weight of the KL divergence between two passes with different dropout (Liang et al. 2021)."""

    def check_tuning(self) -> None:
        """Refuse impossible values, and options without effect."""
        for name in ("unfreeze_every", "lora_rank", "r_drop"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        if not 0.0 < self.layer_decay <= 1.0:
            raise ValueError(f"layer_decay must be above 0 and at most 1, but is {self.layer_decay}")
        if not 0.0 <= self.lora_dropout < 1.0:
            raise ValueError(f"lora_dropout must be at least 0 and less than 1, but is {self.lora_dropout}")
        if self.lora_alpha is not None and self.lora_alpha <= 0:
            raise ValueError(f"lora_alpha must be above 0, but is {self.lora_alpha}")
        if not self.lora_targets or len({*self.lora_targets}) < len(self.lora_targets):
            raise ValueError(f"lora_targets names some of {', '.join(get_args(Target))}, each once")
        changed = changed_options(self)
        if self.freeze and (others := [name for name in changed if name in WAYS[1:]]):
            raise ValueError(f"{others[0]} has no effect on a frozen encoder: leave it or freeze out")
        if self.lora_rank and self.unfreeze_every:
            raise ValueError("unfreeze_every has no effect with lora_rank, which keeps the encoder frozen")
        for name in ("lora_alpha", "lora_dropout", "lora_targets"):
            if name in changed and not self.lora_rank:
                raise ValueError(f"{name} has no effect without lora_rank, such as 8")


@runtime_checkable
class Framed(Protocol):
    """A language model that reads special tokens around texts, but only where a task puts a head on it."""

    frame_marks: tuple[str, ...]
    """The names of these tokens: start, delimiter, extract. A tokenizer that has none gets them at its end."""


def frame_marks_of(model: object) -> tuple[str, ...]:
    """The special tokens that a model, or its class, needs only under the head of a task."""
    return model.frame_marks if isinstance(model, Framed) else ()


def changed_options(config: FineTuning) -> list[str]:
    """The options of fine-tuning that differ from their defaults."""
    return [each.name for each in fields(FineTuning) if getattr(config, each.name) != each.default]


def refuse_tuning(config: FineTuning, why: str, todo: str = "leave it out") -> None:
    """Refuse options of fine-tuning for a model without a head of the task; `why` says what it has instead."""
    for option in changed_options(config):
        raise UserError(f"task.{option} is about an encoder under a head, and {why}", todo=todo)


def head_dims(encoder: Any, config: FineTuning) -> EncoderDims:
    """The sizes of the vectors that the head reads."""
    dims: EncoderDims = encoder.encoder_dims()
    if not config.mix_layers:
        return dims
    if dims.token is None or dims.layers < 2:
        raise UserError(
            f"task.mix_layers mixes the layers of an encoder, and {type(encoder).__name__} has "
            + ("one" if dims.token else "none"),
            todo="task.mix_layers=false, or a deeper encoder such as model.name=bert",
        )
    return replace(dims, pooled=dims.token)


def put_head(
    encoder: nn.Module,
    head: nn.Module,
    config: FineTuning,
    features: Frozen | None = None,
    features_mix: LayerMix | None = None,
) -> Headed:
    """The head of a task on an encoder that is fine-tuned as the options say."""
    name = type(encoder).__name__
    if (config.layer_decay < 1 or config.unfreeze_every) and not isinstance(encoder, Layered):
        option = "layer_decay" if config.layer_decay < 1 else "unfreeze_every"
        raise UserError(
            f"task.{option} treats the layers of an encoder differently, and {name} does not declare any",
            todo=f"leave task.{option} out, or take an encoder such as model.name=bert",
        )
    if config.lora_rank:
        scale = (config.lora_alpha or config.lora_rank) / config.lora_rank
        if not adapt(encoder, config.lora_targets, config.lora_rank, scale, config.lora_dropout):
            raise UserError(
                f"task.lora_rank adapts self-attention and feed-forward networks, and {name} has none",
                todo="leave it out, or take an encoder such as model.name=bert",
            )
    mix = LayerMix(encoder.encoder_dims().layers) if config.mix_layers else None  # type: ignore[operator]
    model = Headed(encoder, head, frozen=config.freeze, features=features, mix=mix, features_mix=features_mix)
    if config.r_drop and not drops(model.head if config.freeze else model):
        raise UserError(
            "task.r_drop compares two dropouts, but what is trained has none",
            todo="task.head_dropout=0.1" if config.freeze else "model.dropout=0.1",
        )
    return model


def read_layers(model: Headed, batch: Batch) -> Encoded:
    """What the head reads of a batch: the output of the encoder, or a mix of its layers as the last one."""
    return mixed(model, encode_text(model.model, batch))


def mixed(model: Headed, encoded: Encoded) -> Encoded:
    """The output of an encoder with the mix of its layers, if there is one, in place of its last layer."""
    if model.mix is None:
        return encoded
    mix = model.mix(encoded.layers)
    return replace(encoded, layers=[*encoded.layers[:-1], mix], pooled=masked_mean(mix, encoded.mask))


class FineTuned:
    """A task with a head on an encoder: its parameter groups, and what of them is trained in which update."""

    config: FineTuning

    @classmethod
    def puts_head(cls, config: Any) -> bool:
        """Whether a configuration of the task puts a head on the encoder."""
        return True

    def updates(self, model: nn.Module) -> list[Group]:
        """The parameters that are trained; with `layer_decay` a group for the head and one for every layer."""
        found = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
        if not isinstance(model, Headed) or self.config.layer_decay == 1:
            return [Group(found)]
        depths = depths_of(model)
        layers = defaultdict[int, list[tuple[str, nn.Parameter]]](list)
        for name, parameter in found:
            layers[depths.get(parameter, 0)].append((name, parameter))
        return [Group(layers[depth], self.config.layer_decay**depth) for depth in sorted(layers)]

    def unfreeze(self, model: nn.Module, step: int) -> bool:
        """Set what is trained in update `step`: the head, and the highest layers; whether anything changed."""
        if not self.config.unfreeze_every or not isinstance(model, Headed):
            return False
        depth, has_changed = (step - 1) // self.config.unfreeze_every, False
        for parameter, its_depth in depths_of(model).items():
            if parameter.requires_grad != (its_depth <= depth):
                parameter.requires_grad_(its_depth <= depth)
                has_changed = True
        if has_changed:
            for parameter in model.parameters():
                if not parameter.requires_grad:
                    parameter.grad = None  # or the optimizer would use the last one again
        return has_changed


def depths_of(model: Headed) -> dict[nn.Parameter, int]:
    """How far below the head every parameter of the encoder is: 1 for those of the highest layer."""
    groups = model.model.layer_groups() if isinstance(model.model, Layered) else []
    return {
        parameter: len(groups) - number
        for number, group in enumerate(groups)
        for part in group
        for parameter in ([part] if isinstance(part, nn.Parameter) else part.parameters())
    }


def with_r_drop(
    strength: float,
    model: nn.Module,
    run: Callable[[], tuple[Loss, Tensor]],
    divergence: Callable[[Tensor, Tensor], Tensor],
) -> Loss:
    """The loss of two passes with different dropout: the mean of both, and strength / 4 of their divergence.

    A pass gives its loss and its logits; `divergence` sums `symmetric_divergence` over what is predicted. Without
    R-Drop, and outside training, it is the loss of a single pass.
    """
    if not strength or not model.training:
        return run()[0]
    (first, one), (second, two) = run(), run()
    apart = divergence(one, two)
    sums = mean_of_both(first.sums, second.sums)
    sums["loss"] = sums["loss"] + strength / 4 * apart
    report = mean_of_both(first.report, second.report)
    return Loss(sums=sums, report={**report, "divergence": apart.detach()})


def mean_of_both(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The mean of each value."""
    return {name: (value + second[name]) / 2 for name, value in first.items()}


def symmetric_divergence(
    first: Float[Tensor, "*rows outputs"], second: Float[Tensor, "*rows outputs"], *, independent: bool = False
) -> Float[Tensor, "*rows"]:
    """KL(p‖q) + KL(q‖p) of the predictions of two rows of logits: of one class, or of `independent` yes-no decisions.

    Both are Σ (p − q) · (log p − log q); for a yes-no decision the two logarithms differ as the logits do.
    """
    first, second = first.float(), second.float()
    if independent:
        return ((first.sigmoid() - second.sigmoid()) * (first - second)).sum(dim=-1)
    log_p, log_q = F.log_softmax(first, dim=-1), F.log_softmax(second, dim=-1)
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=-1)


def with_penalties(
    loss: Float[Tensor, ""], report: dict[str, Tensor], penalties: Mapping[str, Tensor], asked: Tensor
) -> Float[Tensor, ""]:
    """The loss with what the encoder adds for every example that is asked for; each penalty is reported."""
    for name, penalty in penalties.items():
        total = summed(penalty, asked)
        loss, report[name] = loss + total, total.detach()
    return loss


def summed(values: Tensor, asked: Tensor) -> Float[Tensor, ""]:
    """The sum over what is asked for; the rest may be NaN."""
    return torch.where(asked, values, 0.0).sum()
