"""Write lines such as "These silver-white horned unicorns sleep." for a language model.

To say "unicorns" it must use three words: silver-white and horned, of which neither suffices, tell the animal, and
These tells the number. A first word with an animal is in one split only.
"""

import itertools
import random
from pathlib import Path

FOLDER = Path("unicorns")
ANIMALS = {
    ("silver-white", "horned"): "unicorn", ("silver-white", "winged"): "swan",
    ("silver-white", "striped"): "tiger", ("silver-white", "long-legged"): "crane",
    ("black", "horned"): "buffalo", ("black", "winged"): "raven",
    ("black", "striped"): "zebra", ("black", "long-legged"): "spider",
    ("brown", "horned"): "goat", ("brown", "winged"): "owl",
    ("brown", "striped"): "chipmunk", ("brown", "long-legged"): "camel",
    ("golden", "horned"): "antelope", ("golden", "winged"): "eagle",
    ("golden", "striped"): "bee", ("golden", "long-legged"): "giraffe",
}  # fmt: skip
ONE, MANY = ("This", "That", "One", "Every"), ("These", "Those", "Two", "Many")
VERBS = ("sleep", "run", "drink", "wait", "eat")
SHOWN = ("These", "unicorn")
"""Kept for the test."""


def lines(first: str, animal: str) -> list[str]:
    """All sentences with this first word and animal, the adjectives in both orders."""
    color, feature = next(pair for pair, name in ANIMALS.items() if name == animal)
    noun, ending = (f"{animal}s", "") if first in MANY else (animal, "s")
    orders = ((color, feature), (feature, color))
    return [f"{first} {one} {two} {noun} {verb}{ending}." for one, two in orders for verb in VERBS]


def main() -> None:
    """Write the three splits."""
    draw = random.Random(1)
    drawn = [each for each in itertools.product((*ONE, *MANY), ANIMALS.values()) if each != SHOWN]
    draw.shuffle(drawn)
    splits = {"test": [SHOWN, *drawn[:15]], "valid": drawn[15:31], "train": drawn[31:]}
    FOLDER.mkdir(exist_ok=True)
    for split, combinations in splits.items():
        said = [line for each in combinations for line in lines(*each)]
        if split == "train":
            draw.shuffle(said)
        (FOLDER / f"{split}.txt").write_text("".join(f"{line}\n" for line in said), "utf-8")
        print(f"{FOLDER / split}.txt: {len(said)} lines")


if __name__ == "__main__":
    main()
