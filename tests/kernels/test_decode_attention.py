"""The kernel for a step of a search gives what the formula gives, whatever is hidden and however memory lies."""

import math

import pytest
import torch

from kernels.gpu import BF16, DEVICE, HAS_GPU, large, needs_gpu, needs_kernels
from mallang.kernels import decode_attention
from mallang.kernels.attention import plain_attention
from mallang.kernels.decode_attention import decode, is_made_for, write_and_decode


def make(batch, heads, count, slots, key_dim, value_dim, dtype, heads_last, device):
    torch.manual_seed(slots)

    def drawn(rows, dim):
        shape = (batch, rows, heads, dim) if heads_last else (batch, heads, rows, dim)
        drawn = torch.randn(shape, device=device, dtype=dtype)
        return drawn.transpose(1, 2) if heads_last else drawn

    mask = torch.zeros(batch, 1, count, slots, device=device, dtype=dtype)
    mask.masked_fill_(torch.rand(mask.shape, device=device) < 0.5, -math.inf)
    mask[:, :, :, slots // 2 + 1 :] = -math.inf  # not filled yet
    mask[:, :, :, 0] = 0
    return drawn(count, key_dim), drawn(slots, key_dim), drawn(slots, value_dim), mask


def test_it_is_for_a_gpu(monkeypatch):
    monkeypatch.setattr(decode_attention, "works", lambda: True)
    queries, keys, values, mask = make(2, 2, 5, 9, 8, 8, torch.float32, True, "cpu")
    assert not is_made_for(queries, keys, values, mask)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, BF16, torch.float16])
@pytest.mark.parametrize("heads_last", [True, False])
@pytest.mark.parametrize(
    ("batch", "heads", "count", "slots", "key_dim", "value_dim"),
    [
        (2, 3, 5, 176, 64, 64),
        (1, 12, 1, 264, 64, 64),
        (3, 2, 16, 33, 24, 40),
        (2, 2, 4, 1, 16, 64),
        (1, 1, 5, 64, 8, 8),
        large(40, 8, 5, 1040, 32, 32),
        (2, 2, 1, 700, 64, 64),
    ],
)
def test_it_gives_what_the_formula_gives(batch, heads, count, slots, key_dim, value_dim, dtype, heads_last):
    given = make(batch, heads, count, slots, key_dim, value_dim, dtype, heads_last, DEVICE)
    queries, keys, values, mask = given
    assert not HAS_GPU or is_made_for(queries, keys, values, mask)
    found = decode(*given)
    plain = plain_attention(*(each.double() for each in (queries, keys, values)), mask.double())
    close = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 2e-2}
    torch.testing.assert_close(found, plain.to(dtype), **close)


@needs_kernels
def test_what_may_be_seen_by_all_is_one_row_of_the_mask():
    queries, keys, values, mask = make(2, 3, 5, 40, 16, 16, torch.float32, False, DEVICE)
    every = mask[:, :, :1]
    torch.testing.assert_close(
        decode(queries, keys, values, every),
        decode(queries, keys, values, every.expand(2, 3, 5, 40).contiguous()),
    )


@needs_kernels
def test_a_window_hides_what_came_long_before_and_some_may_see_nothing():
    queries, keys, values, mask = make(2, 3, 5, 700, 16, 16, torch.float32, False, DEVICE)
    mask[:, :, :, :300] = -math.inf
    mask[:, :, 1] = -math.inf
    plain = mask.softmax(dim=3)  # only to say who sees nothing
    wanted = ((queries @ keys.transpose(2, 3)) / 4 + mask).softmax(dim=3) @ values
    wanted = torch.where(plain[..., :1].isnan(), 0.0, wanted)
    torch.testing.assert_close(decode(queries, keys, values, mask), wanted, rtol=1e-4, atol=1e-5)


@needs_gpu
def test_gradients_go_another_way():
    queries, keys, values, mask = make(1, 2, 3, 20, 16, 16, torch.float32, False, "cuda")
    queries.requires_grad_()
    assert not is_made_for(queries, keys, values, mask)
    with torch.no_grad():
        assert is_made_for(queries, keys, values, mask)


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, BF16])
@pytest.mark.parametrize(
    ("batch", "heads", "count", "slots", "key_dim", "value_dim"),
    [(2, 3, 5, 176, 64, 64), (1, 12, 1, 264, 64, 64), (3, 2, 16, 33, 24, 40), large(40, 8, 5, 1040, 32, 32)],
)
def test_new_keys_and_values_are_written_and_seen(batch, heads, count, slots, key_dim, value_dim, dtype):
    _, keys, values, mask = make(batch, heads, count, slots, key_dim, value_dim, dtype, True, DEVICE)
    projected = torch.randn(batch, count, heads * (2 * key_dim + value_dim), device=DEVICE, dtype=dtype)
    at = torch.randperm(slots, device=DEVICE)[:count]
    mask[:, :, :, at] = torch.where(torch.eye(count, device=DEVICE).bool(), 0.0, -math.inf).to(dtype)
    parts = projected.split((heads * key_dim, heads * key_dim, heads * value_dim), dim=2)
    queries, new_keys, new_values = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in parts)
    keys_then, values_then = keys.clone(), values.clone()
    keys_then[:, :, at], values_then[:, :, at] = new_keys, new_values
    wanted = decode(queries, keys_then, values_then, mask)
    found = write_and_decode(projected, at, keys, values, mask)
    assert torch.equal(keys, keys_then) and torch.equal(values, values_then)
    torch.testing.assert_close(found, wanted.transpose(1, 2).flatten(2))
