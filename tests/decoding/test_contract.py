from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from contracts.toy_models import Table, empty_batch, random_gru, random_table, source_batch, tiny_vocabulary
from mallang.decoding import contract
from mallang.decoding.contract import Autoregressive, Config, Hypothesis, advance, begin, inference, limits
from mallang.decoding.search import search
from mallang.errors import UserError
from mallang.layers.cache import State


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "beem"}, ["method", "beem", "did you mean beam"]),
        ({"length_penalty": "gmnt"}, ["length_penalty", "did you mean gnmt"]),
        ({"stop": "never"}, ["stop", "never", "complete, optimal"]),
        ({"nbest": 6}, ["6", "beam of 5", "beam=6"]),
        ({"beam": 0}, ["beam", "0", "at least 1"]),
        ({"max_length": 0}, ["max_length", "at least 1"]),
        ({"min_length": 0}, ["min_length", "at least 1"]),
        ({"min_length": 9, "max_length": 8}, ["min_length is 9", "max_length 8"]),
        ({"runner": "statik"}, ["runner", "did you mean static"]),
        ({"precision": "fp16"}, ["precision", "fp16", "bf16"]),
        ({"compile": True, "runner": "plain"}, ["compile", "no effect on the plain runner"]),
        ({"method": "exhaustive", "runner": "static"}, ["runner", "no effect", "greedy or beam or sampling"]),
        ({"max_ratio": -1.0}, ["max_ratio", "at least 0"]),
        ({"length_penalty": "gnmt", "alpha": -0.1}, ["alpha", "-0.1", "at least 0"]),
        ({"alpha": 1.0}, ["alpha", "no effect", "average", "gnmt"]),
        ({"top_k": 5}, ["top_k", "no effect", "method beam", "sampling"]),
        ({"top_p": 0.9}, ["top_p", "sampling"]),
        ({"temperature": 0.5}, ["temperature", "sampling"]),
        ({"seed": 2}, ["seed", "sampling"]),
        ({"method": "greedy", "beam": 4}, ["beam", "no effect", "method greedy"]),
        ({"method": "greedy", "nbest": 2}, ["nbest", "beam or sampling or best-first or exhaustive"]),
        ({"method": "exhaustive", "stop": "complete"}, ["stop", "choose the method beam"]),
        ({"max_expansions": 10}, ["max_expansions", "no effect on the method beam", "best-first"]),
        ({"method": "best-first", "max_expansions": 0}, ["max_expansions", "at least 1"]),
        ({"method": "best-first", "runner": "static"}, ["runner", "no effect on the method best-first"]),
        ({"method": "sampling", "temperature": 0.0}, ["temperature", "above 0", "greedy"]),
        ({"method": "sampling", "temperature": float("nan")}, ["temperature", "above 0"]),
        ({"method": "sampling", "temperature": float("inf")}, ["temperature is inf", "finite"]),
        ({"max_ratio": float("nan")}, ["max_ratio is nan", "finite"]),
        ({"max_ratio": float("inf")}, ["max_ratio is inf", "finite"]),
        ({"coverage": float("nan")}, ["coverage is nan", "finite"]),
        ({"length_penalty": "gnmt", "alpha": float("inf")}, ["alpha is inf", "finite"]),
        ({"method": "sampling", "top_p": 0.0}, ["top_p", "above 0"]),
        ({"method": "sampling", "top_p": 1.5}, ["top_p", "1.5"]),
    ],
)
def test_impossible_and_idle_options_are_refused(options: dict[str, Any], words: list[str]) -> None:
    """Set past the constructor, whose types are checked in tests before any sentence could be given."""
    config = object.__new__(Config)
    config.__dict__.update({**contract.DEFAULTS, **options})
    with pytest.raises(UserError) as error:
        config.__post_init__()
    for word in words:
        assert word in str(error.value)


