"""Images as cells: every kind is read, fitted and packed; what cannot be read says so."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest

from mallang.data.corpus import Config, open_corpus
from mallang.data.images import Images, Regions, data_uri, fitted, plain_png, png_of, read_image, read_regions
from mallang.errors import UserError

PIL = pytest.importorskip("PIL.Image")


def noise(height=6, width=9, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def decoded(encoder, cells):
    return encoder.decode([np.array(row, np.int64) for row in encoder.encode_batch(cells)])


def test_a_file_of_ours_is_what_pillow_reads():
    pixels = noise()
    assert np.array_equal(np.asarray(PIL.open(io.BytesIO(png_of(pixels))).convert("RGB")), pixels)
    assert np.array_equal(plain_png(png_of(pixels)), pixels)
    assert np.array_equal(read_image(data_uri(pixels)), pixels)


def test_files_of_other_programs_are_read(tmp_path):
    pixels = noise()
    for name, mode in (("a.png", "RGB"), ("b.png", "RGBA"), ("c.png", "L"), ("d.png", "P"), ("e.jpg", "RGB")):
        PIL.fromarray(pixels).convert(mode).save(tmp_path / name)
        found = read_image(str(tmp_path / name))
        assert found.shape == pixels.shape and found.dtype == np.uint8
        if mode in ("RGB", "RGBA") and name.endswith("png"):
            assert np.array_equal(found, pixels)


def test_what_is_transparent_is_white(tmp_path):
    PIL.new("RGBA", (4, 4), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    assert (read_image(str(tmp_path / "clear.png")) == 255).all()


def test_a_photo_that_lies_on_its_side_is_turned(tmp_path):
    pixels, tags = noise(4, 8), PIL.Exif()
    tags[0x0112] = 6
    PIL.fromarray(pixels).save(tmp_path / "turned.png", exif=tags)
    assert np.array_equal(read_image(str(tmp_path / "turned.png")), np.rot90(pixels, -1))


def test_the_longer_side_fits_and_the_rest_is_white():
    found = fitted(np.zeros((10, 40, 3), np.uint8), 20)
    assert found.shape == (20, 20, 3) and (found[:7] == 255).all() and (found[13:] == 255).all()
    assert (found[8:12] == 0).all() and (found[:, 5][8:12] == 0).all()
    tall = fitted(np.zeros((40, 10, 3), np.uint8), 20)
    assert np.array_equal(tall, found.transpose(1, 0, 2)), "in the middle, whichever side is longer"
    assert np.array_equal(fitted(noise(8, 8), 8), noise(8, 8))


def test_packed_pixels_come_back():
    cells = [data_uri(noise(7, 7, seed)) for seed in range(3)]  # 147 bytes, which four do not divide
    assert np.array_equal(decoded(Images(7), cells), np.stack([noise(7, 7, seed) for seed in range(3)]))


def test_arrays_of_images_and_of_regions(tmp_path):
    images = np.stack([noise(5, 5, seed) for seed in range(4)])
    np.save(tmp_path / "all.npy", images)
    images.tofile(tmp_path / "all.u8")
    (tmp_path / "shape.txt").write_text("4 5 5 3 uint8\n", "utf-8")
    for name in ("all.npy#2", "all.u8#2"):
        assert np.array_equal(read_image(str(tmp_path / name)), images[2])
    features = np.random.default_rng(1).normal(size=(4, 3, 2)).astype(np.float32)
    np.save(tmp_path / "regions.npy", features)
    cells = [f"{tmp_path}/regions.npy#{number}" for number in range(4)]
    assert np.array_equal(decoded(Regions(), cells), features)
    np.save(tmp_path / "one.npy", features[0])
    assert np.array_equal(read_regions(str(tmp_path / "one.npy")), features[0])
    np.save(tmp_path / "five.npy", np.ones((5, 2), np.float32))
    with pytest.raises(UserError, match="3 and 5 regions"):
        decoded(Regions(), [*cells, f"{tmp_path}/five.npy"])


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("missing.png", "cannot read the image .*missing.png"),
        ("text.png", "text.png cannot be read"),
        ("cut.png", "cut.png cannot be read"),
        ("", "no image"),
        (".", "cannot read the image"),
        ("data:image/png;base64,%%%", "no image in base64"),
        ("data:image/png,abc", "no image in base64"),
        ("all.npy#9", "no image 9: it has 2"),
        ("numbers.npy#0", "no images"),
        ("broken.npy#0", "no array"),
    ],
)
def test_what_is_no_image_is_named(cell, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("text.png").write_text("this is no image", "utf-8")
    stream = io.BytesIO()
    PIL.fromarray(noise(40, 40)).save(stream, "png")
    Path("cut.png").write_bytes(stream.getvalue()[: len(stream.getvalue()) // 2])
    np.save("all.npy", np.stack([noise(), noise()]))
    np.save("numbers.npy", np.ones((2, 3)))
    Path("broken.npy").write_bytes(b"no array")
    with pytest.raises(UserError, match=said) as found:
        read_image(cell)
    assert found.value.todo


def test_a_damaged_file_of_ours_is_not_taken_for_whole():
    data = bytearray(png_of(noise()))
    data[45] ^= 1
    assert plain_png(bytes(data)) is None
    with pytest.raises(UserError):
        read_image(f"data:image/png;base64,{base64.b64encode(bytes(data)).decode()}")


def test_what_is_no_feature_is_named(tmp_path):
    for name, values in (("flat", np.ones(3)), ("whole", np.ones((2, 2), int)), ("nan", np.full((2, 2), np.nan))):
        np.save(tmp_path / f"{name}.npy", values)
        with pytest.raises(UserError, match="features"):
            read_regions(str(tmp_path / f"{name}.npy"))
    with pytest.raises(UserError, match="no file of region features"):
        read_regions(str(tmp_path / "a.png"))


def test_paths_are_relative_to_the_table(tmp_path, monkeypatch):
    folder = tmp_path / "pictures"
    folder.mkdir()
    PIL.fromarray(noise()).save(folder / "a.png")
    (folder / "captions.tsv").write_text("image\tcaption\na.png\ta dog\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    config = Config(train="pictures/captions.tsv")
    ((cell, caption),) = open_corpus(config, ("image", "caption")).split("train")
    assert np.array_equal(read_image(cell), noise()) and caption == "a dog"
    before = open_corpus(config, ("image", "caption")).split("train").fingerprint
    PIL.fromarray(noise(seed=1)).save(folder / "a.png")
    assert open_corpus(config, ("image", "caption")).split("train").fingerprint != before
