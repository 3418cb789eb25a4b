"""Pictures of miniworld: boxes hold what the words name, test combinations are new, and nothing ever changes."""

import hashlib
import itertools
from collections import Counter

import numpy as np

from mallang.data import miniworld
from mallang.data import miniworld_pictures as pictures
from mallang.data.images import read_image
from mallang.data.miniworld_verbs import ACTIONS
from mallang.data.miniworld_words import NOUNS, PLACES


def some(split, count=200):
    return pictures.rows(split, count)


def test_it_never_changes():
    """Pixels and texts; how zlib packs the pixels may change with its version."""
    digest = hashlib.sha256()
    for split in miniworld.SPLITS:
        for picture, *texts in some(split, 100):
            digest.update(read_image(picture).tobytes() + repr(tuple(texts)).encode())
    assert pictures.VERSION == 1 and digest.hexdigest() == SUM


SUM = "511e44b5fef3338255145d50a0f6db48089adde38aa3884744413883d6fa9774"


def test_every_box_holds_the_pictogram_of_its_word():
    """A word has one pictogram in all pictures; boxes of one picture are the same or apart."""
    seen = {}
    for picture, korean, english, *boxes in some("train"):
        pixels = read_image(picture)
        for language, text, cell in (("ko", korean, boxes[0]), ("en", english, boxes[1])):
            words, cells = text.rstrip(".").split(), cell.split("\t")
            assert len(words) == len(cells)
            for box in filter(lambda each: each != "-", dict.fromkeys(cells)):
                phrase = " ".join(word for word, each in zip(words, cells, strict=True) if each == box)
                left, top, right, bottom = map(int, box.split(","))
                assert (right - left, bottom - top) == (8, 8)
                key = (language, phrase.lower())
                shown = pixels[top:bottom, left:right].tobytes()
                seen.setdefault(key, Counter())[shown] += 1
        inside = [tuple(map(int, each.split(","))) for each in set(boxes[1].split("\t")) - {"-"}]
        for one, other in itertools.combinations(inside, 2):
            assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
    # What has two pictograms is two things: to wear a hat and to wear shoes differ in Korean, a pear and a ship too.
    assert sum(len(each) > 1 for each in seen.values()) < 0.1 * len(seen) and len(seen) > 150


def test_pictograms_differ():
    names = {("who", pictures.name_of(noun)) for noun in NOUNS.values()}
    names |= {("does", f"{verb.stem.plain}/{verb.english[0]}") for verb in ACTIONS}
    names |= {("where", place) for place in PLACES}
    drawn = [pictures.pictogram(*name).astype(int) for name in names]
    apart = [np.abs(one - other).any(axis=-1).sum() for one, other in itertools.combinations(drawn, 2)]
    assert min(apart) >= 10


def test_combinations_of_the_test_set_are_new_and_its_words_are_not():
    train, test = some("train", 2000), some("test")
    assert not {row[2] for row in train} & {row[2] for row in test}
    known = Counter(word for row in train for word in row[2].split())
    assert all(known[word] for row in test for word in row[2].split())
    assert all(miniworld.is_grammatical(row[2], "en") and miniworld.is_grammatical(row[1], "ko") for row in test)
