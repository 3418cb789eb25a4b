import copy

import torch

from mallang.layers.embedding import Embedding
from mallang.layers.position import LearnedPositions, SinusoidalPositions


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
