from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.toy_models import Table, empty_batch, random_gru, random_table, source_batch, tiny_vocabulary
from mallang.decoding import greedy, sampling
from mallang.decoding.contract import Config, Hypothesis
from mallang.decoding.sampling import pick, truncate, uniforms

SOURCES = [[4, 5], [5], [4, 4, 5, 1], [], [5, 5, 5]]


def chi_square(counts: Counter[Any], probabilities: dict[Any, float]) -> float:
    total = sum(counts.values())
    assert set(counts) <= set(probabilities)
    return sum((counts[key] - total * p) ** 2 / (total * p) for key, p in probabilities.items())


@pytest.mark.parametrize(("temperature", "seed"), [(1.0, 1), (0.5, 2), (2.0, 3)])
def test_frequencies_are_those_of_the_softmax(temperature: float, seed: int) -> None:
    """All outputs of one or two tokens, 6,000 sentences; 5 + 20 outcomes, below the 0.1 % point of chi-square."""
    vocabulary = tiny_vocabulary(3)
    model = random_table(vocabulary, seed, sharpness=1.0)
    model.logits[:, :, [0, 2]] = -torch.inf
    config = Config(method="sampling", max_length=2, temperature=temperature, seed=seed)
    counts = Counter(one.labels(3) for (one,) in sampling.search(model, empty_batch(6000), config))
    first = (model.logits[0, 2] / temperature).softmax(dim=-1).tolist()
    second = (model.logits[2] / temperature).softmax(dim=-1).tolist()
    expected = {(3,): first[3]}
    expected |= {(a, b): first[a] * second[a][b] for a in (1, 4, 5, 6) for b in (1, 3, 4, 5, 6)}
    assert sum(expected.values()) == pytest.approx(1, abs=1e-5)
    assert chi_square(counts, expected) < 45.3  # 20 degrees of freedom


def test_several_samples_of_a_sentence_are_independent() -> None:
    model = random_table(tiny_vocabulary(2), seed=1, sharpness=1.0)
    model.logits[:, :, [0, 2]] = -torch.inf
    found = sampling.search(model, empty_batch(1500), Config(method="sampling", max_length=1, nbest=2))
    counts = Counter((one.labels(3)[0], other.labels(3)[0]) for one, other in found)
    p = model.logits[0, 2].softmax(dim=-1).tolist()
    assert chi_square(counts, {(a, b): p[a] * p[b] for a in (1, 3, 4, 5) for b in (1, 3, 4, 5)}) < 37.7  # 15 degrees


def test_the_first_sample_does_not_depend_on_how_many_are_drawn() -> None:
    model, batch = random_table(tiny_vocabulary(5), seed=1, sharpness=0.5), source_batch(SOURCES)
    one = sampling.search(model, batch, Config(method="sampling", max_length=8))
    four = sampling.search(model, batch, Config(method="sampling", max_length=8, nbest=4))
    assert [found[0].tokens for found in four] == [found[0].tokens for found in one]
    assert len({found.tokens for found in four[0]}) > 2


def test_more_samples_than_are_drawn_at_once_are_those_drawn_one_by_one() -> None:
    """The caches of all samples side by side would cost the square of their number."""
    model, batch, widths = random_gru(tiny_vocabulary(5), seed=1), source_batch(SOURCES), []
    step = model.step
    model.step = lambda tokens, state: widths.append(len(tokens)) or step(tokens, state)  # type: ignore[method-assign]
    many = sampling.search(model, batch, Config(method="sampling", max_length=6, nbest=19), list(range(10, 15)))
    assert max(widths) == len(SOURCES) * sampling.WIDTH
    for place, samples in enumerate(many):
        one = source_batch([SOURCES[place]])
        alone = [
            sampling.search(model, one, Config(method="sampling", max_length=6), [(10 + place, k)])[0][0].tokens
            for k in range(19)
        ]
        assert [sample.tokens for sample in samples] == alone


def test_the_seed_and_the_number_of_a_sentence_choose_the_sample() -> None:
    model, batch = random_table(tiny_vocabulary(5), seed=1, sharpness=0.5), source_batch([[4]] * 4)
    model.logits[:, :, model.vocabulary.eos] -= 3.0

    def tokens(found: list[list[Hypothesis]]) -> list[tuple[int, ...]]:
        return [one.tokens for (one,) in found]

    config = Config(method="sampling", max_length=9)
    found = tokens(sampling.search(model, batch, config))
    assert len(set(found)) == 4  # the same source, other random numbers
    assert tokens(sampling.search(model, batch, config)) == found
    assert tokens(sampling.search(model, batch, config, numbers=[3, 2, 1, 0])) == found[::-1]
    assert tokens(sampling.search(model, batch, Config(method="sampling", max_length=9, seed=2))) != found
    with pytest.raises(ValueError, match="zip"):
        sampling.search(model, batch, config, numbers=[1, 2])


