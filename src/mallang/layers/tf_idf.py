"""The values of a bag of words: counts, presence or TF-IDF, with scikit-learn's formulas.

    idf(feature) = ln((1 + texts) / (1 + texts with the feature)) + 1      smooth: as if one more text had every feature
    value = count · idf, or (1 + ln count) · idf if sublinear; then each row has length 1 if normalized

A Statistical Interpretation of Term Specificity and its Application in Retrieval. Spärck Jones 1972.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float32, Int64

from mallang.kernels.coordinate_descent import Matrix
from mallang.kernels.ngram_rows import Counted

Values = Literal["counts", "binary", "tf-idf"]


def smooth_idf(document_counts: Int64[np.ndarray, " features"], texts: int) -> Float32[np.ndarray, " features"]:
    """The inverse document frequency of every feature."""
    return (np.log((1 + texts) / (1 + document_counts)) + 1).astype(np.float32)


def weighted(
    counted: Counted,
    values: Values,
    *,
    idf: Float32[np.ndarray, " features"] | None = None,
    sublinear: bool = False,
    normalize: bool = False,
) -> Matrix:
    """The matrix of features; `idf` is needed for TF-IDF."""
    found = np.ones(len(counted.counts), np.float32) if values == "binary" else counted.counts.astype(np.float32)
    if sublinear:
        found = np.log(found) + 1
    if values == "tf-idf":
        assert idf is not None
        found *= idf[counted.indices]
    if normalize:
        found /= np.repeat(lengths_of_rows(counted.indptr, found), np.diff(counted.indptr))
    return Matrix(counted.indptr, counted.indices, found, counted.features)


def lengths_of_rows(
    indptr: Int64[np.ndarray, " bounds"], values: Float32[np.ndarray, " entries"]
) -> Float32[np.ndarray, " rows"]:
    """The Euclidean length of every row; 0 for empty ones."""
    found = np.zeros(len(indptr) - 1, np.float32)
    filled = np.flatnonzero(np.diff(indptr))
    if len(filled):
        found[filled] = np.sqrt(np.add.reduceat(np.square(values), indptr[filled]))
    return found
