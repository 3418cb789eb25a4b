"""Write pairs such as "The animal didn't cross the street because it was too tired." with their German translation.

German says er, sie or es for "it", by the gender of the noun that is meant. That noun is the animal where the last word
says something of animals (tired), and the place where it says something of places (wide): whoever translates "it" must
find out what it is. A combination of animal, place and last word is in one split only.
"""

import itertools
import random
from pathlib import Path

FOLDER = Path("pronouns")
ANIMALS = {
    "animal": "das Tier", "horse": "das Pferd", "rabbit": "das Kaninchen", "sheep": "das Schaf",
    "dog": "der Hund", "bird": "der Vogel", "fox": "der Fuchs", "bear": "der Bär",
    "cat": "die Katze", "cow": "die Kuh", "goat": "die Ziege", "duck": "die Ente",
}  # fmt: skip
PLACES = {
    "street": "die Straße", "bridge": "die Brücke", "meadow": "die Wiese", "desert": "die Wüste",
    "river": "der Fluss", "square": "der Platz", "garden": "der Garten", "stream": "der Bach",
    "field": "das Feld", "ice": "das Eis", "bog": "das Moor", "track": "das Gleis",
}  # fmt: skip
OF_ANIMALS = {
    "tired": "müde", "hungry": "hungrig", "thirsty": "durstig", "old": "alt", "weak": "schwach", "sick": "krank",
    "lazy": "faul", "young": "jung", "sleepy": "schläfrig", "afraid": "ängstlich",
}  # fmt: skip
OF_PLACES = {
    "wide": "breit", "long": "lang", "dangerous": "gefährlich", "wet": "nass", "steep": "steil", "muddy": "schlammig",
    "slippery": "glatt", "dark": "dunkel", "stony": "steinig", "busy": "belebt",
}  # fmt: skip
VERBS = {"cross": "überquerte", "like": "mochte", "leave": "verließ", "reach": "erreichte"}
DEGREES = {"too": "zu", "very": "sehr", "so": "so"}
PRONOUNS = {"der": "er", "die": "sie", "das": "es"}
SHOWN = [("animal", "street", "tired"), ("animal", "street", "wide")]
"""The combinations of the lecture's sentence, kept for the test."""


def pair(animal: str, place: str, last: str, verb: str, degree: str) -> tuple[str, str]:
    """A sentence and its translation."""
    meant = ANIMALS[animal] if last in OF_ANIMALS else PLACES[place]
    subject, thing = ANIMALS[animal], PLACES[place].replace("der ", "den ")
    quality = (OF_ANIMALS | OF_PLACES)[last]
    english = f"The {animal} didn't {verb} the {place} because it was {degree} {last}."
    pronoun = PRONOUNS[meant.split()[0]]
    german = f"{subject} {VERBS[verb]} {thing} nicht, weil {pronoun} {DEGREES[degree]} {quality} war."
    return english, german[0].upper() + german[1:]


def main() -> None:
    """Draw a verb and a degree for some of each combination's sentences, and write the three splits."""
    draw = random.Random(1)
    drawn = [
        each for each in itertools.product(ANIMALS, PLACES, [*OF_ANIMALS, *OF_PLACES]) if each not in SHOWN
    ]  # fmt: skip
    draw.shuffle(drawn)
    splits = {"test": [*SHOWN, *drawn[:298]], "valid": drawn[298:598], "train": drawn[598:]}
    FOLDER.mkdir(exist_ok=True)
    for split, combinations in splits.items():
        said = [pair(*each, verb="cross", degree="too") for each in combinations]
        if split == "train":
            said += [
                pair(*each, draw.choice(list(VERBS)), draw.choice(list(DEGREES)))
                for each in combinations
                for _ in "123"
            ]
            draw.shuffle(said)
        text = "".join(f"{english}\t{german}\n" for english, german in said)
        (FOLDER / f"{split}.tsv").write_text(text, "utf-8")
        print(f"{FOLDER / split}.tsv: {len(said)} pairs")


if __name__ == "__main__":
    main()
