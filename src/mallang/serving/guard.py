"""What stands before every route: who may ask, from where, how much and how slowly.

A page of another site can send requests to a server on localhost, and can even read the answers if its name is made to
point there (DNS rebinding). So the Host must be one that the server knows, and an Origin must be the server itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mallang.serving.answers import RequestError
from mallang.serving.places import place_of

LOCAL = ("localhost", "127.0.0.1", "::1")
"""Names of this machine for itself."""
DRAINED = 32 * 2**20
"""Bytes of a body that is too large which are read and forgotten, so that its sender gets to read the answer."""


@dataclass(frozen=True)
class Limits:
    """How much a client may send, and how long things may take."""

    body: int = 2**20
    """Bytes of a request."""
    file: int = 16 * 2**20
    """Bytes of a file for the batch endpoint."""
    waiting: int = 256
    """Requests that wait for a worker; more are answered 429."""
    seconds: float = 60.0
    """From a request to its answer; later it is answered 504."""
    receiving: float = 10.0
    """For a client to send its request."""
    sending: float = 30.0
    """For a client to read what it is sent; then it is cut off."""
    hanging: float = 120.0
    """For a worker to say something while it serves; then it is taken to hang, and replaced."""
    stopping: float = 30.0
    """For requests that have been taken in when the server has to stop."""


class Guard:
    """Checks Host, Origin and token of every request, counts every answer, and answers what nobody has foreseen."""

    def __init__(
        self,
        app: ASGIApp,
        hosts: Collection[str],
        token: str | None,
        is_open: Callable[[Scope], bool],
        *,
        is_full: Callable[[], bool] = lambda: False,
        count: Callable[[str, str], None] = lambda path, status: None,
    ) -> None:
        self.app, self.is_open, self.is_full, self.count = app, is_open, is_full, count
        self.hosts = {host.lower() for host in hosts}
        self.digest = None if token is None else hashlib.sha256(token.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no WebSocket is served
            await send({"type": "websocket.close"})
            return
        status: int | None = None

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self.count(scope["path"], str(status))
            await send(message)

        try:
            self.check(scope)
            await self.app(scope, receive, answer)
        except RequestError as refusal:
            await refusal.response()(scope, receive, answer)
        except Exception as error:  # its message may hold a text of the request: only where it was raised is logged
            logging.getLogger("mallang.serving").error("%s at %s", type(error).__name__, place_of(error))
            if status is None:
                failed = RequestError(500, "the server failed; its log says where", code="failed")
                await failed.response()(scope, receive, answer)

    def check(self, scope: Scope) -> None:
        """Raise a refusal where a request may not be served."""
        if self.is_full():
            raise RequestError(503, "too many connections", code="too_many", headers={"retry-after": "1"})
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if not self.knows(host):
            raise RequestError(403, "this server is not known by that name: see --allow-host", code="unknown_host")
        origin = headers.get(b"origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            raise RequestError(403, "pages of other sites may not use this server", code="foreign_origin")
        if (
            self.digest is not None
            and not self.is_open(scope)
            and not self.has_token(headers.get(b"authorization", ""))
        ):
            raise RequestError(
                401, "a token is needed: Authorization: Bearer …", code="invalid_token",
                headers={"www-authenticate": "Bearer"},
            )  # fmt: skip

    def knows(self, host: str) -> bool:
        """Whether the value of a Host header names this server."""
        name = host.lower()
        name = name[1 : name.find("]")] if name.startswith("[") else name.partition(":")[0]
        return name in self.hosts or "*" in self.hosts

    def has_token(self, header: str) -> bool:
        """Whether a request has the token."""
        scheme, _, given = header.partition(" ")
        digest = hashlib.sha256(given.strip().encode()).digest()
        return scheme.lower() == "bearer" and self.digest is not None and hmac.compare_digest(digest, self.digest)


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address that is listened on."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in LOCAL


async def read_json(request: Request, limits: Limits) -> bytes:
    """The body of a request, which must be JSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await read_body(request, limits.body, limits)
    if kind != "application/json":
        raise RequestError(415, "the body must be JSON, with Content-Type: application/json", code="not_json")
    return body


async def read_body(request: Request, most: int, limits: Limits) -> bytes:
    """The body of a request, unless it is too large, compressed, or sent too slowly."""
    encoding = request.headers.get("content-encoding", "identity")
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(limits.receiving):
            async for part in request.stream():
                size += len(part)
                if size <= most:
                    parts.append(part)
                elif size > DRAINED:
                    break
    except TimeoutError:
        raise RequestError(408, f"the request was not sent within {limits.receiving:g} s", code="slow_sender") from None
    if size > most:
        raise RequestError(413, f"the request has more than {most:,} bytes", code="too_large")
    if encoding != "identity":
        raise RequestError(415, "compressed requests are not read: leave Content-Encoding out", code="compressed")
    return b"".join(parts)


def checked_json(body: bytes) -> Any:
    """A body as JSON; what is none is refused."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(400, f"the body is no JSON: {type(error).__name__}", code="bad_json") from None
