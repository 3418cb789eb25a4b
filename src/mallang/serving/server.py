"""The server: one process for HTTP, others for the models, from the command line to the last answer."""

from __future__ import annotations

import asyncio
import logging
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
from uvicorn.protocols.http.h11_impl import H11Protocol

from mallang.errors import UserError
from mallang.serving.app import Service, is_open
from mallang.serving.guard import LOCAL, Guard, Limits, is_local
from mallang.serving.metrics import Metrics
from mallang.serving.pool import Batching, Pool
from mallang.serving.worker import WorkerOptions

CONNECTIONS = 4096
"""Open connections; more are answered 503 by the HTTP server itself."""


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
    say: Callable[[str], None] = lambda text: None
    """What is done with the line that says where the server is."""


def serve(options: ServerOptions) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    listener = listen(options.host, options.port)
    asyncio.run(run(options, listener))


async def run(options: ServerOptions, listener: socket.socket) -> None:
    """Load the runs, serve, and stop."""
    metrics, limits = Metrics(), options.limits
    count = options.workers or worker_count(options.device)
    threads = max(1, cores() // count)
    folders = named(options.runs)
    worker = WorkerOptions(folders, options.device, options.int8, threads, tuple(map(str, options.plugins)))
    pool = Pool(worker, count, limits.waiting, metrics, options.batching)
    try:
        await pool.start()
        app = Guard(Service(pool, limits, metrics).app(), hosts_of(options), options.token, is_open)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, proxy_headers=False, ws="none",
            http=Impatient, limit_concurrency=CONNECTIONS, timeout_graceful_shutdown=int(limits.stopping) + 1,
        )  # fmt: skip
        host, port = f"[{options.host}]" if ":" in options.host else options.host, listener.getsockname()[1]
        names = "".join(f"{each.name}: {', '.join(each.verbs)}\n" for each in pool.runs.values())
        server = Server(config, pool, lambda: options.say(f"{names}http://{host}:{port}  workers: {count}"))
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
    """Stops taking requests at the first signal, and forgets those that it has at the second."""

    def __init__(self, config: uvicorn.Config, pool: Pool, begun: Callable[[], None]) -> None:
        super().__init__(config)
        self.pool, self.begun = pool, begun

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and say so."""
        await super().startup(sockets)
        self.begun()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what has been taken in, then stop."""
        self.pool.is_stopping = True
        await super().shutdown(sockets)


class Impatient(H11Protocol):
    """HTTP that closes connections whose first request does not come, or which are not read from."""

    limits = Limits()
    coming: asyncio.TimerHandle | None = None
    reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self.coming = self.loop.call_later(self.limits.receiving, self.give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        self.forget()
        if self.coming is not None:
            self.coming.cancel()
        super().connection_lost(exc)

    def give_up(self) -> None:
        """Close a connection on which no whole request line and headers have come."""
        if not self.has_asked:
            self.transport.abort()

    @property
    def has_asked(self) -> bool:
        """Whether a request has come."""
        return bool(self.scope)

    def pause_writing(self) -> None:
        """The client reads more slowly than it is sent to."""
        super().pause_writing()
        self.forget()
        self.reading = self.loop.call_later(self.limits.sending, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self.forget()

    def forget(self) -> None:
        """Wait no more for the client to read."""
        if self.reading is not None:
            self.reading.cancel()
            self.reading = None


def listen(host: str, port: int) -> socket.socket:
    """A socket, bound before anything is loaded: a port that is taken is reported at once."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
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
