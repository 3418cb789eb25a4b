from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.toy_models import Table, empty_batch, random_gru, random_table, source_batch, tiny_vocabulary
from mallang.data.batch import Batch
from mallang.decoding import beam, greedy, runner
from mallang.decoding.contract import Config, Hypothesis, limits
from mallang.decoding.ranking import hypothesis, penalty
from mallang.errors import UserError
from mallang.kernels.log_softmax import log_softmax
from mallang.text.vocabulary import SPECIALS, Vocabulary

SOURCES = [[4, 5], [5], [4, 4, 5, 1], [], [5, 5, 5]]


def plain_beam_search(model: Any, batch: Batch, config: Config) -> list[Hypothesis]:
    """Beam search for one sentence in plain Python: no cache, no tensors, hypotheses in lists."""
    (limit,) = limits(batch, config)
    open_ones: list[tuple[float, tuple[int, ...], tuple[float, ...]]] = [(0.0, (), ())]
    done: list[Hypothesis] = []
    for _ in range(limit):
        candidates = []
        for total, said, scores in open_ones:
            logits, _ = model.step(torch.tensor([[2, *said]]), model.start(batch))
            # Rounded as the search rounds: the last bit decides where scores are equal.
            for token, score in enumerate(log_softmax(logits[:, -1])[0].tolist()):
                if token not in (0, 2):
                    candidates.append((total + score, (*said, token), (*scores, score)))
        candidates = sorted(candidates, key=lambda one: -one[0])[: 2 * config.beam]  # stable: equals keep their order
        for rank, (_, said, scores) in enumerate(candidates):
            if said[-1] == 3 and rank < config.beam:
                done.append(hypothesis(said, scores, model.vocabulary, config))
        open_ones = [one for one in candidates if one[1][-1] != 3][: config.beam]
        done.sort(key=lambda one: -one.normalized)
        if config.stop == "complete" or config.beam == 1:
            if len(done) >= config.beam:
                break
        elif len(done) >= config.nbest and done[config.nbest - 1].normalized >= open_ones[0][0] / penalty(
            limit, config
        ):
            break
    if not done:
        done = [hypothesis(said, scores, model.vocabulary, config) for _, said, scores in open_ones]
    return done[: config.nbest]


options = st.fixed_dictionaries(
    {
        "beam": st.integers(1, 5),
        "stop": st.sampled_from(["optimal", "complete"]),
        "length_penalty": st.sampled_from(["average", "none", "gnmt"]),
        "max_length": st.integers(1, 9),
    }
)


@given(seed=st.integers(0, 10_000), options=options, all_of_them=st.booleans(), words=st.integers(1, 4))
@settings(deadline=None, max_examples=40)
def test_the_same_as_plain_python(seed: int, options: dict[str, Any], all_of_them: bool, words: int) -> None:
    model = random_table(tiny_vocabulary(words), seed)
    config = Config(**options, nbest=options["beam"] if all_of_them else 1)
    sources = [[min(token, 3 + words) for token in source] for source in SOURCES]
    for source, found in zip(sources, beam.search(model, source_batch(sources), config), strict=True):
        expected = plain_beam_search(model, source_batch([source]), config)
        assert [one.tokens for one in found] == [one.tokens for one in expected]
        assert [one.normalized for one in found] == pytest.approx([one.normalized for one in expected], abs=1e-5)


@given(seed=st.integers(0, 10_000), options=options)
@settings(deadline=None, max_examples=30)
def test_equal_scores_go_to_the_earlier_hypothesis_and_the_lower_id(seed: int, options: dict[str, Any]) -> None:
    """Every row holds the same two values in another order, so most candidates are exactly equal."""
    size = 8
    likely = torch.rand(size, size, size, generator=torch.Generator().manual_seed(seed)).argsort(dim=-1) < 5
    model = Table(tiny_vocabulary(4), likely.float())
    config = Config(**options, nbest=options["beam"])
    (found,) = beam.search(model, empty_batch(1), config)
    assert [one.tokens for one in found] == [one.tokens for one in plain_beam_search(model, empty_batch(1), config)]


