"""Prompts: wraps a language model so that every search continues a prompt without knowing of it.

    batch.tokens      <s> The dog   prefill: `start` reads all but the last token in one step
    a search feeds    <s>           and the model reads "dog" in its place
    and continues     barks </s>    as without a prompt

Every search feeds `<s>` first, and never again, so `<s>` is replaced by the last token of the prompt. A prompt costs
one step, a long one a few; scores do not include it; and all searches work with it, exact ones too. All prompts of a
batch must have the same length, since padding would be read.
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
"""The maximum number of prompt logits per prefill step (512 MiB); they are discarded at once."""


class Prompted(nn.Module):
    """The model that continues from the tokens of a batch."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the model's output ids."""
        vocabulary: Vocabulary = self.model.vocabulary
        return vocabulary

    def start(self, batch: Batch) -> State:
        """Prefill: read the prompt without its last token, in chunks whose logits fit into memory."""
        state, tokens = self.model.start(batch), batch.tokens
        if tokens.shape[1] > 1:
            width = max(1, LOGITS // max(1, len(tokens) * len(self.vocabulary)))
            for piece in torch.split(tokens[:, :-1], width, dim=1):
                state = self.model.step(piece, state)[1]
        return State({"last": tokens[:, -1], "own": state.fixed}, state.moving)

    def step(
        self, tokens: Int[Tensor, "rows time"], state: State
    ) -> tuple[Float[Tensor, "rows time vocabulary"], State]:
        """Read tokens, with the last prompt token in place of `<s>`."""
        last = state.fixed["last"]
        last = last[:, None].expand(-1, len(tokens) // max(1, len(last))).reshape(-1, 1)
        read = torch.where(tokens == self.vocabulary.bos, last, tokens)
        logits, after = self.model.step(read, State(state.fixed["own"], state.moving))
        return logits, State({**state.fixed, "own": after.fixed}, after.moving)


def prompt_batch(prompts: Sequence[Sequence[int]]) -> Batch:
    """A batch of prompts of one length, each with its first token (usually `<s>`), as `Prompted` reads them."""
    tokens = torch.tensor([list(prompt) for prompt in prompts], dtype=torch.long)
    return Batch(tokens=tokens, lengths=torch.full((len(prompts),), tokens.shape[1]))
