"""Several models as one: what they say together, and that search and scoring see a model like any other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.toy_models import Table, empty_batch, random_gru, random_table, source_batch, tiny_vocabulary
from mallang.data.batch import Batch
from mallang.decoding import beam, exhaustive, greedy, sampling
from mallang.decoding.contract import Autoregressive, Config, inference
from mallang.decoding.ensemble import Ensemble
from mallang.decoding.scoring import score, with_labels
from mallang.models import transformer
from mallang.text.vocabulary import Vocabulary

SOURCES = [[4, 5], [5], [4, 4, 5, 1], []]
seeds = st.integers(0, 1000)


def small_transformer(vocabulary: Vocabulary, seed: int) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return transformer.Model(transformer.Config(**transformer.SIZES["tiny"]), vocabulary, vocabulary)


def mixed(seed: int, words: int = 4) -> Ensemble:
    """A table, a recurrent network and a Transformer."""
    vocabulary = tiny_vocabulary(words)
    makers = (random_table, random_gru, small_transformer)
    return Ensemble([make(vocabulary, seed + number) for number, make in enumerate(makers)])


def table_of(probabilities: list[float]) -> Table:
    vocabulary = tiny_vocabulary(2)
    return Table(vocabulary, torch.tensor(probabilities).log().expand(6, 6, 6).clone())


def test_it_says_the_normalized_geometric_mean() -> None:
    first, second = table_of([0, 0, 0, 0.5, 0.4, 0.1]), table_of([0, 0, 0, 0.5, 0.1, 0.4])
    (found,) = greedy.search(Ensemble([first, second]), empty_batch(1), Config(method="greedy", max_length=3))
    total = 0.5 + 2 * (0.4 * 0.1) ** 0.5
    assert found[0].tokens == () and found[0].score == pytest.approx(torch.tensor(0.5 / total).log().item(), abs=1e-6)
    batch = with_labels(empty_batch(1), [[4, 5, 3]], first.vocabulary)
    expected = [(0.04**0.5 / total), (0.04**0.5 / total), 0.5 / total]
    assert score(Ensemble([first, second]), batch)[0] == pytest.approx(torch.tensor(expected).log().tolist(), abs=1e-6)


def test_what_one_model_finds_impossible_is_impossible() -> None:
    model = Ensemble([table_of([0, 0, 0, 0.1, 0.9, 0]), table_of([0, 0, 0, 0.1, 0, 0.9])])
    (found,) = beam.search(model, empty_batch(1), Config(beam=3, nbest=3, max_length=3))
    assert [one.tokens for one in found] == [()] and found[0].score == pytest.approx(0.0, abs=1e-6)


@given(seed=seeds)
@settings(deadline=None, max_examples=5)
def test_one_model_or_copies_of_it_are_that_model(seed: int) -> None:
    model, batch = random_gru(tiny_vocabulary(4), seed), source_batch(SOURCES)
    config = Config(beam=3, nbest=2, max_length=6)
    expected = beam.search(model, batch, config)
    for members in ([model], [model, model, model]):
        found = beam.search(Ensemble(members), batch, config)
        assert [[one.tokens for one in nbest] for nbest in found] == [[o.tokens for o in nbest] for nbest in expected]
        assert found[0][0].score == pytest.approx(expected[0][0].score, abs=1e-4)


@given(seed=seeds)
@settings(deadline=None, max_examples=4)
def test_step_equals_forward(seed: int) -> None:
    model = mixed(seed)
    assert isinstance(model, Autoregressive)
    batch = with_labels(source_batch(SOURCES), [[4, 5, 3], [5, 3], [6, 6, 6, 3], [3]], model.vocabulary)
    with inference(model):
        stepped, _ = model.step(batch.tokens, model.start(batch))
        read = model.output(model(batch))
    asked = batch.mask
    torch.testing.assert_close(stepped[asked], read[asked], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(read.exp().sum(dim=-1), torch.ones(read.shape[:2]))


SEARCHES = [
    Config(method="greedy", max_length=6),
    Config(beam=4, nbest=3, max_length=6),
    Config(method="sampling", nbest=2, max_length=6),
]


@pytest.mark.parametrize("config", SEARCHES, ids=lambda config: config.method)
@given(seed=seeds)
@settings(deadline=None, max_examples=3)
def test_the_score_of_an_output_is_what_rescoring_it_gives(config: Config, seed: int) -> None:
    model, batch = mixed(seed), source_batch(SOURCES)
    method = {"greedy": greedy, "beam": beam, "sampling": sampling}[config.method]
    found = method.search(model, batch, config)
    labels = [nbest[0].labels(model.vocabulary.eos) for nbest in found]
    rescored = score(model, with_labels(batch, labels, model.vocabulary))
    for nbest, scores in zip(found, rescored, strict=True):
        assert nbest[0].token_scores == pytest.approx(scores, abs=1e-4)


@given(seed=seeds)
@settings(deadline=None, max_examples=3)
def test_a_wide_beam_is_exhaustive_and_the_batch_changes_nothing(seed: int) -> None:
    model = mixed(seed, words=2)
    config = Config(beam=36, nbest=3, max_length=3)
    together = beam.search(model, source_batch(SOURCES), config)
    everything = exhaustive.search(model, source_batch(SOURCES), config.with_method("exhaustive"))
    alone = [beam.search(model, source_batch([source]), config)[0] for source in SOURCES]
    for one, other, third in zip(together, everything, alone, strict=True):
        scores = [each.score for each in one]
        assert scores == pytest.approx([each.score for each in other], abs=1e-4)
        assert scores == pytest.approx([each.score for each in third], abs=1e-4)


def test_members_need_one_vocabulary() -> None:
    with pytest.raises(ValueError, match="one target vocabulary"):
        Ensemble([random_table(tiny_vocabulary(2), 1), random_table(tiny_vocabulary(3), 1)])
    with pytest.raises(ValueError, match="at least one"):
        Ensemble([])


def test_the_members_are_parts_of_it() -> None:
    """Dropout is off while it writes, and all of it moves to a device together."""
    model = mixed(1)
    model.train()
    batch: Batch = source_batch(SOURCES)
    first, again = (greedy.search(model, batch, Config(method="greedy", max_length=6)) for _ in range(2))
    assert first == again and all(member.training for member in model.members)
    assert len(list(model.parameters())) == sum(len(list(member.parameters())) for member in model.members)
