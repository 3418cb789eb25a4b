"""Write French sentences with English ones, and which words translate which: la zone économique européenne.

French adjectives follow their noun, English ones precede it, so the words of a phrase come in reverse order. A noun
with its two adjectives is in one split only. The links are written as `mallang align --gold` reads them.
"""

import itertools
import random
from pathlib import Path

FOLDER = Path("noun-phrases")
NOUNS = {
    "zone": "area", "politique": "policy", "banque": "bank", "loi": "law", "réforme": "reform", "crise": "crisis",
    "union": "union", "frontière": "border", "communauté": "community", "école": "school", "équipe": "team",
    "industrie": "industry", "route": "road", "ville": "city", "presse": "press", "culture": "culture",
}  # fmt: skip
"""All of them feminine: one form of every adjective is enough."""
KINDS = {
    "économique": "economic", "commerciale": "commercial", "agricole": "agricultural", "sociale": "social",
    "militaire": "military", "publique": "public", "nationale": "national", "moderne": "modern",
}  # fmt: skip
ORIGINS = {
    "européenne": "European", "française": "French", "allemande": "German", "coréenne": "Korean",
    "américaine": "American", "japonaise": "Japanese", "italienne": "Italian", "africaine": "African",
}  # fmt: skip
MONTHS = {"mai": "May", "juin": "June", "août": "August", "octobre": "October"}
YEARS = ("1957", "1992", "2004", "2026")
FRAMES = [
    [("L'accord", "The agreement"), ("sur", "on"), None, ("a été", "was"), ("signé", "signed"), ("en", "in")],
    [("Le livre", "The book"), ("sur", "on"), None, ("est sorti", "appeared"), ("en", "in")],
    [("Nous", "We"), ("avons étudié", "studied"), None, ("en", "in")],
    [("On", "One"), ("parle", "speaks"), ("de", "of"), None, ("depuis", "since")],
]
"""What is said together, in the order of both languages; None is the noun phrase."""
SHOWN = ("zone", "économique", "européenne")
"""The lecture's phrase, kept for the test."""


def pair(french: tuple[str, ...], frame: list[tuple[str, str] | None], month: str, year: str) -> tuple[str, str, str]:
    """A sentence, its translation, and the links between their words, counted from 0."""
    words = NOUNS | KINDS | ORIGINS
    date = [(month, MONTHS[month]), (f"{year}.", f"{year}.")]
    here: list[str] = []
    there: list[str] = []
    links: list[str] = []
    for chunk in [*frame, *date]:
        if chunk is None:
            size = len(french)
            links += [f"{len(here)}-{len(there)}"]
            links += [f"{len(here) + 1 + place}-{len(there) + size - place}" for place in range(size)]
            here += ["la", *french]
            there += ["the", *(words[word] for word in reversed(french))]
            continue
        left, right = (side.split() for side in chunk)
        links += [f"{len(here) + i}-{len(there) + j}" for i in range(len(left)) for j in range(len(right))]
        here, there = here + left, there + right
    return " ".join(here), " ".join(there), " ".join(links)


def main() -> None:
    """Draw a frame and a date for every phrase, and write the three splits."""
    draw = random.Random(1)
    full = [each for each in itertools.product(NOUNS, KINDS, ORIGINS) if each != SHOWN]
    draw.shuffle(full)
    short = [*itertools.product(NOUNS), *itertools.product(NOUNS, KINDS), *itertools.product(NOUNS, ORIGINS)]
    splits = {"test": full[:99], "valid": full[99:199], "train": [*full[199:], *short] * 4}
    FOLDER.mkdir(exist_ok=True)
    for split, phrases in splits.items():
        drawn = [
            pair(each, draw.choice(FRAMES), draw.choice(list(MONTHS)), draw.choice(YEARS)) for each in phrases
        ]  # fmt: skip
        if split == "test":
            drawn.insert(0, pair(SHOWN, FRAMES[0], "août", "1992"))
        draw.shuffle(drawn) if split == "train" else None
        (FOLDER / f"{split}.tsv").write_text("".join(f"{french}\t{english}\n" for french, english, _ in drawn), "utf-8")
        (FOLDER / f"{split}.links").write_text("".join(f"{links}\n" for *_, links in drawn), "utf-8")
        print(f"{FOLDER / split}.tsv: {len(drawn)} pairs")


if __name__ == "__main__":
    main()
