"""What a page shows of vectors: words on a plane, and the nearest neighbors of each.

For an encoder a point is a word in its sentence, with a vector of its own in every layer; for word vectors a point is a
word of the vocabulary. The plane is that of largest variance (PCA), neighbors are found by cosine among all points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from mallang.errors import UserError
from mallang.inspection.contextual_neighbors import directions
from mallang.inspection.projections import pca
from mallang.tasks import word_vectors
from mallang.tasks.occurrences import Contexts

MOST_POINTS = 300
"""Points of a map at most: the first ones."""
NEIGHBORS = 8


def vectors_of(verbs: Any, texts: Sequence[str]) -> dict[str, Any] | None:
    """The vectors of the words in texts, or of the vocabulary; none if the model has no vectors of words."""
    if isinstance(verbs, word_vectors.Verbs):
        return of_vocabulary(verbs, texts)
    try:
        contexts = Contexts(verbs)
        occurrences = contexts.occurrences([*dict.fromkeys(texts)])
    except UserError:
        return None
    found = [each for words in occurrences for each in words if any(map(str.isalnum, each.word.text))][:MOST_POINTS]
    if len(found) < 3:
        return None
    layers = [
        layer_of(str(number), np.stack([each.layers[number] for each in found]))
        for number in range(len(found[0].layers))
    ]
    return {
        "kind": "contexts",
        "words": [each.word.text for each in found],
        "texts": [[each.text[: each.word.start], each.text[each.word.end :]] for each in found],
        "layers": layers,
    }


def of_vocabulary(verbs: word_vectors.Verbs, texts: Sequence[str]) -> dict[str, Any]:
    """The words of the texts, their neighbors, and the first words of the vocabulary."""
    lookup = verbs.lookup
    asked = list(dict.fromkeys(word for text in texts for word in text.split()))
    near = [name for word in asked for name, _ in verbs.neighbors(word, NEIGHBORS).neighbors]
    common = [name for number, name in enumerate(lookup.names) if number not in lookup.specials]
    words = list(dict.fromkeys([*asked, *near, *common]))[:MOST_POINTS]
    vectors = np.stack([lookup.vector(word).numpy() for word in words])
    return {"kind": "words", "words": words, "texts": None, "layers": [layer_of("0", vectors)]}


def layer_of(name: str, vectors: Float[np.ndarray, "words dim"]) -> dict[str, Any]:
    """The words of one layer on a plane, and the nearest neighbors of each."""
    points, explained = pca(vectors)
    aimed = directions(list(vectors.astype(np.float32)))
    cosines = aimed @ aimed.T
    np.fill_diagonal(cosines, -np.inf)
    count = min(NEIGHBORS, len(vectors) - 1)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
    return {
        "name": name,
        "points": points.astype(np.float32),
        "explained": [float(share) for share in explained],
        "neighbors": order.tolist(),
        "cosines": np.take_along_axis(cosines, order, axis=1).astype(np.float32),
    }
