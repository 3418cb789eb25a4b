"""One direction of a model of two languages: a translator from one of them to the other, or from one to itself."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.cache import State
from mallang.layers.head import Projection
from mallang.text.vocabulary import Vocabulary


class Direction(nn.Module):
    """A model of two languages as one that reads `source` and predicts `target`; all weights are those of the model.

    The numbers of the languages are arguments of every call, so that the model has one wiring for all directions.
    """

    reads_source = True

    def __init__(self, model: Any, languages: tuple[Vocabulary, Vocabulary], source: int, target: int) -> None:
        super().__init__()
        self.model, self.source, self.target = model, source, target
        self.config = model.config
        self.source_vocabulary, self.vocabulary = languages[source], languages[target]

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The hidden vector of every position."""
        hidden: Tensor = self.model.forward(batch, self.source, self.target)
        return hidden

    def output(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word of the target language."""
        logits: Tensor = self.model.output(hidden, self.target)
        return logits

    def start(self, batch: Batch) -> State:
        """Encode the source."""
        state: State = self.model.start(batch, self.source, self.target)
        return state

    def step(self, tokens: Int[Tensor, "rows time"], state: State) -> tuple[Float[Tensor, "rows time words"], State]:
        """The logits after each of these tokens."""
        found: tuple[Tensor, State] = self.model.step(tokens, state, self.target)
        return found

    def input_embedding(self) -> nn.Embedding:
        """The embedding of source tokens."""
        table: nn.Embedding = self.model.input_embedding(self.source)
        return table

    def output_projection(self) -> Projection:
        """The linear layer that `output` applies."""
        head: Projection = self.model.output_projection(self.target)
        return head


def directions(model: Any, languages: tuple[Vocabulary, Vocabulary]) -> dict[tuple[int, int], Direction]:
    """All directions between two languages, by the numbers of source and target.

    A dict, so that torch registers no model within itself.
    """
    return {(one, other): Direction(model, languages, one, other) for one in (0, 1) for other in (0, 1)}
