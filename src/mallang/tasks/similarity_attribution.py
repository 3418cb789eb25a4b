"""The attribution of similarity: how much every token of both texts adds to their cosine, or to the logit of a pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from mallang.data.batch import Batch
from mallang.decoding.contract import device_of
from mallang.errors import UserError
from mallang.tasks.attribution import Attribution, Explained, Method, check_method, explain
from mallang.tasks.pair_layout import Pair

if TYPE_CHECKING:
    from mallang.tasks.comparer import Verbs


def similarity_attributions(verbs: Verbs, pairs: Sequence[Pair], method: Method) -> list[Attribution]:
    """The attribution of the similarity of each pair; a bi-encoder has a row for each text."""
    check_method(method)
    return [attribution_of(verbs, pair, method) for pair in pairs]


def attribution_of(verbs: Verbs, pair: Pair, method: Method) -> Attribution:
    """The attribution of the similarity of one pair."""
    task, device = verbs.task, device_of(verbs.model)
    (example,) = verbs.examples([pair])
    if verbs.windows.most and max(map(len, example[:2])) > verbs.windows.most:
        raise UserError(
            f"a text is longer than a window of {verbs.windows.most} tokens, and an attribution is of one window",
            todo="give a shorter text",
        )

    def copies(count: int) -> Batch:
        return task.collate([example] * count).to(device)

    def score(batch: Batch) -> Float[Tensor, " copies"]:
        return task.outputs(verbs.model, batch)[0].float()

    name = "the cosine of both vectors" if task.config.kind == "bi" else "the logit of the pair"
    about = Explained(pair, "similarity", verbs.similarity(pair).score, name)
    return explain(verbs.model, verbs.encoder, copies, score, task.text.vocabulary, method, about)
