"""The kernel for the most probable word finds what log-probabilities say."""

import pytest
import torch

from kernels.gpu import DEVICE, large, needs_gpu, needs_kernels
from mallang.kernels import fused_argmax as module
from mallang.kernels.fused_argmax import PART, fused_argmax, is_at_hand

SAID = 2


def take(logits, least=1):
    return fused_argmax(logits, torch.tensor(SAID, device=logits.device), (0, 2), 3, least)


def by_formula(logits, least=1):
    log_probs = logits.float().log_softmax(dim=1)
    log_probs[:, [0, 2]] = -torch.inf
    if least > SAID + 1:  # too early for it
        log_probs[:, 3] = -torch.inf
    return log_probs.max(dim=1)


def test_it_is_for_a_gpu(monkeypatch):
    monkeypatch.setattr(module, "works", lambda: True)
    assert not is_at_hand(torch.zeros(2, 9))


@needs_gpu
def test_a_gpu_has_it_for_rows_that_lie_together():
    assert is_at_hand(torch.zeros(2, 9, device="cuda"))
    assert not is_at_hand(torch.zeros(9, 2, device="cuda").T)


@needs_kernels
@pytest.mark.parametrize("least", [1, SAID + 1, SAID + 2])
@pytest.mark.parametrize(("rows", "words"), [(1, 4), large(64, 50_257), (3, PART), (2, PART + 1), (5, 1000)])
def test_a_gpu_takes_what_log_probabilities_say(rows, words, least):
    torch.manual_seed(words)
    logits = torch.randn(rows, words, device=DEVICE) * 3
    for favored in (0, 2, 3):
        logits[favored % rows, favored] = 20.0
    taken, log_probs = take(logits, least)
    wanted, places = by_formula(logits, least)
    assert torch.equal(taken, places)
    assert torch.allclose(log_probs, wanted, atol=1e-5)


@needs_kernels
def test_of_equals_a_gpu_takes_the_lower_one():
    logits = torch.zeros(2, 3 * PART, device=DEVICE, dtype=torch.bfloat16)
    logits[1, [PART - 1, PART, 2 * PART]] = 4.0
    assert take(logits)[0].tolist() == [1, PART - 1]


@needs_kernels
def test_rows_of_a_wider_table_on_a_gpu():
    table = torch.randn(6, 1000, device=DEVICE)
    taken, log_probs = take(table[::2, :900])
    wanted, places = by_formula(table[::2, :900])
    assert torch.equal(taken, places) and torch.allclose(log_probs, wanted, atol=1e-5)


@needs_kernels
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter, by numpy
@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_where_nothing_may_come_a_gpu_says_so(value):
    taken, log_probs = take(torch.full((2, PART + 5), value, device=DEVICE))
    assert taken.tolist() == [0, 0] and log_probs.tolist() == [-torch.inf, -torch.inf]
