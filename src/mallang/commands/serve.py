"""`mallang serve`: trained runs over HTTP, for other programs and for a browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from mallang.commands.options import Device, Int8, Plugin, Quiet, check_run, complete_run
from mallang.errors import UserError, require

EXAMPLES = (
    "mallang serve runs/transformer-miniworld",
    "mallang serve runs/transformer-miniworld runs/gpt-miniworld --port 9000 --int8",
    "MALLANG_TOKEN=… mallang serve runs/gpt-miniworld --host 0.0.0.0 --allow-host models.example.org",
)
RunFolders = Annotated[
    list[Path],
    typer.Argument(metavar="RUN", help="Folders of finished runs.", autocompletion=complete_run, show_default=False),
]
Host = Annotated[str, typer.Option("--host", help="The address to listen on; beyond localhost a token is needed.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0: any that is free.")]
Workers = Annotated[
    int, typer.Option("--workers", min=0, max=64, help="Processes with the models; 0: one per core, or one for a GPU.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="The token, rather than in MALLANG_TOKEN.", show_default=False),
]
Hosts = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="A name that clients use. Repeatable.", show_default=False),
]
Queue = Annotated[int, typer.Option("--queue", min=1, help="Requests that may wait; more are answered 429.")]
Batching = Literal["none", "waiting", "joining"]
Together = Annotated[
    Batching,
    typer.Option("--batching", help="none, waiting (requests that wait together) or joining (also running ones)."),
]
Watched = Annotated[
    list[Path] | None,
    typer.Option(
        "--watch", metavar="FOLDER", show_default=False,
        help="A training run, or a folder of them, whose curves the page shows while they grow. Repeatable.",
    ),
]  # fmt: skip
Seconds = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to the answer of a request.")]


def command(
    runs: RunFolders,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    workers: Workers = 0,
    token_file: TokenFile = None,
    allow_host: Hosts = None,
    queue: Queue = 256,
    timeout: Seconds = 60.0,
    batching: Together = "joining",
    watch: Watched = None,
    plugin: Plugin = None,
    device: Device = "auto",
    int8: Int8 = False,
    quiet: Quiet = False,
) -> None:
    """Serve runs over HTTP: their verbs as REST, and for language models the API of OpenAI.

    Open the address in a browser: there is a page to try the runs and to look into them. GET /openapi.json describes
    the API. SIGHUP loads the runs again; Ctrl-C answers what has come, then stops.
    """
    require("uvicorn", "serve")
    require("starlette", "serve")
    from mallang.serving.guard import Limits
    from mallang.serving.server import ServerOptions, checked_token, serve
    from mallang.serving.training_runs import check_watched

    for run in runs:
        check_run(run)
    check_watched(watch or ())
    token = checked_token(host, read_token(token_file))
    limits = Limits(waiting=queue, seconds=timeout)
    say = (lambda text: None) if quiet else (lambda text: typer.echo(text, err=True))
    serve(
        ServerOptions(
            runs=runs, host=host, port=port, workers=workers, device=device, int8=int8, plugins=plugin or (),
            token=token, hosts=allow_host or (), limits=limits, batching=batching, watched=watch or (), say=say,
        )
    )  # fmt: skip


def read_token(file: Path | None) -> str | None:
    """The token of a file, or of the environment, where other processes do not see it as they see arguments."""
    if file is None:
        return os.environ.get("MALLANG_TOKEN") or None
    try:
        return file.read_text("utf-8").strip()
    except OSError as error:
        raise UserError(f"the token cannot be read: {error.strerror}", where=str(file)) from error
