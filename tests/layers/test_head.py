import pytest
import torch
from torch import nn

from mallang.layers.head import Projection


def test_a_head_of_its_own():
    head, hidden = Projection(4, 7, bias=True), torch.randn(2, 3, 4)
    nn.init.normal_(head.bias)
    torch.testing.assert_close(head(hidden), hidden @ head.weight.T + head.bias)
    assert set(head.state_dict()) == {"own.weight", "bias"}


def test_a_tied_head_follows_the_table_and_saves_nothing():
    table = nn.Embedding(7, 4)
    head, hidden = Projection(4, 7, tied=table), torch.randn(3, 4)
    nn.init.normal_(table.weight)
    torch.testing.assert_close(head(hidden), hidden @ table.weight.T)
    assert head.state_dict() == {} and list(head.parameters()) == []
    head(hidden).sum().backward()
    assert table.weight.grad is not None


def test_a_loss_projects_only_what_it_needs():
    head, hidden = Projection(4, 7), torch.randn(2, 3, 4)
    asked = torch.tensor([[True, False, True], [False, False, True]])
    torch.testing.assert_close(head(hidden[asked]), head(hidden)[asked])


def test_a_table_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"a projection to \(7, 4\) cannot be tied to a table of \(7, 5\)"):
        Projection(4, 7, tied=nn.Embedding(7, 5))
