"""Logits over vocabularies of odd sizes: the transposed matmul of a GPU gives the same."""

import pytest
import torch
from torch import nn

from kernels.gpu import DEVICE, large, needs_kernels
from mallang.kernels.projection import is_worth_transposing, project_transposed, transpose
from mallang.layers.head import Projection


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_projects_onto_odd_numbers_of_words_by_a_transposed_matmul():
    head, hidden = Projection(16, 101, bias=True).cuda(), torch.randn(2, 3, 16, device="cuda")
    nn.init.normal_(head.bias)
    assert not is_worth_transposing(hidden, head.weight)  # gradients are asked for
    plain = head(hidden)
    with torch.no_grad():
        assert is_worth_transposing(hidden, head.weight) and not is_worth_transposing(hidden[:1, :1], head.weight)
        torch.testing.assert_close(head(hidden), plain.detach())


def test_a_transposed_matmul_is_the_same_matmul():
    hidden, weight = torch.randn(3, 4), torch.randn(7, 4)
    torch.library.opcheck(project_transposed, (hidden, weight), test_utils=("test_schema", "test_faketensor"))
    torch.testing.assert_close(project_transposed(hidden, weight), hidden @ weight.T)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("words", "rows"), [(101, 6), (64, 64), large(50_257, 70)])
def test_a_gpu_transposes_tables(words, rows, dtype):
    table = torch.randn(words, rows, device=DEVICE, dtype=dtype)
    transpose(table, transposed := torch.empty(rows, words, device=DEVICE, dtype=dtype))
    assert torch.equal(transposed, table.T)
