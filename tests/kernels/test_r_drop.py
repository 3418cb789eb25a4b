"""The loss of two readings against the formula written out, and its gradients against torch's own."""

import inspect

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.kernels import r_drop as module
from mallang.kernels.cross_entropy import LOGITS, summed
from mallang.kernels.r_drop import agreement
from mallang.text.vocabulary import PAD

WORDS, DIM = 11, 5


def written_out(hidden, weight, bias, labels, smoothing, strength):
    log_probs = torch.nn.functional.linear(hidden, weight, bias).log_softmax(dim=1)
    loss, nll = summed(log_probs, torch.cat((labels, labels)), smoothing) / 2
    first, second = log_probs.chunk(2)
    each_way = torch.nn.functional.kl_div(first, second, log_target=True, reduction="none").sum(dim=1)
    each_way = each_way + torch.nn.functional.kl_div(second, first, log_target=True, reduction="none").sum(dim=1)
    divergence = (each_way * (labels != PAD)).sum()
    return loss + strength / 4 * divergence, nll, divergence


def given_sizes(positions, seed, bias):
    random = torch.Generator().manual_seed(seed)
    hidden = torch.randn(2 * positions, DIM, generator=random).requires_grad_()
    weight = torch.randn(WORDS, DIM, generator=random).requires_grad_()
    offset = torch.randn(WORDS, generator=random).requires_grad_() if bias else None
    return hidden, weight, offset, torch.randint(0, WORDS, (positions,), generator=random)


@given(
    positions=st.integers(1, 9),
    seed=st.integers(0, 99),
    smoothing=st.sampled_from([0.0, 0.1]),
    strength=st.sampled_from([0.5, 4.0]),
    bias=st.booleans(),
    logits=st.sampled_from([2 * WORDS, 6 * WORDS, LOGITS["cpu"]]),
)
@settings(deadline=None, max_examples=40)
def test_sums_and_gradients_are_those_of_the_formula(positions, seed, smoothing, strength, bias, logits):
    hidden, weight, offset, labels = given_sizes(positions, seed, bias)
    leaves = [tensor for tensor in (hidden, weight, offset) if tensor is not None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(LOGITS, "cpu", logits)  # one position a chunk, three, or all at once
        found = agreement(hidden, weight, offset, labels, smoothing, strength)
    expected = written_out(hidden, weight, offset, labels, smoothing, strength)
    torch.testing.assert_close(tuple(found), expected, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(
        torch.autograd.grad(found.loss * 0.3, leaves), torch.autograd.grad(expected[0] * 0.3, leaves),
        atol=1e-5, rtol=1e-4,
    )  # fmt: skip


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings(r"ignore:\s*Online softmax is disabled:UserWarning")
@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # torch's own, when it loads its compiler
def test_what_a_gpu_compiles_is_the_same(monkeypatch):
    # Shapes in signatures are checked here, and a compiler cannot look through that.
    bare = inspect.unwrap(module.sums_and_gradients)
    monkeypatch.setattr(module, "sums_and_gradients", bare)
    module.made_for.cache_clear()
    hidden, weight, offset, labels = given_sizes(7, 1, True)
    expected = agreement(hidden, weight, offset, labels, 0.1, 4.0)
    slopes = torch.autograd.grad(expected.loss, (hidden, weight, offset))
    moved = [tensor.detach().cuda().requires_grad_() for tensor in (hidden, weight, offset)]
    found = agreement(*moved, labels.cuda(), 0.1, 4.0)
    torch.testing.assert_close(torch.stack(found).cpu(), torch.stack(expected), atol=1e-3, rtol=1e-4)
    for mine, theirs in zip(torch.autograd.grad(found.loss, moved), slopes, strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, atol=1e-3, rtol=1e-3)
