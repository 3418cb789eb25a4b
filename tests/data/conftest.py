"""A registry of one small set, for tests that get, open and read corpora."""

import hashlib
import io
import tarfile
from pathlib import Path
from urllib.error import URLError

import pytest

from mallang.data import registry

FILES = {
    "train.ko": "안녕\n물\n밥\n",
    "train.en": "hello\nwater\nrice\n",
    "dev.ko": "집\n",
    "dev.en": "house\n",
    "talk/a.tsv": "id\ttext\tlabel\n1\t좋다\t1\n",
}
PUBLIC = {"train.ko", "train.en"}
TABLE = """
[small]
source = "https://example.org"
archive = "{archive}"
base = "https://example.org/"
[small.corpora.pairs]
about = "pairs"
kind = "translation"
license = "CC0"
[small.corpora.pairs.splits]
train = {{ read = "parallel", files = ["train.ko", "train.en"], columns = ["ko", "en"], rows = 3 }}
valid = {{ read = "parallel", files = ["dev.ko", "dev.en"], columns = ["ko", "en"], rows = 1 }}
[small.corpora.talk]
about = "reviews"
kind = "classification"
license = "MIT"
[small.corpora.talk.splits]
train = {{ read = "tsv", files = ["talk/a.tsv"], columns = ["id", "text", "label"], header = true, rows = 1 }}
[small.files]
"""


class Shop:
    """Where the small set is to be had, in each of the ways there are."""

    files = FILES

    def __init__(self, folder: Path) -> None:
        self.folder, self.data, self.cache = folder, folder / "data", folder / "cache" / "corpora" / "small"

    def archive(self) -> bytes:
        """The set as its .tar.xz."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
            for file, text in FILES.items():
                about = tarfile.TarInfo(f"small/{file}")
                about.size = len(text.encode())
                archive.addfile(about, io.BytesIO(text.encode()))
        return buffer.getvalue()

    def table(self) -> str:
        """The registry."""
        table = TABLE.format(archive=hashlib.sha256(self.archive()).hexdigest())
        for name, text in FILES.items():
            url = f', url = "{name}"' if name in PUBLIC else ""
            digest = hashlib.sha256(text.encode()).hexdigest()
            table += f'"{name}" = {{ bytes = {len(text.encode())}, sha256 = "{digest}"{url} }}\n'
        return table

    def put_folder(self, **changed: str) -> None:
        """Lay the set, with some files changed, where MALLANG_DATA points."""
        for name, text in {**FILES, **changed}.items():
            path = self.data / "small" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())

    def put_archive(self, data: bytes | None = None) -> None:
        """Lay an archive there."""
        (self.data / "small.tar.xz").write_bytes(self.archive() if data is None else data)

    def serving(self, files: dict[str, str]):
        """An opener that knows these files, and no network beyond."""

        def opener(url: str) -> io.BytesIO:
            name = url.removeprefix("https://example.org/")
            if name not in files:
                raise URLError("no network")
            return io.BytesIO(files[name].encode())

        return opener


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """The small set alone in the registry, an empty cache, and MALLANG_DATA that names an empty folder."""
    made = Shop(tmp_path)
    made.data.mkdir()
    (tmp_path / "table.toml").write_text(made.table())
    monkeypatch.setattr(registry, "TABLE", tmp_path / "table.toml")
    monkeypatch.setenv("MALLANG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MALLANG_DATA", str(made.data))
    registry._entries.cache_clear()
    yield made
    registry._entries.cache_clear()
