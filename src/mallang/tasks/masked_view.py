"""What a masked language model reads in training, for people: tokens, masks, and pairs with their class.

my dog is <mask>        hairy → <mask>
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mallang.data.columns import ColumnEncoder
from mallang.data.passages import FOLLOWS, Documents
from mallang.data.prepared import Prepared
from mallang.data.sampler import generator

if TYPE_CHECKING:
    from mallang.tasks.masked_lm import Task

LABELS = {"next": ("next", "of another document"), "order": ("in order", "swapped")}
"""What the classes of pairs mean."""
VIEW = 7
"""Sets the random numbers of these masks apart from all others."""


def shown_examples(
    task: Task, given: Prepared | Sequence[str], count: int, seed: int, epoch: int = 0
) -> list[dict[str, str]]:
    """The first examples of an epoch, of a corpus or of texts; their masks are one draw of many."""
    if isinstance(given, Prepared):
        passages = task.examples(given, seed, epoch)
    else:
        encoders = [column.encoder for column in task.arrays() if isinstance(column.encoder, ColumnEncoder)]
        rows = list(zip(*(encoder.encode_batch(list(given)) for encoder in encoders), strict=True))
        passages = task.passages(Documents.from_rows(rows), task.config.pairs, seed, epoch)
    return [shown_example(task, passages[place], seed, place) for place in range(min(count, len(passages)))]


def shown_example(task: Task, passage: Any, seed: int, number: int) -> dict[str, str]:
    """One example: the tokens that are read, those that are masked, and the class of a pair."""
    batch = task.collate_texts([passage])
    found = task.masker(
        batch.tokens.numpy(), batch.lengths.numpy(), task.config.rates, generator(seed, number, 0, VIEW)
    )
    names = np.array(task.text.vocabulary.tokens, dtype=object)
    changes = [f"{names[original]} → {names[found.tokens[0, place]]}" for _, place, original in found.places.tolist()]
    shown = {"example": str(number + 1), "read": " ".join(names[found.tokens[0]]), "masked": ", ".join(changes)}
    if task.config.pairs == "none":
        return shown
    label = passage[2]
    told = "" if label < FOLLOWS else LABELS[task.config.pairs][label]
    return {**shown, "pair": told}
