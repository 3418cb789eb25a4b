"""The requests of OpenAI's API that are served, and what of it is not.

A field that has no effect here is accepted only with its neutral value: a client that sends all defaults is served, and
one that asks for something else learns which field is to blame.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from mallang.serving.answers import RequestError
from mallang.serving.requests import MOST_ITEMS, MOST_TOKENS, Seed, Stops, Strict, Text

Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1, max_length=MOST_TOKENS)]
Number = int | float
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "suffix": (None, ""),
    "logit_bias": (None, {}),
    "presence_penalty": (None, 0, 0.0),
    "frequency_penalty": (None, 0, 0.0),
    "tools": (None, []),
    "functions": (None, []),
    "tool_choice": (None, "none", "auto"),
    "function_call": (None, "none", "auto"),
    "parallel_tool_calls": (None, True, False),
    "response_format": (None, {"type": "text"}),
    "modalities": (None, ["text"]),
    "audio": (None,),
    "prediction": (None,),
    "reasoning_effort": (None,),
    "web_search_options": (None,),
    "service_tier": (None, "auto", "default"),
    "store": (None, False),
    "metadata": (None, {}),
    "dimensions": (None,),
}
"""Fields of OpenAI's API that this server has no use for, and the values that ask for nothing."""


class StreamOptions(Strict):
    """How a stream is sent."""

    include_usage: bool | None = None


class Sampled(Strict):
    """What completions and chats share."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    max_tokens: int | None = Field(None, ge=1, le=MOST_TOKENS)
    temperature: Number | None = Field(None, ge=0, le=2)
    top_p: Number | None = Field(None, gt=0, le=1)
    n: int | None = Field(None, ge=1, le=16)
    stop: Stops | None = None
    seed: Seed | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: Annotated[str, Field(max_length=512)] | None = None
    top_k: int | None = Field(None, ge=0, le=1_000_000, description="Not OpenAI's: draw from the k most probable.")
    beam: int | None = Field(None, ge=1, le=32, description="Not OpenAI's: beam search, without sampling.")

    def options(self) -> dict[str, Any]:
        """The options of the search; a temperature of 0 is greedy search."""
        found: dict[str, Any] = {}
        if self.beam is not None:
            found |= {"method": "beam", "beam": max(self.beam, self.n or 1)}
            for name in ("temperature", "top_p", "top_k", "seed"):
                if getattr(self, name) is not None:
                    raise RequestError(400, f"{name} has no effect on beam search: leave beam or it out", param=name)
            if self.stream:
                raise RequestError(400, "beam search cannot be streamed: leave beam or stream out", param="stream")
        elif self.temperature == 0:
            found["method"] = "greedy"
            if (self.n or 1) > 1:
                raise RequestError(400, "n > 1 of temperature 0 are all alike: leave one of them out", param="n")
        else:
            found |= {"method": "sampling", "temperature": float(self.temperature or 1.0)}
            found |= {"top_p": float(self.top_p or 1.0), "top_k": self.top_k or 0}
            found["seed"] = 1 if self.seed is None else self.seed
        if (self.n or 1) > 1:
            found["nbest"] = self.n
        return found

    @property
    def stops(self) -> list[str]:
        """The stop strings."""
        return [] if self.stop is None else [self.stop] if isinstance(self.stop, str) else self.stop


class Completion(Sampled):
    """POST /v1/completions: continue prompts by a language model."""

    prompt: Annotated[
        Text | Annotated[list[Text], Field(min_length=1, max_length=MOST_ITEMS)] | Ids
        | Annotated[list[Ids], Field(min_length=1, max_length=MOST_ITEMS)],
        Field(description="A text, several, or token ids."),
    ]  # fmt: skip
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: bool | None = None
    best_of: int | None = Field(None, ge=1, le=16, description="Only as n, or left out.")

    def prompts(self) -> list[Any]:
        """The prompts, each a text or ids."""
        given = self.prompt
        return [given] if isinstance(given, str) or isinstance(given[0], int) else list(given)


class TextContent(Strict):
    """A part of a message."""

    type: Literal["text"]
    text: Text


class Message(Strict):
    """A turn of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Annotated[list[TextContent], Field(min_length=1, max_length=16)]
    name: Annotated[str, Field(max_length=64)] | None = None

    @property
    def text(self) -> str:
        """What is said."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class Chat(Sampled):
    """POST /v1/chat/completions: a reply of a run that was trained on dialogue."""

    messages: Annotated[list[Message], Field(min_length=1, max_length=256)]
    max_completion_tokens: int | None = Field(None, ge=1, le=MOST_TOKENS)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)


class Embedding(Strict):
    """POST /v1/embeddings: vectors of texts."""

    model: Annotated[str, Field(min_length=1, max_length=200)]
    input: Annotated[
        Text | Annotated[list[Text], Field(min_length=1, max_length=MOST_ITEMS)],
        Field(description="A text, or several."),
    ]
    encoding_format: Literal["float", "base64"] | None = None
    user: Annotated[str, Field(max_length=512)] | None = None


def without_neutral(fields: dict[str, Any]) -> dict[str, Any]:
    """A request without the fields that ask for nothing; one that asks for something is refused by name."""
    for name, values in NEUTRAL.items():
        if name in fields:
            if not any(fields[name] == value and type(fields[name]) is type(value) for value in values):
                raise RequestError(400, f"{name} is not supported here: leave it out", param=name, code="unsupported")
            fields = {key: value for key, value in fields.items() if key != name}
    return fields
