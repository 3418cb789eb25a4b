"""Where data lies on this machine: the folder of one's own corpora, the cache folder, downloads and archives.

MALLANG_DATA    holds NAME/ or NAME.tar.xz; looked into before the network is asked, never written to
MALLANG_CACHE   holds what was downloaded, unpacked or prepared; ~/.cache/mallang unless it is set
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import lzma
import os
import shutil
import tarfile
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from mallang.errors import UserError

BLOCK = 1 << 20
DAY = 24 * 60 * 60
Opener = Callable[[str], BufferedIOBase]
"""Opens an address for reading."""

known_sums: dict[tuple[str, int, int], str] = {}
"""Sums of files already read by this process, by path, size and time of change."""


def cache_folder() -> Path:
    """The folder for everything that can be made again."""
    named = os.environ.get("MALLANG_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "mallang"


def data_folder() -> Path | None:
    """The folder of one's own corpora, if MALLANG_DATA names one."""
    named = os.environ.get("MALLANG_DATA")
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise UserError(
            f"MALLANG_DATA names {folder}, which is not a folder", todo="set it to the folder of your corpora"
        )
    return folder


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """A folder inside `parent` that is gone afterwards, unless it was renamed; what killed processes left goes too."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder, handle = _new_folder(parent)
    except OSError as error:
        raise unwritable(parent, error) from error
    try:
        for left in (*parent.glob(".temporary-*"), *parent.glob(".unfinished-*")):
            if left != folder:
                _sweep(left)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _new_folder(parent: Path) -> tuple[Path, int]:
    """A folder of a name of its own, and the handle by which this process holds its lock while it lives."""
    while True:
        folder = parent / f".temporary-{uuid.uuid4().hex}"  # not mkdtemp, which shuts others out of a shared cache
        folder.mkdir()
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # swept by another process before the lock was taken
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        if folder.exists():
            return folder, handle
        os.close(handle)


def _sweep(left: Path) -> None:
    """Remove a temporary folder that no living process holds; without locks, or with an older name, after a day."""
    with suppress(OSError):
        handle = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_abandoned = left.name.startswith(".temporary-") or _age(left) > DAY
        except BlockingIOError:
            is_abandoned = False
        except OSError:
            is_abandoned = _age(left) > DAY
        try:
            if is_abandoned:
                shutil.rmtree(left, ignore_errors=True)
        finally:
            os.close(handle)


@contextmanager
def locked(final: Path) -> Iterator[None]:
    """Only one process at a time makes what is to lie at `final`; the others wait, and find it made."""
    lock = final.parent.parent / "locks" / final.name
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        stream = lock.open("w")
    except OSError as error:
        raise unwritable(lock.parent, error) from error
    with stream:
        # Some network file systems have no locks: then work may be done twice, which does no harm.
        with suppress(OSError):
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def put_in_place(made: Path, final: Path) -> None:
    """Rename a finished folder to where it belongs; what stood there goes."""
    try:
        if final.exists():
            with temporary_folder(final.parent) as aside:
                final.rename(aside / "old")
        made.rename(final)
    except OSError as error:
        # Where there are no locks two processes may finish the same work at once: either result will do.
        if not final.is_dir():
            raise unwritable(final.parent, error) from error


def unwritable(folder: Path, error: OSError) -> UserError:
    """What to say when the cache folder refuses."""
    return UserError(
        f"cannot write to the cache folder {folder}: {error.strerror or error}",
        todo="set MALLANG_CACHE to a folder with room that you may write to",
    )


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file; read once a process unless the file changes."""
    try:
        about = path.stat()
        key = (str(path.resolve()), about.st_size, about.st_mtime_ns)
        if key not in known_sums:
            with path.open("rb") as stream:
                known_sums[key] = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    return known_sums[key]


def open_https(url: str) -> BufferedIOBase:
    """Open an https address; a redirection to anything else is refused."""
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class OnlyHttps(HTTPRedirectHandler):
        def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
            refuse_plain(newurl)
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    refuse_plain(url)
    stream: BufferedIOBase = build_opener(OnlyHttps).open(Request(url, headers={"User-Agent": "mallang"}), timeout=30)
    return stream


