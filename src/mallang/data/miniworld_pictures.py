"""Pictures of miniworld: a scene on 32 × 32 pixels, its caption in both languages, and where each word is in it.

    Minsu is eating an apple at school.      eating on top of Minsu; elsewhere an apple, and elsewhere a school

Who does it, what is done, what it is done to and where each have a pictogram of 8 × 8 pixels that follows from a hash
of the word, so that a picture is read by learning what each pictogram means. What is done is on top of who does it; the
two, and all other pictograms, lie anywhere on a grid of 4 pixels. The split of a picture is that of its combination of
who, does and what. A box is `left,top,right,bottom` in pixels; a word that is not drawn has the box `-`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import cache
from itertools import islice

import numpy as np
from jaxtyping import Bool, UInt8

from mallang.data import miniworld
from mallang.data.images import data_uri
from mallang.data.miniworld_draw import POOLS, Draw, draw_clause
from mallang.data.miniworld_grammar import Scene
from mallang.data.miniworld_scene import Clause, Phrase, counted_object, makes_sense, object_phrases, subject_phrases
from mallang.data.miniworld_words import Noun, no_type_check

VERSION = 1
"""Changes whenever any picture or caption does."""
SIZE = 32
"""Pixels of a side."""
SIGN = 8
"""Pixels of a side of a pictogram."""
STEP = 4
"""Pictograms lie at multiples of this many pixels."""
OFTEN = 5
"""How many pictures of the training set must show a word in a role for valid and test to use it there."""
SUBJECTS = ("name", "elder", "role", "animal")
COLORS = ((200, 30, 40), (30, 120, 40), (30, 60, 200), (150, 40, 160), (200, 110, 0), (0, 130, 150), (110, 70, 30))
TILE = (255, 230, 120)
"""The background of what is done."""
GROUND = (60, 60, 60)
"""The background of a place."""

Box = tuple[int, int]
Pixels = UInt8[np.ndarray, "size size 3"]


@cache
def rows(split: str, count: int) -> tuple[tuple[str, ...], ...]:
    """Rows of a split: the picture as a data URI, both captions, and the boxes of their words."""
    known = None if split == "train" else familiar()
    number = Draw(VERSION, list(miniworld.SPLITS).index(split), SIZE, SIGN).next()
    found: dict[str, tuple[str, ...]] = {}
    while len(found) < count:
        draw, number = Draw(number), number + 1
        clause = draw_visible(draw, split)
        if clause is None or (known is not None and not known.issuperset(miniworld.forms(Scene((clause,))))):
            continue
        places = draw_places(draw, clause)
        scene, picture = Scene((clause,)), data_uri(drawn(clause, places))
        boxes = ["\t".join(boxes_of(scene, places, language)) for language in ("ko", "en")]
        found.setdefault(picture, (picture, scene.korean, scene.english, *boxes))
    return tuple(found.values())


@cache
def familiar() -> frozenset[tuple[str, str]]:
    """The words that are frequent in a role in the pictures of the training set."""
    number = Draw(VERSION, 0, SIZE, SIGN).next()
    clauses = (draw_visible(Draw(place), "train") for place in range(number, number + 40_000))
    shown = islice((clause for clause in clauses if clause is not None), 4_000)
    counts = Counter(form for clause in shown for form in miniworld.forms(Scene((clause,))))
    return frozenset(form for form, times in counts.items() if times >= OFTEN)


@no_type_check
def draw_visible(draw: Draw, split: str) -> Clause | None:
    """A clause of which all can be drawn: it happens now, and nothing is counted, owned or described."""
    clause = draw_clause(draw, split, POOLS["action"], tense="progressive")
    if clause is None or clause.subject is None or "progressive" not in clause.verb.tenses:
        return None
    if clause.subject.noun.group not in SUBJECTS or clause.recipient is not None:
        return None
    thing = clause.object.noun if clause.object else None
    if thing is not None and thing.group == "pronoun":
        return None
    subject = plainest(subject_phrases(clause.verb, clause.subject.noun, False))
    counted = counted_object(clause.verb, False, False)
    phrase = None if thing is None else plainest(object_phrases(clause.verb, thing, "progressive", counted))
    if subject is None or (phrase is None) != (thing is None):
        return None
    plain = Clause(clause.verb, "progressive", subject, phrase, place=clause.place)
    return plain if makes_sense(plain) else None


@no_type_check
def plainest(phrases: tuple[Phrase, ...]) -> Phrase | None:
    """The phrase that says no more than the noun: by itself, or with `the`."""
    noun = phrases[0].noun
    return next((each for each in (Phrase(noun), Phrase(noun, determiner="the")) if each in phrases), None)


@no_type_check
def parts_of(clause: Clause) -> dict[str, tuple[str, str]]:
    """What is drawn of a clause, by the role of its words: the kind of the pictogram, and what it follows from."""
    verb = clause.verb
    found = {"verb": ("does", f"{verb.stem.plain}/{verb.english[0]}")}
    if clause.subject is not None:
        found["subject"] = ("who", name_of(clause.subject.noun))
    if clause.object is not None:
        found["object"] = ("who", name_of(clause.object.noun))
    if clause.place is not None:
        found["place"] = ("where", clause.place.korean)
    return found


@no_type_check
def name_of(noun: Noun) -> str:
    """What the pictogram of a noun follows from: 배 is a pear and a ship."""
    return f"{noun.korean}/{noun.english or noun.plural}"


@no_type_check
def draw_places(draw: Draw, clause: Clause) -> dict[str, Box]:
    """Where the pictograms are: the left and the top pixel of each."""
    steps = (SIZE - SIGN) // STEP + 1
    while True:
        left, top = STEP * draw.below(steps), STEP * draw.below(steps - SIGN // STEP)
        found = {"verb": (left, top), "subject": (left, top + SIGN)}
        for role in ("object", "place"):
            if role in parts_of(clause):
                found[role] = STEP * draw.below(steps), STEP * draw.below(steps)
        boxes = list(found.values())
        apart = [abs(a[0] - b[0]) >= SIGN or abs(a[1] - b[1]) >= SIGN for a in boxes for b in boxes if a is not b]
        if all(apart):
            return found


def drawn(clause: Clause, places: dict[str, Box]) -> Pixels:
    """The picture of a clause."""
    picture = np.full((SIZE, SIZE, 3), 255, np.uint8)
    for role, (kind, name) in parts_of(clause).items():
        left, top = places[role]
        picture[top : top + SIGN, left : left + SIGN] = pictogram(kind, name)
    return picture


@cache
def pictogram(kind: str, name: str) -> UInt8[np.ndarray, "sign sign 3"]:
    """The pictogram of a word: symmetric for who and what, dark on a tile for what is done, light on dark for where."""
    digest = hashlib.sha256(f"{kind} {name}".encode()).digest()
    bits = np.unpackbits(np.frombuffer(digest[:8], np.uint8)).astype(bool).reshape(SIGN, SIGN)
    color = COLORS[digest[8] % len(COLORS)]
    if kind == "who":
        return painted(np.concatenate((bits[:, :4], bits[:, 3::-1]), axis=1), color, (255, 255, 255))
    return painted(bits, (0, 0, 0), TILE) if kind == "does" else painted(bits, (255, 255, 255), GROUND)


def painted(
    bits: Bool[np.ndarray, "sign sign"], ink: tuple[int, int, int], ground: tuple[int, int, int]
) -> UInt8[np.ndarray, "sign sign 3"]:
    """A pattern in two colors."""
    return np.where(bits[:, :, None], np.array(ink), np.array(ground)).astype(np.uint8)


def boxes_of(scene: Scene, places: dict[str, Box], language: str) -> list[str]:
    """The box of every word of the caption: that of the pictogram which it names."""
    found = []
    for _, label in scene.words(language)[0]:
        left, top = places.get(label.split(".")[0], (-1, -1))
        found.append(f"{left},{top},{left + SIGN},{top + SIGN}" if left >= 0 else "-")
    return found
