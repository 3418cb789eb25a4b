"""From the rows of a batch to documents: the vectors of sentences, put in the order of their documents."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mallang.data.batch import Batch


def gather_sentences(
    vectors: Float[Tensor, "batch dim"], batch: Batch
) -> tuple[Float[Tensor, "examples sentences dim"], Int[Tensor, " examples"]]:
    """The vectors of every document's sentences, and their number; without documents each row is one of one sentence.

    A document that only fills up the batch gets the first row as its sentence: a reader needs at least one, and nothing
    asks for its result.
    """
    if batch.sentences is None:
        return vectors[:, None], torch.ones_like(batch.lengths)
    counts = (batch.sentences >= 0).sum(dim=1).clamp(min=1)
    return F.embedding(batch.sentences.clamp(min=0), vectors), counts
