"""Distillation between layers: what a student imitates of its teacher, and what it starts from.

    embedding    MSE(E_student W_e, E_teacher)                      TinyBERT, Jiao et al. 2019, arXiv:1909.10351
    hidden       MSE(H_student W_h, H_teacher), mapped layers       one W_h for all layers
    attention    MSE(A_student, A_teacher), the scores before the softmax
    cosine       1 − cos(H_student, H_teacher) of the last layers   DistilBERT, Sanh et al. 2019, arXiv:1910.01108

Each is a mean over the dimensions of a vector, or over the heads and keys of a query's scores; it is summed over mapped
layers, and its mean over tokens is the loss. Padding, and rows that fill up a batch, have no part in any of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.layers.attention import record_attention
from mallang.layers.bidirectional import GivesLayers
from mallang.layers.frozen import Frozen
from mallang.layers.linear import Linear
from mallang.models.contract import Encoder, longest_of
from mallang.runs.given import Given
from mallang.runs.weights import own_weights

SCAFFOLD = "scaffold"
"""The name of the module that a student has in training alone."""
RECEIVES = {"teacher": "Run folder of the model that the student learns from."}
"""What a task with a teacher declares."""
PARTS = ("embedding", "hidden", "attention", "cosine")
"""The losses between layers, each with its weight in the options."""


@dataclass(frozen=True, kw_only=True)
class LayerOptions:
    """The losses between the layers of student and teacher."""

    embedding_weight: float = 0.0
    """Weight of the distance between the embeddings (TinyBERT)."""
    hidden_weight: float = 0.0
    """Weight of the distance between the hidden vectors of mapped layers (TinyBERT)."""
    attention_weight: float = 0.0
    """Weight of the distance between the attention scores of mapped layers (TinyBERT)."""
    cosine_weight: float = 0.0
    """Weight of 1 − the cosine between the hidden vectors of the last layers (DistilBERT)."""
    layer_map: Literal["uniform", "top", "bottom"] = "uniform"
    """The teacher's layer for layer m of the student: uniform g · m, where the teacher has g times as many; the last
    ones; or the first ones."""
    initialize: Literal["random", "teacher"] = "random"
    """teacher: start from the teacher's embedding and from layers of it, evenly spaced from the first to the last."""
    temperature: float = 1.0
    """Temperature of the predictions that are compared."""

    def __post_init__(self) -> None:
        for each in fields(self):
            if each.name.endswith("_weight") and not (value := getattr(self, each.name)) >= 0:
                raise ValueError(f"{each.name} must be at least 0, but is {value}")
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, but is {self.temperature}")
        if not any(getattr(self, each.name) for each in fields(self) if each.name.endswith("_weight")):
            raise ValueError("all weights are 0: there is nothing to learn")


class Scaffold(nn.Module):
    """What a student has in training alone: the frozen teacher, and linear layers to the size of its vectors."""

    def __init__(self, teacher: nn.Module, sizes: tuple[int, int], options: LayerOptions) -> None:
        super().__init__()
        self.teacher = Frozen(teacher)
        self.embedding = Linear(*sizes, bias=False) if options.embedding_weight else None
        self.hidden = Linear(*sizes, bias=False) if options.hidden_weight else None


@dataclass(frozen=True)
class Layers:
    """What one model computed of a batch: its vectors between the layers, and its attention scores."""

    vectors: list[Float[Tensor, "batch time dim"]]
    """Before the first layer, then after every layer."""
    scores: list[Float[Tensor, "batch heads query key"]]
    """Before the softmax, of every layer; empty where they are not asked for."""


def check_teacher(given: Mapping[str, Given] | None, student: str) -> Given:
    """The teacher, which must give the vectors between its layers."""
    if not given or "teacher" not in given:
        raise UserError(f"{student} needs a teacher", todo="given.teacher=runs/NAME")
    teacher = given["teacher"]
    if not isinstance(teacher.model, GivesLayers) or not isinstance(teacher.model, Encoder):
        raise teacher.unfit(
            f"{type(teacher.model).__name__} does not give the vectors between its layers",
            todo="give a run of bert, albert, electra or distilbert",
        )
    return teacher


