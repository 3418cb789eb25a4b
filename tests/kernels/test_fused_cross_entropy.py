"""The kernel of the loss gives the gradient and the sums of the formula."""

import pytest
import torch
import torch.nn.functional as F

from kernels.gpu import DEVICE, needs_kernels
from mallang.kernels.fused_cross_entropy import BLOCK, fused_cross_entropy_, is_at_hand
from mallang.text.vocabulary import PAD


def test_it_is_for_a_gpu():
    assert not is_at_hand(torch.device("cpu"))


@needs_kernels
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("words", "width"), [(3, 3), (100, 128), (BLOCK + 1, BLOCK + 64)])
def test_gradient_and_sums_are_those_of_the_formula(words, width, smoothing):
    torch.manual_seed(words)
    logits = torch.randn(5, width, device=DEVICE)
    labels = torch.randint(1, words, (5,), device=DEVICE)
    labels[3] = PAD
    real = labels != PAD
    log_probs = logits[:, :words].log_softmax(dim=1)
    nll = -log_probs.gather(1, labels[:, None])[:, 0] * real
    loss = (1 - smoothing) * nll - smoothing * log_probs.mean(dim=1) * real
    gradient = F.pad((log_probs.exp() - (1 - smoothing) * F.one_hot(labels, words)) * real[:, None], (0, width - words))
    sums = fused_cross_entropy_(logits, labels, words, smoothing)
    torch.testing.assert_close(sums, torch.stack([loss, nll]), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(logits, gradient, rtol=1e-4, atol=1e-5)
