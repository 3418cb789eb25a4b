import errno
import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from subprocess import PIPE
from urllib.error import URLError

import pytest

from mallang.data import storage
from mallang.errors import UserError

URL = "https://example.org/text"
CONTENT = "한국어와 English\n".encode() * 1000
SUM = hashlib.sha256(CONTENT).hexdigest()


def serving(data):
    """An opener that gives these bytes, or raises this error."""

    def opener(url):
        if isinstance(data, Exception):
            raise data
        return io.BytesIO(data)

    return opener


def make_archive(path, members):
    with tarfile.open(path, "w:xz") as archive:
        for name, data in members:
            about = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            about.size = len(data)
            archive.addfile(about, io.BytesIO(data))
    return path


def link(name, kind, to="/etc/passwd"):
    about = tarfile.TarInfo(name)
    about.type, about.linkname = kind, to
    return about


def test_a_download_appears_under_its_name_when_it_is_right(tmp_path):
    storage.download(URL, tmp_path / "sub" / "a.txt", SUM, serving(CONTENT))
    storage.download(f"{URL}.gz", tmp_path / "sub" / "b.txt", SUM, serving(gzip.compress(CONTENT, mtime=0)))
    assert (tmp_path / "sub" / "a.txt").read_bytes() == (tmp_path / "sub" / "b.txt").read_bytes() == CONTENT
    assert sorted(path.name for path in (tmp_path / "sub").iterdir()) == ["a.txt", "b.txt"]


@pytest.mark.parametrize(
    ("url", "data", "message"),
    [
        (URL, CONTENT[:-1], "does not hold what it should"),
        (URL, URLError("no route to host"), "cannot download .* no route to host"),
        (URL, TimeoutError("timed out"), "cannot download .* timed out"),
        (f"{URL}.gz", gzip.compress(CONTENT, mtime=0)[:-20], "cannot download"),
        (f"{URL}.gz", CONTENT, "cannot download"),
        (URL.replace("https", "http"), CONTENT, "refusing to download"),
        ("file:///etc/passwd", CONTENT, "refusing to download"),
    ],
    ids=["changed", "no-route", "slow", "packed-and-cut", "not-packed", "plain-http", "file"],
)
def test_a_download_that_fails_leaves_nothing(tmp_path, url, data, message):
    (tmp_path / "text").write_text("what was there before")
    with pytest.raises(UserError, match=message):
        storage.download(url, tmp_path / "text", SUM, serving(data))
    assert [path.name for path in tmp_path.iterdir()] == ["text"]
    assert (tmp_path / "text").read_text() == "what was there before"


def test_a_full_disk_is_not_taken_for_a_broken_network(tmp_path):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full")
    (tmp_path / "full").symlink_to("/dev/full")
    with (
        pytest.raises(UserError, match="cannot write to the cache folder"),
        storage._sink(tmp_path / "full", tmp_path) as write,
    ):
        write(b"x" * 100)


def test_a_redirection_away_from_https_is_refused():
    with pytest.raises(UserError, match="refusing"):
        storage.open_https("http://example.org/x")


def test_an_archive_is_unpacked_as_a_folder(tmp_path):
    archive = make_archive(tmp_path / "a.tar.xz", [("set/train.ko", b"x\n"), ("set/sub/dev.ko", b"y\n")])
    final = tmp_path / "cache" / "set"
    final.mkdir(parents=True)
    (final / "old").write_text("gone afterwards")
    storage.unpack(archive, "set", final)
    assert (final / "train.ko").read_text() == "x\n" and (final / "sub" / "dev.ko").read_text() == "y\n"
    assert not (final / "old").exists() and [p.name for p in final.parent.iterdir()] == ["set"]


@pytest.mark.parametrize(
    "member",
    [
        "set/../../evil",
        "/tmp/evil",
        "other/evil",
        "evil",
        "set/./x",
        "set/..\\evil",
        link("set/evil", tarfile.SYMTYPE),
        link("set/evil", tarfile.LNKTYPE, "set/x"),
        link("set/evil", tarfile.CHRTYPE),
        link("set", tarfile.SYMTYPE, "/tmp"),
    ],
    ids=lambda member: getattr(member, "name", member),
)
def test_members_that_would_land_elsewhere_are_refused(tmp_path, member):
    inside = tmp_path / "deep" / "cache"
    archive = make_archive(tmp_path / "a.tar.xz", [("set/x", b"fine"), (member, b"")])
    with pytest.raises(UserError, match="refusing to unpack"):
        storage.unpack(archive, "set", inside / "set")
    assert list(inside.iterdir()) == []
    assert {path.name for path in tmp_path.rglob("*")} == {"a.tar.xz", "deep", "cache"}


