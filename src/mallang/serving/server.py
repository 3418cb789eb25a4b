"""The server: one process for HTTP, others for the models, from the command line to the last answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from mallang.errors import UserError
from mallang.serving.app import Service, is_open
from mallang.serving.guard import LOCAL, Guard, Limits, is_local
from mallang.serving.impatient import impatient
from mallang.serving.metrics import Metrics
from mallang.serving.pool import Batching, Pool
from mallang.serving.training_runs import TrainingRuns
from mallang.serving.worker import WorkerOptions

CONNECTIONS = 4096
"""Open connections; requests over more of them are answered 503."""


@dataclass(frozen=True)
class ServerOptions:
    """What is served, where, and to whom."""

    runs: Sequence[Path]
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 0
    """Processes with the models; 0: one per core, or one for a GPU."""
    device: str = "auto"
    int8: bool = False
    plugins: Sequence[Path] = ()
    token: str | None = None
    hosts: Sequence[str] = ()
    """Names under which clients may reach the server, besides its own address."""
    limits: Limits = field(default_factory=Limits)
    batching: Batching = "joining"
    watched: Sequence[Path] = ()
    """Folders of training runs that the page shows."""
    say: Callable[[str], None] = lambda text: None
    """What is done with the line that says where the server is."""


def serve(options: ServerOptions) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    listener = listen(options.host, options.port)
    allow_connections(CONNECTIONS)
    asyncio.run(run(options, listener))


async def run(options: ServerOptions, listener: socket.socket) -> None:
    """Load the runs, serve, and stop."""
    metrics, limits = Metrics(), options.limits
    count = options.workers or worker_count(options.device)
    threads = max(1, cores() // count)
    folders = named(options.runs)
    worker = WorkerOptions(folders, options.device, options.int8, threads, tuple(map(str, options.plugins)))
    pool = Pool(worker, count, limits, metrics, options.batching)
    service = Service(pool, limits, metrics, TrainingRuns([*options.runs, *options.watched]))
    try:
        await pool.start()
        app = Guard(
            service.app(), hosts_of(options), options.token, is_open, count=service.count_answer,
            is_full=lambda: service.connections() > CONNECTIONS,
        )  # fmt: skip
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, proxy_headers=False, ws="none",
            http=impatient(limits), timeout_graceful_shutdown=math.ceil(limits.stopping) + 2,
        )  # fmt: skip
        host, port = f"[{options.host}]" if ":" in options.host else options.host, listener.getsockname()[1]
        names = "".join(f"{each.name}: {', '.join(each.verbs)}\n" for each in pool.runs.values())
        server = Server(config, pool, limits, lambda: options.say(f"{names}http://{host}:{port}  workers: {count}"))
        service.connections = lambda: len(server.server_state.connections)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: asyncio.ensure_future(reloaded(pool)))
        await server.serve([listener])
    finally:
        await pool.stop(0)


async def reloaded(pool: Pool) -> None:
    """Load the runs again, as SIGHUP asks for."""
    try:
        await pool.reload()
    except Exception as error:
        logging.getLogger("mallang.serving").error("the runs are not loaded again: %s", error)


class Server(uvicorn.Server):
    """Stops taking requests at the first signal, and forgets those that it has at the second Ctrl-C."""

    def __init__(self, config: uvicorn.Config, pool: Pool, limits: Limits, begun: Callable[[], None]) -> None:
        super().__init__(config)
        self.pool, self.limits, self.begun = pool, limits, begun

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Stop; unlike uvicorn's, this does not raise the signal again, so that the exit code is 0."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        self.begun()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what has been taken in, then stop; what takes too long is answered 503."""
        self.pool.is_stopping = True
        asyncio.get_running_loop().call_later(self.limits.stopping, self.pool.give_up)
        await super().shutdown(sockets)


def allow_connections(count: int) -> None:
    """Raise the number of files that this process may open, as far as it may, to so many connections."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 4 * count if hard == resource.RLIM_INFINITY else min(4 * count, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def listen(host: str, port: int) -> socket.socket:
    """A socket, bound before anything is loaded: a port that is taken is reported at once."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise UserError(
            f"{host}:{port} cannot be listened on: {error.strerror}", todo="another --port, or --port 0 for any"
        ) from error
    listener.setblocking(False)
    return listener


def named(folders: Sequence[Path]) -> dict[str, str]:
    """The names of runs: those of their folders, with the folder above where two are alike."""
    names: dict[str, str] = {}
    for folder in folders:
        path = folder.resolve()
        name = path.name if path.name not in names else f"{path.parent.name}/{path.name}"
        if name in names:
            raise UserError(f"two runs are called {name}", todo="rename one of the folders, or give it once")
        names[name] = str(path)
    return names


def hosts_of(options: ServerOptions) -> list[str]:
    """The values of Host that are answered."""
    own = list(LOCAL) if is_local(options.host) else [options.host, *LOCAL]
    return [*own, *options.hosts]


def checked_token(host: str, token: str | None) -> str | None:
    """The token; beyond localhost there must be one."""
    if token is not None and len(token) < 16:
        raise UserError("the token has less than 16 characters", todo=f"for instance {secrets.token_urlsafe(24)}")
    if token is None and not is_local(host):
        raise UserError(
            f"{host} can be reached from other machines, and no token was given",
            todo="MALLANG_TOKEN=… in the environment, or --token-file FILE; or --host 127.0.0.1",
        )
    return token


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def worker_count(device: str) -> int:
    """One worker per core, each with one thread; one for a GPU."""
    from mallang.runs.device import choose_device

    return cores() if choose_device(device).type == "cpu" else 1
