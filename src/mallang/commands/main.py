"""The command `mallang`: finds the verbs by file, and turns mistakes into one clear message.

A verb is a file beside this one. It has a function `command`, or a Typer `app` of several; `EXAMPLES` are shown below
its help. Exit codes: 0 done, 1 a bug of ours, 2 a mistake that a person can mend, 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import signal
import sys
import time
import traceback
from types import ModuleType
from typing import Annotated

import typer

import mallang
from mallang import find
from mallang.commands.options import with_out
from mallang.errors import UserError

FIRST = ["demo", "train", "translate", "generate", "score", "evaluate", "data", "recipes"]
"""The order of the help; other verbs follow by name."""
MAKING = ("demo", "train", "export", "import")
"""Verbs that make a folder or a file of their own and print only where it is; all others can print into a file."""
PATIENCE = 10.0
"""Seconds that the other processes of `torchrun` leave to the first one of their machine to say what is wrong."""
EXAMPLES = (
    "mallang demo",
    "mallang train transformer-miniworld",
    'mallang translate runs/transformer-miniworld "유나는 지난주에 배를 탔다."',
)


def main() -> None:
    """Run what the command line says and leave with its exit code."""
    # Threads of a CPU that wait by spinning take the time of the one they wait for as soon as anything else runs too:
    # seen to make a training ten times slower. It must be said before torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # Hangul must pass whatever the locale says
    try:
        try:
            make_app()(sys.argv[1:] or ["--help"], prog_name="mallang")
        finally:
            sys.stdout.flush()
    except UserError as error:
        fail(str(error))
    except BrokenPipeError:
        # The reader has gone, as in `mallang recipes | head -1`; without this Python complains again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        fail(str(mended)) if (mended := mend(error)) else confess(error)


def make_app() -> typer.Typer:
    """All verbs, each from its file."""
    app = typer.Typer(
        help="말랑: every sequence model from n-grams to GPT. Train, use, compare and look inside them.",
        epilog=epilog(EXAMPLES),
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(start)
    verbs = [name for name in find.names("commands") if name not in ("main", "options")]
    for name in sorted(verbs, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name)):
        add(app, name, importlib.import_module(f"mallang.commands.{name}"))
    return app


def print_version(wanted: bool) -> bool:
    """Print the version and leave, if that is wanted."""
    if wanted:
        print(f"mallang {mallang.__version__}")
        raise typer.Exit
    return wanted


Version = Annotated[
    bool,
    typer.Option("--version", help="Print the version.", callback=print_version, is_eager=True, show_default=False),
]


def start(version: Version = False) -> None:
    """What comes before every verb: nothing but the options of `mallang` itself."""


def add(app: typer.Typer, name: str, module: ModuleType) -> None:
    """Make one file's verb known under the name of the file."""
    examples = epilog(getattr(module, "EXAMPLES", ()))
    verb = name.rstrip("_").replace("_", "-")  # import_.py is `import`, which Python keeps for itself
    if hasattr(module, "app"):
        for part in module.app.registered_commands:
            part.callback = with_out(part.callback)
        app.add_typer(module.app, name=verb, epilog=examples)
    else:
        app.command(verb, epilog=examples)(module.command if verb in MAKING else with_out(module.command))


def epilog(examples: tuple[str, ...]) -> str | None:
    """Examples as Typer shows them below a help; the mark before them keeps it from filling the lines."""
    return "\n  ".join(["\b\nExamples:", *examples]) if examples else None


def fail(message: str) -> None:
    """Say what is wrong and leave with 2."""
    let_the_first_speak()
    said = f"mallang: {message}"
    typer.echo(said if os.environ.get("NO_COLOR") else typer.style(said, fg="red"), err=True)  # plain in a pipe
    sys.exit(2)


def let_the_first_speak() -> None:
    """Wait where `torchrun` started several processes, which mostly meet the same mistake.

    When the first has spoken and left, the launcher ends the others; one that is not ended has a mistake of its own.
    """
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("LOCAL_RANK", "0") != "0":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))
        time.sleep(PATIENCE)


def mend(error: Exception) -> UserError | None:
    """The clear message for a failure of the machine rather than of the code, if it is one."""
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(error):
        return UserError(
            "the disk is full; what was written before is kept",
            where=_file(error),
            todo="free some space, then give the same command again",
        )
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return UserError(
            "no permission for a file", where=_file(error), todo="choose another folder, or change its rights"
        )
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return UserError("the memory is full", todo="make batches smaller (train.batch_tokens=1024) or the model")
    return None


def _file(error: Exception) -> str | None:
    name = getattr(error, "filename", None)
    return None if name is None else os.fsdecode(name)


def confess(error: Exception) -> None:
    """Show a bug of ours with its traceback, with all local variables under `-v`, and leave with 1."""
    verbose = not {"-v", "--verbose"}.isdisjoint(sys.argv)
    lines = traceback.TracebackException.from_exception(error, capture_locals=verbose).format()
    more = "" if verbose else "; -v shows the values of all variables"
    print("".join(lines), file=sys.stderr)
    print(f"mallang: this is a bug of mallang {mallang.__version__}, please report it{more}", file=sys.stderr)
    sys.exit(1)
