"""The command `mallang`: finds the verbs by file, and turns mistakes into one clear message.

A verb is a file beside this one with a function `command`, or a Typer `app` of several, and with `EXAMPLES`, which are
shown below its help. Files that have neither hold what verbs share; no verb imports another.

Exit codes: 0 done, 1 a bug of ours, 2 a mistake that a person can mend, 130 stopped by Ctrl-C, 141 the reader of the
output has gone. Streams that are closed count as /dev/null.
"""

from __future__ import annotations

import errno
import importlib
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from types import FrameType, ModuleType
from typing import Annotated, NoReturn

import typer

import mallang
from mallang import console, find
from mallang.commands.options import with_out
from mallang.errors import UserError

FIRST = ["demo", "train", "translate", "generate", "score", "evaluate", "data", "recipes"]
"""The order of the help; other verbs follow by name."""
MAKING = ("demo", "train", "export", "import")
"""Verbs that make a folder or a file of their own and print only where it is; all others can print into a file."""
PATIENCE = 10.0
"""Seconds that the other processes of `torchrun` leave to the first one of their machine to say what is wrong."""
STOPPED = 130
"""The exit code after Ctrl-C: 128 + SIGINT."""
FILES = {
    errno.ENAMETOOLONG: ("a name is too long for a file", "give a shorter one"),
    errno.EISDIR: ("a folder is where a file should be", "give the path of a file"),
    errno.ENOTDIR: ("a file is where a folder should be", "give a path whose folders are folders"),
    errno.ELOOP: ("symbolic links lead in a circle", "give the path of the file itself"),
    errno.EACCES: ("no permission for a file", "choose another folder, or change its rights"),
    errno.EPERM: ("no permission for a file", "choose another folder, or change its rights"),
    errno.EROFS: ("no permission for a file", "choose another folder, or change its rights"),
}
"""Failures of files that a person can mend: what to say, and what to do."""
FULL_MEMORY = re.compile(r"can't allocate memory|not enough memory|out of memory|bad_alloc|Cannot allocate memory")
"""How torch and the system say that there is no more memory."""
EXAMPLES = (
    "mallang demo",
    "mallang train transformer-miniworld",
    'mallang translate runs/transformer-miniworld "유나는 지난주에 배를 탔다."',
)


def main() -> None:
    """Run what the command line says and leave with its exit code."""
    # Threads of a CPU that wait by spinning take the time of the one they wait for as soon as anything else runs too:
    # seen to make a training run ten times slower. It must be said before torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    with console.safe_streams():
        try:
            try:
                arguments = sys.argv[1:] or ["--help"]
                make_app(arguments[0])(arguments, prog_name="mallang")
            finally:
                sys.stdout.flush()
        except UserError as error:
            fail(str(error))
        except KeyboardInterrupt:
            stopped()
        except SystemExit as left:
            stopped() if left.code == STOPPED else sys.exit(left.code)
        except Exception as error:
            if interrupts:
                stopped()
            fail(str(mended)) if (mended := mend(error)) else confess(error)


interrupts: list[int] = []
"""The Ctrl-C that were heard. A library that is being imported may raise an error of its own in place of them."""


def interrupt(number: int, frame: FrameType | None) -> None:
    """Remember a Ctrl-C, then do what Python does."""
    interrupts.append(number)
    signal.default_int_handler(number, frame)


def stopped() -> NoReturn:
    """Say that Ctrl-C was heard, and leave."""
    print("mallang: stopped", file=sys.stderr)
    sys.exit(STOPPED)


def make_app(first: str = "") -> typer.Typer:
    """All verbs, each from its file; of a command line whose first word is a verb, that one alone, which is quicker."""
    app = typer.Typer(
        help="말랑: every sequence model from n-grams to GPT. Train, use, compare and look inside them.",
        epilog=epilog(EXAMPLES),
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(start)
    names = find.names("commands")
    found = verbs([name for name in names if as_typed(name) == first]) or verbs(names)
    for name, module in sorted(found.items(), key=lambda verb: (order_of(verb[0]), verb[0])):
        add(app, name, module)
    return app


def verbs(names: Sequence[str]) -> dict[str, ModuleType]:
    """The files that are verbs: those that define what a verb runs."""
    files = {name: importlib.import_module(f"mallang.commands.{name}") for name in names}
    return {name: module for name, module in files.items() if not {"command", "app"}.isdisjoint(vars(module))}


def as_typed(name: str) -> str:
    """The verb of a file; import_.py is `import`, which Python keeps for itself."""
    return name.rstrip("_").replace("_", "-")


def order_of(name: str) -> int:
    """Where a verb stands in the help."""
    return FIRST.index(name) if name in FIRST else len(FIRST)


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
    examples = epilog(module.EXAMPLES)
    verb = as_typed(name)
    if "app" in vars(module):
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
    said = console.visible(f"mallang: {message}")
    is_colored = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    print(typer.style(said, fg="red") if is_colored else said, file=console.own(sys.stderr))
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
    if number in FILES:
        what, todo = FILES[number]
        return UserError(what, where=_file(error), todo=todo)
    if isinstance(error, UnicodeEncodeError) and "surrogates" in error.reason:
        return UserError(
            "a name holds bytes that are not UTF-8, which cannot be written down",
            where=str(error.object)[:200],
            todo="rename it in UTF-8: mv OLD NEW",
        )
    if is_memory(error):
        asked = re.search(r"allocate (\d+) bytes", str(error))
        more = f": {int(asked[1]) / 1e9:,.1f} GB more were asked for" if asked else ""
        return UserError(
            f"the memory is full{more}",
            todo="a smaller model or smaller batches (train.batch_tokens=1024); in a search, a smaller beam or nbest",
        )
    return None


def is_memory(error: Exception) -> bool:
    """Whether this is how Python, torch or the system say that there is no more memory."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError | OSError) and FULL_MEMORY.search(str(error)) is not None


def _file(error: Exception) -> str | None:
    name = getattr(error, "filename", None)
    return None if name is None else shortened(os.fsdecode(name))


def shortened(name: str, most: int = 200) -> str:
    """A path that fits a message."""
    return name if len(name) <= most else f"{name[:most]}… ({len(name)} characters)"


def confess(error: Exception) -> None:
    """Show a bug of ours with its traceback, with all local variables under `-v`, and leave with 1."""
    verbose = not {"-v", "--verbose"}.isdisjoint(sys.argv)
    lines = traceback.TracebackException.from_exception(error, capture_locals=verbose).format()
    more = "" if verbose else "; -v shows the values of all variables"
    print("".join(lines), file=sys.stderr)
    print(f"mallang: this is a bug of mallang {mallang.__version__}, please report it{more}", file=sys.stderr)
    sys.exit(1)
