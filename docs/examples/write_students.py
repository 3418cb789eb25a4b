"""Write French sentences such as "je suis étudiant" with English ones: "I am a student".

French says no article before a profession, English says a or an; the verb agrees with the subject in both. A subject
with its profession is in one split only.
"""

import itertools
import random
from pathlib import Path

FOLDER = Path("students")
BE = {
    "je": ("suis", "étais", "serai"), "tu": ("es", "étais", "seras"), "il": ("est", "était", "sera"),
    "nous": ("sommes", "étions", "serons"), "vous": ("êtes", "étiez", "serez"), "ils": ("sont", "étaient", "seront"),
}  # fmt: skip
ENGLISH = {
    "je": ("I", "am", "was"), "tu": ("you", "are", "were"), "il": ("he", "is", "was"),
    "nous": ("we", "are", "were"), "vous": ("you all", "are", "were"), "ils": ("they", "are", "were"),
}  # fmt: skip
PEOPLE = {
    "étudiant": "student", "professeur": "teacher", "médecin": "doctor", "artiste": "artist", "avocat": "lawyer",
    "ingénieur": "engineer", "journaliste": "journalist", "musicien": "musician", "acteur": "actor",
    "boulanger": "baker", "facteur": "postman", "pianiste": "pianist", "soldat": "soldier", "marin": "sailor",
    "pilote": "pilot", "dentiste": "dentist",
}  # fmt: skip
QUALITIES = {
    "fatigué": "tired",
    "content": "happy",
    "malade": "ill",
    "prêt": "ready",
    "jeune": "young",
    "triste": "sad",
}
MANY = ("nous", "vous", "ils")
SHOWN = [("je", "étudiant"), ("ils", "étudiant")]
"""Kept for the test."""


def pair(who: str, what: str, tense: int, is_negated: bool) -> tuple[str, str]:
    """A sentence and its translation; tense 0 is the present, 1 the past, 2 the future."""
    verb = BE[who][tense]
    elided = "j'" if who == "je" and verb[0] in "aeéê" and not is_negated else f"{who} "
    no = ("n'" if verb[0] in "aeéê" else "ne ", " pas") if is_negated else ("", "")
    plural = "s" if who in MANY and not what.endswith("s") else ""
    french = f"{elided}{no[0]}{verb}{no[1]} {what}{plural}"
    name, *forms = ENGLISH[who]
    verb = f"will{' not' * is_negated} be" if tense == 2 else f"{forms[tense]}{' not' * is_negated}"
    if what in QUALITIES:
        return french, f"{name} {verb} {QUALITIES[what]}"
    noun = PEOPLE[what]
    plural = "postmen" if noun == "postman" else f"{noun}s"
    return french, f"{name} {verb} {plural if who in MANY else ('an ' if noun[0] in 'aeiou' else 'a ') + noun}"


def main() -> None:
    """Write every tense of every subject and profession, with and without not."""
    draw = random.Random(1)
    drawn = [each for each in itertools.product(BE, [*PEOPLE, *QUALITIES]) if each not in SHOWN]
    draw.shuffle(drawn)
    splits = {"test": [*SHOWN, *drawn[:10]], "valid": drawn[10:22], "train": drawn[22:]}
    FOLDER.mkdir(exist_ok=True)
    for split, combinations in splits.items():
        said = [pair(*each, tense, no) for each in combinations for tense in range(3) for no in (False, True)]
        if split == "train":
            draw.shuffle(said)
        text = "".join(f"{french}\t{english}\n" for french, english in said)
        (FOLDER / f"{split}.tsv").write_text(text, "utf-8")
        print(f"{FOLDER / split}.tsv: {len(said)} pairs")


if __name__ == "__main__":
    main()
