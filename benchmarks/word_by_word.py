"""Translation word by word on Multi30k, by lexicons induced from disjoint halves of the training set alone.

python -m benchmarks.word_by_word [--record]

Word vectors of each half are trained and mapped into one space from words that both languages spell alike; each word of
test2016 becomes its nearest neighbor by CSLS. This is the start of unsupervised translation, and its baseline.
"""

from __future__ import annotations

import argparse
import time

from benchmarks import report
from benchmarks.protocols import moses_lc_tok, read_reference
from benchmarks.report import Result
from mallang.data.corpus import Config, open_corpus
from mallang.data.unpaired import Unpaired
from mallang.evaluation.score import Score
from mallang.tasks.word_by_word import find_lexicon

PAIRS = ("en", "fr"), ("en", "de")
DIM = 300
PUBLISHED = {"en-fr": 8.54, "fr-en": 16.77, "de-en": 15.72, "en-de": 5.39}
"""Lample et al. 2018 (arXiv:1711.00043), table 2, with word vectors of Wikipedia."""


def main() -> None:
    """Score all four directions; `--record` writes them into results/."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the values into results/")
    record = parser.parse_args().record
    for languages in PAIRS:
        began = time.monotonic()
        corpus = open_corpus(
            Config(corpus="multi30k", source=languages[0], target=languages[1], unpaired="halves"), ("source", "target")
        )
        halves = corpus.split("train").source
        assert isinstance(halves, Unpaired)
        lexicon = find_lexicon("identical", [list(halves.side(side)) for side in (0, 1)], DIM, 1)
        rows = list(corpus.split("test2016"))
        for side in (0, 1):
            direction = f"{languages[side]}-{languages[1 - side]}"
            outputs = [lexicon.translate(row[side], side) for row in rows]
            score = moses_lc_tok(outputs, read_reference("multi30k", "test2016", languages[1 - side]))
            print(f"{direction}  {score}  published {PUBLISHED[direction]}", flush=True)
            if record:
                write(direction, score, lexicon.how, time.monotonic() - began)


def write(direction: str, score: Score, how: str, seconds: float) -> None:
    """The value by moses-lc-tok as a file in results/."""
    result = Result(
        system="word-by-word",
        corpus="multi30k",
        direction=direction,
        split="test2016",
        protocol=f"moses-lc-tok, word by word by an induced lexicon|{how}",
        metric=f"{score.name}, moses-lc-tok",
        value=round(score.value, 2),
        published=PUBLISHED[direction],
        seed=1,
        seconds=round(seconds, 1),
        signature=score.signature,
    )
    report.write_result(f"word-by-word-multi30k-{direction}-test2016-moses-lc-tok-seed1", result)


if __name__ == "__main__":
    main()
