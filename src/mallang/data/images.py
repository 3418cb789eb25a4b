"""Images and region features as cells of a column: how they are read, resized, and packed into integers.

| a cell                       | what is read                                                              |
|------------------------------|---------------------------------------------------------------------------|
| `dog.jpg`                    | an image file; Pillow reads it (the extra `images`)                       |
| `data:image/png;base64,…`    | an image in the text itself, as generated corpora have it                 |
| `images.u8#17`               | image 17 of a file of raw bytes, with its shape in shape.txt beside it    |
| `images.npy#17`              | image 17 of a NumPy file, or with `Regions` the features of image 17      |

An image becomes `size` × `size` pixels of RGB on white: the longer side fits, and the rest is white. Four pixel values
are packed into each integer, so that a prepared corpus takes one byte per value.
"""

from __future__ import annotations

import base64
import binascii
import io
import struct
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Integer, UInt8

from mallang.data.located import PREFIX, split_number
from mallang.errors import UserError, require

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MOST_PIXELS = 100_000_000
"""Larger images are refused: a small file may unpack to more than the memory holds."""
DAMAGED = (OSError, ValueError, SyntaxError, EOFError, struct.error, zlib.error)
"""What Pillow raises for images that are damaged."""
Pixels = UInt8[np.ndarray, "height width 3"]


