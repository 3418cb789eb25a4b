"""Attention step by step: every number is computed again, by loops and from the weights of the layer."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from inspection.test_live import translator, writer
from mallang.errors import UserError
from mallang.inspection.attention_steps import (
    AttentionSteps,
    basic_self_attention,
    choose_steps,
    multi_head_attention,
    record_steps,
)
from mallang.inspection.shown_texts import read_text
from mallang.models import modern_gpt
from mallang.tasks import language_modeling

TEXT = "유나는 배를 탔다."


def by_loops(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """softmax(Q Kᵀ / √d) V of one head, number by number."""
    weights, context = torch.zeros(len(q), len(k)), torch.zeros(len(q), v.shape[1])
    for i in range(len(q)):
        scores = [sum(float(a) * float(b) for a, b in zip(q[i], k[j], strict=True)) for j in range(len(k))]
        seen = [math.exp(scores[j] / math.sqrt(q.shape[1])) if mask[i, j] else 0.0 for j in range(len(k))]
        for j in range(len(k)):
            weights[i, j] = seen[j] / sum(seen)
            context[i] += weights[i, j] * v[j]
    return weights, context


def test_basic_self_attention_is_a_weighted_mean_of_the_tokens() -> None:
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    found = basic_self_attention(x)
    assert found.scores.tolist() == [[1, 0, 1], [0, 4, 2], [1, 2, 2]]
    for i in range(3):
        shares = [math.exp(float(x[i] @ x[j])) for j in range(3)]
        assert found.weights[i].tolist() == pytest.approx([share / sum(shares) for share in shares])
        mean = sum(share / sum(shares) * x[j] for j, share in enumerate(shares))
        assert found.output[i].tolist() == pytest.approx(mean.tolist())


@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_matrices_of_ones_own_equals_the_formula(causal: bool) -> None:
    torch.manual_seed(1)
    x, w_q, w_k, w_v, w_o = torch.randn(5, 6), *(torch.randn(6, 8) for _ in range(3)), torch.randn(8, 6)
    found = multi_head_attention(x, w_q, w_k, w_v, w_o, heads=2, causal=causal)
    heads = []
    for head in range(2):
        part = slice(4 * head, 4 * head + 4)
        weights, context = by_loops((x @ w_q)[:, part], (x @ w_k)[:, part], (x @ w_v)[:, part], found.mask)
        assert found.weights[head] == pytest.approx(weights.numpy(), abs=1e-6)
        heads.append(context)
    assert found.joined == pytest.approx(torch.cat(heads, dim=1).numpy(), abs=1e-5)
    assert found.output == pytest.approx((torch.cat(heads, dim=1) @ w_o).numpy(), abs=1e-4)
    assert bool(found.mask.all()) is not causal
    with pytest.raises(UserError, match="cannot be divided among 3 heads"):
        multi_head_attention(x, w_q, w_k, w_v, w_o, heads=3)


def test_thinking_machines() -> None:
    """The numbers of the figure: q1 · k1 = 112 and q1 · k2 = 96, divided by 8, are 14 and 12: 0.88 and 0.12."""
    x = torch.eye(2)
    w_q, w_k = torch.zeros(2, 64), torch.zeros(2, 64)
    w_q[0, 0], w_k[0, 0], w_k[1, 0] = 8.0, 14.0, 12.0
    found = multi_head_attention(x, w_q, w_k, torch.eye(2, 64), torch.eye(64, 2), tokens=["Thinking", "Machines"])
    assert found.scores[0, 0].tolist() == [112, 96] and found.scaled[0, 0].tolist() == [14, 12]
    assert [round(each, 2) for each in found.weights[0, 0].tolist()] == [0.88, 0.12]
    assert "Thinking" in found.text() and "112.000" in found.text()


def layer_of(model: Any, name: str) -> Any:
    parts = name.split(".")
    return model.get_submodule(".".join([*parts[:-1], f"{parts[-1]}_attention"]))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_numbers_of_a_layer_follow_from_its_weights(norm: str) -> None:
    verbs = translator(norm=norm)
    reading = read_text(verbs, TEXT)
    assert reading is not None
    steps, maps = reading.steps(), reading.maps()
    assert list(steps) == list(maps) and len(steps) == 6
    for name, each in steps.items():
        layer = layer_of(verbs.model, name)
        read = each.x if each.memory is None else each.memory
        assert (each.memory is None) == ("self" in name) and (each.queries, each.keys) == (
            maps[name].queries,
            maps[name].keys,
        )
        w_q, w_k, w_v = layer.input_weights()
        biases = (
            layer.query_key_value.bias.split_with_sizes(layer.sizes)
            if each.memory is None
            else (layer.query.bias, *layer.key_value.bias.split(layer.sizes))
        )
        for found, source, weight, bias in zip(
            (each.q, each.k, each.v), (each.x, read, read), (w_q, w_k, w_v), biases, strict=True
        ):
            joined = found.transpose(0, 1).flatten(1)
            assert joined == pytest.approx((source @ weight.T + bias.detach()).numpy(), abs=1e-5)
        for head in range(4):
            weights, context = by_loops(each.q[head], each.k[head], each.v[head], each.mask)
            assert maps[name].weights[head] == pytest.approx(weights.numpy(), abs=1e-6)
            assert each.context[head] == pytest.approx(context.numpy(), abs=1e-5)
        output = each.joined @ layer.output.weight.detach().T + layer.output.bias.detach()
        assert each.output == pytest.approx(output.numpy(), abs=1e-5)
        assert torch.equal(each.mask, torch.ones_like(each.mask).tril() if name.startswith("decoder") and
                           each.memory is None else torch.ones_like(each.mask))  # fmt: skip


def test_queries_and_keys_are_those_of_the_softmax_where_they_are_rotated() -> None:
    tokenizer = writer().tokenizer
    task = language_modeling.Task(language_modeling.Config(), {"text": tokenizer})
    torch.manual_seed(1)
    model = task.build(modern_gpt, modern_gpt.Config(**modern_gpt.SIZES["tiny"])).eval()
    reading = read_text(language_modeling.Verbs(task, model, writer().config, 100), "유나는")
    assert reading is not None
    maps = reading.maps()
    for name, each in reading.steps().items():
        assert each.masked.softmax(dim=-1) == pytest.approx(maps[name].weights.numpy(), abs=1e-6)


def test_layers_are_as_before_when_nothing_is_recorded_any_more() -> None:
    verbs = translator()
    layer = verbs.model.decoder[0].cross_attention
    with record_steps(verbs.model):
        assert "attend" in vars(layer) and "remember" in vars(layer)
    assert "attend" not in vars(layer) and "remember" not in vars(layer) and not layer._forward_pre_hooks


def test_steps_as_text_and_as_json() -> None:
    reading = read_text(translator(), TEXT)
    assert reading is not None
    steps = choose_steps(reading.steps(), "decoder.0.self")
    names = [formula for formula, *_ in steps.rungs(2)]
    assert names[:4] == ["X", "X Xᵀ", "softmax(X Xᵀ)", "softmax(X Xᵀ) X"] and names[-1] == "[…] Wo"
    assert "−∞" in steps.text(2) and "Q = X Wq, head 2" in steps.text(2)
    plain = json.loads(json.dumps(steps.to_json(2), allow_nan=False))
    masked = next(each["values"] for each in plain["steps"] if each["step"] == "masked")
    assert masked[0][1] is None and masked[1][0] == pytest.approx(float(steps.scaled[1, 1, 0]))
    with pytest.raises(UserError, match="no head 5 in a layer of 4"):
        steps.text(5)
    with pytest.raises(UserError, match="decoder.0.self"):
        choose_steps(reading.steps(), "decoder.0.selv")
    assert isinstance(steps.window(1, 2), AttentionSteps) and steps.window(1, 2).scores.shape == (4, 2, 2)
