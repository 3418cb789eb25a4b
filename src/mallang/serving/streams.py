"""Server-sent events: outputs that are sent while they are generated.

A client that goes away ends its stream, and its outputs leave the batch at the next step. A failure after the first
byte cannot be a status any more: it is the last event, `data: {"error": …}`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mallang.serving.answers import CODES, SAFE, RequestError, to_json
from mallang.serving.messages import Done, Failed, Part
from mallang.serving.queue import Job

Encode = Callable[[Part | Done], Iterator[object]]
"""The events of a part, or of the end."""
HEADERS = {**SAFE, "content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}


async def parts_of(job: Job, seconds: float) -> AsyncIterator[Part | Done]:
    """What comes of a request, up to its results; nothing for so many seconds is a failure.

    If its worker has ended and another begins again, what was sent already is left out.
    """
    again: dict[int, str] = {}
    tries = 0
    while True:
        try:
            async with asyncio.timeout(seconds):
                event = await job.events.get()
        except TimeoutError:
            raise RequestError(504, f"no answer within {seconds:g} s", code="deadline") from None
        if isinstance(event, Failed):
            raise RequestError(event.status, event.message, code=CODES[event.status])
        if isinstance(event, Part) and job.tries > tries:
            tries, again = job.tries, dict(job.sent)
        if isinstance(event, Part):
            place, text = event.content["place"], event.content["text"]
            if known := again.get(place):
                if not known.startswith(text[: len(known)]):
                    raise RequestError(500, "the worker ended, and another one continued otherwise", code="failed")
                again[place], text = known[len(text) :], text[len(known) :]
                event = Part(event.job, {**event.content, "text": text})
                if not text and event.content["finish"] is None:
                    continue
            job.sent[place] = job.sent.get(place, "") + text
        yield event
        if isinstance(event, Done):
            return


class EventStream(Response):
    """An answer in events."""

    def __init__(
        self, parts: AsyncIterator[Part | Done], encode: Encode, ended: Callable[[int, Done | None], None]
    ) -> None:
        self.parts, self.encode, self.ended = parts, encode, ended
        self.background, self.status_code = None, 200

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events, until the end or until the client has gone."""
        headers = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
        gone = asyncio.ensure_future(disconnected(receive))
        sending = asyncio.ensure_future(self.send_all(send, headers))
        try:
            await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
            else:
                self.ended(499, None)
        finally:
            gone.cancel()
            sending.cancel()

    async def send_all(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        """The head, all events, and the end."""
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        status, done = 200, None
        try:
            async for part in self.parts:
                done = part if isinstance(part, Done) else None
                text = "".join(f"data: {to_json(event)}\n\n" for event in self.encode(part))
                if text:
                    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        except RequestError as error:
            status = error.status
            body = f"data: {to_json(error.body())}\n\n"
            await send({"type": "http.response.body", "body": body.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})
        self.ended(status, done)


async def disconnected(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
