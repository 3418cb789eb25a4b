"""Generation step by step: the prompts of many requests share decode steps, each with its own options.

A request's tokens depend on its prompt, its options and its seed, never on its neighbors: the random number of every
token comes from (seed, place of the prompt in the request, number of the sample, place of the token), as in
`model.generate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.decoding.contract import Config
from mallang.decoding.joined import Joined
from mallang.decoding.sampling import pick, truncate, uniforms
from mallang.errors import UserError
from mallang.kernels.top_k import top_k
from mallang.serving.calls import plain
from mallang.serving.messages import Continue, Done, Part
from mallang.tasks import generation
from mallang.tasks.continuation import Continuation, GenerationOptions, Prompt, settled
from mallang.tasks.out_of_vocabulary import forget_oov
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, EOS

TOGETHER = {"cuda": 8}
"""Tokens between two looks of the host, by device; 1 on others. A look makes the host wait for the GPU."""


@dataclass(eq=False)
class Output:
    """An output that is being generated."""

    asked: Continue
    place: int
    """Its number among the outputs of the request."""
    continuation: Continuation
    generation: GenerationOptions
    config: Config
    """The search options of the piece that is being generated."""
    draws: list[float] = field(default_factory=list)
    """The random numbers of the tokens of the piece."""
    last: int = BOS
    """The token that is read next."""
    said: int = 0
    """The number of tokens of the piece."""
    sent: int = 0
    """The number of characters that were sent."""
    alternatives: list[list[tuple[str, float]]] = field(default_factory=list)
    """The most probable tokens at each place, with their log-probabilities."""
    sent_tokens: int = 0


class Stepped:
    """Outputs that are generated together, token by token."""

    def __init__(self, verbs: Any, tokenizer: Tokenizer, joined: Any, together: int | None = None) -> None:
        self.verbs, self.tokenizer, self.joined = verbs, tokenizer, joined
        self.together = together or TOGETHER.get(joined.device.type, 1)
        """Tokens of each output between two looks of the host."""
        self.outputs: list[Output] = []
        self.waiting: list[Output] = []
        """Outputs whose prompts, or the text so far, must be read."""
        self.finished: dict[int, list[Output]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to generate."""
        return not self.outputs and not self.waiting

    def add(self, asked: Continue) -> None:
        """Begin with the outputs of a request; wrong options raise a UserError."""
        begun = [self.begun(given, asked.options) for given in asked.prompts]
        self.finished[asked.job] = []
        for number, (prompt, options) in enumerate(begun):
            for sample in range(options.config.nbest):
                place = number * options.config.nbest + sample
                continuation = Continuation(prompt, number, sample=sample)
                self.waiting.append(Output(asked, place, continuation, options, options.config))

    def begun(self, given: Any, options: Mapping[str, Any]) -> tuple[Prompt, GenerationOptions]:
        """A prompt, and the checked options of its outputs."""
        raise NotImplementedError

    def cancel(self, job: int) -> None:
        """Forget a request."""
        self.joined.leave([output for output in self.outputs if output.asked.job == job])
        self.outputs = [output for output in self.outputs if output.asked.job != job]
        self.waiting = [output for output in self.waiting if output.asked.job != job]
        self.finished.pop(job, None)

    def step(self) -> Iterator[Part | Done]:
        """One token of every output, or on a GPU several, and what is to be sent."""
        self.begin()
        outputs: list[Output] = self.joined.order()
        count = min(self.together, self.wanted([each.config.max_length - each.said for each in outputs]))
        choose = Chooser(outputs, count, self.joined.device)
        self.joined.steps({output: output.last for output in outputs}, choose, count)
        left = self.taken(outputs, choose)
        for output in outputs:
            if output.asked.stream:
                yield from self.part(output)
        if left:
            self.joined.leave(left)
            gone = set(map(id, left))
            self.outputs = [output for output in self.outputs if id(output) not in gone]
            for output in left:
                yield from self.close(output)

    def wanted(self, left: Sequence[int]) -> int:
        """The number of steps that are worth taking, from the number of tokens that each output may still have."""
        return max(left)

    def taken(self, outputs: list[Output], choose: Chooser) -> list[Output]:
        """Give outputs their tokens, and return those whose piece ends; what was chosen after that is dropped."""
        names, left, going = self.tokenizer.vocabulary.tokens, list[Output](), list(enumerate(outputs))
        for tokens, scores, best in choose.found():
            for row, output in going:
                if output.asked.alternatives > 0:
                    pairs = best[row][: output.asked.alternatives]
                    output.alternatives.append([(names[number], value) for number, value in pairs])
                if not self.take(output, tokens[row], scores[row]):
                    left.append(output)
            if left:
                gone = set(map(id, left))
                going = [(row, output) for row, output in going if id(output) not in gone]
        return left

    def begin(self) -> None:
        """Read the texts of outputs that begin a piece."""
        prompts = {}
        for output in self.waiting:
            prompts[output] = ids = self.piece(output)
            output.last, output.said = ids[-1], 0
            if output.config.method == "sampling":
                key, sample = output.continuation.key, output.continuation.first_sample
                output.draws = uniforms(output.config.seed, key, sample, output.config.max_length).tolist()
        self.joined.join(prompts)
        self.outputs += self.waiting
        self.waiting = []

    def piece(self, output: Output) -> list[int]:
        """What is read before the next piece of an output."""
        raise NotImplementedError

    def take(self, output: Output, token: int, score: float) -> bool:
        """Add a token to an output; whether its piece goes on."""
        continuation, stops = output.continuation, output.generation.stop
        output.last, output.said = token, output.said + 1
        continuation.scores.append(score)
        if token != EOS:
            continuation.lines[-1].append(token)
        if stops and continuation.stop(stops, self.tokenizer, growing=True):
            return False
        if token == EOS or output.said >= output.config.max_length:
            continuation.close(token == EOS, output.generation, self.tokenizer)
            return False
        return True

    def part(self, output: Output) -> Iterator[Part]:
        """What of an output can be sent: text that no later token changes."""
        continuation = output.continuation
        text = continuation.output(self.tokenizer)
        sure = len(text) if continuation.is_done else settled(text, self.tokenizer, output.generation.stop)
        if sure > output.sent or continuation.is_done:
            yield Part(output.asked.job, {**self.told(output), "text": text[output.sent : sure]})
            output.sent = max(sure, output.sent)

    def told(self, output: Output) -> dict[str, Any]:
        """The place of an output, its tokens since the last part, and whether it is finished."""
        continuation, first = output.continuation, output.sent_tokens
        tokens = continuation.tokens(self.tokenizer)
        output.sent_tokens = max(first, len(tokens))
        reason = None if not continuation.is_done else "length" if continuation.is_cut else "stop"
        places = {"offsets": self.offsets(output, first)} if output.asked.alternatives >= 0 else {}
        return {
            **places,
            "place": output.place,
            "tokens": list(tokens[first:]),
            "scores": continuation.scores[first : len(tokens)],
            "alternatives": output.alternatives[first : len(tokens)],
            "finish": reason,
        }

    def offsets(self, output: Output, first: int) -> list[int]:
        """The character of the output at which each token begins."""
        ids, before = output.continuation.lines[0], output.continuation.prompt.lines[-1]
        start = len(self.tokenizer.decode(before))
        return [len(self.tokenizer.decode((*before, *ids[:place]))) - start for place in range(first, len(ids))]

    def close(self, output: Output) -> Iterator[Done]:
        """The next piece of an output, or the results of its request, if it was the last one."""
        if not output.continuation.is_done:
            self.waiting.append(output)
            return
        asked, nbest = output.asked, output.generation.config.nbest
        done = self.finished[asked.job]
        done.append(output)
        if len(done) < len(asked.prompts) * nbest:
            return
        del self.finished[asked.job]
        done.sort(key=lambda each: each.place)
        results = [self.result(done[first : first + nbest]) for first in range(0, len(done), nbest)]
        yield Done(asked.job, results, sum(len(each.continuation.scores) for each in done))

    def result(self, outputs: list[Output]) -> dict[str, Any]:
        """The outputs of one prompt: as `generate` gives them, and token by token."""
        for output in outputs:
            output.sent_tokens = 0
        told = [{**self.told(each), "text": each.continuation.output(self.tokenizer)} for each in outputs]
        return {**self.about(outputs), "outputs": told}

    def about(self, outputs: list[Output]) -> dict[str, Any]:
        """What is said of the outputs of one prompt beside them."""
        raise NotImplementedError