def test_random_numbers_of_a_longer_output_begin_alike() -> None:
    long = uniforms(1, 2, 3, 100)
    for count in (1, 7, 15, 16, 17, 99):
        assert torch.equal(uniforms(1, 2, 3, count), long[:count])
    assert not torch.equal(uniforms(2, 2, 3, 100), long)
    assert not torch.equal(uniforms(1, 3, 3, 100), long)
    assert not torch.equal(uniforms(1, 2, 4, 100), long)
    assert ((long >= 0) & (long < 1)).all()


few_values = st.sampled_from([-torch.inf, -3.0, -2.0, -1.0, 0.0])


@given(
    row=st.lists(few_values, min_size=2, max_size=20).filter(lambda row: max(row) > -torch.inf),
    top_k=st.integers(0, 25),
    top_p=st.floats(0.05, 1.0),
    temperature=st.sampled_from([0.5, 1.0, 3.0]),
)
@settings(deadline=None)
def test_top_k_and_top_p_keep_the_right_tokens(row: list[float], top_k: int, top_p: float, temperature: float) -> None:
    config = Config(method="sampling", top_k=top_k, top_p=top_p, temperature=temperature)
    log_probs = torch.tensor([row]).log_softmax(dim=-1)
    probs = truncate(log_probs, config)[0]
    order = sorted(range(len(row)), key=lambda token: (-row[token], token))[: top_k or None]
    left = torch.tensor(row, dtype=torch.float64)[order].div(temperature).softmax(dim=-1).tolist()
    kept: list[int] = []
    reached = 0.0
    for token, p in zip(order, left, strict=True):
        if (reached >= top_p and top_p < 1) or p == 0:
            break
        kept.append(token)
        reached += p
    near = abs(sum(left[: len(kept)]) - top_p) < 1e-6 or abs(sum(left[: len(kept) - 1]) - top_p) < 1e-6
    if not near or top_p == 1:
        assert probs.nonzero()[:, 0].tolist() == sorted(kept)
        for token, p in zip(order, left, strict=True):
            assert probs[token] == pytest.approx(p if token in kept else 0.0, abs=1e-6)


@pytest.mark.parametrize(("top_p", "kept"), [(0.2, 1), (0.25, 1), (0.3, 2), (0.5, 2), (0.75, 3), (0.8, 4), (1.0, 4)])
def test_top_p_takes_the_fewest_tokens_that_reach_it(top_p: float, kept: int) -> None:
    """Quarters are exact in binary: what reaches the bound exactly is enough."""
    probs = truncate(torch.zeros(1, 4), Config(method="sampling", top_p=top_p))
    assert probs.tolist() == [[0.25] * kept + [0.0] * (4 - kept)]


@given(
    weights=st.lists(st.sampled_from([0.0, 0.0, 0.1, 0.3, 1.0]), min_size=1, max_size=12).filter(any),
    uniform=st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.5, 1.0])),
)
@settings(deadline=None)
def test_pick_is_the_inverse_of_the_cumulated_probabilities(weights: list[float], uniform: float) -> None:
    token = int(pick(torch.tensor([weights], dtype=torch.float64), torch.tensor([uniform], dtype=torch.float64))[0])
    assert weights[token] > 0
    total = sum(weights)
    below, above = sum(weights[:token]), sum(weights[: token + 1])
    assert below - 1e-9 <= uniform * total <= above + 1e-9


def test_only_what_may_be_drawn_is_drawn() -> None:
    vocabulary = tiny_vocabulary(4)
    model = Table(vocabulary, torch.tensor([0.0, 1, 0, 2, 3, 4, 5, 6]).expand(8, 8, 8))
    drawn = {}
    for name, options in {"k": {"top_k": 2}, "p": {"top_p": 0.9}, "both": {"top_k": 3, "top_p": 0.9}}.items():
        config = Config(method="sampling", max_length=1, **options)
        found = sampling.search(model, empty_batch(400), config)
        drawn[name] = {one.labels(3)[0] for (one,) in found}
    # .634 + .233 + .086 pass .9; among the best three alone .665 + .245 do.
    assert drawn == {"k": {6, 7}, "p": {5, 6, 7}, "both": {6, 7}}


def test_one_token_left_is_greedy() -> None:
    model, batch = random_gru(tiny_vocabulary(5), seed=3), source_batch(SOURCES)
    expected = greedy.search(model, batch, Config(method="greedy", max_length=8))
    for options in ({"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-4}):
        assert sampling.search(model, batch, Config(method="sampling", max_length=8, **options)) == expected
