"""The API of OpenAI over our runs: what its official client asks for, in its shapes.

GET  /v1/models  /v1/models/{run}
POST /v1/completions          language models
POST /v1/chat/completions     runs that reply, and language models with a template of a chat (openai_chat.py)
POST /v1/embeddings           runs with vectors of texts
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from mallang.serving.answers import RequestError, json_response, refusal_of
from mallang.serving.guard import checked_json, read_json
from mallang.serving.messages import Done, Part, ServedRun
from mallang.serving.openai_chat import Reply, chat_job
from mallang.serving.openai_outputs import STOP, head, outputs_of, usage
from mallang.serving.openai_requests import Chat, Completion, Embedding, without_neutral
from mallang.serving.queue import Job
from mallang.serving.requests import Strict

if TYPE_CHECKING:
    from mallang.serving.app import Service

Asked = TypeVar("Asked", bound=Strict)
DEFAULT_TOKENS = 16
"""Tokens of a completion, if none were asked for: OpenAI's default."""


class OpenAI:
    """The handlers of /v1."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def models(self, request: Request) -> Response:
        """All runs."""
        return json_response({"object": "list", "data": [model(run) for run in self.service.pool.runs.values()]})

    async def model(self, request: Request) -> Response:
        """One run."""
        return json_response(model(self.run(request.path_params["name"])))

    def run(self, name: str, verb: str | None = None, why: str = "") -> ServedRun:
        """The run of this name, which must have the verb."""
        run = self.service.pool.runs.get(name)
        if run is None:
            raise RequestError(404, f"no run is called {name[:80]!r}", param="model", code="model_not_found")
        if verb is not None and verb not in run.verbs:
            raise RequestError(
                404, f"{run.name} {why}; POST /api/{run.verbs[0]} serves it", param="model", code="no_verb"
            )
        return run

    async def completions(self, request: Request) -> Response:
        """Continue prompts."""
        asked = await read(request, Completion, self.service)
        run = self.run(asked.model, "generate", "is no language model")
        prompts = asked.prompts()
        check_completion(asked, prompts, run)
        options = {**asked.options(), "max_length": asked.max_tokens or DEFAULT_TOKENS}
        if asked.stops:
            options["stop"] = asked.stops
        is_stepped = run.is_stepped and options["method"] != "beam"
        job = Job(run.name, "generate", prompts, options, options["method"] == "beam", is_stepped)
        job.alternatives = -1 if asked.logprobs is None else asked.logprobs
        answer = Completions(asked, job)
        if asked.stream:
            if not is_stepped:
                raise RequestError(400, "this run cannot be streamed", param="stream", code="unsupported")
            job.stream = True
            return self.service.stream(job, answer.events)
        done = await self.service.finished(job, request)
        return json_response(answer.whole(done))

    async def chat(self, request: Request) -> Response:
        """Reply to messages."""
        asked = await read(request, Chat, self.service)
        run = self.run(asked.model)
        if "reply" not in run.verbs and run.chat is None:
            self.run(asked.model, "reply", "was not trained on dialogue, and has no template of a chat")
        if asked.top_logprobs and not asked.logprobs:
            raise RequestError(400, "top_logprobs needs logprobs", param="top_logprobs", code="invalid_value")
        job = chat_job(asked, run)
        reply = Reply(asked, job)
        if asked.stream:
            job.stream = job.is_stepped
            return self.service.stream(job, reply.events)
        return json_response(reply.whole(await self.service.finished(job, request)))

    async def embeddings(self, request: Request) -> Response:
        """Vectors of texts."""
        asked = await read(request, Embedding, self.service)
        run = self.run(asked.model, "embed", "has no vectors")
        texts = [asked.input] if isinstance(asked.input, str) else list(asked.input)
        done = await self.service.finished(Job(run.name, "embed", texts, {}), request)
        encode = in_base64 if asked.encoding_format == "base64" else list
        data = [
            {"object": "embedding", "index": place, "embedding": encode(found["vector"])}
            for place, found in enumerate(done.results)
        ]
        tokens = {"prompt_tokens": done.read, "total_tokens": done.read}
        return json_response({"object": "list", "model": run.name, "data": data, "usage": tokens})


async def read(request: Request, kind: type[Asked], service: Service) -> Asked:
    """A checked request."""
    fields = checked_json(await read_json(request, service.limits))
    if isinstance(fields, dict):
        fields = without_neutral(fields)
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise refusal_of(error, kind) from None


def check_completion(asked: Completion, prompts: Sequence[Any], run: ServedRun) -> None:
    """Refuse what cannot be done, by the name of the field."""
    if asked.best_of not in (None, asked.n or 1):
        raise RequestError(400, "best_of must be n, or left out", param="best_of", code="unsupported")
    if asked.echo and (asked.logprobs is not None or not all(isinstance(each, str) for each in prompts)):
        what = "with logprobs" if asked.logprobs is not None else "of token ids"
        raise RequestError(400, f"echo {what} is not supported", param="echo", code="unsupported")
    if not run.is_stepped or asked.beam is not None:
        if asked.logprobs:
            raise RequestError(400, "this search has no alternatives: logprobs=0", param="logprobs", code="unsupported")
        if not all(isinstance(each, str) for each in prompts):
            raise RequestError(400, "this search needs prompts as texts", param="prompt", code="unsupported")


class Completions:
    """The answers to a request for completions."""

    def __init__(self, asked: Completion, job: Job) -> None:
        self.asked, self.job = asked, job
        self.head = head("cmpl", "text_completion", job)
        self.echoed = set[int]()

    def whole(self, done: Done) -> dict[str, Any]:
        """All outputs at once."""
        outputs = [each for result in done.results for each in outputs_of(result)]
        choices = [self.choice(place, output) for place, output in enumerate(outputs)]
        return {**self.head, "choices": choices, "usage": usage(done, outputs)}

    def choice(self, place: int, output: Mapping[str, Any]) -> dict[str, Any]:
        """One output, or a part of it."""
        text = output["text"]
        if self.asked.echo and place not in self.echoed:
            self.echoed.add(place)
            text = self.job.items[place // (self.asked.n or 1)] + text
        logprobs = None if self.asked.logprobs is None else old_logprobs(output, self.asked.logprobs)
        return {"index": place, "text": text, "logprobs": logprobs, "finish_reason": STOP[output["finish"]]}

    def events(self, part: Part | Done) -> Iterator[object]:
        """The chunks of a stream."""
        wants_usage = self.asked.stream_options is not None and self.asked.stream_options.include_usage
        if isinstance(part, Part):
            chunk: dict[str, Any] = {**self.head, "choices": [self.choice(part.content["place"], part.content)]}
            yield {**chunk, "usage": None} if wants_usage else chunk
        elif wants_usage:
            outputs = [each for result in part.results for each in outputs_of(result)]
            yield {**self.head, "choices": [], "usage": usage(part, outputs)}


def old_logprobs(output: Mapping[str, Any], count: int) -> dict[str, Any]:
    """The log-probabilities of tokens as completions have them."""
    tokens, alternatives = output["tokens"], output["alternatives"]
    size = min(len(tokens), len(output["scores"]))
    return {
        "tokens": tokens[:size],
        "token_logprobs": output["scores"][:size],
        "top_logprobs": [dict(each) for each in alternatives[:size]] if count else None,
        "text_offset": output.get("offsets", [])[:size],
    }


def model(run: ServedRun) -> dict[str, Any]:
    """A run as OpenAI lists models."""
    return {"id": run.name, "object": "model", "created": run.created, "owned_by": "mallang"}


def in_base64(vector: Sequence[float]) -> str:
    """A vector as float32, little-endian, in base64."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