class Steps(Stepped):
    """The continuations of prompts by a language model, which share its decode steps."""

    def __init__(self, verbs: generation.Verbs, together: int | None = None) -> None:
        super().__init__(verbs, verbs.tokenizer, Joined(verbs.model, verbs.config), together)

    def begun(self, given: Any, options: Mapping[str, Any]) -> tuple[Prompt, GenerationOptions]:
        """A prompt from a text, or from ids, and the checked options of its outputs."""
        if self.is_empty:
            forget_oov(self.verbs.model)
        checked = self.verbs.generation_options(options)
        if isinstance(given, str):
            return self.verbs.reader.prompt(given), checked
        size = len(self.tokenizer.vocabulary)
        if any(number >= size for number in given):
            raise UserError(f"the vocabulary has {size} tokens, and the prompt a number beyond")
        ids = tuple(given[1:] if given and given[0] == BOS else given)
        return Prompt(self.tokenizer.decode(ids), (ids,)), checked

    def piece(self, output: Output) -> list[int]:
        """The text so far, as much of it as the model can read."""
        ids: list[int]
        ids, output.config = self.verbs.piece(output.continuation, output.generation.config)
        return ids

    def about(self, outputs: list[Output]) -> dict[str, Any]:
        """The outputs of one prompt as `generate` gives them."""
        result = self.verbs.result([each.continuation for each in outputs], outputs[0].generation.config)
        return {"result": plain("generate", result), "prompt_tokens": len(outputs[0].continuation.prompt.ids)}


