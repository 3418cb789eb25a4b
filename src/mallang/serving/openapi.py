"""The OpenAPI document: made from the request classes, so that it cannot say something else than the checks do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import mallang
from mallang.serving.answers import ErrorAnswer
from mallang.serving.openai_requests import Chat, Completion, Embedding
from mallang.serving.requests import ALL
from mallang.tasks.result_json import KEYS

REF = "#/components/schemas/{model}"
PARSED = (400, 404, 408, 413, 415, 429, 500, 503, 504)
"""Statuses of a request with a body that goes through the queue."""
ALWAYS = (401, 403, 405)
"""Statuses of every path."""
WHY = {
    400: "A field is unknown or wrong; `param` names it.",
    401: "The token is missing or wrong.",
    403: "The Host or Origin is foreign.",
    404: "There is no such run, or it has no such verb.",
    405: "The path is not for this method.",
    408: "The request was sent too slowly.",
    413: "The request is too large.",
    415: "The body is not JSON.",
    429: "The queue is full; `Retry-After` says when to try again.",
    500: "The model failed.",
    503: "The server is starting or stopping.",
    504: "There was no answer in time.",
}
OBJECT: dict[str, Any] = {"type": "object"}
OPENAI: dict[str, type[BaseModel]] = {
    "/v1/completions": Completion,
    "/v1/chat/completions": Chat,
    "/v1/embeddings": Embedding,
}
"""The requests of OpenAI's API."""
EVENTS = {
    "text/event-stream": {"schema": {"description": "Events, each `data: ` and JSON; the last one is `data: [DONE]`."}}
}
"""What is answered where `stream` is true: OpenAPI 3.1 has no word for the type of a stream."""


class RunEntry(BaseModel):
    """A run that is served."""

    name: str
    task: str
    model: str
    verbs: list[str]
    method: str
    parameters: int
    created: int
    settings: dict[str, Any]
    reads_pairs: list[str]
    is_live: bool


class Runs(BaseModel):
    """The runs that are served."""

    runs: list[RunEntry]


class RecipeEntry(BaseModel):
    """A recipe: what it should reach, and what was measured."""

    name: str
    system: str
    corpus: str
    paper: str
    reach: str
    measured: str


class Recipes(BaseModel):
    """The recipes that come with mallang."""

    recipes: list[RecipeEntry]


class ResultTable(BaseModel):
    """A table of what was measured."""

    title: str
    head: list[str]
    rows: list[list[str]]


class ResultTables(BaseModel):
    """What was measured."""

    sections: list[ResultTable]


class TrainingEntry(BaseModel):
    """A training run that can be watched."""

    name: str
    status: str
    model: str
    task: str
    changed: float


class Training(BaseModel):
    """The training runs, the latest first."""

    runs: list[TrainingEntry]


class Curves(TrainingEntry):
    """The curves of a training run: by kind and metric the steps, and the values at them."""

    curves: dict[str, dict[str, list[list[float | None]]]]
    problem: str | None


class Health(BaseModel):
    """The server is alive."""

    status: str


class Readiness(BaseModel):
    """The server can serve."""

    status: str
    workers: int
    waiting: int


class Results(BaseModel):
    """One result per item: what `mallang VERB --json` prints."""

    run: str
    results: list[dict[str, Any]]


LISTS: tuple[tuple[str, str, type[BaseModel]], ...] = (
    ("recipes", "The recipes, and what was measured", Recipes),
    ("results", "The tables of what was measured", ResultTables),
    ("training", "Training runs to watch", Training),
)
"""Paths that list something."""


