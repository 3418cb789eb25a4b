"""Attention without padding against each text by itself, and encoders computed without padding against padded ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.gpu import needs_gpu
from mallang.data.batch import Batch, pad_rows
from mallang.find import find
from mallang.kernels import varlen_attention as varlen
from mallang.kernels.attention import attention, plain_attention
from mallang.kernels.varlen_attention import Texts, varlen_attention
from mallang.layers import bidirectional
from mallang.layers.attention import record_attention
from mallang.text.vocabulary import SPECIALS, Vocabulary

few = settings(deadline=None, max_examples=25)


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def texts_of(lengths: list[int], spare: int = 0) -> Texts:
    bounds = torch.tensor([0, *np.cumsum(lengths).tolist()], dtype=torch.int32)
    return Texts(bounds, max(lengths) + spare)


@few
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    spare=st.integers(0, 3),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5)),
)
def test_every_text_is_computed_as_if_it_were_alone(
    lengths: list[int], spare: int, shape: tuple[int, int, int]
) -> None:
    heads, key_dim, value_dim = shape
    torch.manual_seed(sum(lengths))
    texts, time = texts_of(lengths, spare), sum(lengths)
    tensors = [torch.randn(1, heads, time, dim, requires_grad=True) for dim in (key_dim, key_dim, value_dim)]
    parts = zip(*(each.split(lengths, dim=2) for each in tensors), strict=True)
    expected = torch.cat([F.scaled_dot_product_attention(*part) for part in parts], dim=2)
    found = varlen_attention(texts, *tensors)
    close(found, expected)
    close(plain_attention(*tensors, texts), expected)
    close(attention(*tensors, texts), expected.transpose(1, 2).flatten(2))
    weights = torch.randn_like(expected)
    for ours, theirs in zip(
        torch.autograd.grad((found * weights).sum(), tensors),
        torch.autograd.grad((expected * weights).sum(), tensors),
        strict=True,
    ):
        close(ours, theirs)
    assert texts.mask(time).sum() == sum(length**2 for length in lengths)


def test_flash_attention_gets_the_tokens_and_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a GPU computes, with its kernel replaced by a loop over the bounds that it is given."""

    def loop(one: Any, two: Any, three: Any, starts: Any, others: Any, longest: int, most: int) -> torch.Tensor:
        assert starts.dtype == torch.int32 and torch.equal(starts, others) and longest == most == 4
        found = []
        for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            part = [each[begin:end].transpose(0, 1) for each in (one, two, three)]
            found.append(F.scaled_dot_product_attention(*part).transpose(0, 1))
        return torch.cat(found)

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", loop)
    monkeypatch.setattr(varlen, "is_for_flash", lambda queries, values: True)
    monkeypatch.setattr(varlen, "works", lambda: True)
    torch.manual_seed(2)
    tensors = [torch.randn(1, 2, 8, 4) for _ in range(3)]
    found = varlen_attention(texts_of([3, 1, 4]), *tensors)
    close(found, plain_attention(*tensors, texts_of([3, 1, 4])))


def encoder(name: str) -> Any:
    module = find("models", name)
    vocabulary = Vocabulary((*SPECIALS, "<cls>", "<sep>", *(f"w{number}" for number in range(20))))
    torch.manual_seed(3)
    types = {"token_types": 2} if name == "bert" else {}
    return module.Model(module.Config(layers=2, dim=16, heads=2, max_length=16, **types), vocabulary).eval()


def batch_of(lengths: list[int]) -> Batch:
    random = np.random.default_rng(1)
    tokens, sizes = pad_rows([random.integers(4, 20, size=length) for length in lengths])
    return Batch(tokens=tokens, lengths=sizes)


@pytest.mark.parametrize("name", ["bert", "distilbert"])
def test_an_encoder_without_padding_gives_the_vectors_of_one_with_padding(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batch = encoder(name), batch_of([3, 11, 1, 6])
    if name == "bert":
        batch = replace(batch, token_types=(torch.arange(11) % 2).expand(4, 11).contiguous())
    with torch.inference_mode():
        expected = model.encode(batch)
        monkeypatch.setattr(bidirectional, "pays_to_unpad", lambda blocks, given: True)
        found = model.encode(batch)
    close(found.pooled, expected.pooled)
    for ours, theirs in zip(found.layers, expected.layers, strict=True):
        close(ours[batch.mask], theirs[batch.mask])
        assert not ours[~batch.mask].any()


def test_it_pays_on_a_gpu_alone_and_where_nothing_observes() -> None:
    model, batch = encoder("bert"), batch_of([3, 11, 1, 6])
    with torch.inference_mode():
        assert not bidirectional.pays_to_unpad(model.encoder, batch)
        with record_attention(model) as maps:
            model(batch)
    assert maps["encoder.0.self"].shape == (4, 2, 11, 11)


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_on_a_gpu(dtype: torch.dtype) -> None:
    assert varlen.works()
    torch.manual_seed(4)
    texts = Texts(texts_of([30, 1, 70]).bounds.cuda(), 72)
    tensors = [torch.randn(1, 4, 101, 32, device="cuda", dtype=dtype) for _ in range(3)]
    expected = plain_attention(*(each.float() for each in tensors), texts)
    found = varlen_attention(texts, *tensors).float()
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2 if dtype == torch.bfloat16 else 1e-4)
    model, batch = encoder("bert").cuda(), batch_of([3, 11, 1, 6]).to(torch.device("cuda"))
    assert bidirectional.pays_to_unpad(model.encoder, batch)
    ours = model.encode(batch).pooled
    with record_attention(model):  # the padded, readable way
        close(ours, model.encode(batch).pooled)
    assert not bidirectional.pays_to_unpad(model.encoder, batch_of([11, 10, 11]).to(torch.device("cuda")))
