"""The attribution of tags: how much every word of a sentence adds to the score of the tag of one of them.

The score is the emission of the predicted tag: of a CRF without the transitions, which no token changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from torch import Tensor

from mallang.data.batch import Batch
from mallang.decoding.contract import device_of
from mallang.tasks.attribution import (
    AttributedRow,
    Attribution,
    Method,
    TokenWeights,
    attribute,
    baseline_token,
    check_method,
    kept_tokens,
)
from mallang.tasks.tag_reading import Example, batches, encoder_of, examples_of
from mallang.text.vocabulary import Vocabulary
from mallang.text.words import split_words

if TYPE_CHECKING:
    from mallang.tasks.tagger import Verbs


def tag_attributions(verbs: Verbs, text: str, method: Method) -> list[Attribution]:
    """One attribution per word of a text; a long sentence is attributed in the parts that the model reads."""
    check_method(method)
    words = [word.text for word in split_words(text, verbs.task.config.split)]
    found: list[Attribution] = []
    for example in examples_of(verbs.task, verbs.model, [words]):
        found += of_part(verbs, text, words[len(found) : len(found) + example.words], example, method)
    return found


def of_part(verbs: Verbs, text: str, words: list[str], example: Example, method: Method) -> list[Attribution]:
    """The attributions of the words of one part of a text."""
    task, device, vocabulary = verbs.task, device_of(verbs.model), verbs.task.text.vocabulary
    ((_, read),) = batches(task, verbs.model, [example])
    part = verbs.only_part(read, example.words)
    best, batch = read.best()[0].tolist(), read.batch

    def copies(count: int) -> Batch:
        return task.collate([example.row] * count).to(device)

    found = []
    for place, word in enumerate(words):

        def score(batch: Batch, place: int = place) -> Float[Tensor, " copies"]:
            return task.emissions(verbs.model, batch)[0][:, place, best[place]].float()

        made = attribute(verbs.model, encoder_of(verbs.model), copies, score, vocabulary, method)
        found.append(
            Attribution(
                input=text,
                label=part.tags[place],
                probability=part.probabilities[place],
                score_name=f"the score of {task.tags.names[best[place]]}",
                method=method,
                rows=(by_word(made, batch, words, vocabulary),),
                score=made.score,
                baseline_score=made.baseline_score,
                baseline=vocabulary.tokens[baseline_token(vocabulary)],
                kept=kept_tokens(batch, vocabulary),
                steps=made.steps,
                word=word,
                constant=() if task.features is None else ("the given features",),
            )
        )
    return found


def by_word(made: TokenWeights, batch: Batch, words: list[str], vocabulary: Vocabulary) -> AttributedRow:
    """The weights of words, each the sum over its tokens, between those of the special tokens around them."""
    assert batch.words is not None
    last, starts = int(batch.lengths[0]) - 1, batch.words[0].tolist()
    bounds = [*range(starts[0]), *starts, last]
    ids = batch.tokens[0].tolist()
    tokens = [*(vocabulary.tokens[ids[place]] for place in range(starts[0])), *words, vocabulary.tokens[ids[last]]]
    return AttributedRow(tuple(tokens), tuple(np.add.reduceat(made.weights[0, : last + 1], bounds).tolist()))
