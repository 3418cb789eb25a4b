"""Sentences in which one word has two or three meanings, written to homonyms.txt and, with the meanings, homonyms.tsv.

Every meaning has its own frames, and the frames have slots: what tells the meanings apart are the words around.
"""

import itertools
import random
from pathlib import Path

PEOPLE = ("the boy", "the girl", "my brother", "her friend", "the old man", "a young woman")
NAMES = ("민수는", "유나는", "지호는", "소라는", "형은", "동생은")
FRAMES = {
    ("play", "sport"): (
        "{} made a great play on the field .",
        "{} won the game with one fast play .",
        "the team cheered after the play of {} .",
    ),
    ("play", "theatre"): (
        "{} wrote a new play for the stage .",
        "{} saw a long play about a king .",
        "the actors read the play of {} .",
    ),
    ("bank", "road"): (
        "{} reached the bank after crossing the road .",
        "{} got money at the bank in the street .",
        "the bank near the street gave money to {} .",
    ),
    ("bank", "river"): (
        "{} reached the bank after crossing the river .",
        "{} caught fish at the bank in the water .",
        "the bank near the water was wet for {} .",
    ),
    ("배", "fruit"): ("{} 단 배를 먹었다 .", "{} 시장에서 배를 두 개 샀다 .", "{} 잘 익은 배를 깎았다 ."),
    ("배", "ship"): ("{} 큰 배를 타고 갔다 .", "{} 바다에서 배를 몰았다 .", "{} 항구에서 배를 기다렸다 ."),
    ("사과", "fruit"): ("{} 단 사과를 먹었다 .", "{} 시장에서 사과를 두 개 샀다 .", "{} 잘 익은 사과를 깎았다 ."),
    ("사과", "apology"): ("{} 잘못을 알고 사과를 했다 .", "{} 늦어서 사과를 했다 .", "{} 친구에게 사과를 받았다 ."),
}
OTHERS = (
    "{} played on the field .", "{} went to the stage .", "{} crossed the road .", "{} crossed the river .",
    "{} saw the game .", "{} saw the king .", "{} walked in the street .", "{} was in the water .",
)  # fmt: skip
ALSO = (
    "{} 귤을 먹었다 .", "{} 단 귤을 먹었다 .", "{} 시장에서 귤을 두 개 샀다 .", "{} 잘 익은 귤을 깎았다 .",
    "{} 큰 차를 타고 갔다 .", "{} 항구에서 차를 기다렸다 .", "{} 친구에게 편지를 받았다 .", "{} 늦어서 미안해했다 .",
)  # fmt: skip


def is_korean(frame: str) -> bool:
    """Whether a frame is Korean."""
    return any("가" <= letter <= "힣" for letter in frame)


draw = random.Random(1)
rows = [
    (word, meaning, str(number), frame.format(filler))
    for (word, meaning), frames in FRAMES.items()
    for number, frame in enumerate(frames)
    for filler in (NAMES if is_korean(frame) else PEOPLE)
]
held_out = draw.sample(rows, len(rows) // 3)
plain = [frame.format(each) for frame, each in [*itertools.product(OTHERS, PEOPLE), *itertools.product(ALSO, NAMES)]]
lines = [sentence for *about, sentence in rows if (*about, sentence) not in held_out] + plain
draw.shuffle(lines)
Path("homonyms.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
Path("sentences.txt").write_text("".join(f"{row[-1]}\n" for row in rows), encoding="utf-8")
Path("homonyms.tsv").write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
print(f"{len(lines)} sentences to train on, {len(rows)} with a homonym to look at, {len(held_out)} of them new")
