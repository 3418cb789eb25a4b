"""Entities of a given graph in the batches of a task (`given.entities`), and the controls of what is read.

both        tokens and entities
text        tokens alone: the control without entities
entities    entities alone: every token but the special ones is <unk>
shuffled    tokens and entities, each with the vector of another one: the control for more weights
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int64, Integer
from torch import Tensor, nn

from mallang.data.linked_text import LINK
from mallang.errors import UserError
from mallang.models.contract import ReadsEntities, TripleScorer
from mallang.runs.given import Given
from mallang.text.tokenizer import Tokenizer

RECEIVES = {"entities": "Run folder of a graph's model, such as transe; it has the vectors of the entities of texts."}
"""What a task with entities declares."""
Read = Literal["both", "text", "entities", "shuffled"]
SHUFFLED = 1905
"""The seed of the order in which entities are shuffled."""


@runtime_checkable
class Covering(Protocol):
    """Verbs that read entities of a graph, which has those of some texts only."""

    def covered(self, rows: Sequence[tuple[str, ...]]) -> np.ndarray | None:
        """Which rows have a mention whose entity the graph has; None where there is no graph."""


class GivenEntities:
    """The entities of a graph that a task is given; none where it is given none."""

    def __init__(self, given: Mapping[str, Given] | None, read: Read) -> None:
        self.given = (given or {}).get("entities")
        self.read = read
        self.order: Int64[np.ndarray, " words"] | None = None
        if self.given is None:
            if read != "text":
                raise UserError(
                    f"task.read = {read!r} reads entities, and no run has their vectors",
                    todo="given.entities=runs/transe-miniworld, or task.read=text for the text alone",
                )
            return
        if not isinstance(self.given.model, TripleScorer):
            raise self.given.unfit(
                f"{type(self.given.model).__name__} has no vectors of entities of a graph",
                todo="give a run of a graph, such as transe",
            )
        if read == "shuffled":
            self.order = self.shuffled()

    @property
    def tokenizer(self) -> Tokenizer | None:
        """Which entities there are."""
        return None if self.given is None else self.given.tokenizer

    def shuffled(self) -> Int64[np.ndarray, " words"]:
        """For every entity another one whose vector it gets."""
        assert self.given is not None and isinstance(self.given.model, TripleScorer)
        entities = self.given.model.candidate_ids().cpu().numpy()
        random = np.random.default_rng(SHUFFLED).permutation(entities)
        order = np.arange(len(self.given.tokenizer.vocabulary))
        order[random] = np.roll(random, 1)  # one large circle, so that none keeps its own
        return order

    def give_to(self, model: nn.Module) -> None:
        """Give the graph to a model that reads entities; refuse one that does not, unless the text alone is read."""
        name = type(model).__name__
        if self.read == "text" or self.given is None:
            return
        if not isinstance(model, ReadsEntities):
            raise UserError(f"{name} reads no entities", todo="model.name=ernie, or task.read=text")
        found = self.given.model.entities(torch.zeros(1, dtype=torch.long)).shape[-1]  # type: ignore[operator]
        if found != model.entity_dim:
            raise self.given.unfit(
                f"its vectors have {found} numbers, but those that the model reads {model.entity_dim}",
                todo=f"model.entity_dim={found}",
            )
        model.give_graph(self.given.model)

    def fields(self, rows: Sequence[Integer[np.ndarray, "links 3"]]) -> dict[str, Tensor]:
        """The entities of texts as fields of a batch; each link is its first token, its last one and its entity."""
        if self.read == "text":
            return {}
        width = max(1, *(len(row) for row in rows), 0)  # attention needs a place even where no text has an entity
        entities, places = np.full((2, len(rows), width), -1, dtype=np.int64)
        for number, row in enumerate(rows):
            entities[number, : len(row)] = row[:, 2] if self.order is None else self.order[row[:, 2]]
            places[number, : len(row)] = row[:, 0]
        return {"entities": torch.from_numpy(entities), "entity_places": torch.from_numpy(places)}


def overlaps(links: Any, mentions: Any) -> bool:
    """Whether a link shares a token with a mention, so that the entity of the mention is known."""
    spans = np.reshape(links, (-1, LINK))[:, :2].tolist()
    return any(
        first <= end and start <= last for first, last in spans for start, end in np.reshape(mentions, (-1, 2)).tolist()
    )
