"""A process that has torch and mallang imported, and has built one recipe; it forks for every command it is told.

What runs is `mallang.commands.main.main` in a fresh process group, as `python -m mallang` runs it, less the seconds
that importing takes. Orders come as JSON lines; the answers are the process's number and then its exit code.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import sys
from typing import Any


def serve() -> dict[str, Any]:
    """Fork for every order; the child comes back with it."""
    import torch._dynamo  # noqa: F401 - the first optimizer imports it, which takes two seconds

    import mallang
    from mallang import recipe

    for found in pkgutil.walk_packages(mallang.__path__, "mallang."):
        if not found.name.endswith(("__main__", "_script")):  # which run when they are imported
            importlib.import_module(found.name)
    recipe.read("transformer-miniworld").build()  # pydantic reads every Config for its first recipe

    gc.freeze()  # the children leave these objects alone, so that they need not be copied
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        pid = os.fork()
        if pid == 0:
            return order
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    sys.exit()


def become(order: dict[str, Any]) -> None:
    """Take on the folder, the environment, the streams and the limits that a shell would have given."""
    os.setsid()
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    for number, (path, flags) in enumerate(zip(order["streams"], (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=True)):
        os.dup2(os.open(path, flags), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the old one has been read from
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if name in order["closed"]:  # as Python finds a stream that the shell closed: `>&-`
            os.close(number)
            setattr(sys, name, None)
    if order["file_size"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["file_size"], order["file_size"]))
    for name in order["missing"]:
        sys.modules[name] = None  # type: ignore[assignment]  # importing it fails, as if it were not installed
    sys.argv = ["mallang", *order["arguments"]]
    signal.alarm(order["seconds"])
    if order["nobody"] and os.geteuid() == 0:  # root may write anywhere
        os.seteuid(65534)


def leave(code: int) -> None:
    """End as Python does, less the half second of taking torch apart again."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    become(serve())
    from mallang.commands.main import main

    try:
        main()
    except SystemExit as end:
        leave(end.code if isinstance(end.code, int) else int(end.code is not None))
    leave(0)
