"""TF-IDF equals scikit-learn's TfidfTransformer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import TfidfTransformer

from mallang.kernels.ngram_rows import Counted
from mallang.layers.tf_idf import lengths_of_rows, smooth_idf, weighted

COUNTS = arrays(np.int32, st.tuples(st.integers(1, 6), st.integers(1, 7)), elements=st.integers(0, 9))


def counted_of(counts) -> Counted:
    found = csr_matrix(counts)
    return Counted(
        found.indptr.astype(np.int64), found.indices.astype(np.int32), found.data.astype(np.int32), counts.shape[1]
    )


@pytest.mark.parametrize("values", ["counts", "binary", "tf-idf"])
@pytest.mark.parametrize("sublinear", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
@settings(deadline=None, max_examples=30)
@given(counts=COUNTS)
def test_values_are_those_of_scikit_learn(values, sublinear, normalize, counts):
    oracle = TfidfTransformer(
        norm="l2" if normalize else None, use_idf=values == "tf-idf", smooth_idf=True, sublinear_tf=sublinear
    )
    expected = oracle.fit_transform((csr_matrix(counts) != 0 if values == "binary" else csr_matrix(counts)) * 1.0)
    counted = counted_of(counts)
    idf = smooth_idf(counted.document_counts(), len(counts))
    found = weighted(counted, values, idf=idf, sublinear=sublinear, normalize=normalize)
    dense = np.zeros(counts.shape)
    for row in range(len(found)):
        mine = slice(found.indptr[row], found.indptr[row + 1])
        dense[row, found.indices[mine]] = found.values[mine]
    np.testing.assert_allclose(dense, expected.toarray(), rtol=1e-5, atol=1e-6)
    assert found.columns == counts.shape[1] and found.values.dtype == np.float32


def test_lengths_of_empty_rows_are_zero():
    indptr = np.array([0, 0, 2, 2, 3, 3])
    lengths = lengths_of_rows(indptr, np.array([3.0, 4.0, 2.0], np.float32))
    assert lengths.tolist() == [0.0, 5.0, 0.0, 2.0, 0.0]
    assert lengths_of_rows(np.zeros(3, np.int64), np.zeros(0, np.float32)).tolist() == [0.0, 0.0]
