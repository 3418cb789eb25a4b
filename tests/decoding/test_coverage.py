"""The coverage penalty, against the formula written out, and where it changes the order of an n-best list."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from contracts.toy_models import random_gru, source_batch, tiny_vocabulary
from decoding.test_ensemble import small_transformer
from mallang.data.batch import Batch
from mallang.decoding import beam
from mallang.decoding.contract import Config, Hypothesis
from mallang.decoding.coverage import LEAST, coverage, cross_attention, rerank
from mallang.decoding.ensemble import Ensemble
from mallang.decoding.search import search
from mallang.errors import UserError
from mallang.layers.attention import record_attention

WORDS = tiny_vocabulary(4)
SOURCES = [[4, 5], [5], [4, 4, 5, 6]]


class Look(nn.Module):
    """An attention whose weights are given: [target, source], the same for every sentence."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.vocabulary, self.weights, self.recorders = WORDS, weights, []

    def forward(self, batch: Batch) -> Tensor:
        assert batch.source is not None
        weights = self.weights[: batch.tokens.shape[1], : batch.source.shape[1]]
        for recorder in self.recorders:
            recorder(weights, weights.expand(len(batch), 2, -1, -1))
        return torch.zeros(len(batch), batch.tokens.shape[1], 1)


class Looking(nn.Module):
    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.vocabulary, self.cross_attention = WORDS, Look(weights)

    def forward(self, batch: Batch) -> Tensor:
        return self.cross_attention(batch)


def output(*tokens: int, finished: bool = True) -> Hypothesis:
    scores = (-1.0,) * (len(tokens) + finished)
    return Hypothesis(tokens, sum(scores), -1.0, finished, scores)


def test_the_formula() -> None:
    """Two source tokens and `</s>`; the first is looked at enough, the second too little, `</s>` never."""
    model = Looking(torch.tensor([[0.9, 0.1, 0.0], [0.8, 0.2, 0.0], [0.9, 0.1, 0.0]]))
    (found,) = coverage(model, source_batch([[4, 5]]), [output(4, 5)])
    assert found == pytest.approx(math.log(1.0) + math.log(0.4) + math.log(LEAST), abs=1e-5)
    (cut,) = coverage(model, source_batch([[4, 5]]), [output(4, 5, finished=False)])  # two tokens were said, no </s>
    assert cut == pytest.approx(math.log(0.3) + math.log(LEAST), abs=1e-5)


def test_padding_counts_on_neither_side() -> None:
    model = small_transformer(WORDS, 1)
    outputs = [output(4), output(5, 5, 6), output(6, 4)]
    together = coverage(model, source_batch(SOURCES, extra_padding=2), outputs)
    for source, one, expected in zip(SOURCES, outputs, together, strict=True):
        assert coverage(model, source_batch([source]), [one]) == pytest.approx([expected], abs=1e-4)


def test_it_is_the_last_layer_and_the_mean_of_its_heads() -> None:
    model = small_transformer(WORDS, 1).eval()
    batch = source_batch(SOURCES)
    with torch.no_grad(), record_attention(model) as maps:
        model(batch)
    torch.testing.assert_close(cross_attention(model, batch), maps["decoder.1.cross"].mean(dim=1))


def test_an_ensemble_averages_the_attention_of_its_members() -> None:
    members = [small_transformer(WORDS, seed) for seed in (1, 2)]
    batch = source_batch(SOURCES)
    mean = (cross_attention(members[0], batch) + cross_attention(members[1], batch)) / 2
    torch.testing.assert_close(cross_attention(Ensemble(members), batch), mean)


def test_a_beam_is_ranked_anew() -> None:
    model, batch = small_transformer(WORDS, 3), source_batch(SOURCES)
    everything = beam.search(model, batch, Config(beam=6, nbest=6, max_length=5))
    for beta in (0.2, 5.0):
        found = search(model, batch, Config(beam=6, nbest=2, max_length=5, coverage=beta))
        for row, (nbest, all_of_them) in enumerate(zip(found, everything, strict=True)):
            one = source_batch([SOURCES[row]])
            values = {each.tokens: each.normalized + beta * coverage(model, one, [each])[0] for each in all_of_them}
            best = sorted(values.values(), reverse=True)[:2]
            assert [each.normalized for each in nbest] == pytest.approx(best, abs=1e-4)
            assert all(values[each.tokens] == pytest.approx(each.normalized, abs=1e-4) for each in nbest)
            assert nbest[0].score == pytest.approx(sum(nbest[0].token_scores), abs=1e-5)


def test_an_output_that_attends_to_more_may_win() -> None:
    """The second output is one token longer, and with that token attends to the second source token."""
    model = Looking(torch.tensor([[0.9, 0.05, 0.05], [0.1, 0.1, 0.8], [0.0, 0.9, 0.1]]))
    short, long = output(4), replace(output(4, 5), normalized=-1.5)
    for beta, first in ((0.0, short), (0.1, short), (1.0, long)):
        (found,) = rerank(model, source_batch([[4, 5]]), [[short, long]], beta)
        assert found[0].tokens == first.tokens


def test_lists_of_unequal_length_and_none() -> None:
    model = small_transformer(WORDS, 1)
    found = rerank(model, source_batch(SOURCES), [[output(4)], [], [output(5), output(6)]], 1.0)
    assert [len(nbest) for nbest in found] == [1, 0, 2]


def test_a_model_without_attention_is_refused() -> None:
    with pytest.raises(UserError, match="GRU has no attention"):
        search(random_gru(WORDS, 1), source_batch(SOURCES), Config(max_length=4, coverage=0.2))


def test_only_a_beam_can_be_ranked_anew() -> None:
    with pytest.raises(UserError, match="coverage = 0.2 has no effect on the method greedy"):
        Config(method="greedy", coverage=0.2)
    with pytest.raises(UserError, match="must be at least 0"):
        Config(coverage=-1.0)
