"""Tokens as they are said are the tokens that the search gives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.test_decoding import language_table
from contracts.toy_models import tiny_vocabulary
from mallang.decoding.contract import Config
from mallang.decoding.prompted import Prompted, prompt_batch
from mallang.decoding.search import search
from mallang.decoding.streaming import stream
from mallang.errors import UserError

VOCABULARY = tiny_vocabulary(5)


@given(
    seed=st.integers(0, 1000),
    method=st.sampled_from(["greedy", "sampling"]),
    runner=st.sampled_from(["auto", "plain"]),
    prompt=st.lists(st.integers(4, 8), max_size=3),
    number=st.integers(0, 5),
)
@settings(deadline=None, max_examples=25)
def test_a_stream_is_the_search(seed: int, method: str, runner: str, prompt: list[int], number: int) -> None:
    model, batch = Prompted(language_table(VOCABULARY, seed)), prompt_batch([[2, *prompt]])
    config = Config(method=method, max_length=12, runner=runner)  # type: ignore[arg-type]
    said = list(stream(model, batch, config, number))
    ((expected,),) = search(model, batch, config, [number])
    assert tuple(token for token, _ in said) == expected.labels(3)
    assert tuple(score for _, score in said) == pytest.approx(expected.token_scores, abs=1e-5)


def test_who_reads_a_stream_finds_everything_as_it_was() -> None:
    model = Prompted(language_table(VOCABULARY, 1)).train()
    for _ in stream(model, prompt_batch([[2]]), Config(method="greedy", max_length=5, min_length=5)):
        assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
        assert model.training and model.model.training


@pytest.mark.parametrize(
    "config",
    [Config(), Config(method="sampling", nbest=2), Config(method="greedy", runner="static")],
    ids=["beam", "several", "static"],
)
def test_what_cannot_be_streamed(config: Config) -> None:
    with pytest.raises(UserError):
        next(stream(language_table(VOCABULARY, 1), prompt_batch([[2]]), config))
