"""The attribution of classes: how much every token of a text adds to the logit of a label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from mallang.data.batch import Batch
from mallang.decoding.contract import device_of
from mallang.errors import UserError, nearest
from mallang.models.contract import Fitted, InputEmbedding, TokenLookups
from mallang.tasks.attribution import Attribution, Explained, Method, check_method, explain

if TYPE_CHECKING:
    from mallang.tasks.classifier import Verbs

ORDINAL = 0
"""The output of an ordinal head that is explained: thresholds share one scale, so every output has these weights."""


def attributions(verbs: Verbs, texts: Sequence[Any], method: Method, label: str | None = None) -> list[Attribution]:
    """The attribution of each text: of the label that is named, else of the most probable one."""
    check_method(method)
    check_label(verbs, label)
    check_vectors(verbs.encoder)
    found = verbs.classify(list(texts))
    return [
        attribution_of(verbs, text, example, own.probabilities, method, label)
        for text, example, own in zip(texts, verbs.examples(texts), found, strict=True)
    ]


def check_vectors(model: object) -> None:
    """Refuse a model without vectors of single tokens, which is where an attribution begins."""
    if isinstance(model, TokenLookups | InputEmbedding):
        return
    why = ": it counts n-grams" if isinstance(model, Fitted) else ""
    raise UserError(
        f"an attribution begins at the vectors of the tokens, and {type(model).__name__} has none{why}",
        todo="train cnn, rnn_classifier or bert on the same data and inspect that run; or classify the text again "
        "without a word: the difference of the probabilities (classify --scores) is what the word adds",
    )


def check_label(verbs: Verbs, label: str | None) -> None:
    """Refuse a label that there is not, or that has no logit of its own."""
    names = verbs.task.labels.names
    if label is not None and verbs.task.config.kind == "ordinal":
        raise UserError("ratings lie on one scale, so no label has a score of its own", todo="leave out the label")
    if label is not None and label not in names:
        raise UserError(f"there is no label {label!r}", todo=nearest(label, names))


def attribution_of(
    verbs: Verbs,
    text: Any,
    example: Sequence[Any],
    probabilities: dict[str, float],
    method: Method,
    label: str | None,
) -> Attribution:
    """The attribution of one text, which is read as this example."""
    task, device, vocabulary = verbs.task, device_of(verbs.model), verbs.task.text.vocabulary
    chosen = max(probabilities, key=probabilities.__getitem__) if label is None else label
    is_ordinal = task.config.kind == "ordinal"
    output = ORDINAL if is_ordinal else task.labels.names.index(chosen)

    windows, _ = task.in_windows([example])

    def copies(count: int) -> Batch:
        return task.collate([*windows] * count).to(device)

    def score(batch: Batch) -> Float[Tensor, " copies"]:
        logits = task.logits(verbs.model, batch)[0][:, output].float()
        return logits.view(-1, len(windows)).mean(dim=1)

    others = {"the given features": task.features is not None, "the bag of n-grams": task.bag is not None}
    name = "the scale of the ratings" if is_ordinal else f"the logit of {chosen}"
    constant = tuple(name for name, is_there in others.items() if is_there)
    about = Explained(text, chosen, probabilities[chosen], name, constant)
    return explain(verbs.model, verbs.encoder, copies, score, vocabulary, method, about)