@given(seed=st.integers(0, 10_000), options=options, nbest=st.integers(1, 5))
@settings(deadline=None, max_examples=30)
def test_the_optimal_rule_changes_nothing(seed: int, options: dict[str, Any], nbest: int) -> None:
    """It gives what a search to the very end gives."""
    if options["beam"] == 1:
        return
    model, batch = random_gru(tiny_vocabulary(4), seed), source_batch(SOURCES)
    config = Config(**{**options, "stop": "optimal", "nbest": min(nbest, options["beam"])})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam, "_settled", lambda totals, done, completed, highest, config: completed < 0)
        to_the_end = beam.search(model, batch, config)
    for found, wanted in zip(beam.search(model, batch, config), to_the_end, strict=True):
        assert [one.tokens for one in found] == [one.tokens for one in wanted]
        # Some processors round the matmuls of fewer rows differently.
        assert [one.score for one in found] == pytest.approx([one.score for one in wanted], abs=1e-5)


def test_the_optimal_rule_saves_steps() -> None:
    """A model that ends at once leaves open hypotheses that cannot win: one step of 50 is enough."""
    vocabulary = tiny_vocabulary(3)
    logits = torch.zeros(7, 7, 7)
    logits[:, :, vocabulary.eos] = 100.0
    model = Counting(vocabulary, logits)
    (found,) = beam.search(model, empty_batch(1), Config(max_length=50))
    assert found[0].tokens == () and found[0].finished
    assert model.steps == 1


class Counting(Table):
    steps = 0
    rows = 0

    def step(self, tokens: torch.Tensor, state: Any) -> Any:
        self.steps += 1
        self.rows += len(tokens)
        return super().step(tokens, state)


@pytest.mark.parametrize("stop", ["optimal", "complete"])
def test_finished_sentences_leave_and_the_first_step_is_not_widened(stop: Any) -> None:
    vocabulary = tiny_vocabulary(5)
    logits = torch.zeros(9, 9, 9)
    logits[:, :, vocabulary.eos] = -100.0
    source = torch.zeros(9, 9)
    source[4, vocabulary.eos] = 200.0  # a source with this word ends at once
    model = Counting(vocabulary, logits, source)
    found = beam.search(model, source_batch([[4], [5], [4]]), Config(beam=2, stop=stop, max_length=5))
    assert [len(one[0].tokens) for one in found] == [0, 5, 0]
    assert [one[0].finished for one in found] == [True, False, True]
    narrow, wide = 3, 2
    # "complete" waits for a second ending, which comes at the second step.
    assert model.rows == (narrow + 4 * wide if stop == "optimal" else narrow + 3 * wide + 3 * wide)


