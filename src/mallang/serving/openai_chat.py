"""POST /v1/chat/completions: replies of runs that were trained on dialogue, and of language models with a template.

A run of dialogue reads one message and no earlier turns. A language model continues the text that its recipe's template
makes of all turns (tasks/chat.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mallang.errors import UserError
from mallang.serving.answers import RequestError
from mallang.serving.messages import Done, Part, ServedRun
from mallang.serving.openai_outputs import STOP, head, outputs_of, usage
from mallang.serving.openai_requests import Chat
from mallang.serving.queue import Job
from mallang.tasks.chat import chat_prompt, chat_stops

ROLES = {"developer": "system"}
"""Later names of roles."""


def chat_job(asked: Chat, run: ServedRun) -> Job:
    """What goes into the queue for a chat."""
    given = (asked.temperature, asked.top_p, asked.top_k, asked.seed)
    is_recipes = asked.beam is None and all(each is None for each in given)  # the search of the recipe
    options: dict[str, Any] = {} if is_recipes else asked.options()
    if (asked.n or 1) > 1:
        options["nbest"] = asked.n
    if (most := asked.max_completion_tokens or asked.max_tokens) is not None:
        options["max_length"] = most
    method = str(options.get("method", run.method))
    walks = method in ("greedy", "sampling")
    if run.chat is not None and "reply" not in run.verbs:
        turns = [(ROLES.get(each.role, each.role), each.text) for each in asked.messages]
        try:
            prompt = chat_prompt(run.chat, turns)
        except UserError as error:
            raise RequestError(400, error.what, param="messages", code="invalid_value") from None
        options["stop"] = [*asked.stops, *chat_stops(run.chat)]
        job = Job(run.name, "generate", [prompt], options, method == "beam", walks and run.is_stepped)
    else:
        if len(asked.messages) > 1 or asked.messages[0].role != "user":
            raise RequestError(
                400, "this run reads one message of the user, and no earlier turns: send the last one alone",
                param="messages", code="unsupported",
            )  # fmt: skip
        is_stepped = walks and bool(asked.stream or asked.stops or asked.top_logprobs)
        if is_stepped and asked.stops:
            options["stop"] = asked.stops
        job = Job(run.name, "reply", [asked.messages[0].text], options, method in ("greedy", "beam"), is_stepped)
        if asked.stops and not is_stepped:
            refuse("stop", method)
    if asked.top_logprobs and not job.is_stepped:
        refuse("top_logprobs", method)
    job.alternatives = (asked.top_logprobs or 0) if asked.logprobs else -1
    return job


def refuse(name: str, method: str) -> None:
    """Refuse a field that a search cannot have."""
    what = f"{name} is not supported for {method}: give a temperature, 0 for the most probable reply"
    raise RequestError(400, what, param=name, code="unsupported")


class Reply:
    """The answers to a chat."""

    def __init__(self, asked: Chat, job: Job) -> None:
        self.asked, self.job = asked, job
        self.same = head("chatcmpl", "chat.completion.chunk", job)
        self.begun = set[int]()

    def whole(self, done: Done) -> dict[str, Any]:
        """All replies at once."""
        outputs = outputs_of(done.results[0])
        choices = [
            {
                "index": place,
                "message": {"role": "assistant", "content": output["text"], "refusal": None},
                "logprobs": self.logprobs(output),
                "finish_reason": STOP[output["finish"]],
            }
            for place, output in enumerate(outputs)
        ]
        return {**head("chatcmpl", "chat.completion", self.job), "choices": choices, "usage": usage(done, outputs)}

    def logprobs(self, output: Mapping[str, Any]) -> dict[str, Any] | None:
        """The log-probability of each token, and of the most probable ones in its place."""
        if not self.asked.logprobs:
            return None
        others = output["alternatives"] or [[]] * len(output["tokens"])
        rows = zip(output["tokens"], output["scores"], others, strict=False)
        content = [
            {**told(token, score), "top_logprobs": [told(*each) for each in best]} for token, score, best in rows
        ]
        return {"content": content, "refusal": None}

    def events(self, part: Part | Done) -> Iterator[object]:
        """The chunks of a stream: a search that looks back gives its replies whole."""
        if isinstance(part, Part):
            yield from self.chunks(part.content["place"], part.content)
            return
        outputs = outputs_of(part.results[0])
        if not self.job.is_stepped:
            for place, output in enumerate(outputs):
                yield from self.chunks(place, output)
        if self.asked.stream_options is not None and self.asked.stream_options.include_usage:
            yield {**self.same, "choices": [], "usage": usage(part, outputs)}

    def chunks(self, place: int, output: Mapping[str, Any]) -> Iterator[object]:
        """What came of one reply, and its end."""
        delta: dict[str, Any] = {"content": output["text"]}
        if place not in self.begun:
            self.begun.add(place)
            delta = {"role": "assistant", **delta}
        choice = {"index": place, "delta": delta, "logprobs": self.logprobs(output), "finish_reason": None}
        yield {**self.same, "choices": [choice]}
        if output["finish"] is not None:
            last = {"index": place, "delta": {}, "logprobs": None, "finish_reason": STOP[output["finish"]]}
            yield {**self.same, "choices": [last]}


def told(token: str, score: float) -> dict[str, Any]:
    """A token with its log-probability."""
    return {"token": token, "logprob": score, "bytes": list(token.encode())}
