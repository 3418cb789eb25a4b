"""What schemathesis has to know of files of requests: they are sent and read as they are."""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.serializer("application/jsonl")
def serialize(ctx: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@schemathesis.deserializer("application/jsonl")
def deserialize(ctx: Any, response: Any) -> str:
    text: str = response.content.decode("utf-8")
    return text
