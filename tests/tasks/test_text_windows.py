"""Texts beyond the positions: windows hold every token, logits and vectors are means over them, training draws one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mallang
from commands.running import mallang as command
from mallang.commands.evaluate import note_lengths
from mallang.errors import UserError
from mallang.tasks.text_windows import TextWindows, mean_vectors

TRAIN = (
    "train", "bert", "model.size=tiny", "model.layers=1", "model.dim=16", "model.heads=2", "model.max_length=12",
    "text.unit=char", "data.train=texts.tsv", "data.valid=texts.tsv", "train.epochs=3", "train.workers=0",
    "train.batch_sentences=4",
)  # fmt: skip
SHORT, LONG = "abcab", "abcabcaabbccabcacbabcabcab"
"""Ten tokens stand between the special ones."""


@given(st.integers(1, 40), st.integers(0, 300))
def test_windows_hold_every_token_and_share_a_quarter(most: int, length: int) -> None:
    windows = TextWindows(most)
    starts = windows.starts(length)
    assert starts[0] == 0 and starts == sorted(set(starts))
    if length <= most:
        assert starts == [0]
        return
    assert starts[-1] == length - most
    steps = np.diff(starts)
    assert steps.max() <= most - most // 4 and steps.max() - steps.min() <= 1
    fewer = len(starts) - 1  # one window less would share less
    assert fewer == 1 or (length - most) / (fewer - 1) > most - most // 4
    assert [list(part) for part in TextWindows(most, "cut").parts(range(length))] == [list(range(most))]


def test_a_vector_is_the_mean_of_its_windows_and_keeps_their_length() -> None:
    vectors = np.array([[3.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 2.0]], dtype=np.float32)
    found = mean_vectors(vectors, [1, 2, 1])
    np.testing.assert_allclose(found, [[3, 0], [np.sqrt(0.5), np.sqrt(0.5)], [0, 2]], rtol=1e-6)
    opposite = np.array([[1.0, 0.0], [-1.0, 0.0]], dtype=np.float32)
    assert not np.isnan(mean_vectors(opposite, [2])).any()


def test_a_model_without_room_is_refused() -> None:
    with pytest.raises(UserError, match="rows of 2 tokens have no room"):
        TextWindows.of(2, 2)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a classifier and a bi-encoder that read twelve tokens at once."""
    place = tmp_path_factory.mktemp("windows")
    rows = [f"{text}\t{label}\n" for text in (SHORT, LONG, "cab", "bbb") for label in ("yes", "no")]
    (place / "texts.tsv").write_text("text\tlabel\n" + "".join(rows), encoding="utf-8")
    told = command(*TRAIN, "--name", "classifier", cwd=place)
    assert told.code == 0, told.err
    assert "2 of 8 texts are longer than a window of 10 tokens: each epoch reads another one" in told.err
    pairs = [f"{one}\t{two}\t{score}\n" for one, two, score in ((SHORT, LONG, 1), (LONG, "cab", 4), ("bbb", "b", 5))]
    (place / "texts.tsv").write_text("first\tsecond\tscore\n" + "".join(pairs), encoding="utf-8")
    told = command(*TRAIN, "task.name=similarity", "task.kind=bi", "--name", "bi", cwd=place)
    assert told.code == 0, told.err
    return place


def logits(verbs: Any, text: str) -> Any:
    return verbs.predictions([text]).logits[0]


def test_logits_and_vectors_of_a_long_text_are_those_of_its_windows(home: Path) -> None:
    verbs = mallang.load(home / "runs" / "classifier", device="cpu")
    parts = verbs.windows.parts(LONG)
    assert len(parts) == 3 and {len(part) for part in parts} == {10}
    alone = np.stack([logits(verbs, part) for part in parts])
    np.testing.assert_allclose(logits(verbs, LONG), alone.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(logits(verbs, SHORT), verbs.predictions([LONG, SHORT]).logits[1], atol=1e-6)
    vectors = verbs.embed(parts)
    mean = vectors.mean(axis=0)
    expected = mean * np.linalg.norm(vectors, axis=1).mean() / np.linalg.norm(mean)
    np.testing.assert_allclose(verbs.embed(LONG), expected, atol=1e-6)
    verbs.windows = replace(verbs.windows, how="cut")
    np.testing.assert_allclose(logits(verbs, LONG), alone[0], atol=1e-6)
    np.testing.assert_allclose(verbs.embed(LONG), vectors[0], atol=1e-6)


def test_the_attribution_of_a_long_text_has_a_row_per_window(home: Path) -> None:
    verbs = mallang.load(home / "runs" / "classifier", device="cpu")
    found = verbs.attribution(LONG)
    assert len(found.rows) == 3
    assert found.score == pytest.approx(max(logits(verbs, LONG)), abs=1e-5)
    assert sum(found.weights) == pytest.approx(found.difference, rel=0.01, abs=1e-4)


def test_training_reads_some_window_of_a_long_text(home: Path) -> None:
    task = mallang.load(home / "runs" / "classifier", device="cpu").task
    ids, label = np.arange(30), np.array([0])
    batches = [task.prepare([((ids, label),)], np.random.default_rng(seed)) for seed in range(20)]
    rows = [batch.tokens[0, 1:-1].tolist() for batch in batches]
    assert all(row == list(range(row[0], row[0] + 10)) for row in rows) and len({row[0] for row in rows}) > 5


def test_a_bi_encoder_compares_the_vectors_that_it_shows(home: Path) -> None:
    verbs = mallang.load(home / "runs" / "bi", device="cpu")
    found = verbs.similarity((LONG, SHORT)).score
    one, two = verbs.embed([LONG, SHORT]).astype(np.float64)
    assert found == pytest.approx(5 * one @ two / np.linalg.norm(one) / np.linalg.norm(two), abs=1e-5)
    assert "1 of 1 texts" in verbs.note_cut([(SHORT, LONG)])
    verbs.windows = replace(verbs.windows, how="cut")
    assert verbs.similarity((LONG, SHORT)).score == pytest.approx(verbs.similarity((LONG[:10], SHORT)).score, abs=1e-5)


def test_evaluate_says_once_how_long_pairs_are_read(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note_lengths(mallang.load(home / "runs" / "bi", device="cpu"), [(LONG, SHORT, "1")])
    assert capsys.readouterr().err.count("longer than a window") == 1


@pytest.mark.parametrize("verb", ["classify", "embed"])
def test_commands_say_what_is_read_of_long_texts(verb: str, home: Path) -> None:
    windows = command(verb, "runs/classifier", LONG, SHORT, "--json", cwd=home)
    assert windows.code == 0 and "1 of 2 texts" in windows.err and "--long-texts cut" in windows.err
    cut = command(verb, "runs/classifier", LONG, SHORT, "--json", "--long-texts", "cut", cwd=home)
    beginning = command(verb, "runs/classifier", LONG[:10], SHORT, "--json", cwd=home)
    assert cut.code == 0 and cut.out != windows.out and cut.out.replace(LONG, LONG[:10]) == beginning.out
    assert "only their beginning is read; --long-texts windows" in cut.err and "note" not in beginning.err
    wrong = command(verb, "runs/classifier", LONG, "--long-texts", "window", cwd=home)
    assert wrong.code == 2 and "long texts cannot be read by 'window'" in wrong.err and "windows" in wrong.err
