"""The attribution of choices: how much every token of a question and a choice adds to the score of that choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from torch import Tensor

from mallang.data.batch import Batch
from mallang.data.choices import Choices
from mallang.decoding.contract import device_of
from mallang.tasks.attribution import Attribution, Explained, Method, check_method, explain

if TYPE_CHECKING:
    from mallang.tasks.chooser import Verbs


def choice_attributions(
    verbs: Verbs, given: Sequence[tuple[str, Choices]], method: Method, label: str | None = None
) -> list[Attribution]:
    """The attribution of the choice that the model takes for each question, or of the one that `label` names."""
    check_method(method)
    return [attribution_of(verbs, question, choices, method, label) for question, choices in given]


def attribution_of(verbs: Verbs, question: str, choices: Choices, method: Method, label: str | None) -> Attribution:
    """The attribution of one choice of a question: each choice is read by itself, so the others have no part in it."""
    task, device = verbs.task, device_of(verbs.model)
    (example,), (found,) = verbs.examples([question], [choices]), verbs.choose_all([question], [choices])
    number = found.number if label is None else choices.number(label)
    share = dict(found.nbest)[choices.texts[number]]
    read, ids, starts, answer, *_ = example
    alone = (read, np.split(ids, starts[1:])[number], np.zeros(1, dtype=np.int64), answer)

    def copies(count: int) -> Batch:
        return task.collate([alone] * count).to(device)

    def score(batch: Batch) -> Float[Tensor, " copies"]:
        return task.scores(verbs.model, batch)[0][:, 0].float()

    chosen = choices.texts[number]
    about = Explained((question, *choices.texts), chosen, share, f"the score of {chosen!r}")
    return explain(verbs.model, verbs.model.model, copies, score, task.text.vocabulary, method, about)
