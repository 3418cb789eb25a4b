"""The chunked loss gives what the formula written out gives, gradients included."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mallang.layers.cross_entropy import cross_entropy, cross_entropy_of, summed
from mallang.layers.head import Projection
from mallang.text.vocabulary import PAD


def written_out(hidden, weight, bias, labels, smoothing):
    """Position by position, as the definition says."""
    loss = nll = 0 * hidden.double().sum()
    for vector, label in zip(hidden.double(), labels.tolist(), strict=True):
        if label != PAD:
            log_probs = F.linear(vector, weight.double(), None if bias is None else bias.double()).log_softmax(dim=0)
            nll = nll - log_probs[label]
            loss = loss - (1 - smoothing) * log_probs[label] - smoothing * log_probs.mean()
    return loss, nll


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 20), st.integers(1, 25), st.sampled_from([0.0, 0.1, 0.5]), st.booleans(), st.integers(0, 99))
def test_loss_and_gradients_are_those_of_the_formula(positions, chunk, smoothing, biased, seed):
    torch.manual_seed(seed)
    hidden, weight = torch.randn(positions, 6, requires_grad=True), torch.randn(9, 6, requires_grad=True)
    bias = torch.randn(9, requires_grad=True) if biased else None
    labels = torch.randint(0, 9, (positions,))
    inputs = [hidden, weight] if bias is None else [hidden, weight, bias]
    loss, nll = cross_entropy(hidden, weight, bias, labels, smoothing, chunk)
    wanted, wanted_nll = written_out(hidden, weight, bias, labels, smoothing)
    torch.testing.assert_close(loss.double(), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(nll.double(), wanted_nll, rtol=1e-5, atol=1e-5)
    # Divided, as the loop divides it: the gradient made on the way forward must be scaled on the way back.
    found = torch.autograd.grad(loss / 3, inputs)
    right = torch.autograd.grad(wanted / 3, inputs, allow_unused=True)
    for mine, theirs, tensor in zip(found, right, inputs, strict=True):
        expected = torch.zeros_like(tensor) if theirs is None else theirs
        torch.testing.assert_close(mine, expected.float(), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        again = cross_entropy(hidden, weight, bias, labels, smoothing, chunk)
    torch.testing.assert_close(torch.stack(again), torch.stack((loss, nll)).detach())


def test_the_even_part_flows_into_no_padding():
    hidden = torch.randn(4, 6, requires_grad=True)
    loss, _ = cross_entropy(hidden, torch.randn(9, 6), None, torch.tensor([5, PAD, 3, PAD]), 0.1)
    loss.backward()
    assert hidden.grad[[1, 3]].abs().max() == 0 < hidden.grad[[0, 2]].abs().min()


class Own(nn.Module):
    """A model whose output is more than a projection."""

    def __init__(self, head):
        super().__init__()
        self.head = head

    def output(self, hidden):
        return 2 * self.head(hidden)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_model_may_have_an_output_of_its_own(smoothing):
    torch.manual_seed(1)
    hidden, labels = torch.randn(5, 6), torch.tensor([4, 0, 7, 8, 2])
    model = Own(nn.Linear(6, 9))
    loss, nll = cross_entropy_of(model, hidden, labels, smoothing)
    wanted, wanted_nll = written_out(hidden, 2 * model.head.weight, 2 * model.head.bias, labels, smoothing)
    torch.testing.assert_close(loss.double(), wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(nll.double(), wanted_nll.detach(), rtol=1e-5, atol=1e-5)


def test_a_projection_is_taken_in_chunks():
    torch.manual_seed(1)
    hidden, labels, model = torch.randn(5, 6), torch.tensor([4, 0, 7, 8, 2]), nn.Module()
    model.head = Projection(6, 9)  # and no output: it must not be asked for
    loss, _ = cross_entropy_of(model, hidden, labels, 0.1)
    wanted, _ = written_out(hidden, model.head.weight, None, labels, 0.1)
    torch.testing.assert_close(loss.double(), wanted, rtol=1e-5, atol=1e-5)


def test_low_precision_keeps_the_sums_in_full():
    torch.manual_seed(2)
    hidden, weight = torch.randn(64, 16, requires_grad=True), torch.randn(50, 16, requires_grad=True)
    labels = torch.randint(1, 50, (64,))
    full, _ = cross_entropy(hidden, weight, None, labels, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low, _ = cross_entropy(hidden, weight, None, labels, 0.1)
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, full, rtol=1e-2, atol=0)
    mine, theirs = (torch.autograd.grad(loss, weight)[0] for loss in (low, full))
    assert mine.dtype == torch.float32
    torch.testing.assert_close(mine, theirs, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_low_precision_still_tells_a_sure_word_from_a_certain_one(smoothing):
    torch.manual_seed(4)
    weight = torch.randn(400, 32) / 4
    labels = torch.arange(1, 65)
    hidden = (8 * weight[labels] / weight[labels].square().sum(dim=1, keepdim=True)).requires_grad_()
    hidden.data += 0.02 * torch.randn_like(hidden)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low, nll = cross_entropy(1.9 * hidden, weight, None, labels, smoothing)
        plain = summed(F.linear(1.9 * hidden, weight).log_softmax(dim=1, dtype=torch.float32), labels, smoothing)[0]
    assert nll / len(labels) < 0.05, "the words are sure"
    mine, theirs = (torch.autograd.grad(loss, hidden)[0] for loss in (low, plain))
    assert torch.cosine_similarity(mine.flatten(), theirs.flatten(), dim=0) > 0.99
    assert mine.norm() / theirs.norm() == pytest.approx(1, abs=0.02)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("words", [9, 64, 5003])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_gpu_gives_the_same(dtype, words, smoothing, biased):
    torch.manual_seed(words)
    inputs = [torch.randn(50, 16), torch.randn(words, 16), *([torch.randn(words)] if biased else [])]
    inputs = [each.to(dtype) for each in inputs]
    labels = torch.randint(0, words, (50,))
    labels[::7] = PAD
    answers = []
    for device in ("cpu", "cuda"):
        hidden, weight, *bias = given = [each.to(device).requires_grad_() for each in inputs]
        loss, nll = cross_entropy(hidden, weight, bias[0] if bias else None, labels.to(device), smoothing, chunk=33)
        answers.append([each.cpu() for each in (loss, nll, *torch.autograd.grad(loss / 3, given))])
    for here, there in zip(*answers, strict=True):
        close = 1e-3 if dtype == torch.float32 else 5e-2
        torch.testing.assert_close(there, here, rtol=close, atol=close)
