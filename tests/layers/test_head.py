import pytest
import torch
from torch import nn

from layers.kernels import DEVICE, large, needs_kernels
from mallang.layers.head import Projection, is_worth_turning, project_turned, turn


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
    with pytest.raises(ValueError, match=r"7 words of 4 cannot share a table of \(7, 5\)"):
        Projection(4, 7, tied=nn.Embedding(7, 5))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_projects_onto_odd_numbers_of_words_by_turning_the_product():
    head, hidden = Projection(16, 101, bias=True).cuda(), torch.randn(2, 3, 16, device="cuda")
    nn.init.normal_(head.bias)
    assert not is_worth_turning(hidden, head.weight)  # gradients are asked for
    plain = head(hidden)
    with torch.no_grad():
        assert is_worth_turning(hidden, head.weight) and not is_worth_turning(hidden[:1, :1], head.weight)
        torch.testing.assert_close(head(hidden), plain.detach())


def test_a_turned_product_is_the_same_product():
    hidden, weight = torch.randn(3, 4), torch.randn(7, 4)
    torch.library.opcheck(project_turned, (hidden, weight), test_utils=("test_schema", "test_faketensor"))
    torch.testing.assert_close(project_turned(hidden, weight), hidden @ weight.T)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("words", "rows"), [(101, 6), (64, 64), large(50_257, 70)])
def test_a_gpu_turns_tables_around(words, rows, dtype):
    table = torch.randn(words, rows, device=DEVICE, dtype=dtype)
    turn(table, turned := torch.empty(rows, words, device=DEVICE, dtype=dtype))
    assert torch.equal(turned, table.T)
