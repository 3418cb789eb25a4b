"""Maps: PCA against scikit-learn, t-SNE that keeps neighbors, labels that can be read."""

import json
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.image import imread

from mallang.errors import UserError
from mallang.inspection import projections
from mallang.inspection.projections import Box, Map, make_map, pca, tsne

WORDS = ["사과", "배", "포도", "강아지", "고양이", "학교", "도서관", "먹었다", "마셨다", "$x_1$", "\u1100\u1161", "a b"]


def vectors(rows, dim, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)


@settings(deadline=None, max_examples=30)
@given(st.integers(3, 30), st.integers(2, 20), st.integers(0, 1000))
def test_pca_is_that_of_scikit_learn(rows, dim, seed):
    decomposition = pytest.importorskip("sklearn.decomposition")
    given_vectors = vectors(rows, dim, seed).astype(np.float64)
    oracle = decomposition.PCA(2, svd_solver="full")
    expected = oracle.fit_transform(given_vectors)
    points, explained = pca(given_vectors)
    np.testing.assert_allclose(points, expected, atol=1e-8)
    np.testing.assert_allclose(explained, oracle.explained_variance_ratio_, atol=1e-10)


def test_pca_of_little():
    points, explained = pca(np.ones((4, 3)))
    assert not points.any() and explained == (0.0, 0.0)
    points, explained = pca(np.array([[1.0], [2.0], [3.0]]))
    np.testing.assert_allclose(np.abs(points), [[1, 0], [0, 0], [1, 0]])
    assert explained == (1.0, 0.0)


def test_tsne_keeps_groups_together():
    pytest.importorskip("sklearn.manifold")
    groups = np.concatenate([vectors(8, 10, seed) * 0.1 + 10 * seed for seed in (1, 2)])
    points = tsne(groups, seed=3)
    first, second = points[:8], points[8:]
    within = max(np.linalg.norm(side - side.mean(axis=0), axis=1).max() for side in (first, second))
    assert np.linalg.norm(first.mean(axis=0) - second.mean(axis=0)) > within
    np.testing.assert_array_equal(points, tsne(groups, seed=3))


def test_without_scikit_learn_the_command_to_install_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.manifold", None)
    with pytest.raises(UserError, match=r"\.\[maps\]"):
        make_map(WORDS, vectors(12, 4), "tsne")


@pytest.mark.parametrize("ending", [".png", ".svg"])
def test_hangul_is_drawn_without_a_missing_glyph(tmp_path, ending):
    path = make_map(WORDS, vectors(12, 5)).write(tmp_path / f"map{ending}")
    if ending == ".png":
        assert imread(path).shape[0] > 500
    else:
        assert path.read_text().count("<path") > 20


def test_control_characters_leave_the_picture_valid(tmp_path):
    odd = [f"\x1b[31m{word}\x00" for word in WORDS]
    ElementTree.parse(make_map(odd, vectors(12, 5)).write(tmp_path / "map.svg"))


def test_labels_do_not_cover_each_other_where_there_is_room():
    """Points in pairs so near that labels on the same side would overlap."""
    pairs = np.repeat(np.array([[x, y] for x in range(3) for y in range(2)], dtype=float), 2, axis=0)
    pairs[1::2] += 0.01
    made = Map(tuple(WORDS), pairs, "pca")
    figure = Figure(figsize=(7, 6))
    field = figure.subplots()
    field.scatter(*made.points.T)
    field.margins(0.2)
    figure.draw_without_rendering()
    projections.place_labels(figure, field, made, {"fontfamily": projections.families(), "parse_math": False})
    figure.draw_without_rendering()
    boxes = [
        Box(extent.x0, extent.y0, extent.x1, extent.y1) for extent in (text.get_window_extent() for text in field.texts)
    ]
    assert len(boxes) == len(WORDS)
    assert sum(one.overlap(other) for i, one in enumerate(boxes) for other in boxes[:i]) < 60  # square pixels


def test_a_map_is_data_too(tmp_path):
    made = make_map(["가", "나", "다"], np.array([[0.0, 0.0], [2.0, 0.0], [4.0, 0.0]]))
    read = json.loads(made.write(tmp_path / "map.json").read_text("utf-8"))
    assert read["method"] == "pca" and read["explained"] == [1.0, 0.0]
    assert read["points"][0] == {"text": "가", "x": -2.0, "y": 0.0}


def test_what_cannot_be_a_map_is_refused(tmp_path):
    with pytest.raises(UserError, match="at least 3"):
        make_map(["a", "b"], vectors(2, 4))
    with pytest.raises(UserError, match="tsne"):
        make_map(WORDS, vectors(12, 4), "t-sne")
    with pytest.raises(UserError, match=r"map\.pdf"):
        make_map(WORDS, vectors(12, 4)).write(tmp_path / "map.pdf")
