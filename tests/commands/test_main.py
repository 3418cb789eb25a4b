"""The command as a person meets it: help, mistakes, exit codes, pipes, completion."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commands import running
from mallang import find
from mallang.commands import main as command
from mallang.errors import UserError

VERBS = sorted(command.verbs(find.names("commands")))


def mallang(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the real command."""
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | settings
    return subprocess.run(
        [sys.executable, "-m", "mallang", *arguments], capture_output=True, text=True, encoding="utf-8", env=environment
    )


def name_of(file: str) -> str:
    """How a verb is typed: `import_.py` is `import`, `search_error.py` is `search-error`."""
    return file.rstrip("_").replace("_", "-")


def test_help_names_every_verb_and_ends_well() -> None:
    shown = mallang("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    listed = [line.split()[0] for line in shown.stdout.partition("Commands:")[2].splitlines() if line.startswith("  ")]
    assert {name_of(verb) for verb in VERBS} <= set(listed)
    assert listed.index("train") < listed.index("translate") < listed.index("recipes")
    assert mallang().stdout == mallang("-h").stdout == shown.stdout


def test_help_imports_no_torch() -> None:
    code = (
        "import sys\n"
        "from mallang.commands.main import make_app\n"
        "try:\n    make_app()(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'pydantic', 'matplotlib', 'tokenizers', 'sacrebleu'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_a_verb_is_run_without_the_others() -> None:
    code = (
        "import sys\n"
        "from mallang.commands.main import make_app\n"
        "try:\n    make_app('import')(['import', '--help'])\n"
        "except SystemExit: pass\n"
        "assert 'mallang.commands.import_' in sys.modules\n"
        "assert 'mallang.commands.train' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_help_is_quick() -> None:
    """Half a second, counted in processor time so that a busy machine does not decide."""
    import resource

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    costs = []
    for _ in range(3):
        before = spent()
        assert mallang("--help").returncode == 0
        costs.append(spent() - before)
    assert min(costs) < 0.5


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    verb = name_of(verb)
    with pytest.raises(SystemExit) as left:
        command.make_app()([verb, "--help"], prog_name="mallang")
    assert left.value.code == 0
    usage, _, rest = capsys.readouterr().out.partition("\n")
    assert usage.startswith(f"Usage: mallang {verb}")
    assert "Example" in rest
    assert f"mallang {verb}" in rest


def test_the_version() -> None:
    import mallang as package

    assert mallang("--version").stdout == f"mallang {package.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trian"], "Did you mean 'train'"),
        (["recipes", "--jsn"], "--json"),
        (["recipes", "transformer-miniwrld"], "mallang: there is no recipe 'transformer-miniwrld'\n"),
        (["recipes", "transformer-miniwrld"], "did you mean transformer-miniworld"),
        (["train", "transfomer"], "did you mean transformer"),
        (["train", "transformer-miniworld", "model.layer=2"], "did you mean layers"),
        (["train", "transformer-miniworld", "model.name=transfomer"], "did you mean transformer or "),
        (["train", "transformer-miniworld", "model.layers=six"], 'model.layers = "six": should be a valid integer'),
        (["train", "transformer-miniworld", "train.steps"], "section.key=value"),
        (["train"], "RECIPE"),
    ],
)
def test_a_mistake_gets_one_message_and_exit_code_2(arguments: list[str], said: str, tmp_path: Path) -> None:
    left = running.mallang(*arguments, cwd=tmp_path, env={"NO_COLOR": None})
    assert left.code == 2
    assert left.out == ""
    assert said in left.err
    assert "Traceback" not in left.err
    assert "\x1b" not in left.err


