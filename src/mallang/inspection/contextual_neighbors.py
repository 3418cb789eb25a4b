"""Contextual neighbors: for a word in a sentence, the occurrences of words in other sentences with the nearest vectors.

A word has as many vectors as contexts, so that *play* on a stage and *play* on a field may have other neighbors (Peters
et al. 2018, ELMo, table 4). Candidates are all words of the other sentences, or the occurrences of one word; a map
shows where the contexts of a word lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float32

from mallang.errors import UserError, nearest
from mallang.inspection.projections import Map, make_map
from mallang.tasks.contract import Verbs
from mallang.tasks.occurrences import Contexts, Occurrence


@dataclass(frozen=True)
class ContextualNeighbors:
    """The occurrences nearest to a word in its sentence, by cosine, the nearest first; `str()` gives one per line."""

    input: Occurrence
    layer: int
    neighbors: tuple[tuple[Occurrence, float], ...]

    def __str__(self) -> str:
        return "\n".join(f"{cosine:.4f} {found}" for found, cosine in self.neighbors)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        neighbors = [
            {"word": found.word.text, "text": found.text, "start": found.word.start, "cosine": cosine}
            for found, cosine in self.neighbors
        ]
        start = self.input.word.start
        return {
            "input": self.input.text,
            "word": self.input.word.text,
            "start": start,
            "layer": self.layer,
            "neighbors": neighbors,
        }


def contextual_neighbors(
    verbs: Verbs, context: str, word: str, texts: Sequence[str], *, layer: int | None = None, any_word: bool = False
) -> list[ContextualNeighbors]:
    """The neighbors of every occurrence of a word in a sentence, among the words of other texts.

    Candidates are the occurrences of this word, or with `any_word` of all words; the sentence itself is left out.
    `layer` counts those that the encoder gives from 0; the last one is the default.
    """
    (own, *others) = Contexts(verbs).occurrences([context, *(text for text in texts if text != context)])
    asked = [each for each in own if same(each, word)]
    if not asked:
        raise UserError(
            f"the word {word!r} is not in the sentence {context!r}",
            todo=nearest(word, [each.word.text for each in own]),
        )
    number = checked_layer(layer, len(asked[0].layers))
    candidates = [each for words in others for each in words if any_word or same(each, word)]
    if not candidates:
        raise UserError(f"no other text has the word {word!r}", todo="--any-word compares it with all words")
    vectors = directions([each.layers[number] for each in candidates])
    found = []
    for each in asked:
        cosines = vectors @ directions([each.layers[number]])[0]
        order = np.argsort(-cosines, kind="stable")
        pairs = tuple((candidates[place], float(cosines[place])) for place in order)
        found.append(ContextualNeighbors(each, number, pairs))
    return found


def occurrence_map(
    verbs: Verbs, word: str, texts: Sequence[str], *, layer: int | None = None, method: str = "pca", seed: int = 1
) -> Map:
    """The occurrences of a word in texts on a plane, each with its text."""
    found = [each for words in Contexts(verbs).occurrences(texts) for each in words if same(each, word)]
    if not found:
        raise UserError(f"no text has the word {word!r}", todo="give texts that have it")
    number = checked_layer(layer, len(found[0].layers))
    return make_map([str(each) for each in found], np.stack([each.layers[number] for each in found]), method, seed)


def same(occurrence: Occurrence, word: str) -> bool:
    """Whether this is an occurrence of a word, in any case; a Korean word may have an ending behind it."""
    here, wanted = occurrence.word.text.casefold(), word.casefold()
    return here == wanted or (is_hangul(wanted) and here.startswith(wanted))


def is_hangul(text: str) -> bool:
    """Whether a text consists of Hangul syllables."""
    return bool(text) and all("가" <= letter <= "힣" for letter in text)


def checked_layer(layer: int | None, layers: int) -> int:
    """The number of a layer; the last one if none is given."""
    if layer is not None and not 0 <= layer < layers:
        raise UserError(f"there is no layer {layer}: the encoder gives {layers}, from 0", todo=f"--layer {layers - 1}")
    return layers - 1 if layer is None else layer


def directions(vectors: Sequence[Float32[np.ndarray, " dim"]]) -> Float32[np.ndarray, "rows dim"]:
    """Vectors scaled to length 1."""
    rows = np.stack(vectors)
    scaled: Float32[np.ndarray, "rows dim"] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return scaled