def check_length(teacher: Given, tokens: int, todo: str) -> None:
    """Refuse rows that the student reads and the teacher does not, before anything is learned from them."""
    longest = longest_of(teacher.model)
    if longest is not None and tokens > longest:
        raise teacher.unfit(f"it reads up to {longest} tokens, but a row of the training text has {tokens}", todo=todo)


def add_scaffold(whole: nn.Module, student: nn.Module, teacher: nn.Module, options: LayerOptions) -> None:
    """Give a student its teacher and what the losses need; start from the teacher's weights if that is asked for."""
    network: nn.Module = student
    if not isinstance(student, GivesLayers) or not isinstance(student, Encoder):
        raise UserError(
            f"{type(student).__name__} does not give the vectors between its layers",
            todo="model.name=distilbert, bert, albert or electra",
        )
    assert isinstance(teacher, Encoder)
    sizes = student.encoder_dims().token or 0, teacher.encoder_dims().token or 0
    if options.cosine_weight and sizes[0] != sizes[1]:
        raise UserError(
            f"cosine_weight compares vectors of one size, but those of the student have {sizes[0]} dimensions and "
            f"those of the teacher {sizes[1]}",
            todo=f"model.dim={sizes[1]}, or task.cosine_weight=0 and task.hidden_weight=1",
        )
    if options.initialize == "teacher":
        start_from(network, teacher)
    whole.add_module(SCAFFOLD, Scaffold(teacher, sizes, options))


def start_from(student: nn.Module, teacher: nn.Module) -> None:
    """Copy the teacher's weights of the same names and shapes; layer i of S is layer round(i (T − 1) / (S − 1)) of T.

    Of twelve layers a student with six has 0, 2, 4, 7, 9 and 11, as DistilBERT has.
    """
    own, theirs = own_weights(student), own_weights(teacher)
    mine, others = (1 + max(map(number_of, names)) for names in (own, theirs))
    found = {}
    for name in own:
        step = round(number_of(name) * (others - 1) / max(1, mine - 1))
        source = theirs.get(re.sub(r"\.\d+\.", f".{step}.", name, count=1))
        if source is not None and source.shape == own[name].shape:
            found[name] = source
    if not any(number_of(name) >= 0 for name in found):
        raise UserError(
            "initialize = 'teacher', but no layer of the teacher has the size of the student's",
            todo="give the student the teacher's model.dim, heads and hidden_dim, or task.initialize=random",
        )
    with torch.no_grad():
        for name, value in found.items():
            own[name].copy_(value)


def number_of(name: str) -> int:
    """The number of the layer that a weight belongs to; −1 for none."""
    found = re.search(r"\.(\d+)\.", name)
    return int(found[1]) if found else -1


