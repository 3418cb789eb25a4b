import copy

import pytest
import torch

from mallang.layers.embedding import Embedding, load_vectors
from mallang.layers.position import LearnedPositions, SinusoidalPositions
from mallang.text.vocabulary import SPECIALS, Vocabulary


def test_tokens_are_scaled_and_told_where_they_stand():
    embedding = Embedding(7, 4, SinusoidalPositions(4))
    found = embedding(torch.tensor([[3, 5]]), start=2)
    expected = embedding.table.weight[[3, 5]] * 2.0 + SinusoidalPositions(4)(2, 2)
    torch.testing.assert_close(found, expected[None])


def test_dropout_falls_on_the_sum():
    embedding = Embedding(7, 4, SinusoidalPositions(4), dropout=0.999999)
    tokens = torch.tensor([[3, 5]])
    assert embedding(tokens).eq(0).all()
    assert embedding.eval()(tokens).ne(0).any()


def test_a_tied_table_belongs_to_its_owner_alone():
    pair = torch.nn.ModuleList([Embedding(7, 4, LearnedPositions(4, 3))])
    pair.append(Embedding(7, 4, LearnedPositions(4, 3), tied=pair[0]))
    assert set(pair.state_dict()) == {"0.own.weight", "0.positions.table.weight", "1.positions.table.weight"}
    twin = copy.deepcopy(pair)
    assert twin[1].table is twin[0].table and twin[0].table is not pair[0].table


WORDS = Vocabulary((*SPECIALS, "▁the", "▁Cat", ",", "▁", "▁zzz", "the"))


def vectors_loaded(**options):
    torch.manual_seed(1)
    table = torch.nn.Embedding(len(WORDS), 3)
    before = table.weight.detach().clone()
    words, matrix = ["the", "cat", ",", "Cat", "the", "dog"], 10 * torch.randn(6, 3)
    return table, before, matrix, load_vectors(table, WORDS, words, matrix, **options)


def test_known_words_get_their_vectors_without_the_mark_of_a_space():
    table, before, matrix, coverage = vectors_loaded()
    assert torch.equal(table.weight[[4, 5, 6, 9]], matrix[[0, 3, 2, 0]])  # the first of equal words, the exact case
    assert (coverage.found, coverage.words, coverage.missing) == (4, 6, ("▁", "▁zzz"))
    assert coverage.share == 4 / 6 and "4 of 6 tokens (66.7%)" in str(coverage)
    others = [0, 1, 2, 3, 7, 8]
    scale = matrix[[0, 3, 2, 0]].std() / before[others].std()
    torch.testing.assert_close(table.weight[others].detach(), before[others] * scale)
    assert table.weight.requires_grad and not vectors_loaded(static=True)[0].weight.requires_grad


def test_a_word_in_lower_case_stands_for_its_capitals():
    table = torch.nn.Embedding(len(WORDS), 2)
    assert load_vectors(table, WORDS, ["cat"], torch.tensor([[1.0, 2.0]])).found == 1
    assert table.weight[5].tolist() == [1.0, 2.0]


def test_without_any_known_word_nothing_changes():
    table = torch.nn.Embedding(len(WORDS), 2)
    before = table.weight.detach().clone()
    assert load_vectors(table, WORDS, ["dog"], torch.ones(1, 2)).share == 0.0
    assert torch.equal(table.weight, before)


def test_vectors_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"2 words of size 3 need a matrix of that shape, not \(2, 4\)"):
        load_vectors(torch.nn.Embedding(len(WORDS), 3), WORDS, ["a", "b"], torch.ones(2, 4))
