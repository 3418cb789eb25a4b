"""What the server answers when it refuses: one JSON shape, one status per reason, and never a traceback.

    {"error": {"message": "…", "type": "invalid_request_error", "param": "texts", "code": "unknown_field"}}

400 bad or unknown field · 401 no token · 403 foreign Host or Origin · 404 no such run or path · 405 other method ·
408 slow sender · 413 too large · 415 not JSON · 429 queue full · 500 failed · 503 stopping or starting · 504 too late
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from mallang.errors import nearest
from mallang.serving.requests import VerbRequest

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "overloaded_error",
    500: "server_error",
    503: "unavailable_error",
    504: "timeout_error",
}
"""The type of the error of each status."""
CODES = {400: "invalid_value", 500: "failed", 503: "stopping"}
"""The code of an error that a worker reports, or the pool."""
SAFE = {
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
"""Headers of every answer that is data: a browser must not take a text in it for a page."""


class RequestError(Exception):
    """A request that is not served: its status, why, and the field that is to blame."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """The JSON of the answer."""
        return {"error": {"message": self.message, "type": TYPES[self.status], "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """The whole answer."""
        return json_response(self.body(), self.status, self.headers)


class ErrorBody(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(BaseModel):
    """The body of every answer that is no success."""

    error: ErrorBody


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON; `<`, `>` and `&` are escaped, so that no text in it can be markup."""
    return Response(to_json(content), status, {**SAFE, **(headers or {})}, media_type="application/json")


def to_json(content: Any) -> str:
    """JSON without infinite numbers, which it has no word for, and without markup."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


TYPE = re.compile(r"^(str|int|bool|float)$|[-\[]")
"""How pydantic names a type among several, between the parts of the path to a value."""
TEXTS = {"text", "texts", "prompt", "prompts", "pair", "pairs", "input", "inputs", "question", "questions"}
"""What a person may call the field that holds what a verb reads."""


def refusal_of(error: ValidationError, known: type[BaseModel]) -> RequestError:
    """The first thing that is wrong with a request, in words."""
    errors = error.errors(include_url=False, include_context=False)
    # A field that is one of several types has an error for each: an unknown field is the clearest thing to say, then
    # what is wrong within the type that was meant, such as a list that is empty.
    first = next((each for each in errors if each["type"] == "extra_forbidden"), None)
    if first is None:
        alike = [each for each in errors if each["loc"][:1] == errors[0]["loc"][:1]]
        first = max(alike, key=lambda each: (not each["type"].endswith("_type"), len(each["loc"])))
    param = ".".join(str(part) for part in first["loc"] if not TYPE.search(str(part))) or None
    if first["type"] == "extra_forbidden":
        name = str(first["loc"][-1])[:80]
        reads = ", ".join(known.reads) if issubclass(known, VerbRequest) else ""
        todo = f"this verb reads {reads}" if name in TEXTS and reads else nearest(name, fields_of(known))
        return RequestError(400, f"unknown field {name!r}: {todo}", param=param, code="unknown_field")
    return RequestError(400, f"{param or 'the body'}: {first['msg']}", param=param, code="invalid_value")


def fields_of(model: type[BaseModel]) -> list[str]:
    """The names of the fields of a request."""
    return list(model.model_fields)
