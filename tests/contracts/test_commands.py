"""Every command, found by its file: what it prints can be written to a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import typer.main
from typer.testing import CliRunner

from mallang.commands.main import MAKING, make_app

GROUP = typer.main.get_command(make_app())


def leaves(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """The commands below a group, each with the words that call it."""
    if commands := getattr(command, "commands", None):
        for name, each in commands.items():
            yield from leaves(each, (*path, name))
    else:
        yield path, command


COMMANDS = dict(leaves(GROUP))


def test_all_are_found() -> None:
    assert {("translate",), ("data", "show"), ("import",)} <= COMMANDS.keys() and len(COMMANDS) > 20


@pytest.mark.parametrize("words", [words for words in COMMANDS if words[0] not in MAKING], ids=" ".join)
def test_every_command_that_prints_results_has_out(words: tuple[str, ...]) -> None:
    parameters = COMMANDS[words].params  # type: ignore[attr-defined]
    named = [each for each in parameters if each.name in ("out", "output")]
    assert named, f"mallang {' '.join(words)} cannot write its results to a file"
    assert any("--out" in each.opts or each.param_type_name == "argument" for each in named)


@pytest.mark.parametrize("words", [("recipes",), ("data", "list"), ("data", "show", "miniworld", "--json")])
def test_the_file_holds_what_would_be_printed(words: tuple[str, ...], tmp_path) -> None:  # type: ignore[no-untyped-def]
    app, out = make_app(), tmp_path / "out.txt"
    printed = CliRunner().invoke(app, list(words))
    out.write_text("before", "utf-8")
    written = CliRunner().invoke(app, [*words, "--out", str(out)])
    assert (printed.exit_code, written.exit_code) == (0, 0)
    assert out.read_text("utf-8") == printed.stdout and written.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]
