"""An application without a network: one request in, one answer out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any


def ask(
    app: Any, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
) -> tuple[int, Any]:
    """The status and the body of an answer: JSON as its value, all else as text."""
    sent: list[Any] = []
    coming = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if not coming:
            await asyncio.sleep(60)
        return coming.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    given = {"host": "localhost", **(headers or {})}
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "http_version": "1.1", "scheme": "http", "headers": [(k.encode(), v.encode()) for k, v in given.items()],
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    text = b"".join(each.get("body", b"") for each in sent[1:]).decode()
    kind = dict(sent[0]["headers"]).get(b"content-type", b"")
    return sent[0]["status"], json.loads(text) if kind == b"application/json" else text
