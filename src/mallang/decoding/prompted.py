"""A language model that continues from a prompt, as a model like any other: no search knows that there was one.

    batch.tokens   <s> The dog      read by `start`, but for the last token, at once
    a search says  <s>              and the model reads "dog" in its place
    then           barks </s>       as ever

Every search reads `<s>` first, and never again: where it says `<s>`, the last token of the prompt is what is meant. So
a prompt costs one step, a long one a few, no score holds any of it, and all searches work with it, exact ones too.
The prompts of a batch have one length: what fills up a shorter one would be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.cache import State
from mallang.text.vocabulary import Vocabulary

LOGITS = 2**27
"""The most logits of a prompt that a step may compute, 512 MiB of them: each is as soon forgotten."""


class Prompted(nn.Module):
    """The model that continues from the tokens of a batch."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    @property
    def vocabulary(self) -> Vocabulary:
        """What its output ids mean."""
        vocabulary: Vocabulary = self.model.vocabulary
        return vocabulary

    def start(self, batch: Batch) -> State:
        """Read the prompt but for its last token, so many tokens at once that memory holds their logits."""
        state, tokens = self.model.start(batch), batch.tokens
        if tokens.shape[1] > 1:
            width = max(1, LOGITS // max(1, len(tokens) * len(self.vocabulary)))
            for piece in torch.split(tokens[:, :-1], width, dim=1):
                state = self.model.step(piece, state)[1]
        return State({"last": tokens[:, -1], "own": state.fixed}, state.moving)

    def step(
        self, tokens: Int[Tensor, "rows time"], state: State
    ) -> tuple[Float[Tensor, "rows time vocabulary"], State]:
        """Read tokens, the last one of the prompt in place of `<s>`."""
        last = state.fixed["last"]
        last = last[:, None].expand(-1, len(tokens) // max(1, len(last))).reshape(-1, 1)
        read = torch.where(tokens == self.vocabulary.bos, last, tokens)
        logits, after = self.model.step(read, State(state.fixed["own"], state.moving))
        return logits, State({**state.fixed, "own": after.fixed}, after.moving)


def prompt_batch(prompts: Sequence[Sequence[int]]) -> Batch:
    """Prompts of one length, each with what it begins with (`<s>` as a rule), as `Prompted` reads them."""
    tokens = torch.tensor([list(prompt) for prompt in prompts], dtype=torch.long)
    return Batch(tokens=tokens, lengths=torch.full((len(prompts),), tokens.shape[1]))
