"""Texts that join and leave common decode steps get the numbers that they get alone."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from mallang.decoding.contract import normalize
from mallang.decoding.joined import Joined, can_join
from mallang.decoding.prompted import Prompted, prompt_batch
from mallang.find import find
from mallang.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(("<pad>", "<unk>", "<s>", "</s>", *"abcdefgh"))
MODELS = {
    "gpt": {"max_length": 40, "window": 6, "windowed": "alternate"},
    "modern_gpt": {"max_length": 40, "zero_init": False},
    "rnn_lm": {},
    "conv_lm": {},
    "nplm": {},
}


def model_of(name: str, options: dict[str, Any]) -> Any:
    torch.manual_seed(1)
    module = find("models", name)
    config = module.Config(**{**module.SIZES["tiny"], **options})
    return module.Model(config, VOCABULARY).eval()


def alone(model: Any, prompt: list[int], tokens: list[int]) -> list[torch.Tensor]:
    """The log-probabilities after each of these tokens, read one by one."""
    found = []
    with torch.inference_mode():
        prompted, batch = Prompted(model), prompt_batch([prompt])
        state = prompted.start(batch)
        for token in (VOCABULARY.bos, *tokens):
            logits, state = prompted.step(torch.tensor([[token]]), state)
            found.append(normalize(logits[:, -1], VOCABULARY)[0])
    return found


@pytest.mark.parametrize("name", MODELS)
def test_numbers_are_those_of_a_text_alone(name: str) -> None:
    model, draw = model_of(name, MODELS[name]), random.Random(2)
    assert can_join(model)
    joined, expected, done, number = Joined(model), {}, dict[int, int](), 0
    last: dict[int, int] = {}
    tokens: dict[int, list[int]] = {}
    for _ in range(60):
        some = {}
        for _ in range(draw.choice([0, 0, 1, 3]) if number < 25 else 0):
            prompt = [VOCABULARY.bos, *(draw.randrange(4, 12) for _ in range(draw.choice([0, 1, 5, 12])))]
            tokens[number] = [draw.randrange(4, 12) for _ in range(draw.choice([1, 4, 20]))]
            expected[number] = alone(model, prompt, tokens[number])
            some[number], last[number], done[number] = prompt, prompt[-1], 0
            number += 1
        joined.join(some)
        if not len(joined):
            continue
        order, count = joined.order(), draw.choice([1, 1, 3])
        assert sorted(order) == sorted(last)

        def choose(place: int, log_probs: torch.Tensor, order: list[int] = order) -> torch.Tensor:
            """The token that each text has at this place; what follows its last one does not count."""
            said = []
            for text, found in zip(order, log_probs, strict=True):
                at = done[text] + place
                if at <= len(tokens[text]):
                    torch.testing.assert_close(found, expected[text][at], atol=1e-4, rtol=1e-4)
                said.append(tokens[text][at] if at < len(tokens[text]) else 4)
            return torch.tensor(said)

        joined.steps(last, choose, count)
        for text in order:
            done[text] += count
            if done[text] > len(tokens[text]):
                joined.leave([text])
                del last[text]
            else:
                last[text] = tokens[text][done[text] - 1]
    assert number >= 20 and not last and not len(joined)


def test_what_cannot_join_says_so() -> None:
    class Growing(torch.nn.Module):
        """Its state has another shape after every token."""

        vocabulary = VOCABULARY

        def start(self, batch: Any) -> Any:
            from mallang.decoding.contract import State

            return State(None, torch.zeros(len(batch), 0))

        def step(self, tokens: torch.Tensor, state: Any) -> Any:
            from mallang.decoding.contract import State

            after = torch.cat((state.moving, tokens.float()), dim=1)
            return torch.zeros(*tokens.shape, len(VOCABULARY)), State(None, after)

    assert not can_join(Growing())