def refuse_plain(url: str) -> None:
    """Data comes over https or not at all."""
    if not url.startswith("https://"):
        raise UserError(f"refusing to download from {url}", todo="only https addresses are used")


def download(url: str, target: Path, sha256: str, opener: Opener | None = None, member: str | None = None) -> None:
    """Fetch a file, unpacking .gz on the way, or one member of a .tar.gz.

    It appears under its name once its content is known to be right.
    """
    refuse_plain(url)
    with temporary_folder(target.parent) as folder:
        unfinished = folder / "download"
        with _sink(unfinished, target.parent) as write:
            found = _receive(url, opener or open_https, write, member)
        if found != sha256:
            raise UserError(
                f"{url} does not hold what it should: its content has the sha256 {found}, not {sha256}",
                todo=f"try again later, or put the right file at {target}",
            )
        try:
            unfinished.replace(target)
        except OSError as error:
            raise unwritable(target.parent, error) from error


def unpack(archive: Path, name: str, final: Path) -> None:
    """Unpack the folder `name` of a .tar.xz archive as `final`; a member that would land elsewhere is refused."""
    with temporary_folder(final.parent) as folder:
        try:
            with tarfile.open(archive, "r:xz") as members:
                for member in members:
                    _unpack_member(members, member, name, folder)
        except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
            raise UserError(f"{archive} cannot be unpacked: {error}", todo="copy the archive again") from error
        except OSError as error:
            raise unwritable(final.parent, error) from error
        if not (folder / name).is_dir():
            raise UserError(f"{archive} holds no folder {name}", todo="copy the archive again")
        put_in_place(folder / name, final)


def _unpack_member(members: tarfile.TarFile, member: tarfile.TarInfo, name: str, folder: Path) -> None:
    parts = member.name.split("/")
    is_inside = parts[0] == name and not any(part in ("", ".", "..") or "\\" in part for part in parts)
    if not is_inside or not (member.isdir() or member.isreg()):
        raise UserError(
            f"refusing to unpack {member.name!r}: only plain files inside {name}/ are allowed",
            where=str(members.name),
            todo="get the archive from where it was published",
        )
    target = folder.joinpath(*parts)
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    source = members.extractfile(member)
    assert source is not None  # it is a regular file
    with source, target.open("wb") as sink:
        shutil.copyfileobj(source, sink, BLOCK)


def _receive(url: str, opener: Opener, write: Callable[[bytes], object], member: str | None = None) -> str:
    """Read an address to its end, hand the content on, and give its SHA-256."""
    from http.client import HTTPException

    digest = hashlib.sha256()
    try:
        with opener(url) as stream:
            content = _content(stream, url, member)
            while block := content.read(BLOCK):
                digest.update(block)
                write(block)
    except (OSError, EOFError, zlib.error, tarfile.TarError, HTTPException) as error:
        raise UserError(
            f"cannot download {url}: {getattr(error, 'reason', None) or error}",
            todo="check the network, or put the data into the folder that MALLANG_DATA names",
        ) from error
    return digest.hexdigest()


def _content(stream: BufferedIOBase, url: str, member: str | None) -> Any:
    """What is read of an address: the file, unpacked, or one member of an archive."""
    if member is None:
        return gzip.GzipFile(fileobj=stream) if url.endswith(".gz") else stream
    members = tarfile.open(fileobj=stream, mode="r|gz")  # noqa: SIM115  # it is open while the member is read
    for each in members:
        if each.name == member and each.isreg():
            return members.extractfile(each)
    raise UserError(f"{url} holds no file {member}", todo="look for another version of the data")


@contextmanager
def _sink(path: Path, folder: Path) -> Iterator[Callable[[bytes], object]]:
    """A function that writes to a file; its errors (a full disk) are separate from those of the network."""

    def write(block: bytes) -> None:
        left = memoryview(block)
        try:
            while left:
                left = left[stream.write(left) :]
        except OSError as error:
            raise unwritable(folder, error) from error

    try:
        stream = path.open("wb", buffering=0)  # a buffer would fail a second time when it is closed
    except OSError as error:
        raise unwritable(folder, error) from error
    with stream:
        yield write


def _age(path: Path) -> float:
    """Seconds since a folder was changed; nothing if someone else has just removed it."""
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
