import copy

import numpy as np
import pytest
import torch

from mallang.data.word_vectors import Vectors
from mallang.layers.embedding import Embedding, load_vectors, spellings_of
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


def filled(words, values, vocabulary=WORDS, spellings=None, scaled=False):
    torch.manual_seed(1)
    table = torch.nn.Embedding(len(vocabulary), values.shape[1])
    before = table.weight.detach().clone()
    coverage = load_vectors(table, spellings or spellings_of(vocabulary), Vectors(tuple(words), values), scaled=scaled)
    return table.weight.detach(), before, coverage


def test_known_words_get_their_vectors_without_the_mark_of_a_space():
    values = 10 * np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    table, before, coverage = filled(["the", "cat", ",", "Cat", "dog"], values)
    assert np.array_equal(table[[4, 5, 6, 9]], values[[0, 3, 2, 0]])  # the exact case goes before others
    assert (coverage.found, coverage.words, coverage.in_other_case, coverage.missing) == (4, 6, 0, ("▁", "zzz"))
    assert coverage.share == 4 / 6 and str(coverage) == "4 of 6 words (66.7%) have a vector"
    others = [0, 1, 2, 3, 7, 8]
    scale = torch.tensor(values[[0, 3, 2, 0]]).std() / before.std()
    torch.testing.assert_close(table[others], before[others] * scale)


def test_scaled_vectors_have_the_standard_deviation_of_the_initialization():
    values = 10 * np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32)
    table, before, _ = filled(["the", "cat", ",", "Cat", "dog"], values, scaled=True)
    found, others = torch.tensor(values[[0, 3, 2, 0]]), [0, 1, 2, 3, 7, 8]
    torch.testing.assert_close(table[[4, 5, 6, 9]], found * before.std() / found.std())
    assert torch.equal(table[others], before[others])


def test_equal_numbers_have_no_spread_to_scale():
    table, before, _ = filled(["the"], np.ones((1, 3), np.float32), scaled=True)
    assert table[4].tolist() == [1.0, 1.0, 1.0] and torch.equal(table[:4], before[:4])


@pytest.mark.parametrize(("known", "chosen"), [(["CAT", "cat"], 1), (["CAT", "cAT"], 0)])
def test_a_word_in_lower_case_or_else_in_any_case_stands_for_another(known, chosen):
    values = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)
    table, _, coverage = filled(known, values)
    assert np.array_equal(table[5], values[chosen])
    assert (coverage.found, coverage.in_other_case) == (1, 1) and "1 of them in another case" in str(coverage)


def test_a_row_that_several_words_share_takes_the_vector_of_its_first_spelling():
    vocabulary = Vocabulary((*SPECIALS, "0000", "us"))
    spellings = [(), (), (), (), ("0000", "1996", "1997"), ("us", "US")]
    values = np.array([[1.0], [2.0], [3.0]], dtype=np.float32)
    table, _, coverage = filled(["US", "1997", "1996"], values, vocabulary, spellings)
    assert table[4:].flatten().tolist() == [3.0, 1.0] and coverage.in_other_case == 0


def test_without_any_known_word_nothing_changes():
    table, before, coverage = filled(["dog"], np.ones((1, 2), np.float32))
    assert coverage.share == 0.0 and torch.equal(table, before)


def test_vectors_of_another_size_are_refused():
    vectors = Vectors(("a",), np.ones((1, 4), np.float32))
    with pytest.raises(ValueError, match="vectors of 4 numbers do not fit into an embedding of 3"):
        load_vectors(torch.nn.Embedding(len(WORDS), 3), spellings_of(WORDS), vectors)
