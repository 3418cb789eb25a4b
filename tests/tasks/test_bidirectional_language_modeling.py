"""Bidirectional language modeling: both directions beside explicit loops over the words of every line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from mallang.data.batch import Batch, Shapes
from mallang.data.prepared import Prepared
from mallang.errors import UserError
from mallang.find import find
from mallang.models.elmo import SIZES, Config, ELMo
from mallang.tasks import bidirectional_language_modeling as task_file
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, EOS, PAD

LINES = ["나는 책을 읽는다 .", "그는 물을 마신다 .", "우리는 학교에 간다 ."]
TOKENIZER = Tokenizer.train(LINES, Text(unit="space", vocabulary=60))
IDS = TOKENIZER.encode_batch(LINES)


def task() -> task_file.Task:
    return task_file.Task(task_file.Config(), {"text": TOKENIZER})


def elmo() -> ELMo:
    torch.manual_seed(1)
    return ELMo(Config(**SIZES["tiny"]), TOKENIZER.vocabulary).eval()


@torch.no_grad()
def by_hand(model: ELMo, ids: list[int]) -> tuple[float, float]:
    """The negative log-probability of a line in both directions, from prefixes and suffixes read by themselves."""
    row = [BOS, *ids, EOS]
    sums = [0.0, 0.0]
    for place in range(len(row) - 1):
        prefix = Batch(tokens=torch.tensor([row[: place + 1]]), lengths=torch.tensor([place + 1]))
        logits = model.head(model.directions(prefix)[0][0, -1])
        sums[0] -= float(logits.log_softmax(0)[row[place + 1]])
        suffix = row[place + 1 :]
        behind = Batch(tokens=torch.tensor([suffix]), lengths=torch.tensor([len(suffix)]))
        sums[1] -= float(model.head(model.directions(behind)[1][0, 0]).log_softmax(0)[row[place]])
    return sums[0], sums[1]


def test_labels_are_the_next_word_and_the_one_before() -> None:
    batch = task().prepare([(([4, 5, 6],),), (([7],),)], np.random.default_rng(0))
    assert batch.tokens.tolist() == [[BOS, 4, 5, 6, EOS], [BOS, 7, EOS, PAD, PAD]]
    after, before = task_file.labels_of(batch, TOKENIZER.vocabulary)
    assert after.tolist() == [[4, 5, 6, EOS, PAD], [7, EOS, PAD, PAD, PAD]]
    assert before.tolist() == [[PAD, BOS, 4, 5, 6], [PAD, BOS, 7, PAD, PAD]]
    unknown = Batch(tokens=torch.tensor([[BOS, 999, EOS]]), lengths=torch.tensor([3]))
    assert task_file.labels_of(unknown, TOKENIZER.vocabulary)[0].tolist() == [[TOKENIZER.vocabulary.unk, EOS, PAD]]


def test_the_loss_has_a_part_per_direction_and_ignores_padding() -> None:
    asked, model = task(), elmo()
    batch = asked.prepare([((ids,),) for ids in IDS], np.random.default_rng(0))
    expected = np.array([by_hand(model, ids) for ids in IDS])
    for each in (batch, Shapes(tokens=128, multiple=8).fill(batch)):
        loss = asked.loss(model, each, None)
        assert list(loss.sums) == ["forward", "backward"] == list(asked.parts)
        assert [float(part.detach()) for part in loss.sums.values()] == pytest.approx(expected.sum(0), rel=1e-4)
        assert asked.counts(each)["forward"] == asked.counts(each)["backward"] == sum(len(ids) + 1 for ids in IDS)


def test_evaluation_gives_the_perplexity_of_both_directions() -> None:
    model = elmo()
    verbs = task_file.Verbs(task(), model, None, 100)
    scores, lines = verbs.evaluate([(line,) for line in LINES])
    expected = np.array([by_hand(model, ids) for ids in IDS])
    count = sum(len(ids) + 1 for ids in IDS)
    named = {score.name: score for score in scores}
    for side, total in zip(("forward", "backward"), expected.sum(0), strict=True):
        assert named[f"{side} perplexity per token"].value == pytest.approx(math.exp(total / count), rel=1e-4)
        assert f"direction:{side}" in named[f"{side} bits per byte"].signature
    assert [float(line) for line in lines] == pytest.approx(-expected.mean(1), rel=1e-4)
    with pytest.raises(UserError, match="stride has no effect"):
        verbs.evaluate([("나는",)], stride=3)


def test_validation_is_the_training_loss() -> None:
    asked, model = task(), elmo()

    class Corpus(Prepared):
        def __init__(self) -> None:
            pass

        def __len__(self) -> int:
            return len(IDS)

        def __getitem__(self, place: int) -> Any:
            return (np.array(IDS[place]),)

    found = {score.name: score.value for score in asked.validate(model, Corpus(), [(line,) for line in LINES], "loss")}
    batch = asked.prepare([((ids,),) for ids in IDS], np.random.default_rng(0))
    sums = {name: float(part.detach()) for name, part in asked.loss(model, batch, None).sums.items()}
    count = asked.counts(batch)["forward"]
    assert found["forward"] == pytest.approx(sums["forward"] / count, rel=1e-5)
    assert found["loss"] == pytest.approx(sum(sums.values()) / count, rel=1e-5)


def test_texts_and_words_are_embedded_also_those_that_training_did_not_see() -> None:
    verbs = task_file.Verbs(task(), elmo(), None, 100)
    assert verbs.embed(LINES).shape == (3, 32) and verbs.embed(LINES[0]).shape == (32,)
    words = verbs.embed(["책을", "책"], words=True)
    assert words.shape == (2, 16) and not np.allclose(words[0], words[1])


def test_a_model_of_one_direction_is_refused() -> None:
    with pytest.raises(UserError, match="rnn_lm has no language models of both directions"):
        task().build(find("models", "rnn_lm"), None)
