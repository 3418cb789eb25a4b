"""Archives of model folders, .zip and .tar: the files of a model are taken out, into a folder of their own.

Nothing of an archive is trusted. A name that leads out of the folder is refused, and so is a link; sizes are counted
while bytes are written, whatever the archive says of itself; files that are of no use for an import stay in it.
"""

from __future__ import annotations

import lzma
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Protocol, runtime_checkable

from mallang.errors import UserError
from mallang.interop.huggingface_folder import CONFIG
from mallang.runs.files import unwritable

WANTED = (".json", ".txt", ".model", ".safetensors", ".bin")
"""The endings of files that an import may read."""
MOST_FILES = 1000
MOST_BYTES = 20 * 2**30
"""Files and unpacked bytes that an archive may have."""
CHUNK = 2**20
BROKEN = (zlib.error, lzma.LZMAError, NotImplementedError, RuntimeError)
"""What the libraries raise for a damaged or encrypted archive, besides errors of their own."""


@runtime_checkable
class Readable(Protocol):
    """A file in an archive."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most so many."""


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The folder of the model in an archive, unpacked for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="mallang-") as own:
        root = Path(own) / (path.name.split(".")[0] or "model")
        root.mkdir()
        try:
            unpack(path, root)
        except (zipfile.BadZipFile, tarfile.TarError, EOFError, *BROKEN) as error:
            raise UserError(f"{path} is no archive, or is damaged: {error}", todo="download it again") from error
        except OSError as error:
            if error.filename is None and error.errno is None:  # gzip's and lzma's own errors
                raise UserError(f"{path} is damaged: {error}", todo="download it again") from error
            raise unwritable(root, error) from error
        yield model_folder(root, path)


def unpack(path: Path, root: Path) -> None:
    """Write the files of an archive below a folder."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as packed:
            files = [each for each in packed.infolist() if not each.is_dir()]
            check_count(path, len(files))
            left = MOST_BYTES
            for each in files:
                is_link = (each.external_attr >> 16) & 0o170000 == 0o120000
                place = place_of(path, root, each.filename, is_file=not is_link)
                if place is not None:
                    with packed.open(each) as stream:
                        left = write(path, stream, place, left)
        return
    with tarfile.open(path) as archive:
        left, count = MOST_BYTES, 0
        for member in archive:  # one after the other: a list of all would be as long as the archive says
            check_count(path, count := count + 1)
            if member.isdir():
                continue
            place = place_of(path, root, member.name, is_file=member.isreg())
            found = archive.extractfile(member) if place is not None else None
            if place is not None and found is not None:
                left = write(path, found, place, left)


def check_count(path: Path, count: int) -> None:
    """Refuse an archive with too many files."""
    if count > MOST_FILES:
        raise UserError(f"{path} holds more than {MOST_FILES} files: it is no archive of a model")


def place_of(path: Path, root: Path, name: str, *, is_file: bool) -> Path | None:
    """Where a file of an archive goes; None if it is of no use. A name that leads out of the folder is refused."""
    inside = PurePosixPath(name.replace("\\", "/"))
    if inside.is_absolute() or ".." in inside.parts or ":" in name or "\0" in name:
        raise UserError(f"{path} holds a file outside its folder: {name!r}", todo="do not trust this archive")
    if not is_file:
        raise UserError(f"{path} holds a link or a device: {name!r}", todo="pack the files themselves")
    return root.joinpath(*inside.parts) if inside.suffix in WANTED and not inside.name.startswith(".") else None


def write(path: Path, stream: Readable, place: Path, left: int) -> int:
    """Write one file; returns how many bytes may still follow."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("wb") as written:
        while content := stream.read(CHUNK):
            if (left := left - len(content)) < 0:
                raise UserError(f"{path} is larger than {MOST_BYTES / 2**30:g} GiB when unpacked")
            written.write(content)
    return left


def model_folder(root: Path, path: Path) -> Path:
    """The folder with config.json: the archive's own, or the one folder in it that has one."""
    found = sorted(root.rglob(CONFIG), key=lambda each: (len(each.parts), each))
    if not found:
        raise UserError(f"{path} holds no {CONFIG}, so no model of transformers")
    first = [each for each in found if len(each.parts) == len(found[0].parts)]
    if len(first) > 1:
        names = ", ".join(each.parent.name for each in first[:4])
        raise UserError(f"{path} holds several models: {names}", todo="unpack it, and give the folder of one")
    return first[0].parent
