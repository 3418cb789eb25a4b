"""What an encoder gave is read again for the same rows, and only then."""

from pathlib import Path

import pytest

from mallang.data.kept_rows import KeptRows


class Counting:
    """Counts how many rows it has encoded."""

    def __init__(self, fingerprint: str = "one") -> None:
        self.fingerprint, self.rows = fingerprint, 0

    def encode_rows(self, rows):
        self.rows += len(rows)
        return [[len(cell), -place, (1 << 31) - 1] if cell else [] for place, (cell, *_) in enumerate(rows)]


ROWS = [("a" * (number % 5), "b") for number in range(100)]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MALLANG_CACHE", str(tmp_path))
    return tmp_path


def test_rows_are_encoded_once(cache: Path) -> None:
    encoder = Counting()
    expected = Counting().encode_rows(ROWS)
    assert KeptRows(encoder).encode_rows(ROWS) == KeptRows(encoder).encode_rows(ROWS) == expected
    assert encoder.rows == 100 and len(list((cache / "rows").iterdir())) == 1
    assert KeptRows(encoder).encode_rows(ROWS[:-1]) == expected[:-1] and encoder.rows == 199
    other = Counting("two")
    KeptRows(other).encode_rows(ROWS)
    assert other.rows == 100 and KeptRows(other).fingerprint == "two"


def test_few_rows_are_not_kept(cache: Path) -> None:
    KeptRows(Counting()).encode_rows(ROWS[:10])
    assert not (cache / "rows").exists()


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 not a zip", None])
def test_a_damaged_file_is_made_again(cache: Path, damage: bytes | None) -> None:
    encoder = Counting()
    expected = KeptRows(encoder).encode_rows(ROWS)
    (path,) = (cache / "rows").iterdir()
    path.write_bytes(path.read_bytes()[:300] if damage is None else damage)
    assert KeptRows(encoder).encode_rows(ROWS) == expected and encoder.rows == 200