@pytest.mark.parametrize("cut", [0.3, 0.9])
def test_an_archive_that_was_cut_off_is_told(tmp_path, cut):
    whole = make_archive(tmp_path / "a.tar.xz", [("set/x", os.urandom(100_000))]).read_bytes()
    (tmp_path / "b.tar.xz").write_bytes(whole[: int(len(whole) * cut)])
    with pytest.raises(UserError, match="cannot be unpacked"):
        storage.unpack(tmp_path / "b.tar.xz", "set", tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_an_archive_without_its_folder_is_told(tmp_path):
    with pytest.raises(UserError, match="holds no folder set"):
        storage.unpack(make_archive(tmp_path / "a.tar.xz", []), "set", tmp_path / "set")


def test_a_cache_that_refuses_names_the_remedy(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with (
        pytest.raises(UserError, match="cannot write") as caught,
        storage.temporary_folder(tmp_path / "file" / "cache"),
    ):
        pass
    assert "MALLANG_CACHE" in caught.value.todo


def test_what_killed_processes_left_goes_after_a_day(tmp_path):
    """Folders of before there were locks on them."""
    for name, age in [(".unfinished-old", 2 * storage.DAY), (".unfinished-new", 60), ("kept", 2 * storage.DAY)]:
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    with storage.temporary_folder(tmp_path) as folder:
        (folder / "x").write_text("x")
    assert {path.name for path in tmp_path.iterdir()} == {".unfinished-new", "kept"}


def test_a_killed_process_leaves_nothing_for_long_and_a_living_one_is_left_alone(tmp_path):
    code = f"""
import sys
from pathlib import Path
from subprocess import PIPE
from mallang.data import storage
with storage.temporary_folder(Path({str(tmp_path)!r})) as folder:
    (folder / "half").write_text("half")
    print(folder.name, flush=True)
    sys.stdin.read()
"""
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / ".temporary-link").symlink_to(outside, target_is_directory=True)
    (outside / "mine").write_text("mine")
    with subprocess.Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE, text=True) as process:
        name = process.stdout.readline().strip()
        os.utime(tmp_path / name, (time.time() - 2 * storage.DAY,) * 2)  # however long it has worked
        with storage.temporary_folder(tmp_path):
            assert (tmp_path / name / "half").read_text() == "half"
        process.kill()
    assert (tmp_path / name).exists()
    with storage.temporary_folder(tmp_path):
        assert not (tmp_path / name).exists(), "without waiting for a day"
    assert (outside / "mine").read_text() == "mine"


def test_without_locks_a_day_decides(tmp_path, monkeypatch):
    def refuse(handle, how):
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(storage.fcntl, "flock", refuse)
    for name, age in [(".temporary-old", 2 * storage.DAY), (".temporary-new", 60)]:
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    with storage.temporary_folder(tmp_path) as folder:
        assert folder.is_dir()
    assert {path.name for path in tmp_path.iterdir()} == {".temporary-new"}


def test_the_folders_come_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("MALLANG_CACHE", str(tmp_path / "c"))
    monkeypatch.setenv("MALLANG_DATA", str(tmp_path))
    assert storage.cache_folder() == tmp_path / "c" and storage.data_folder() == tmp_path
    monkeypatch.setenv("MALLANG_DATA", str(tmp_path / "none"))
    with pytest.raises(UserError, match="not a folder"):
        storage.data_folder()
    monkeypatch.delenv("MALLANG_DATA")
    monkeypatch.delenv("MALLANG_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert storage.data_folder() is None and storage.cache_folder() == tmp_path / ".cache" / "mallang"


def test_a_sum_is_taken_again_when_the_file_changes(tmp_path):
    path = tmp_path / "x"
    path.write_text("one")
    before = storage.file_sha256(path)
    path.write_text("three")
    assert (
        before == hashlib.sha256(b"one").hexdigest()
        and storage.file_sha256(path) == hashlib.sha256(b"three").hexdigest()
    )