def test_every_option_is_explained() -> None:
    source = contract.__file__
    with open(source) as file:  # noqa: PTH123
        text = file.read()
    for name in Config.__dataclass_fields__:
        line = next(number for number, line in enumerate(text.splitlines()) if line.startswith(f"    {name}: "))
        assert text.splitlines()[line + 1].strip().startswith('"""')


def test_another_method_keeps_what_it_reads() -> None:
    config = Config(beam=8, nbest=3, stop="complete", max_length=40, length_penalty="gnmt", alpha=1.0)
    kept = {"max_length": 40, "length_penalty": "gnmt", "alpha": 1.0}
    assert config.with_method("greedy") == Config(method="greedy", **kept)
    assert config.with_method("exhaustive") == Config(method="exhaustive", nbest=3, **kept)
    assert config.with_method("beam") == config


def test_limits_follow_the_source_and_the_longest_allowed() -> None:
    batch = source_batch([[4] * 4, [], [4] * 99])  # `</s>` makes them 5, 1 and 100 tokens long
    assert limits(batch, Config()) == [25, 13, 256]
    assert limits(batch, Config(max_length=20, max_ratio=1.5)) == [17, 11, 20]
    assert limits(empty_batch(2), Config(max_length=7)) == [7, 7]


@pytest.mark.parametrize("method", contract.METHODS)
def test_search_calls_the_method_that_is_named(method: Any) -> None:
    model, batch = random_table(tiny_vocabulary(1), seed=3), source_batch([[4], [4, 4]])
    config = Config(method=method, max_length=4)
    found = search(model, batch, config)
    assert [len(one) for one in found] == [1, 1]
    assert search(model, empty_batch(0), config) == []
    # Only sampling depends on the number of a sentence, and then it does.
    other = search(model, batch, config, numbers=[100, 200])
    assert (other == found) == (method != "sampling")


def test_pad_and_start_are_never_generated_but_keep_their_probability() -> None:
    vocabulary = tiny_vocabulary(2)
    logits = torch.zeros(6, 6, 6)
    logits[:, :, [vocabulary.pad, vocabulary.bos]] = 5.0
    model = Table(vocabulary, logits)
    log_probs, state = begin(model, empty_batch(2))
    assert log_probs[:, [vocabulary.pad, vocabulary.bos]].isneginf().all()
    expected = logits[0, 0].log_softmax(dim=-1)
    torch.testing.assert_close(log_probs[:, [1, 3, 4, 5]], expected[[1, 3, 4, 5]].expand(2, 4))
    further, _ = advance(model, torch.tensor([[4, 5], [5, 5]]), state)
    assert further.shape == (2, 6)
    for method in contract.METHODS:
        found = search(model, empty_batch(3), Config(method=method, max_length=4))
        assert not {0, 2} & {token for one in found for token in one[0].tokens}


def test_inference_gives_every_part_back_as_it_was() -> None:
    model = random_gru(tiny_vocabulary(2), seed=1)
    model.train()
    model.encoder.eval()
    with pytest.raises(KeyError), inference(model):
        assert not any(part.training for part in model.modules())
        assert torch.is_inference_mode_enabled()
        raise KeyError
    assert model.training and model.dropout.training and not model.encoder.training
    assert not torch.is_inference_mode_enabled()
    with inference(object()):  # a model need not be a torch module
        assert torch.is_inference_mode_enabled()


def test_the_toys_obey_the_contract_and_a_plain_module_does_not() -> None:
    assert isinstance(random_table(tiny_vocabulary(1), 1), Autoregressive)
    assert isinstance(random_gru(tiny_vocabulary(1), 1), Autoregressive)
    assert not isinstance(nn.Linear(1, 1), Autoregressive)
    assert contract.State is State


def test_labels_of_a_hypothesis() -> None:
    assert Hypothesis((4, 5), -1.0, -0.5, True, (-0.2, -0.3, -0.5)).labels(3) == (4, 5, 3)
    assert Hypothesis((4, 5), -1.0, -0.5, False, (-0.5, -0.5)).labels(3) == (4, 5)