@cache
def document() -> dict[str, Any]:
    """The whole document."""
    models: list[type[BaseModel]] = [
        ErrorAnswer,
        Runs,
        Health,
        Readiness,
        Results,
        Recipes,
        ResultTables,
        Training,
        Curves,
        *dict.fromkeys((*ALL.values(), *OPENAI.values())),
    ]
    names, definitions = models_json_schema([(model, "validation") for model in models], ref_template=REF)
    refs = {model: names[model, "validation"] for model in models}
    paths: dict[str, Any] = {
        "/health": {"get": operation("health", "Whether the server is alive", refs[Health], statuses=(403, 405))},
        "/ready": {"get": operation("ready", "Whether it can serve", refs[Readiness], statuses=(503, *ALWAYS))},
        "/metrics": {"get": metrics()},
        "/openapi.json": {"get": operation("openapi", "This document", OBJECT, statuses=ALWAYS)},
        "/api/runs": {"get": operation("runs", "The runs that are served", refs[Runs], statuses=ALWAYS)},
        "/api/training/{name}": {
            "get": operation("curves", "The curves of a training run", refs[Curves], statuses=(404, *ALWAYS))
        },
        "/api/batch": {"post": batch()},
        "/api/reload": {"post": operation("reload", "Load the runs again", refs[Runs], statuses=(500, 503, *ALWAYS))},
    }
    for name, summary, answer in LISTS:
        paths[f"/api/{name}"] = {"get": operation(name, summary, refs[answer], statuses=ALWAYS)}
    for verb, kind in ALL.items():
        summary, found = (kind.__doc__ or verb).splitlines()[0], results_of(verb, refs[Results])
        paths[f"/api/{verb}"] = {"post": operation(verb, summary, found, refs[kind], PARSED + ALWAYS)}
    for path, other in OPENAI.items():
        name = path.removeprefix("/v1/").replace("/", "_")
        summary = (other.__doc__ or name).splitlines()[0].partition(": ")[2]
        paths[path] = {"post": operation(name, summary, OBJECT, refs[other], PARSED + ALWAYS)}
    for path in ("/v1/completions", "/v1/chat/completions", "/api/generate"):
        paths[path]["post"]["responses"]["200"]["content"] |= EVENTS
    paths["/v1/models"] = {"get": operation("models", "The runs that are served", OBJECT, statuses=ALWAYS)}
    paths["/v1/models/{name}"] = {"get": operation("model", "One run", OBJECT, statuses=(404, *ALWAYS))}
    for path in ("/v1/models/{name}", "/api/training/{name}"):
        paths[path]["get"]["parameters"] = [
            {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        ]
    for methods in paths.values():
        for each in methods.values():
            each["responses"] |= {str(status): refused(status, refs[ErrorAnswer]) for status in each.pop("statuses")}
    return {
        "openapi": "3.1.0",
        "info": {"title": "mallang", "version": mallang.__version__, "description": "Sequence models over HTTP."},
        "paths": paths,
        "components": {
            "schemas": definitions["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def operation(
    name: str, summary: str, answer: Mapping[str, Any], body: Mapping[str, Any] | None = None,
    statuses: tuple[int, ...] = (),
) -> dict[str, Any]:  # fmt: skip
    """One method of one path."""
    found: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "responses": {"200": {"description": summary, "content": {"application/json": {"schema": answer}}}},
        "statuses": statuses,
    }
    if body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return found


def results_of(verb: str, results: Mapping[str, Any]) -> dict[str, Any]:
    """The results of a verb, and the keys that each of them has."""
    items = {"type": "object", "required": list(KEYS[verb])} if verb in KEYS else OBJECT
    return {"allOf": [results, {"properties": {"results": {"type": "array", "items": items}}}]}


def batch() -> dict[str, Any]:
    """The path of files."""
    what = "A file with a request per line, each with its `verb`; the answer has a line for each"
    found = operation("batch", what, OBJECT, statuses=(400, 408, 413, 415, 500, 503, *ALWAYS))
    lines: dict[str, Any] = {"application/jsonl": {"schema": {"type": "string"}}}
    found["responses"]["200"]["content"] = lines
    # No type: whatever is sent are lines, and a line that is no request has an error in its own place of the answer.
    asked = {"application/jsonl": {"schema": {"description": 'Lines such as {"verb": "translate", "texts": "물"}.'}}}
    found["requestBody"] = {"required": True, "content": asked}
    return found


def metrics() -> dict[str, Any]:
    """The path of the metrics."""
    found = operation("metrics", "Metrics for Prometheus", {"type": "string"}, statuses=ALWAYS)
    found["responses"]["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
    return found


def refused(status: int, answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer that is no success."""
    return {"description": WHY[status], "content": {"application/json": {"schema": answer}}}
