"""The options of `mallang serve`: what is refused before anything is loaded, and what the container starts."""

from __future__ import annotations

import re
import shlex
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from mallang.commands import serve
from mallang.commands.main import main
from mallang.errors import UserError
from serving.serving import write_run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "transformer-miniworld", "transformer-miniworld")


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The options that a server would have got."""
    found: list[Any] = []
    monkeypatch.setattr("mallang.serving.server.serve", found.append)
    monkeypatch.delenv("MALLANG_TOKEN", raising=False)
    return found


def test_beyond_localhost_a_token_is_needed(run: Path, options: list[Any], tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(UserError, match="no token"):
        serve.command([run], host="0.0.0.0")
    (tmp_path / "token").write_text("0123456789abcdef\n")
    serve.command([run], host="0.0.0.0", token_file=tmp_path / "token")
    monkeypatch.setenv("MALLANG_TOKEN", "fedcba9876543210")
    serve.command([run], host="0.0.0.0", allow_host=["x.org"])
    assert [each.token for each in options] == ["0123456789abcdef", "fedcba9876543210"]
    assert options[1].hosts == ["x.org"]
    with pytest.raises(UserError, match="cannot be read"):
        serve.command([run], token_file=tmp_path / "nothing")


def test_limits_reach_the_server(run: Path, options: list[Any], tmp_path: Path) -> None:
    serve.command([run], queue=7, timeout=3.5, batching="none", watch=[tmp_path], workers=3)
    (given,) = options
    assert (given.limits.waiting, given.limits.seconds, given.batching, given.workers) == (7, 3.5, "none", 3)
    assert given.watched == [tmp_path]


def test_what_is_no_run_or_no_folder_is_refused(run: Path, options: list[Any], tmp_path: Path) -> None:
    with pytest.raises(UserError):
        serve.command([tmp_path / "nothing"])
    with pytest.raises(UserError, match="no folder"):
        serve.command([run], watch=[tmp_path / "nothing"])
    assert not options


def test_a_port_that_is_taken_is_told_before_anything_is_loaded(run: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match="cannot be listened on"):
            serve.command([run], port=taken.getsockname()[1])


def test_two_runs_of_one_name_are_named_by_their_folders(run: Path, tmp_path: Path) -> None:
    from mallang.serving.server import named

    names = named([run, tmp_path / "b" / run.name])
    assert list(names) == [run.name, f"b/{run.name}"]
    with pytest.raises(UserError, match="two runs are called"):
        named([run, tmp_path / "b" / run.name, tmp_path / "c" / ".." / "b" / run.name])


def test_the_container_starts_what_the_command_understands(
    run: Path, options: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = (ROOT / "Dockerfile").read_text("utf-8")
    copied = [name for line in re.findall(r"^COPY (.+) \S+$", docker, re.MULTILINE) for name in line.split()]
    assert copied and all((ROOT / name).exists() for name in copied)
    found = re.search(r"^ENTRYPOINT (\[.+\])$", docker, re.MULTILINE)
    assert found is not None
    entry = shlex.split(found[1].strip("[]").replace(",", " "))
    compose = (ROOT / "compose.yaml").read_text("utf-8")
    command = re.search(r"command: \[(.+)\]", compose)
    assert command is not None
    given = shlex.split(command[1].replace(",", " ").replace("/runs/transformer-miniworld", str(run)))
    monkeypatch.setenv("MALLANG_TOKEN", "0123456789abcdef")
    monkeypatch.setattr(sys, "argv", [*entry, *given])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code in (0, None) and options[0].host == "0.0.0.0" and options[0].hosts == ["localhost"]
    assert str(options[0].port) in compose and options[0].limits.stopping * 2 < 70  # stop_grace_period