@dataclass(frozen=True)
class Images:
    """Encodes images: the integers of a cell are its pixels, four values in each."""

    size: int

    @property
    def fingerprint(self) -> str:
        """How images are read."""
        return f"images {self.size} on white 1"

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The packed pixels of every image."""
        return [pack(fitted(read_image(text), self.size).tobytes()) for text in texts]

    def decode(self, rows: list[Integer[np.ndarray, " packed"]]) -> UInt8[np.ndarray, "images size size 3"]:
        """The images of packed rows."""
        count = 3 * self.size * self.size
        flat = [row.astype("<i4").view(np.uint8)[:count] for row in rows]
        return np.stack(flat).reshape(-1, self.size, self.size, 3)


@dataclass(frozen=True)
class Regions:
    """Encodes features of image regions that another program computed; every image has as many regions."""

    @property
    def fingerprint(self) -> str:
        """How features are read."""
        return "regions 1"

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """The number of regions, then the bits of all features."""
        found = [read_regions(text) for text in texts]
        return [[len(each), *each.astype("<f4").reshape(-1).view("<i4").tolist()] for each in found]

    def decode(self, rows: list[Integer[np.ndarray, " packed"]]) -> Float[np.ndarray, "images regions features"]:
        """The features of packed rows."""
        shapes = {(int(row[0]), len(row)) for row in rows}
        if len(shapes) > 1:
            raise UserError(
                f"images of one batch have {' and '.join(sorted(str(count) for count, _ in shapes))} regions",
                todo="give every image the same number of regions and features",
            )
        return np.stack([row[1:].astype("<i4").view("<f4").reshape(int(row[0]), -1) for row in rows])


def pack(values: bytes) -> list[int]:
    """Bytes as integers of four bytes each."""
    found: list[int] = np.frombuffer(values + b"\0" * (-len(values) % 4), "<i4").tolist()
    return found


def read_image(cell: str) -> Pixels:
    """The pixels of a cell, at their own size."""
    if cell.startswith(PREFIX):
        return read_inline(cell)
    if not cell.strip():
        raise UserError("this row has no image", todo="give the path of a PNG or JPEG file in the column of images")
    path, number = split_number(cell)
    if number is not None:
        found = array_of(path)
        if found.ndim != 4 or found.shape[3] != 3 or found.dtype != np.uint8:
            raise UserError(
                f"{path} holds {found.dtype} {found.shape}, and no images",
                todo="give uint8 of shape (images, height, width, 3)",
            )
        return np.array(item(found, number, path))
    try:
        return unpacked(path.read_bytes(), str(path))
    except OSError as error:
        raise unreadable(path, error) from error


def read_regions(cell: str) -> Float[np.ndarray, "regions features"]:
    """The features of a cell."""
    path, number = split_number(cell)
    if path.suffix != ".npy":
        raise UserError(f"{cell} is no file of region features", todo="give a .npy file, or FILE.npy#NUMBER")
    found = array_of(path)
    found = found if number is None else item(found, number, path)
    if found.ndim != 2 or not found.size or found.dtype.kind != "f":
        raise UserError(
            f"{path} holds {found.dtype} {found.shape} for an image, and no features of regions",
            todo="give floats of shape (regions, features), or (images, regions, features) with #NUMBER",
        )
    if not np.isfinite(found).all():
        raise UserError(f"the features of {cell} have NaN or infinite values", todo="compute them again")
    return np.array(found, np.float32)


def array_of(path: Path) -> np.ndarray:
    """The array of a file, as a memory map."""
    try:
        if path.suffix == ".npy":
            found: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
            return found
        numbers = [int(word) for word in path.with_name("shape.txt").read_text("utf-8").split() if word.isdecimal()]
        return np.memmap(path, np.uint8, "r", shape=tuple(numbers))
    except OSError as error:
        raise unreadable(path, error) from error
    except (ValueError, EOFError) as error:
        raise UserError(f"{path} is no array that can be read: {error}", todo="copy it again") from error


def item(found: np.ndarray, number: int, path: Path) -> np.ndarray:
    """One image of an array."""
    if number >= len(found):
        raise UserError(f"{path} has no image {number}: it has {len(found)}", todo="numbers begin at 0")
    taken: np.ndarray = found[number]
    return taken


def unreadable(path: Path, error: OSError) -> UserError:
    """The error for a file that cannot be opened."""
    return UserError(
        f"cannot read the image {path}: {error.strerror or error}",
        todo="check the name; paths in a table are relative to the folder of the table",
    )


def read_inline(cell: str) -> Pixels:
    """The image in a data URI."""
    head, _, body = cell.partition(",")
    short = cell if len(cell) < 40 else f"{cell[:40]}…"
    if not head.endswith(";base64"):
        raise UserError(f"{short} is no image in base64", todo=f"write {PREFIX}png;base64,…")
    try:
        return unpacked(base64.b64decode(body, validate=True), short)
    except binascii.Error as error:
        raise UserError(f"{short} is no image in base64: {error}", todo="copy the whole text") from error


def unpacked(data: bytes, name: str) -> Pixels:
    """The pixels of an image file. Files that `png_of` wrote need no Pillow."""
    if data.startswith(SIGNATURE) and (found := plain_png(data)) is not None:
        return found
    pillow = require("PIL.Image", "images")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of damaged metadata, which is not read
            image = pillow.open(io.BytesIO(data))
            width, height = image.size
            if width * height > MOST_PIXELS:
                raise UserError(f"the image {name} has {width} × {height} pixels", todo="make it smaller first")
            whole = require("PIL.ImageOps", "images").exif_transpose(image).convert("RGBA")
        white = pillow.new("RGBA", whole.size, "white")
        return np.array(pillow.alpha_composite(white, whole).convert("RGB"))
    except (*DAMAGED, pillow.DecompressionBombError) as wrong:
        why = str(wrong).split(" <_io")[0]  # without the address of the stream
        raise UserError(
            f"the image {name} cannot be read: {why}", todo="give a whole PNG or JPEG file; open it in a viewer"
        ) from wrong


def fitted(pixels: Pixels, size: int) -> UInt8[np.ndarray, "size size 3"]:
    """An image as a square: scaled so that the longer side fits, in the middle of white."""
    height, width = pixels.shape[:2]
    if (height, width) == (size, size):
        return pixels
    pillow = require("PIL.Image", "images")
    scale = size / max(height, width)
    shape = max(1, round(width * scale)), max(1, round(height * scale))
    scaled = np.asarray(pillow.fromarray(pixels).resize(shape, pillow.Resampling.BOX if scale < 1 else None))
    square = np.full((size, size, 3), 255, np.uint8)
    top, left = (size - shape[1]) // 2, (size - shape[0]) // 2
    square[top : top + shape[1], left : left + shape[0]] = scaled
    return square


def png_of(pixels: Pixels) -> bytes:
    """An image as a PNG file without filters, which `plain_png` reads."""
    height, width = pixels.shape[:2]
    lines = np.zeros((height, 1 + 3 * width), np.uint8)
    lines[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return SIGNATURE + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in parts
    )


def data_uri(pixels: Pixels) -> str:
    """An image as a text that browsers show."""
    return f"{PREFIX}png;base64,{base64.b64encode(png_of(pixels)).decode()}"


def plain_png(data: bytes) -> Pixels | None:
    """The pixels of a PNG file as `png_of` writes it; None where it is any other, or damaged."""
    try:
        width, height, *kind = struct.unpack(">IIBBBBB", data[16:29])
        length = int.from_bytes(data[33:37], "big")
        if kind != [8, 2, 0, 0, 0] or data[37:41] != b"IDAT" or data[45 + length + 4 : 45 + length + 8] != b"IEND":
            return None
        if width * height > MOST_PIXELS or zlib.crc32(data[37 : 41 + length]) != int.from_bytes(
            data[41 + length : 45 + length], "big"
        ):
            return None
        unzipped = zlib.decompressobj().decompress(data[41 : 41 + length], height * (1 + 3 * width) + 1)
        lines = np.frombuffer(unzipped, np.uint8).reshape(height, 1 + 3 * width)
    except (struct.error, zlib.error, ValueError):
        return None
    return None if lines[:, 0].any() else lines[:, 1:].reshape(height, width, 3).copy()