def raises(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> object:
    """What `main` leaves with when a verb raises this."""

    def fall(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(command, "make_app", lambda first: fall)
    with pytest.raises(SystemExit) as left:
        command.main()
    return left.value.code


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            UserError("no such thing", where="here", todo="that"),
            2,
            "mallang: no such thing\n  where: here\n  try:   that\n",
        ),
        (OSError(errno.ENOSPC, "No space left on device", "/full/file"), 2, "the disk is full"),
        (RuntimeError("Error while serializing: No space left on device (os error 28)"), 2, "the disk is full"),
        (PermissionError(errno.EACCES, "Permission denied", "/root/file"), 2, "where: /root/file"),
        (OSError(errno.EROFS, "Read-only file system", b"/cd/file"), 2, "where: /cd/file"),
        (MemoryError(), 2, "the memory is full"),
        (
            RuntimeError(
                "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 6400000000"
                " bytes. Error code 12 (Cannot allocate memory)"
            ),
            2,
            "the memory is full: 6.4 GB more were asked for",
        ),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), 2, "the memory is full"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 2, "the memory is full"),
        (RuntimeError("shapes differ"), 1, "RuntimeError: shapes differ"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "x" * 300), 2, "a name is too long for a file"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "runs"), 2, "a folder is where a file should be"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "a.txt/b"), 2, "a file is where a folder should be"),
        (UnicodeEncodeError("utf-8", "\udcc7", 0, 1, "surrogates not allowed"), 2, "not UTF-8"),
        (UserError("no \x1b[31m\udcc7"), 2, "mallang: no \\u001b[31m\\udcc7\n"),
        (KeyboardInterrupt(), 130, "mallang: stopped\n"),
        (KeyError("x"), 1, "KeyError: 'x'"),
        (FileNotFoundError(errno.ENOENT, "No such file", "x"), 1, "this is a bug of mallang"),
    ],
)
def test_every_failure_has_its_exit_code(
    error: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raises(error, monkeypatch) == code
    shown = capsys.readouterr().err
    assert said in shown
    assert ("Traceback" in shown or "Error:" in shown) == (code == 1)


def test_verbose_shows_the_variables_of_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raises(KeyError("x"), monkeypatch)
    assert "error = KeyError" not in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["mallang", "train", "-v"])
    raises(KeyError("x"), monkeypatch)
    assert "error = KeyError" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_failure() -> None:
    code = f"{sys.executable} -m mallang --help | head -1; exit ${{PIPESTATUS[1]}}"
    left = subprocess.run(["bash", "-c", code], capture_output=True, text=True)
    assert (left.returncode, left.stderr) == (0, "")
    assert left.stdout == "Usage: mallang [OPTIONS] COMMAND [ARGS]...\n"
    with subprocess.Popen(
        [sys.executable, "-m", "mallang", "recipes", "transformer-miniworld"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as gone:
        assert gone.stdout is not None and gone.stderr is not None
        gone.stdout.close()
        assert gone.stderr.read() == b""


def test_a_full_disk_behind_a_pipe_is_said() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("w") as full:
        left = subprocess.run(
            [sys.executable, "-m", "mallang", "recipes"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert left.returncode == 2
    assert "the disk is full" in left.stderr


def test_hangul_passes_whatever_the_locale() -> None:
    shown = mallang("--help", LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert shown.returncode == 0
    assert "말랑" in shown.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("mallang recipes transformer-libre", ["transformer-libreoffice-help-koen"]),
        ("mallang train transformer-miniworld model.hid", ["model.hidden_dim="]),
        ("mallang translate runs/some", ["runs/some-run"]),
        ("mallang doct", ["doctor"]),
    ],
)
def test_the_shell_completes(typed: str, offered: list[str], tmp_path: Path) -> None:
    (tmp_path / "runs" / "some-run").mkdir(parents=True)
    (tmp_path / "runs" / "some-run" / "recipe.toml").touch()
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1), "_MALLANG_COMPLETE": "complete_bash"}
    shown = subprocess.run(
        [sys.executable, "-m", "mallang"], cwd=tmp_path, env=os.environ | words, capture_output=True, text=True
    )
    assert shown.stdout.split() == offered


def test_color_only_on_a_terminal_that_wants_it() -> None:
    import pty

    def on_a_terminal(**settings: str) -> bytes:
        outer, inner = pty.openpty()
        environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | settings
        subprocess.run(
            [sys.executable, "-m", "mallang", "recipes", "nothing"], stdout=inner, stderr=inner, env=environment
        )
        os.close(inner)
        shown = os.read(outer, 10_000)
        os.close(outer)
        return shown

    assert b"\x1b[31m" in on_a_terminal()
    assert b"\x1b" not in on_a_terminal(NO_COLOR="1")


def test_of_several_processes_the_first_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    monkeypatch.setattr("time.sleep", lambda _: signal.raise_signal(signal.SIGTERM))
    try:
        for rank, said in (("0", "mallang: no\n"), ("1", "")):
            monkeypatch.setenv("LOCAL_RANK", rank)
            with pytest.raises(SystemExit, match="2"):
                command.fail("no")
            assert capsys.readouterr().err == said
        monkeypatch.setattr("time.sleep", lambda _: None)
        with pytest.raises(SystemExit, match="2"):
            command.fail("no")
        assert capsys.readouterr().err == "mallang: no\n", "nobody ended it: the mistake is its own"
    finally:
        signal.signal(signal.SIGTERM, before)


SWALLOWED = """
import os, signal, time
from mallang.commands import main

def half_imported(first):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    except KeyboardInterrupt:
        raise ImportError("a library that was being imported") from None

main.make_app = half_imported
main.main()
"""


def test_ctrl_c_that_a_library_turned_into_its_own_error_is_still_ctrl_c() -> None:
    left = subprocess.run([sys.executable, "-c", SWALLOWED], capture_output=True, text=True, check=False)
    assert (left.returncode, left.stderr) == (130, "mallang: stopped\n")
