"""The chunked loss gives what the formula written out gives, gradients included."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from mallang.kernels import c_library
from mallang.kernels.c_cross_entropy import c_cross_entropy_
from mallang.kernels.cross_entropy import (
    cross_entropy,
    measure_for,
    measure_in_c,
    measure_plainly,
    summed,
)
from mallang.layers.head import Projection, cross_entropy_of
from mallang.text.vocabulary import PAD

needs_kernels = pytest.mark.skipif(c_library.library() is None, reason="no compiler, or not such a processor")


@pytest.fixture(params=[pytest.param(True, id="kernels", marks=needs_kernels), pytest.param(False, id="torch")])
def kernels(request, monkeypatch):
    """A machine with kernels for its CPU, and one without."""
    if not request.param:
        monkeypatch.setattr(c_library, "library", lambda: None)
    wanted = measure_in_c if request.param else measure_plainly
    assert measure_for(torch.randn(2, 3), nn.Parameter(torch.randn(4, 3))) is wanted


def written_out(hidden, weight, bias, labels, smoothing):
    """Position by position, as the definition says."""
    loss = nll = 0 * hidden.double().sum()
    for vector, label in zip(hidden.double(), labels.tolist(), strict=True):
        if label != PAD:
            log_probs = F.linear(vector, weight.double(), None if bias is None else bias.double()).log_softmax(dim=0)
            nll = nll - log_probs[label]
            loss = loss - (1 - smoothing) * log_probs[label] - smoothing * log_probs.mean()
    return loss, nll


@pytest.mark.usefixtures("kernels")
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


def measured(logits, labels, smoothing, measure):
    """What a function says of given logits: the sums, and the gradient but for rows that ask for nothing."""
    sums, gradient = measure(logits, torch.eye(logits.shape[1]), None, labels, smoothing)
    return sums, gradient * (labels != PAD)[:, None]


@needs_kernels
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("size", [1.0, 1e4])
@pytest.mark.parametrize("words", [1, 9, 16, 17, 5003])
def test_the_kernel_gives_what_torch_gives(monkeypatch, words, size, smoothing, threads):
    monkeypatch.setattr(c_library, "threads", lambda multiplications: threads)
    torch.manual_seed(words)
    logits, labels = size * torch.randn(21, words), torch.randint(0, words, (21,))
    logits[3] += 1e4  # large and nearly equal
    labels[::7] = PAD
    wanted = measured(logits, labels, smoothing, measure_plainly)
    found = measured(logits, labels, smoothing, measure_in_c)
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.isfinite().all()
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)


@needs_kernels
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_words_that_cannot_be_said_and_what_is_no_number(smoothing):
    torch.manual_seed(1)
    logits, labels = torch.randn(6, 40), torch.tensor([5, 17, 39, 1, 2, 3])
    logits[1:3, 17] = -math.inf  # once the label itself
    logits[3, 20], logits[4, 20], logits[5] = math.nan, math.inf, -math.inf
    for row in range(6):
        given = torch.zeros(1, 1), torch.zeros(40, 1), logits[row], labels[row : row + 1], smoothing
        sums, gradient = measure_in_c(*given)
        torch.testing.assert_close((sums, gradient), measure_plainly(*given), rtol=1e-4, atol=1e-6, equal_nan=True)
        if row > 2:
            assert sums.isnan().all()
            assert gradient.isnan().all()
        else:
            assert sums.isfinite().tolist() == [row == 0 or (row == 2 and not smoothing), row != 1]


@needs_kernels
@pytest.mark.parametrize("words", [1, 16, 33])
def test_rows_may_lie_apart_and_nothing_between_them_is_touched(words):
    torch.manual_seed(2)
    table, labels = torch.randn(5, words + 3), torch.tensor([PAD, 0, 0, PAD, 0]) + (words > 1) * torch.arange(5)
    before, near = table.clone(), table[:, :words].clone()
    sums = c_cross_entropy_(table[:, :words], labels, 0.1)
    torch.testing.assert_close(sums, c_cross_entropy_(near, labels, 0.1))
    assert torch.equal(table[:, :words], near)
    assert torch.equal(table[:, words:], before[:, words:])
    assert near[labels == PAD].abs().sum() == sums[:, labels == PAD].abs().sum() == 0


@needs_kernels
@pytest.mark.parametrize("label", [-1, 9])
def test_a_label_that_is_no_word_is_refused(label):
    hidden = torch.randn(2, 4, requires_grad=True)
    with pytest.raises(IndexError, match="9 words"):
        cross_entropy(hidden, torch.randn(9, 4), None, torch.tensor([3, label]))


@needs_kernels
def test_other_precisions_and_counters_are_left_to_torch():
    hidden, weight = torch.randn(2, 3), nn.Parameter(torch.randn(4, 3))
    with torch.no_grad():
        assert measure_for(hidden, weight) is measure_in_c
        assert measure_for(hidden.double(), weight.double()) is measure_plainly
        assert measure_for(hidden.bfloat16(), weight.bfloat16()) is measure_plainly
        with FlopCounterMode(display=False):
            assert measure_for(hidden, weight) is measure_plainly


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
    hidden, labels, head = torch.randn(5, 6), torch.tensor([4, 0, 7, 8, 2]), Projection(6, 9)

    class Model(nn.Module):  # without `output`, which must not be asked for
        def output_projection(self):
            return head

    loss, _ = cross_entropy_of(Model(), hidden, labels, 0.1)
    wanted, _ = written_out(hidden, head.weight, None, labels, 0.1)
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


def test_a_weight_that_lies_the_other_way():
    torch.manual_seed(1)
    hidden, weight = torch.randn(512, 256, requires_grad=True), torch.randn(256, 1000).T.requires_grad_()
    labels = torch.randint(1, 1000, (512,))
    loss = cross_entropy(hidden, weight, None, labels, 0.1)[0]
    plain = summed(F.linear(hidden, weight).log_softmax(dim=1), labels, 0.1)[0]
    for one, other in zip(*(torch.autograd.grad(each, (hidden, weight)) for each in (loss, plain)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
