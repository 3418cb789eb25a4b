"""Model files of SentencePiece, read without its package: they are protocol buffers, of which four fields are needed.

    ModelProto        1 pieces: 1 piece, 2 score, 3 type     2 trainer: 3 model type, 35 byte fallback
                      3 normalizer: 2 character map, 3 dummy prefix, 4 remove extra spaces

A message is a sequence of keys and values; a key is (number of the field << 3) | wire type, and wire types are 0 a
varint, 1 eight bytes, 2 bytes with their length, 5 four bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mallang.errors import UserError

NORMAL, UNKNOWN, CONTROL = 1, 2, 3
"""The types of pieces that matter here."""
UNIGRAM = 1
KINDS = {1: "unigram", 2: "BPE", 3: "word", 4: "char"}
Value = int | bytes


@dataclass(frozen=True)
class Pieces:
    """A unigram model of SentencePiece."""

    pieces: list[tuple[str, float, int]]
    """Every piece with its log-probability and its type, in the order of their ids."""
    charsmap: bytes
    """The compiled normalization."""
    begins_with_space: bool
    """Whether a space is put before a text."""
    remove_extra_spaces: bool
    byte_fallback: bool


def read_pieces(path: Path) -> Pieces:
    """The unigram model of a file."""
    try:
        found = parsed(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, IndexError, struct.error, AttributeError) as error:
        raise UserError(f"{path} is no model of SentencePiece, or is damaged") from error
    if not isinstance(found, Pieces):
        raise UserError(f"a SentencePiece model of type {found} is not supported, only unigram", where=str(path))
    return found


def parsed(content: bytes) -> Pieces | str:
    """The model in these bytes, or its type where it is no unigram."""
    pieces: list[tuple[str, float, int]] = []
    trainer: dict[int, Value] = {}
    normalizer: dict[int, Value] = {}
    for number, value in fields(content):
        if number == 1:
            own = dict(fields(message(value)))
            (score,) = struct.unpack("<f", message(own.get(2, bytes(4))))
            pieces.append((message(own[1]).decode("utf-8"), score, whole(own.get(3, NORMAL))))
        elif number == 2:
            trainer = dict(fields(message(value)))
        elif number == 3:
            normalizer = dict(fields(message(value)))
    kind = whole(trainer.get(3, UNIGRAM))
    if kind != UNIGRAM:
        return KINDS.get(kind, str(kind))
    if not pieces:
        raise ValueError("it holds no pieces")
    return Pieces(
        pieces,
        message(normalizer.get(2, b"")),
        bool(normalizer.get(3, 1)),
        bool(normalizer.get(4, 1)),
        bool(trainer.get(35, 0)),
    )


def fields(content: bytes) -> Iterator[tuple[int, Value]]:
    """The fields of a message: number and value."""
    place = 0
    while place < len(content):
        key, place = varint(content, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = varint(content, place)
            yield number, value
            continue
        if wire == 2:
            size, place = varint(content, place)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if place + size > len(content):
            raise ValueError("it ends within a field")
        yield number, content[place : place + size]
        place += size


def varint(content: bytes, place: int) -> tuple[int, int]:
    """A number of seven bits a byte, and the place after it."""
    found, shift = 0, 0
    while True:
        byte = content[place]
        found |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return found, place
        if shift > 63:
            raise ValueError("a number is too long")


def message(value: Value) -> bytes:
    """A value that must be bytes."""
    if not isinstance(value, bytes):
        raise ValueError("a number where bytes should be")
    return value


def whole(value: Value) -> int:
    """A value that must be a number."""
    if not isinstance(value, int):
        raise ValueError("bytes where a number should be")
    return value