class Chooser:
    """The next tokens of outputs, each with its own options, for several steps: the most probable ones, or drawn ones.

    All that the host knows is moved to the device before the first step; what was chosen comes back after the last.
    """

    def __init__(self, outputs: Sequence[Output], count: int, device: torch.device) -> None:
        self.tokens, self.scores, self.best = list[Tensor](), list[Tensor](), list[tuple[Tensor, Tensor]]()
        alike: dict[Config, list[int]] = {}
        for row, output in enumerate(outputs):
            config = output.config
            same = replace(config, seed=1, max_length=1, min_length=1, nbest=1)
            alike.setdefault(same if config.method == "sampling" else Config(), []).append(row)
        self.alike = [(config, torch.tensor(rows, device=device)) for config, rows in alike.items()]
        self.draws = torch.tensor(
            [[(each.draws[each.said :] + [0.0] * count)[place] for each in outputs] for place in range(count)],
            dtype=torch.float64,
        ).to(device)
        short = [[each.said + place + 1 < each.config.min_length for each in outputs] for place in range(count)]
        self.short = torch.tensor(short, device=device) if any(map(any, short)) else None
        self.most = max((each.asked.alternatives for each in outputs), default=0)

    def __call__(self, place: int, log_probs: Float[Tensor, "texts vocabulary"]) -> Int[Tensor, " texts"]:
        """The tokens of a step."""
        if self.short is not None:
            ends = log_probs[:, EOS].masked_fill(self.short[place], -torch.inf)
            log_probs = torch.cat((log_probs[:, :EOS], ends[:, None], log_probs[:, EOS + 1 :]), dim=1)
        tokens = torch.empty(len(log_probs), dtype=torch.long, device=log_probs.device)
        for config, rows in self.alike:
            is_all = len(rows) == len(tokens)
            own = log_probs if is_all else log_probs.index_select(0, rows)
            if config.method == "sampling":
                said = pick(truncate(own, config), self.draws[place] if is_all else self.draws[place][rows])
            else:
                said = top_k(own, 1)[1][:, 0]
            tokens = said if is_all else tokens.index_copy(0, rows, said)
        self.tokens.append(tokens)
        self.scores.append(log_probs.gather(1, tokens[:, None])[:, 0])
        if self.most > 0:
            self.best.append(top_k(log_probs, min(self.most, log_probs.shape[1])))
        return tokens

    def found(self) -> Iterator[tuple[list[int], list[float], list[list[tuple[int, float]]]]]:
        """The tokens of every step, their log-probabilities, and the most probable ones where they were asked for."""
        tokens, scores = torch.stack(self.tokens).tolist(), torch.stack(self.scores).tolist()
        for place, (chosen, values) in enumerate(zip(tokens, scores, strict=True)):
            best: list[list[tuple[int, float]]] = []
            if self.best:
                shares, ids = (each.tolist() for each in self.best[place])
                best = [list(zip(*row, strict=True)) for row in zip(ids, shares, strict=True)]
            yield chosen, values, best
