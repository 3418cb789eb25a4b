from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from contracts.toy_models import Table, empty_batch, random_gru, source_batch, tiny_vocabulary
from mallang.data.batch import Batch
from mallang.decoding import scoring
from mallang.decoding.scoring import score, with_labels
from mallang.text.vocabulary import Vocabulary


def test_by_hand() -> None:
    """A table whose probabilities are known: p(w0) = .5, then p(w1 | w0) = .25, then the end for sure."""
    vocabulary = tiny_vocabulary(2)
    probability = torch.zeros(6, 6, 6)
    probability[0, 2] = torch.tensor([0, 0, 0, 0.5, 0.5, 0])
    probability[2, 4] = torch.tensor([0, 0.5, 0, 0.25, 0, 0.25])
    probability[4, 5, 3] = 1.0
    batch = with_labels(empty_batch(2), [[4, 5, 3], [3]], vocabulary)
    assert batch.tokens.tolist() == [[2, 4, 5], [2, 0, 0]]
    assert batch.labels is not None and batch.labels.tolist() == [[4, 5, 3], [3, 0, 0]]
    assert batch.lengths.tolist() == [3, 1]
    first, second = score(Table(vocabulary, probability.log()), batch)
    assert first == pytest.approx([math.log(0.5), math.log(0.25), 0.0])
    assert second == pytest.approx([math.log(0.5)])


def test_other_special_ids_are_kept() -> None:
    vocabulary = Vocabulary(("a", "b", "[PAD]", "[UNK]", "[CLS]", "[SEP]"), pad=2, unk=3, bos=4, eos=5)
    batch = with_labels(empty_batch(2), [[0, 1, 5], [5]], vocabulary)
    assert batch.tokens.tolist() == [[4, 0, 1], [4, 2, 2]]
    found = score(Table(vocabulary, torch.zeros(6, 6, 6)), batch)
    assert [len(one) for one in found] == [3, 1]


@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
def test_chunks_change_nothing(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_gru(tiny_vocabulary(3), seed=1)
    labels = [[4, 5, 3], [3], [6, 6, 6, 6]]
    batch = with_labels(source_batch([[4], [5, 5], []]), labels, model.vocabulary)
    expected = [one for row in score(model, batch) for one in row]
    assert len(expected) == 8
    monkeypatch.setattr(scoring, "CHUNK", chunk)
    assert [one for row in score(model, batch) for one in row] == pytest.approx(expected, abs=1e-6)


class Given(Table):
    def token_log_probs(self, batch: Batch) -> torch.Tensor:
        return -batch.labels.double()  # type: ignore[union-attr]

    def forward(self, batch: Batch) -> Any:
        raise AssertionError


def test_a_model_may_give_them_itself() -> None:
    model = Given(tiny_vocabulary(2), torch.zeros(6, 6, 6))
    batch = with_labels(empty_batch(2), [[4, 5, 3], [3]], model.vocabulary)
    assert score(model, batch) == [[-4.0, -5.0, -3.0], [-3.0]]


def test_a_batch_without_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="labels"):
        score(random_gru(tiny_vocabulary(2), 1), source_batch([[4]]))
