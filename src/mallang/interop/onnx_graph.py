"""What is traced of a model that reads texts: its inputs, its outputs, and the network between them, for each task.

    task                            inputs                  outputs
    classification                  tokens, mask            logits [batch, classes]
    tagging                         tokens, mask            logits [batch, time, tags]
    encoding                        tokens, mask            vectors [batch, dim]
    pairs                           tokens, types, mask     logits [batch, classes]
    similarity, kind = "cross"      tokens, types, mask     scores [batch], on the scale of the data
    similarity, kind = "bi"         tokens, mask            vectors [batch, dim], whose cosine is the score
    question_answering              tokens, types, mask     start and end [batch, time], logits
    multiple_choice                 tokens, types, mask     scores [batch], one for each question with one choice

All inputs are [batch, time]. `types` is 0 for the first text and 1 for the second; where one text alone is read (the
controls), there are no types. Where a pair is read in both orders they are [batch, 2, time].
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from mallang.data.batch import Batch, lengths_to_mask
from mallang.layers.head import Headed
from mallang.models.contract import encode_text, longest_of
from mallang.tasks import (
    classification,
    encoding,
    multiple_choice,
    pairs,
    question_answering,
    similarity,
    tagging,
)
from mallang.tasks.finetuning import read_layers

Verbs = (
    classification.Verbs
    | tagging.Verbs
    | encoding.Verbs
    | similarity.Verbs
    | question_answering.Verbs
    | multiple_choice.Verbs
)
Paired = pairs.Verbs | similarity.Verbs | question_answering.Verbs | multiple_choice.Verbs
"""Those whose inputs are several texts."""
LONGEST = 2048
"""Tokens of a row where the model has no limit."""


class Reader(nn.Module):
    """What is traced: from ids, types and mask to the outputs of the task."""

    def __init__(self, verbs: Verbs) -> None:
        super().__init__()
        self.model = copy.deepcopy(verbs.model).eval().requires_grad_(False)
        self.verbs, self.names = (verbs,), inputs_of(verbs)
        self.eval()

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        """The outputs that `outputs_of` names."""
        (verbs,) = self.verbs
        batch = batch_of(dict(zip(self.names, given, strict=True)))
        if isinstance(verbs, classification.Verbs):
            return (verbs.task.logits(self.model, batch)[0],)
        if isinstance(verbs, question_answering.Verbs):
            return verbs.task.logits(self.model, batch)[0].unbind(dim=1)
        if isinstance(verbs, similarity.Verbs) and verbs.task.config.kind == "cross":
            config = verbs.task.config
            shares = verbs.task.shares(verbs.task.outputs(self.model, batch)[0])
            return (config.lowest + (config.highest - config.lowest) * shares,)
        if isinstance(verbs, encoding.Verbs | similarity.Verbs):
            return (encode_text(self.model, batch).pooled,)
        encoded = read_layers(self.model, batch)
        is_choice = isinstance(verbs, multiple_choice.Verbs)
        return (self.model.head(encoded.pooled if is_choice else encoded.layers[-1]),)


def batch_of(given: dict[str, Tensor]) -> Batch:
    """The inputs of a graph as a batch; rows of both orders of a pair follow each other."""
    sentences = None
    if given["tokens"].dim() == 3:
        given = {name: each.flatten(0, 1) for name, each in given.items()}
        sentences = torch.arange(given["tokens"].shape[0]).view(-1, 2)
    mask = given["mask"]
    return Batch(
        tokens=given["tokens"], lengths=mask.sum(dim=1), token_types=given.get("types"), sentences=sentences,
        candidates=mask.bool(),
    )  # fmt: skip


def reading_of(verbs: Verbs) -> str:
    """What a row holds: one text, or both texts of a pair, in their order or in both orders; or one of the two."""
    if isinstance(verbs, pairs.Verbs | similarity.Verbs):
        return {"apart": "text"}.get(verbs.task.layout.layout, verbs.task.layout.layout)
    if isinstance(verbs, multiple_choice.Verbs):
        return "joined" if verbs.task.config.read == "both" else "second"
    return "joined" if isinstance(verbs, question_answering.Verbs) else "text"


def inputs_of(verbs: Verbs) -> list[str]:
    """The names of the inputs."""
    return ["tokens", "types", "mask"] if reading_of(verbs) in ("joined", "orders") else ["tokens", "mask"]


def outputs_of(verbs: Verbs) -> list[str]:
    """The names of the outputs."""
    if isinstance(verbs, question_answering.Verbs):
        return ["start", "end"]
    if isinstance(verbs, encoding.Verbs) or (isinstance(verbs, similarity.Verbs) and verbs.task.config.kind == "bi"):
        return ["vectors"]
    return ["scores"] if isinstance(verbs, similarity.Verbs | multiple_choice.Verbs) else ["logits"]


def is_by_token(verbs: Verbs) -> bool:
    """Whether the outputs are those of tokens, so that they mean nothing at padding."""
    return isinstance(verbs, tagging.Verbs | question_answering.Verbs)


def most_of(verbs: Verbs) -> int:
    """The maximum number of tokens of a row, special tokens included."""
    most = longest_of(below_head(verbs.model)) or LONGEST
    if isinstance(verbs, pairs.Verbs | similarity.Verbs):
        return min(most, verbs.task.layout.most or most)
    return min(most, verbs.task.windows.window) if isinstance(verbs, question_answering.Verbs) else most


def below_head(model: nn.Module) -> nn.Module:
    """The model below the head of a task."""
    return model.model if isinstance(model, Headed) else model


def example(verbs: Verbs, rows: int, width: int) -> tuple[Tensor, ...]:
    """Some ids with padding, of pairs with the segments of both texts, and their mask."""
    vocabulary, orders = verbs.task.text.vocabulary, 2 if reading_of(verbs) == "orders" else 1
    lengths = torch.tensor([max(1, width - row) for row in range(rows)]).repeat_interleave(orders)
    mask = lengths_to_mask(lengths, width)
    random = torch.Generator().manual_seed(1)
    tokens = torch.randint(len(vocabulary), (rows * orders, width), generator=random)
    types = (torch.arange(width) >= lengths[:, None] // 2) & mask
    found: dict[str, Any] = {
        "tokens": torch.where(mask, tokens, vocabulary.pad), "types": types.long(), "mask": mask.long(),
    }  # fmt: skip
    shape = (rows, 2, width) if orders == 2 else (rows, width)
    return tuple(found[name].view(shape) for name in inputs_of(verbs))
