"""Replies step by step: a model with a source writes while one reads, with stop strings and what else was probable.

Each reply has a state of its own, and all take their steps by turns. Its tokens are those of `reply`: greedy ones, or
the samples that the seed, the place of the message in the request and the number of the sample give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from mallang.data.batch import Batch, pad_rows
from mallang.decoding.contract import inference, limits, normalize
from mallang.decoding.joined import Choose
from mallang.decoding.options import change_search
from mallang.decoding.precision import at_precision
from mallang.errors import UserError
from mallang.kernels.prepacked import PrepackedWeights
from mallang.serving.steps import Output, Stepped
from mallang.tasks import translator
from mallang.tasks.continuation import GenerationOptions, Prompt
from mallang.tasks.long_texts import split_long
from mallang.text.vocabulary import BOS, EOS


@dataclass(frozen=True)
class Message(Prompt):
    """What is replied to; the reply itself begins with nothing."""

    source: tuple[int, ...] = ()


class Replies(Stepped):
    """The replies of a model with a source."""

    def __init__(self, verbs: translator.Verbs) -> None:
        super().__init__(verbs, verbs.task.target, States(verbs))

    def begun(self, given: Any, options: Mapping[str, Any]) -> tuple[Prompt, GenerationOptions]:
        """A message, and the checked options of its replies."""
        source = self.verbs.task.source
        if not given.strip():
            raise UserError("the message is empty", todo="say something")
        if len(split_long(given, source, self.verbs.max_length)) > 1:
            raise UserError("the message is longer than the model can read", todo="send less")
        ids = (*source.encode(given).ids, EOS)
        config = change_search(self.verbs.config, {name: value for name, value in options.items() if name != "stop"})
        (most,) = limits(batch_of(ids), config, self.verbs.model)
        stops = tuple(dict.fromkeys(options.get("stop", ())))
        return Message(given, ((),), source=ids), GenerationOptions(replace(config, max_length=most), stop=stops)

    def piece(self, output: Output) -> list[int]:
        """The beginning of a reply."""
        self.joined.sources[output] = source_of(output)
        return [BOS]

    def wanted(self, left: Sequence[int]) -> int:
        """The number of steps that every reply may take: the state of each ends at the model's positions."""
        return min(left)

    def about(self, outputs: list[Output]) -> dict[str, Any]:
        """How much was read."""
        return {"prompt_tokens": len(source_of(outputs[0])) - 1}


def source_of(output: Output) -> tuple[int, ...]:
    """The message that an output replies to."""
    message = output.continuation.prompt
    assert isinstance(message, Message)
    return message.source


class States:
    """The states of replies that are being written."""

    def __init__(self, verbs: translator.Verbs) -> None:
        self.model, self.device = at_precision(verbs.model, verbs.config), verbs.device
        self.weights = PrepackedWeights()
        self.sources: dict[Any, Sequence[int]] = {}
        """The message of each reply that has not begun."""
        self.states: dict[Any, Any] = {}

    def join(self, replies: Mapping[Any, Sequence[int]]) -> None:
        """Read the messages of some replies."""
        with inference(self.model), self.weights.in_use():
            for reply in replies:
                self.states[reply] = self.model.start(batch_of(self.sources.pop(reply)).to(self.device))

    def order(self) -> list[Any]:
        """The replies that have begun."""
        return list(self.states)

    def steps(self, last: Mapping[Any, int], choose: Choose, count: int = 1) -> None:
        """So many tokens of each reply after its last one: `choose` gives them from their log-probabilities."""
        tokens = torch.tensor([last[reply] for reply in self.states], device=self.device)
        with inference(self.model), self.weights.in_use():
            for place in range(count):
                rows = []
                for row, reply in enumerate(self.states):
                    logits, self.states[reply] = self.model.step(tokens[row : row + 1, None], self.states[reply])
                    rows.append(normalize(logits[:, -1], self.model.vocabulary))
                tokens = choose(place, torch.cat(rows))

    def leave(self, replies: Sequence[Any]) -> None:
        """These replies are finished."""
        for reply in replies:
            self.states.pop(reply, None)


def batch_of(source: Sequence[int]) -> Batch:
    """A batch of one source, before anything is said."""
    rectangle, lengths = pad_rows([list(source)])
    start = torch.full((1, 1), BOS)
    return Batch(tokens=start, lengths=torch.ones_like(lengths), source=rectangle, source_lengths=lengths)
