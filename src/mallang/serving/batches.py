"""POST /api/batch: a file with a request per line, and an answer per line in the same order, sent as they come.

    {"verb": "translate", "texts": "물", "beam": 5}
    {"line": 1, "status": 200, "run": "x", "results": […]}
    {"line": 2, "status": 400, "error": {…}}

A file takes part of the queue only: when the queue is full it waits, and other requests are served beside it.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mallang.errors import nearest
from mallang.serving.answers import SAFE, RequestError, to_json
from mallang.serving.guard import read_body
from mallang.serving.requests import REQUESTS
from mallang.serving.streams import disconnected

if TYPE_CHECKING:
    from mallang.serving.app import Service

KINDS = ("application/jsonl", "application/x-ndjson")
HEADERS = {**SAFE, "content-type": "application/jsonl; charset=utf-8"}
MOST_LINES = 100_000
TOGETHER = 64
"""Lines of a file that are in the queue or in a worker at once."""
PAUSE = 0.05
"""Seconds to wait when the queue is full."""


class Batches:
    """The handler of /api/batch."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.together = max(1, min(TOGETHER, service.limits.waiting // 2))

    async def batch(self, request: Request) -> Response:
        """Answer a file of requests."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        body = await read_body(request, self.service.limits.file, self.service.limits)
        if kind not in KINDS:
            raise RequestError(
                415, f"the body must have a JSON object per line, with Content-Type: {KINDS[0]}", code="not_json"
            )
        lines = [(number, line) for number, line in enumerate(body.split(b"\n"), 1) if line.strip()]
        if not lines:
            raise RequestError(400, "the file has no lines", code="invalid_value")
        if len(lines) > MOST_LINES:
            raise RequestError(413, f"the file has more than {MOST_LINES:,} lines", code="too_large")
        return LineStream(self.answers(lines))

    async def answers(self, lines: list[tuple[int, bytes]]) -> AsyncIterator[bytes]:
        """The answer of every line, in order."""
        coming = deque[asyncio.Task[dict[str, Any]]]()
        rest: Iterator[tuple[int, bytes]] = iter(lines)
        try:
            while True:
                while len(coming) < self.together and (line := next(rest, None)) is not None:
                    coming.append(asyncio.create_task(self.answer(*line)))
                if not coming:
                    return
                yield to_json(await coming[0]).encode() + b"\n"
                coming.popleft()
        finally:
            for task in coming:
                task.cancel()

    async def answer(self, number: int, line: bytes) -> dict[str, Any]:
        """The answer of one line."""
        try:
            verb, body = verb_of(line)
            run, results = await self.service.result(verb, body, wait=PAUSE)
            return {"line": number, "status": 200, "run": run, "results": results}
        except RequestError as refusal:
            return {"line": number, "status": refusal.status, **refusal.body()}


def verb_of(line: bytes) -> tuple[str, bytes]:
    """The verb of a line, and the request without it."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise RequestError(400, "this line is no JSON", code="bad_json") from None
    if not isinstance(fields, dict) or not isinstance(fields.get("verb"), str):
        raise RequestError(400, 'this line is no {"verb": …, …}', param="verb", code="invalid_value")
    verb = fields.pop("verb")
    if verb not in REQUESTS:
        what = f"unknown verb {verb[:80]!r}: {nearest(verb[:80], REQUESTS)}"
        raise RequestError(400, what, param="verb", code="invalid_value")
    if fields.get("stream"):
        raise RequestError(400, "the lines of a file are not streamed: leave stream out", param="stream")
    return verb, json.dumps(fields).encode()


class LineStream(Response):
    """An answer that grows line by line; a client that goes away ends it."""

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        self.lines, self.background, self.status_code = lines, None, 200

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the lines, until the end or until the client has gone."""
        gone = asyncio.ensure_future(disconnected(receive))
        sending = asyncio.ensure_future(self.send_all(send))
        try:
            await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            gone.cancel()
            sending.cancel()

    async def send_all(self, send: Send) -> None:
        """The head, all lines, and the end."""
        headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for line in self.lines:
            await send({"type": "http.response.body", "body": line, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
