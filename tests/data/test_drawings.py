"""Drawings with captions: near-duplicates share a concept, so that no split separates them."""

from pathlib import Path

import numpy as np
import pytest

from mallang.data.drawings import COLUMNS, concept, rows
from mallang.data.images import Images
from mallang.data.located import located
from mallang.data.readers import Files
from mallang.errors import UserError


@pytest.mark.parametrize(
    ("captions", "meant"),
    [
        (("judge", "man judge", "woman judge", "woman judge: dark skin tone"), "judge"),
        (("person walking", "man walking: facing right"), "walking"),
        (("family", "family: man, woman, boy", "family: adult, child"), "family"),
        (("man", "old woman", "person: red hair", "man: medium-light skin tone"), "person"),
        (("polar explorer", "polar explorer man"), "polar explorer"),
        (("male doctor",), "doctor"),
        (("prince", "person with crown"), "with crown"),
        (("woman and man holding hands", "people holding hands"), "holding hands"),
    ],
)
def test_variants_of_one_drawing_have_one_concept(captions, meant):
    assert {concept(caption) for caption in captions} == {meant}


def test_other_words_tell_drawings_apart():
    assert len({concept(text) for text in ("red apple", "green apple", "woman’s hat", "snowman", "three o’clock")}) == 5


def test_rows_have_the_place_of_their_image_and_lie_on_one_side(tmp_path):
    captions = [f"{who} number {number}" for number in range(60) for who in ("man", "woman", "person")]
    lines = [f"{i}\tX\ttrain\tpeople\trole\t{caption}\tmany, words" for i, caption in enumerate(captions)]
    (tmp_path / "captions.tsv").write_text("\n".join(["\t".join(COLUMNS), *lines]) + "\n", "utf-8")
    (tmp_path / "shape.txt").write_text("180 4 4 3\n", "utf-8")
    pixels = np.arange(180 * 48, dtype=np.int64).astype(np.uint8).reshape(180, 4, 4, 3)
    pixels.tofile(tmp_path / "images.u8")
    found = {}
    for share in ((0, 20), (20, 100)):
        paths = tuple(tmp_path / name for name in ("captions.tsv", "images.u8", "shape.txt"))
        files = Files("drawings", paths, (*COLUMNS, "image", "concept"), share=("concept", *share))
        picks = "image", "caption", "concept"
        found[share] = list(located(files, ("image", "caption", "concept"), picks).rows(picks))
    test, train = found.values()
    assert len(test) + len(train) == 180 and test and not {row[2] for row in test} & {row[2] for row in train}
    number = captions.index(test[0][1])
    assert test[0][0] == f"{tmp_path}/images.u8#{number}"
    encoder = Images(4)
    (image,) = encoder.decode([np.array(encoder.encode_batch([test[0][0]])[0])])
    assert np.array_equal(image, pixels[number])


def test_a_table_of_another_form_is_refused():
    with pytest.raises(UserError, match="columns"):
        list(rows(["image\tcaption"], Path("a.tsv"), "images.u8"))
    with pytest.raises(UserError, match="2 columns") as found:
        list(rows(["\t".join(COLUMNS), "1\ta dog"], Path("a.tsv"), "images.u8"))
    assert "line 2" in found.value.where
