"""The application: routes, and the way of a request from its body to the queue and back.

GET  /health  /ready  /metrics  /openapi.json
GET  /api/runs                 the runs: name, task, model, verbs
POST /api/reload               load the runs again
POST /api/{verb}               translate, generate, score, classify, tag, embed, answer, fill, …
POST /api/batch                a file of requests (batches.py)
GET  /api/training  /api/recipes  /api/results   what the page shows beside runs; POST /api/inspect  /api/live
GET  /                         the page (site.py)
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict
from functools import cache
from typing import Any

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Scope

import mallang
from mallang import recipe
from mallang.inspection.recipe_list import in_words, summary
from mallang.serving import site
from mallang.serving.answers import CODES, SAFE, RequestError, json_response, refusal_of
from mallang.serving.batches import Batches
from mallang.serving.guard import Limits, read_json
from mallang.serving.messages import Done, Failed, Part, ServedRun
from mallang.serving.metrics import Metrics
from mallang.serving.openai_api import OpenAI
from mallang.serving.openapi import document
from mallang.serving.pool import Pool
from mallang.serving.queue import Job
from mallang.serving.requests import ALL, VIEWS, Generate, VerbRequest
from mallang.serving.results import result_tables
from mallang.serving.streams import Encode, EventStream, disconnected, parts_of
from mallang.serving.training_runs import TrainingRuns

Handler = Callable[[Request], Awaitable[Response]]


class Service:
    """The handlers of all routes, and what they share."""

    def __init__(self, pool: Pool, limits: Limits, metrics: Metrics, training: TrainingRuns) -> None:
        self.pool, self.limits, self.metrics, self.training = pool, limits, metrics, training
        self.metrics.info.put(1, mallang.__version__)
        self.paths: set[str] = set()
        self.connections: Callable[[], int] = lambda: 0
        """Counts the open connections."""

    def app(self) -> Starlette:
        """The application, without what guards it."""
        routes: list[Any] = [
            Route("/health", self.health, methods=["GET"]),
            Route("/ready", guarded(self.ready), methods=["GET"]),
            Route("/metrics", self.show_metrics, methods=["GET"]),
            Route("/openapi.json", self.openapi, methods=["GET"]),
            Route("/api/runs", self.list_runs, methods=["GET"]),
            Route("/api/reload", guarded(self.reload), methods=["POST"]),
            Route("/api/batch", guarded(Batches(self).batch), methods=["POST"]),
            Route("/api/recipes", self.list_recipes, methods=["GET"]),
            Route("/api/results", self.list_results, methods=["GET"]),
            Route("/api/training", self.list_training, methods=["GET"]),
            Route("/api/training/{name:path}", guarded(self.training_curves), methods=["GET"]),
            *(Route(f"/api/{verb}", guarded(self.handler(verb)), methods=["POST"]) for verb in ALL),
        ]
        openai = OpenAI(self)
        routes += [
            Route("/v1/models", openai.models, methods=["GET"]),
            Route("/v1/models/{name:path}", guarded(openai.model), methods=["GET"]),
            Route("/v1/completions", guarded(openai.completions), methods=["POST"]),
            Route("/v1/chat/completions", guarded(openai.chat), methods=["POST"]),
            Route("/v1/embeddings", guarded(openai.embeddings), methods=["POST"]),
        ]
        routes += [Route(path, show_file, methods=["GET"]) for path in site.files()]
        self.paths = {route.path for route in routes}
        handlers: dict[Any, Any] = {HTTPException: no_route, Exception: failed}
        return Starlette(routes=routes, lifespan=self.lifespan, exception_handlers=handlers)

    def count_answer(self, path: str, status: str) -> None:
        """Count an answer; a path that does not exist is a text of the client, and no label."""
        self.metrics.answers.add(1, path if path in self.paths else "other", status)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Workers live as long as the server."""
        yield
        await self.pool.stop(self.limits.stopping)

    async def health(self, request: Request) -> Response:
        """Whether the server is alive."""
        return json_response({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Whether the server can serve."""
        ready = sum(worker.is_ready for worker in self.pool.workers)
        if not ready or self.pool.is_stopping:
            raise RequestError(
                503, "stopping" if self.pool.is_stopping else "no worker is ready", headers={"retry-after": "1"}
            )
        return json_response({"status": "ready", "workers": ready, "waiting": len(self.pool.waiting)})

    async def show_metrics(self, request: Request) -> Response:
        """Metrics for Prometheus."""
        ready = sum(worker.is_ready for worker in self.pool.workers)
        self.metrics.workers.put(ready, "ready")
        self.metrics.workers.put(len(self.pool.workers) - ready, "starting")
        self.metrics.queued.put(len(self.pool.waiting))
        self.metrics.connections.put(self.connections())
        return PlainTextResponse(self.metrics.text(), headers=SAFE, media_type="text/plain; version=0.0.4")

    async def openapi(self, request: Request) -> Response:
        """The schema of this API."""
        return json_response(document())

    async def list_runs(self, request: Request) -> Response:
        """The runs that are served."""
        return json_response({"runs": [listed(run) for run in self.pool.runs.values()]})

    async def reload(self, request: Request) -> Response:
        """Load the runs again; requests are served meanwhile."""
        await self.pool.reload()
        return await self.list_runs(request)

    async def list_recipes(self, request: Request) -> Response:
        """The recipes, what each should reach, and what was measured."""
        return json_response({"recipes": await asyncio.to_thread(all_recipes)})

    async def list_results(self, request: Request) -> Response:
        """The tables of what was measured."""
        return json_response({"sections": await asyncio.to_thread(result_tables)})

    async def list_training(self, request: Request) -> Response:
        """The training runs that can be watched."""
        return json_response({"runs": await asyncio.to_thread(self.training.listed)})

    async def training_curves(self, request: Request) -> Response:
        """The curves of a training run, as far as it is."""
        name = request.path_params["name"]
        found = await asyncio.to_thread(self.training.curves, name)
        if found is None:
            raise RequestError(404, f"no training run is called {name[:80]!r}", param="name", code="no_run")
        return json_response(found)

    def handler(self, verb: str) -> Handler:
        """The handler of a verb."""

        async def handle(request: Request) -> Response:
            body = await read_json(request, self.limits)
            asked, run, job = self.job_of(verb, body)
            if isinstance(asked, Generate) and asked.stream:
                if not job.is_stepped:
                    raise RequestError(400, "only greedy search and sampling can be streamed", param="stream")
                job.stream = True
                return self.stream(job, native_events)
            return json_response({"run": run.name, "results": results_of(job, await self.finished(job, request))})

        return handle

    def job_of(self, verb: str, body: bytes) -> tuple[VerbRequest, ServedRun, Job]:
        """A checked request, its run, and what goes into the queue."""
        asked, items = parsed(ALL[verb], body)
        run = self.run_for(verb, asked.run)
        if verb in VIEWS:
            items = [(self.pool.options.runs[run.name], item) for item in items]
        return asked, run, Job(run.name, verb, items, asked.options(), merges(asked, run), steps(asked, run))

    async def result(self, verb: str, body: bytes, *, wait: float) -> tuple[str, list[Any]]:
        """The run and the results of a line of a file; where the queue is full it waits."""
        _, run, job = self.job_of(verb, body)
        while len(self.pool.waiting) >= self.limits.waiting and not self.pool.is_stopping:
            await asyncio.sleep(wait)
        job.arrived = time.monotonic()
        return run.name, results_of(job, await self.finished(job, None))

    def stream(self, job: Job, encode: Encode) -> Response:
        """The events of a request."""
        self.submit(job)

        def ended(status: int, done: Done | None) -> None:
            if status != 200:
                self.pool.cancel(job)
            if done is not None:
                self.metrics.tokens.add(done.tokens, job.run, job.verb)
            self.count(job, status)

        def timed(part: Part | Done) -> Iterator[object]:
            if isinstance(part, Part) and len(job.sent) == 1 and not job.first:
                job.first = True
                self.metrics.first.observe(time.monotonic() - job.arrived, job.run, job.verb)
            yield from encode(part)

        return EventStream(parts_of(job, self.limits.seconds), timed, ended)

    def run_for(self, verb: str, name: str | None) -> ServedRun:
        """The run of this name, or the only one that has the verb."""
        having = [run for run in self.pool.runs.values() if can(run, verb)]
        if name is None:
            if len(having) == 1:
                return having[0]
            names = ", ".join(run.name for run in having)
            what = f"several runs can {verb}: name one of {names}" if having else f"no run here can {verb}"
            raise RequestError(400 if having else 404, what, param="run", code="run_needed" if having else "no_run")
        run = self.pool.runs.get(name)
        if run is None:
            raise RequestError(
                404, f"no run is called {name[:80]!r}: GET /api/runs lists them", param="run", code="no_run"
            )
        if run not in having:
            verbs = ", ".join(run.verbs)
            raise RequestError(404, f"{run.name} cannot {verb}; it can {verbs}", param="run", code="no_verb")
        return run

    async def finished(self, job: Job, request: Request | None) -> Done:
        """The results of a request; the queue forgets it if its client goes away or it takes too long.

        A line of a file, which is no request of its own, may take its time.
        """
        status, seconds = 500, None if request is None else self.limits.seconds
        self.submit(job)
        gone = asyncio.ensure_future(asyncio.Event().wait() if request is None else disconnected(request.receive))
        coming = asyncio.ensure_future(result_of(job))
        try:
            await asyncio.wait({gone, coming}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                if gone.done():
                    status = 499
                    raise ClientDisconnect
                raise RequestError(504, f"no answer within {self.limits.seconds:g} s", code="deadline")
            done = coming.result()
            status = 200
            self.metrics.tokens.add(done.tokens, job.run, job.verb)
            return done
        except RequestError as refusal:
            status = refusal.status
            raise
        finally:
            gone.cancel()
            coming.cancel()
            if status != 200:
                self.pool.cancel(job)
            self.count(job, status)

    def submit(self, job: Job) -> None:
        """Queue a request; one that is refused is counted."""
        try:
            self.pool.submit(job)
        except RequestError as refusal:
            self.count(job, refusal.status)
            raise

    def count(self, job: Job, status: int) -> None:
        """Count an answer."""
        self.metrics.requests.add(1, job.run, job.verb, str(status))
        self.metrics.duration.observe(time.monotonic() - job.arrived, job.run, job.verb)


def is_open(scope: Scope) -> bool:
    """Whether a path is for everyone: health, and the files of the page, which hold nothing of any run."""
    return scope["path"] == "/health" or (scope["method"] in ("GET", "HEAD") and scope["path"] in site.files())


async def show_file(request: Request) -> Response:
    """A file of the page."""
    return site.files()[request.url.path].response()


@cache
def all_recipes() -> list[dict[str, Any]]:
    """Every recipe with its measurement, in words."""
    rows = [summary(recipe.read(name)) for name in recipe.names()]
    return [row | {"measured": in_words(row["measured"])} for row in rows]


async def failed(request: Request, error: Exception) -> Response:
    """The answer where something nobody has foreseen was raised; it is logged by the guard."""
    return RequestError(500, "the server failed; its log says where", code="failed").response()


def guarded(handler: Handler) -> Handler:
    """A handler whose refusals are answers."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except RequestError as refusal:
            return refusal.response()
        except ClientDisconnect:
            return Response(status_code=499)

    return handle


async def no_route(request: Request, error: Exception) -> Response:
    """The answer where there is no such path, or none by this method."""
    status = error.status_code if isinstance(error, HTTPException) else 404
    if status == 405:
        headers = error.headers if isinstance(error, HTTPException) else None
        return RequestError(405, "this path is not for that method", code="wrong_method", headers=headers).response()
    return RequestError(404, "there is no such path: GET /openapi.json lists them", code="no_path").response()


def parsed(kind: type[VerbRequest], body: bytes) -> tuple[VerbRequest, list[Any]]:
    """A request of a verb, and its items."""
    try:
        asked = kind.model_validate_json(body)
    except ValidationError as error:
        raise refusal_of(error, kind) from None
    try:
        return asked, asked.items()
    except ValueError as error:
        raise RequestError(400, str(error), param=kind.reads[-1], code="invalid_value") from None


def can(run: ServedRun, verb: str) -> bool:
    """Whether a run has a verb; every run can be looked into, and some can be run by a browser."""
    return verb in run.verbs or verb == "inspect" or (verb == "live" and run.is_live)


def merges(asked: VerbRequest, run: ServedRun) -> bool:
    """Whether a request may share a batch: samples depend on the place of a text in its own request."""
    return not asked.seeded or method_of(asked, run) in ("greedy", "beam")


def results_of(job: Job, done: Done) -> list[Any]:
    """The results of a request as a client gets them."""
    return [each["result"] for each in done.results] if job.is_stepped else list(done.results)


async def result_of(job: Job) -> Done:
    """The results of a request."""
    while True:
        event = await job.events.get()
        if isinstance(event, Done):
            return event
        if isinstance(event, Failed):
            raise RequestError(event.status, event.message, code=CODES[event.status])


def steps(asked: VerbRequest, run: ServedRun) -> bool:
    """Whether the outputs are generated step by step, with those of other requests."""
    return isinstance(asked, Generate) and run.is_stepped and method_of(asked, run) in ("greedy", "sampling")


def method_of(asked: VerbRequest, run: ServedRun) -> str:
    """The search method of a request."""
    return str(asked.options().get("method") or run.method)


def native_events(part: Part | Done) -> Iterator[object]:
    """The events of `generate`: growing outputs by their number, then the results."""
    if isinstance(part, Part):
        yield {name: part.content[name] for name in ("place", "text", "tokens", "scores", "finish")}
    else:
        yield {"results": [each["result"] for each in part.results]}


def listed(run: ServedRun) -> dict[str, Any]:
    """A run as /api/runs shows it."""
    values = asdict(run)
    values["verbs"] = list(run.verbs)
    for inner in ("is_stepped", "chat"):
        values.pop(inner)
    return values