@pytest.mark.parametrize("every", [2, 3, 100])
@pytest.mark.parametrize("stop", ["optimal", "complete"])
def test_how_often_the_host_checks_changes_nothing(every: int, stop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = random_gru(tiny_vocabulary(6), seed=5), source_batch(SOURCES)
    config = Config(beam=3, nbest=3, stop=stop, max_length=14)
    expected = beam.search(model, batch, config)
    assert len({len(one[0].tokens) for one in expected}) > 1
    monkeypatch.setattr(runner, "check_every", lambda device: every)
    found = beam.search(model, batch, config)
    assert [[one.tokens for one in sentence] for sentence in found] == [
        [one.tokens for one in sentence] for sentence in expected
    ]
    for one, other in zip(itertools.chain(*found), itertools.chain(*expected), strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)


def test_an_ending_takes_no_slot() -> None:
    """Two slots; `</s>` is second best at the first step, yet two hypotheses go on and the third best wins."""
    vocabulary = tiny_vocabulary(2)
    logits = torch.full((6, 6, 6), -math.inf)
    logits[0, 2] = torch.tensor([0.0, 0, 0, 0.3, 0.4, 0.3]).log()  # after <s>: </s> .3, w0 .4, w1 .3
    logits[2, 4] = torch.tensor([0.0, 0, 0, 0.1, 0.45, 0.45]).log()  # w0 is a poor beginning
    logits[2, 5] = torch.tensor([0.0, 0, 0, 1.0, 0, 0]).log()  # w1 ends surely
    logits[4] = torch.tensor([0.0, 0, 0, 0.5, 0.5, 0]).log()
    (found,) = beam.search(Table(vocabulary, logits), empty_batch(1), Config(beam=2, nbest=2, max_length=3))
    assert [one.tokens for one in found] == [(5,), (4, 4)]
    assert found[0].score == pytest.approx(math.log(0.3), abs=1e-5)


def test_unfinished_outputs_are_given_only_when_none_is_finished() -> None:
    vocabulary = tiny_vocabulary(2)
    logits = torch.zeros(6, 6, 6)
    logits[:, :, vocabulary.eos] = -torch.inf
    (found,) = beam.search(Table(vocabulary, logits), empty_batch(1), Config(beam=3, nbest=3, max_length=2))
    assert [(one.tokens, one.finished) for one in found] == [((1, 1), False), ((1, 4), False), ((1, 5), False)]
    assert found[0].normalized == pytest.approx(found[0].score / 2)
    logits[4, 4, vocabulary.eos] = -9.0  # one way to end, poor as it is, at the limit
    (found,) = beam.search(Table(vocabulary, logits), empty_batch(1), Config(beam=40, nbest=40, max_length=3))
    assert [(one.tokens, one.finished) for one in found] == [((4, 4), True)]


def test_fewer_are_given_where_fewer_exist() -> None:
    vocabulary = tiny_vocabulary(1)
    (found,) = beam.search(random_table(vocabulary, 1), empty_batch(1), Config(beam=30, nbest=30, max_length=3))
    assert len(found) == 1 + 2 + 4
    assert all(one.finished for one in found)


@pytest.mark.parametrize("stop", ["optimal", "complete"])
def test_a_beam_of_one_ends_with_its_first_ending(stop: Any) -> None:
    """Going on would pay by the average, for w1 follows w1 almost surely; greedy search does not go on either."""
    vocabulary = tiny_vocabulary(1)
    probability = torch.tensor([0.0, 0.0, 0.0, 0.01, 0.99]).expand(5, 5, 5).clone()
    probability[0, 2] = torch.tensor([0.0, 0.0, 0.0, 0.6, 0.4])
    model = Table(vocabulary, probability.log())
    ((one,),) = beam.search(model, empty_batch(1), Config(beam=1, stop=stop, max_length=20))
    assert one.tokens == () and one.finished
    ((wider,),) = beam.search(model, empty_batch(1), Config(beam=2, max_length=20))
    assert len(wider.tokens) == 19


@pytest.mark.parametrize("search", [beam.search, greedy.search])
@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_broken_model_is_named(search: Any, value: float) -> None:
    model = Table(tiny_vocabulary(2), torch.full((6, 6, 6), value))
    config = Config(max_length=4) if search is beam.search else Config(method="greedy", max_length=4)
    with pytest.raises(UserError, match="no output has a finite score"):
        search(model, empty_batch(2), config)


def test_the_lecture_table_of_three_beam_slots() -> None:
    """After "today the": price .153, company .153, italian .077; the other words share the rest evenly."""
    words = ("today", "the", "price", "company", "italian", *(f"other{number}" for number in range(9)))
    vocabulary = Vocabulary((*SPECIALS, *words))
    probability = torch.zeros(len(vocabulary), len(vocabulary), len(vocabulary))
    today, the, price, company, italian = range(4, 9)
    probability[:, vocabulary.bos, today] = 1.0
    probability[:, today, the] = 1.0
    probability[today, the, [price, company, italian]] = torch.tensor([0.153, 0.153, 0.077])
    probability[today, the, italian + 1 :] = (1 - 0.153 - 0.153 - 0.077) / 9
    config = Config(beam=3, nbest=3, max_length=3, length_penalty="none")
    (found,) = beam.search(Table(vocabulary, probability.log()), empty_batch(1), config)
    slots = [(" ".join(vocabulary.tokens[token] for token in one.tokens), math.exp(one.score)) for one in found]
    assert slots == [
        ("today the price", pytest.approx(0.153, abs=1e-6)),
        ("today the company", pytest.approx(0.153, abs=1e-6)),
        ("today the italian", pytest.approx(0.077, abs=1e-6)),
    ]
