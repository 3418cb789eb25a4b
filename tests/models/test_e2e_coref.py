"""E2E coreference: spans, scores and antecedents against explicit loops over words and spans."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.batch import Batch, Shapes
from mallang.layers.spans import crossing, distance_bucket, grid_of, previous, prune, span_attention, windows
from mallang.models.e2e_coref import SIZES, Config, E2ECoref
from mallang.text.vocabulary import SPECIALS, Vocabulary

VOCABULARY = Vocabulary((*SPECIALS, *"abcdefghijklmnop"))


def model_of(seed=3, **config):
    torch.manual_seed(seed)
    return E2ECoref(Config(**SIZES["tiny"] | config), VOCABULARY).eval()


def documents(*sentences_of):
    """A batch of documents, each given as the lengths of its sentences; a row per sentence."""
    rows, places, numbers = [], [], []
    generator = torch.Generator().manual_seed(sum(map(sum, sentences_of)))
    for lengths in sentences_of:
        places.append([(len(rows) + n, at) for n, length in enumerate(lengths) for at in range(length)])
        numbers.append([n for n, length in enumerate(lengths) for _ in range(length)])
        rows += [torch.randint(4, len(VOCABULARY), (length,), generator=generator) for length in lengths]
    most = max(map(len, places))
    return Batch(
        tokens=torch.nn.utils.rnn.pad_sequence(rows, batch_first=True),
        lengths=torch.tensor([len(row) for row in rows]),
        document_words=torch.tensor([[*each, *[(-1, -1)] * (most - len(each))] for each in places]),
        document_sentences=torch.tensor([[*each, *[-1] * (most - len(each))] for each in numbers]),
    )


def scores(model, batch):
    return model.span_scores(batch, model.word_vectors(batch.tokens))


@torch.no_grad()
def test_scores_are_those_of_the_papers_formulas():
    """g is put together span by span, and every feed-forward network reads whole concatenated vectors."""
    model, lengths = model_of(span_ratio=1.0, antecedents=6), (5, 4)
    batch = documents(lengths)
    words, found = model.word_vectors(batch.tokens), scores(model, batch)
    read = model(batch)
    x = torch.cat([row[:length] for row, length in zip(words, lengths, strict=True)])
    star = torch.cat([row[:length] for row, length in zip(read, lengths, strict=True)])

    def network(scorer, first):
        hidden = first.relu()
        for layer in scorer.hidden:
            hidden = layer(hidden).relu()
        return float(scorer.score(hidden))

    alpha = [network(model.mention.attention, model.mention.attention_input(vector)) for vector in star]
    m, a = model.mention, model.antecedent
    of_mention = torch.cat([each.weight for each in (m.from_start, m.from_end, m.from_head, m.from_width)], dim=1)
    vectors, mention = {}, {}
    for begin, size in ((0, 5), (5, 4)):
        for start in range(begin, begin + size):
            for end in range(start, min(start + model.config.width, begin + size)):
                weights = torch.tensor(alpha[start : end + 1]).softmax(dim=0)
                head = sum(weight * x[start + k] for k, weight in enumerate(weights))
                g = torch.cat((star[start], star[end], head, m.width.weight[end - start]))
                vectors[start, end] = g
                mention[start, end] = network(m.scorer, of_mention @ g + m.from_start.bias)
    places = [(t, t + w) for t in range(9) for w in range(model.config.width) if found.is_span[0, t, w]]
    assert places == sorted(vectors)
    for (start, end), value in mention.items():
        assert float(found.mentions[0, start, end - start]) == pytest.approx(value, abs=1e-5)
    kept = [tuple(span) for span, is_kept in zip(found.spans[0].tolist(), found.is_kept[0], strict=True) if is_kept]
    assert kept == greedy(mention, 9) and len(kept) > 5
    of_pair = torch.cat([each.weight for each in (a.from_span, a.from_other, a.from_both, a.from_distance)], dim=1)
    for i, span in enumerate(kept):
        assert float(found.antecedents[0, i, 0]) == 0.0
        for k in range(1, found.antecedents.shape[2]):
            value = float(found.antecedents[0, i, k])
            if k > i:
                assert value < -1e30
                continue
            other = kept[i - k]
            g, h = vectors[span], vectors[other]
            phi = a.distance.weight[bucket(k)]
            pair = network(a.scorer, of_pair @ torch.cat((g, h, g * h, phi)) + a.from_span.bias)
            assert value == pytest.approx(mention[span] + mention[other] + pair, abs=1e-4)


def greedy(scored, most):
    """The best spans that do not cross a better one that is kept, one by one, in the order of the text."""
    kept = []
    for start, end in sorted(scored, key=lambda span: -scored[span]):
        if len(kept) == most:
            break
        if not any(a < start <= b < end or start < a <= end < b for a, b in kept):
            kept.append((start, end))
    return sorted(kept)


def bucket(distance):
    """1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63, 64+."""
    edges = [(1, 1), (2, 2), (3, 3), (4, 4), (5, 7), (8, 15), (16, 31), (32, 63), (64, 10**9)]
    return next(number for number, (low, high) in enumerate(edges) if low <= distance <= high)


def test_distances_fall_into_the_papers_buckets():
    distances = torch.arange(1, 200)
    assert distance_bucket(distances).tolist() == [bucket(each) for each in range(1, 200)]


@settings(deadline=None, max_examples=60)
@given(
    sentences=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    width=st.integers(1, 5),
    ratio=st.sampled_from([0.2, 0.5, 1.0]),
    seed=st.integers(0, 1000),
    padding=st.integers(0, 3),
)
def test_pruning_keeps_what_a_greedy_search_keeps(sentences, width, ratio, seed, padding):
    numbers = torch.tensor([[n for n, size in enumerate(sentences) for _ in range(size)] + [-1] * padding])
    is_span = grid_of(numbers, width)
    values = torch.rand(is_span.shape, generator=torch.Generator().manual_seed(seed))
    words = sum(sentences)
    limit = max(1, int(ratio * words))
    spans, is_kept = prune(values, is_span, torch.tensor([limit]), limit + padding)
    scored = {
        (t, t + w): float(values[0, t, w])
        for t in range(words) for w in range(width) if t + w < words and numbers[0, t] == numbers[0, t + w]
    }  # fmt: skip
    assert int(is_span.sum()) == len(scored)
    best = sorted(scored, key=lambda span: -scored[span])[: 3 * limit]
    kept = [tuple(span) for span, there in zip(spans[0].tolist(), is_kept[0], strict=True) if there]
    assert kept == greedy({span: scored[span] for span in best}, limit)


def test_pruning_resolves_a_long_chain_of_crossings():
    """Each span crosses the next, whose score is lower: every second one stays."""
    places = torch.arange(12)
    is_span = torch.zeros(1, 13, 2, dtype=torch.bool)
    is_span[0, places, 1] = True
    values = torch.zeros(1, 13, 2)
    values[0, places, 1] = torch.linspace(1, 0.1, 12)
    spans, is_kept = prune(values, is_span, torch.tensor([12]), 12)
    assert spans[0, is_kept[0]].tolist() == [[t, t + 1] for t in range(0, 12, 2)]
    assert crossing(torch.tensor([[0, 1, 0]]), torch.tensor([[1, 2, 2]]))[0].tolist() == [
        [False, True, False], [True, False, False], [False, False, False],
    ]  # fmt: skip


def test_windows_attention_and_previous_spans():
    x = torch.arange(8.0).view(1, 4, 2)
    assert windows(x, 3)[0, 2].tolist() == [[4, 5], [6, 7], [0, 0]]
    assert previous(x, 3)[0, 2].tolist() == [[2, 3], [0, 1], [0, 0]]
    is_span = grid_of(torch.tensor([[0, 0, 1, 1]]), 2)
    assert is_span[0].tolist() == [[True, True], [True, False], [True, True], [True, False]]
    weights = span_attention(torch.tensor([[0.0, 2.0, 0.0, 0.0]]), is_span)
    torch.testing.assert_close(weights[0, 0, 1], torch.tensor([0.0, 2.0]).softmax(dim=0))
    assert weights[0, 0, 0].tolist() == [1, 0] and weights[0, 1, 1].tolist() == [0, 0]


@pytest.mark.parametrize("fill", [False, True])
@torch.no_grad()
def test_a_document_has_the_same_scores_beside_others(fill):
    model = model_of()
    lengths = [(5, 3, 7), (2,), (4, 4, 4, 6)]
    together = documents(*lengths)
    if fill:
        together = Shapes(tokens=64).fill(together)
    whole = scores(model, together)
    row = 0
    for number, each in enumerate(lengths):
        alone = documents(each)
        tokens = together.tokens[row : row + len(each), : max(each)]
        rows = slice(row, row + len(each))
        single = Batch(
            tokens=tokens, lengths=together.lengths[rows],
            document_words=alone.document_words, document_sentences=alone.document_sentences,
        )  # fmt: skip
        found = scores(model, single)
        row += len(each)
        count = int(found.is_kept.sum())
        assert count == max(1, int(model.config.span_ratio * sum(each))) == int(whole.is_kept[number].sum())
        assert whole.spans[number, :count].tolist() == found.spans[0, :count].tolist()
        most = found.antecedents.shape[2]
        torch.testing.assert_close(
            whole.antecedents[number, :count, :most], found.antecedents[0, :count], rtol=1e-4, atol=1e-4
        )
        size, width = sum(each), model.config.width
        torch.testing.assert_close(
            whole.mentions[number, :size, :width], found.mentions[0, :size], rtol=1e-4, atol=1e-4
        )


def test_impossible_shapes_are_refused():
    with pytest.raises(ValueError, match="span_ratio must be above 0"):
        Config(span_ratio=0.0)
    with pytest.raises(ValueError, match="character_features must be at least 3"):
        Config(character_features=2)
    with pytest.raises(ValueError, match="width must be at least 1"):
        Config(width=0)