def teacher_layers(student: int, teacher: int, how: Literal["uniform", "top", "bottom"]) -> list[int]:
    """The teacher's layer, counted from 1, for each layer of the student."""
    if how == "uniform" and teacher % student:
        raise UserError(
            f"layer_map = 'uniform' needs a teacher with a multiple of the student's {student} layers, not {teacher}",
            todo="model.layers=…, task.layer_map=top or task.layer_map=bottom",
        )
    if student > teacher:
        raise UserError(f"the student has {student} layers, and the teacher only {teacher}", todo="model.layers=…")
    numbers = range(1, student + 1)
    if how == "uniform":
        return [number * (teacher // student) for number in numbers]
    return [number + (teacher - student if how == "top" else 0) for number in numbers]


def layers_of(model: GivesLayers, batch: Batch, options: LayerOptions) -> Layers:
    """What a model computes of a batch, with its attention scores where they are compared."""
    if not options.attention_weight:
        return Layers(model.layers_of(batch), [])
    assert isinstance(model, nn.Module)
    with record_attention(model, scores=True, keep_graph=True) as maps:
        vectors = model.layers_of(batch)
    return Layers(vectors, [value for name, value in maps.items() if name.endswith(".scores")])


def layer_losses(
    student: Layers, teacher: Layers, scaffold: Scaffold, options: LayerOptions, real: Bool[Tensor, "batch time"]
) -> dict[str, Float[Tensor, ""]]:
    """The losses with a weight above 0, summed over the real tokens, not yet weighted."""
    found: dict[str, Tensor] = {}
    mapped = []
    if scaffold.hidden is not None or options.attention_weight:
        mapped = teacher_layers(len(student.vectors) - 1, len(teacher.vectors) - 1, options.layer_map)
    if scaffold.embedding is not None:
        found["embedding"] = distance(scaffold.embedding(student.vectors[0]), teacher.vectors[0], real)
    if scaffold.hidden is not None:
        pairs = [(student.vectors[place], teacher.vectors[layer]) for place, layer in enumerate(mapped, start=1)]
        found["hidden"] = total(distance(scaffold.hidden(one), other, real) for one, other in pairs)
    if options.attention_weight:
        if student.scores[0].shape != teacher.scores[0].shape:
            raise UserError(
                f"attention_weight compares head with head, but the student has {student.scores[0].shape[1]} of them "
                f"and the teacher {teacher.scores[0].shape[1]}",
                todo=f"model.heads={teacher.scores[0].shape[1]}, or task.attention_weight=0",
            )
        pairs = [(student.scores[place], teacher.scores[layer - 1]) for place, layer in enumerate(mapped)]
        found["attention"] = total(score_distance(one, other, real) for one, other in pairs)
    if options.cosine_weight:
        cosines = F.cosine_similarity(student.vectors[-1].float(), teacher.vectors[-1].float(), dim=-1)
        found["cosine"] = torch.where(real, 1.0 - cosines, 0.0).sum()
    return found


def distance(one: Float[Tensor, "*places dim"], other: Tensor, real: Bool[Tensor, "*places"]) -> Float[Tensor, ""]:
    """The mean squared difference over the last axis, summed over the real places."""
    return torch.where(real, (one.float() - other.float()).square().mean(dim=-1), 0.0).sum()


def score_distance(
    one: Float[Tensor, "batch heads query key"], other: Tensor, real: Bool[Tensor, "batch time"]
) -> Float[Tensor, ""]:
    """The mean squared difference over heads and real keys, summed over the real queries."""
    between = real[:, :, None] & real[:, None, :]
    squares = torch.where(between, (one.float() - other.float()).square().mean(dim=1), 0.0)
    return (squares.sum(dim=2) / real.sum(dim=1, keepdim=True).clamp(min=1)).sum()


def total(losses: Any) -> Float[Tensor, ""]:
    """The sum of some losses."""
    return torch.stack(list(losses)).sum()


def soft_cross_entropy(
    student: Float[Tensor, "rows classes"], teacher: Float[Tensor, "rows classes"], temperature: float
) -> Float[Tensor, " rows"]:
    """The cross-entropy of the student's distribution with the teacher's, summed over classes."""
    wanted = (teacher.float() / temperature).softmax(dim=-1)
    return -(wanted * (student.float() / temperature).log_softmax(dim=-1)).sum(dim=-1)


def divergence(
    student: Float[Tensor, "rows words"], teacher: Float[Tensor, "rows words"], temperature: float
) -> Float[Tensor, " rows"]:
    """KL(teacher ‖ student) at a temperature T, times T², so that its gradient keeps its size (arXiv:1503.02531)."""
    wanted = (teacher.float() / temperature).log_softmax(dim=-1)
    found = (student.float() / temperature).log_softmax(dim=-1)
    return temperature**2 * (wanted.exp() * (wanted - found)).sum(dim=-1)


def weighted(found: Mapping[str, Tensor], options: Any) -> dict[str, Tensor]:
    """Each loss times its weight in the options."""
    return {name: getattr(options, f"{name}_weight") * value for name, value in found.items()}


def weighted_parts(names: Sequence[str], options: Any) -> tuple[str, ...]:
    """The parts of the loss that have a weight above 0."""
    return tuple(name for name in names if getattr(options, f"{name}_weight"))
