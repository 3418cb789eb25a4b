"""What every model that says what comes next must satisfy: the toys, and every real one that has start and step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.tiny_models import pictures, vocabularies_of
from contracts.toy_models import Table, empty_batch, random_gru, random_table, source_batch, tiny_vocabulary
from mallang.data.batch import Batch
from mallang.decoding import beam, best_first, exhaustive, greedy, sampling
from mallang.decoding.contract import Autoregressive, Config, Hypothesis, inference, limits
from mallang.decoding.ranking import hypothesis, ranked
from mallang.decoding.scoring import score, with_labels
from mallang.find import find, names
from mallang.models.contract import ReadsRegions
from mallang.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Kind:
    """A way to build a model for a vocabulary, with weights drawn from a seed."""

    build: Callable[[Vocabulary, int], Any]
    reads_source: bool = True
    reads_images: bool = False

    def batch(self, sources: list[list[int]], extra_padding: int = 0) -> Batch:
        batch = source_batch(sources, extra_padding) if self.reads_source else empty_batch(len(sources))
        return replace(batch, images=pictures(sources))


def real_model(name: str) -> Kind | None:
    """The model of that file in its tiny size, or none if it does not generate."""
    module = find("models", name)
    reads_source = module.Model.reads_source

    def build(vocabulary: Vocabulary, seed: int) -> Any:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return module.Model(module.Config(**module.SIZES["tiny"]), *vocabularies_of(module, vocabulary))

    tiny = build(tiny_vocabulary(6), 1)
    return Kind(build, reads_source, isinstance(tiny, ReadsRegions)) if isinstance(tiny, Autoregressive) else None


def language_table(vocabulary: Vocabulary, seed: int) -> Table:
    return Table(vocabulary, random_table(vocabulary, seed).logits)


KINDS: dict[str, Kind] = {
    "toy table": Kind(random_table),
    "toy language table": Kind(language_table, reads_source=False),
    "toy gru": Kind(random_gru),
    **{name: kind for name in names("models") if (kind := real_model(name)) is not None},
}

SOURCES = [[4, 5], [5], [4, 4, 5, 1], []]
"""Sentences of unequal length, one of them empty."""

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
seeds = st.integers(0, 10_000)
limits_of_three, limits_of_four = st.sampled_from([3, 2, 1]), st.sampled_from([3, 4, 2, 1])
"""Lengths of outputs; the first example is always what a list begins with, and in one token there is little to err."""
penalties = st.sampled_from([{"length_penalty": "average"}, {"length_penalty": "none"}, {"length_penalty": "gnmt"}])
few = settings(deadline=None, max_examples=4)


def same(left: list[list[Hypothesis]], right: list[list[Hypothesis]]) -> None:
    """The same outputs, and the same scores to 1e-4, or where weights are wild and scores large to 5e-5 of them.

    Of outputs that are equally good either may stand at a rank. Such are `a b` and `b a` to a model that translates
    word by word, where a source says one word twice; or `a` and `a a`, each by its mean, where every word is as likely.
    """
    assert [len(found) for found in left] == [len(found) for found in right]
    for one, other in zip(itertools.chain(*left), itertools.chain(*right), strict=True):
        assert one.finished == other.finished
        if one.tokens == other.tokens:
            assert one.score == pytest.approx(other.score, abs=1e-4, rel=5e-5)
            assert one.normalized == pytest.approx(other.normalized, abs=1e-4, rel=5e-5)
            wild = max(map(abs, other.token_scores), default=0.0)  # a small difference of large logits errs as they do
            assert math.isfinite(wild)
            assert one.token_scores == pytest.approx(other.token_scores, abs=max(1e-4, 5e-5 * wild))
        else:
            assert one.normalized == pytest.approx(other.normalized, abs=1e-6), (one, other)
            if len(one.tokens) == len(other.tokens):
                assert sorted(one.token_scores) == pytest.approx(sorted(other.token_scores), abs=1e-6)


def rescored(model: Any, batch: Batch, found: list[list[Hypothesis]], rank: int = 0) -> list[list[float]]:
    labels = [one[rank].labels(model.vocabulary.eos) for one in found]
    return score(model, with_labels(batch, labels, model.vocabulary))


@every_kind
@given(seed=seeds)
@few
def test_step_equals_forward_and_one_token_at_a_time_equals_many(kind: Kind, seed: int) -> None:
    model = kind.build(tiny_vocabulary(3), seed)
    labels = torch.randint(4, 7, (len(SOURCES), 5), generator=torch.Generator().manual_seed(seed)).tolist()
    batch = with_labels(kind.batch(SOURCES), labels, model.vocabulary)
    with inference(model):
        at_once, _ = model.step(batch.tokens, model.start(batch))
        state, single = model.start(batch), []
        for column in batch.tokens.split(1, dim=1):
            logits, state = model.step(column, state)
            single.append(logits)
        some, state = model.step(batch.tokens[:, :2], model.start(batch))
        rest, _ = model.step(batch.tokens[:, 2:], state)
        torch.testing.assert_close(at_once, model.output(model(batch)), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.cat(single, dim=1), at_once, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.cat([some, rest], dim=1), at_once, atol=1e-5, rtol=1e-5)


@every_kind
@given(seed=seeds)
@few
def test_rows_may_be_widened_reordered_and_dropped(kind: Kind, seed: int) -> None:
    """What a hypothesis is told depends on its sentence and its own tokens alone, wherever its row lies."""
    model = kind.build(tiny_vocabulary(3), seed)
    batch = kind.batch(SOURCES)
    first = torch.full((len(SOURCES), 1), model.vocabulary.bos)
    second = torch.tensor([[4], [5], [6]] * len(SOURCES))
    with inference(model):
        _, state = model.step(first, model.start(batch))
        _, state = model.step(second, state.widen(3))
        rows = torch.tensor([2, 0, 0, 10, 11, 9])  # sentences 0 and 3, three hypotheses each
        kept = state.keep(torch.tensor([0, 3]), rows)
        logits, _ = model.step(torch.tensor([[4]] * 6), kept)
        for place, row in enumerate(rows.tolist()):
            tokens = [[model.vocabulary.bos, 4 + row % 3, 4]]
            alone, _ = model.step(torch.tensor(tokens), model.start(kind.batch([SOURCES[row // 3]])))
            torch.testing.assert_close(logits[place, 0], alone[0, -1], atol=1e-5, rtol=1e-5)


@every_kind
@given(seed=seeds, penalty=penalties, stop=st.sampled_from(["optimal", "complete"]))
@few
def test_a_beam_of_one_is_greedy(kind: Kind, seed: int, penalty: dict[str, Any], stop: Any) -> None:
    model, batch = kind.build(tiny_vocabulary(5), seed), kind.batch(SOURCES)
    config = Config(method="greedy", max_length=8, **penalty)
    same(
        beam.search(model, batch, Config(beam=1, stop=stop, max_length=8, **penalty)),
        greedy.search(model, batch, config),
    )


@every_kind
@given(seed=seeds, limit=limits_of_three, penalty=penalties)
@settings(deadline=None, max_examples=2)
def test_exhaustive_search_tries_every_output(kind: Kind, seed: int, limit: int, penalty: dict[str, Any]) -> None:
    """Against a list of all outputs, each scored by one forward pass."""
    model, sources = kind.build(tiny_vocabulary(2), seed), SOURCES[:2]
    config = Config(method="exhaustive", max_length=limit, nbest=4, **penalty)
    words = [model.vocabulary.unk, 4, 5]
    labels = [[*said, 3] for length in range(limit) for said in itertools.product(words, repeat=length)]
    expected = []
    for source in sources:
        batch = with_labels(kind.batch([source] * len(labels)), labels, model.vocabulary)
        scores = score(model, batch)
        every = [hypothesis(*pair, model.vocabulary, config) for pair in zip(labels, scores, strict=True)]
        expected.append(ranked(every)[:4])
    same(exhaustive.search(model, kind.batch(sources), config), expected)


@every_kind
@given(seed=seeds, limit=limits_of_four, penalty=penalties, stop=st.sampled_from(["optimal", "complete"]))
@few
def test_a_wide_beam_is_exhaustive(kind: Kind, seed: int, limit: int, penalty: dict[str, Any], stop: Any) -> None:
    """With three words a beam of 3^(limit − 1) × 4 drops nothing, and is wider than the number of all outputs."""
    model, batch = kind.build(tiny_vocabulary(2), seed), kind.batch(SOURCES[:3])
    config = Config(beam=3 ** (limit - 1) * 4, stop=stop, max_length=limit, nbest=3, **penalty)
    same(beam.search(model, batch, config), exhaustive.search(model, batch, config.with_method("exhaustive")))


@every_kind
@given(seed=seeds, limit=limits_of_four, penalty=penalties)
@few
def test_best_first_search_proves_what_exhaustive_search_finds(
    kind: Kind, seed: int, limit: int, penalty: dict[str, Any]
) -> None:
    """From a beam of 1, so that there is something to find; beginnings of unequal length are read in one step."""
    model, batch = kind.build(tiny_vocabulary(2), seed), kind.batch(SOURCES[:3])
    config = Config(method="best-first", beam=1, max_length=limit, nbest=2, **penalty)
    found = best_first.solve(model, batch, config)
    assert all(solution.proven for solution in found)
    expected = exhaustive.search(model, batch, config.with_method("exhaustive"))
    same([solution.nbest for solution in found], expected)


SEARCHES: dict[str, Config] = {
    "greedy": Config(method="greedy", max_length=8),
    "beam": Config(beam=4, nbest=3, max_length=8),
    "beam to completion": Config(beam=3, stop="complete", length_penalty="gnmt", max_length=8),
    "sampling": Config(method="sampling", nbest=2, top_k=5, max_length=8),
    "best-first": Config(method="best-first", nbest=2, max_length=3),
}
every_search = pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES.keys())


def search(model: Any, batch: Batch, config: Config, numbers: list[int] | None = None) -> list[list[Hypothesis]]:
    if config.method == "sampling":
        return sampling.search(model, batch, config, numbers)
    return {"greedy": greedy, "beam": beam, "best-first": best_first}[config.method].search(model, batch, config)


@every_kind
@every_search
@given(seed=seeds)
@settings(deadline=None, max_examples=2)
def test_the_score_of_an_output_is_what_rescoring_it_gives(kind: Kind, config: Config, seed: int) -> None:
    model, batch = kind.build(tiny_vocabulary(5), seed), kind.batch(SOURCES)
    found = search(model, batch, config)
    for rank in range(min(len(one) for one in found)):
        for hypotheses, scores in zip(found, rescored(model, batch, found, rank), strict=True):
            assert hypotheses[rank].token_scores == pytest.approx(scores, abs=1e-4)
            assert hypotheses[rank].score == pytest.approx(sum(scores), abs=1e-4)


@every_kind
@every_search
@given(seed=seeds)
@settings(deadline=None, max_examples=2)
def test_neither_the_batch_nor_padding_changes_anything(kind: Kind, config: Config, seed: int) -> None:
    model = kind.build(tiny_vocabulary(5), seed)
    together = search(model, kind.batch(SOURCES, extra_padding=3), config)
    alone = [search(model, kind.batch([source]), config, [number])[0] for number, source in enumerate(SOURCES)]
    same(together, alone)
    backwards = search(model, kind.batch(SOURCES[::-1]), config, list(range(len(SOURCES)))[::-1])
    same(together, backwards[::-1])


@every_kind
@given(seed=seeds, stop=st.sampled_from(["optimal", "complete"]), penalty=penalties)
@few
def test_the_n_best_are_sorted_and_distinct(kind: Kind, seed: int, stop: Any, penalty: dict[str, Any]) -> None:
    model, batch = kind.build(tiny_vocabulary(4), seed), kind.batch(SOURCES)
    config = Config(beam=4, nbest=4, stop=stop, max_length=8, **penalty)
    for found, limit in zip(beam.search(model, batch, config), limits(batch, config), strict=True):
        assert 1 <= len(found) <= 4
        assert [one.normalized for one in found] == sorted((one.normalized for one in found), reverse=True)
        assert len({one.tokens for one in found}) == len(found)
        assert len({one.finished for one in found}) == 1
        for one in found:
            assert not set(one.tokens) & {model.vocabulary.pad, model.vocabulary.bos, model.vocabulary.eos}
            assert len(one.token_scores) == len(one.tokens) + one.finished <= limit


@every_kind
@every_search
def test_the_model_is_left_as_it_was(kind: Kind, config: Config) -> None:
    model, batch = kind.build(tiny_vocabulary(4), 1), kind.batch(SOURCES)
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    while_training = search(model, batch, config)
    assert all(part.training for part in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    same(search(model.eval(), batch, config), while_training)


@every_kind
def test_the_outputs_given_are_not_read(kind: Kind) -> None:
    """A batch made for training holds the right answers; a search must not see them."""
    model, batch = kind.build(tiny_vocabulary(4), 1), kind.batch(SOURCES)
    answers = torch.tensor([[2, 4, 5]] * len(SOURCES))
    given_answers = replace(batch, tokens=answers, lengths=torch.full((len(SOURCES),), 3))
    same(beam.search(model, given_answers, Config(max_length=6)), beam.search(model, batch, Config(max_length=6)))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_kind
@every_search
def test_a_gpu_finds_the_same(kind: Kind, config: Config) -> None:
    """There the host looks at results less often, and equals are sought out at every step."""
    model, batch = kind.build(tiny_vocabulary(5), 1), kind.batch(SOURCES)
    expected = search(model, batch, config)
    same(search(model.cuda(), batch.to("cuda"), config), expected)
