"""What the answers of OpenAI's API share: their heads, the outputs of a request, and the tokens it took."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from mallang.serving.messages import Done
from mallang.serving.queue import Job

STOP = {"stop": "stop", "length": "length", None: None}


def outputs_of(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The outputs of one prompt, whether they were generated step by step or by a search."""
    if "outputs" in result:
        return list(result["outputs"])
    first: dict[str, Any] = {"tokens": result["tokens"], "scores": result["token_scores"], "alternatives": []}
    finish = "stop" if result["finished"] else "length"
    nothing: dict[str, Any] = {"tokens": [], "scores": [], "alternatives": []}
    texts = [each["output"] for each in result["nbest"]] or [result["output"]]
    return [{"text": text, "finish": finish, **(nothing if place else first)} for place, text in enumerate(texts)]


def usage(done: Done, outputs: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Tokens read and generated."""
    read = done.read or sum(int(result.get("prompt_tokens", 0)) for result in done.results)
    written = sum(len(output["tokens"]) for output in outputs)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def head(kind: str, name: str, job: Job) -> dict[str, Any]:
    """What all answers begin with."""
    return {"id": f"{kind}-{job.number}", "object": name, "created": int(time.time()), "model": job.run}
