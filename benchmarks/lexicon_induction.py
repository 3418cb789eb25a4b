"""Lexicons from word vectors: precision at 1 on XLing's dictionaries, without pairs and beside supervised Procrustes.

python -m benchmarks.lexicon_induction [--only en-de-tatoeba] [--seeds 1,2,3] [--record]

Skip-gram vectors of both languages are trained on disjoint halves of a corpus, so that no sentence has its translation
in the other half. The mapping starts from words that are spelled alike, or from an adversarial game, and is refined;
`supervised` is Procrustes from the 5,000 training pairs of the dictionary, on the same vectors. Words of the test
dictionary without a vector, or whose translations have none, are left out: the signature counts them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from benchmarks import report
from benchmarks.report import Result
from mallang.data.corpus import Config, open_corpus
from mallang.data.unpaired import Unpaired
from mallang.data.word_vectors import Vectors
from mallang.evaluation.lexicon_induction import How, induce, precision
from mallang.evaluation.score import Score
from mallang.tasks.word_by_word import MOST_WORDS, vectors_of

TEXTS = {
    "en-de-multi30k": ("multi30k", "en", "de"),
    "en-fr-multi30k": ("multi30k", "en", "fr"),
    "en-de-tatoeba": ("tatoeba-deu-eng", "en", "de"),
}
"""The text that vectors are trained on, and its languages."""
METHODS: Sequence[How] = ("identical", "adversarial", "supervised")
DIM = 300


def main() -> None:
    """Print the precision of every method on every text; `--record` writes them into results/."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(TEXTS), default=list(TEXTS))
    parser.add_argument("--seeds", default="1,2,3", help="of the vectors, and of the adversarial game")
    parser.add_argument("--record", action="store_true", help="write the values into results/")
    asked = parser.parse_args()
    for name in asked.only:
        for seed in map(int, asked.seeds.split(",")):
            began = time.monotonic()
            one, other = vectors(name, seed)
            trained = time.monotonic() - began
            for method in METHODS:
                began = time.monotonic()
                score, how = measured(name, method, one, other, seed)
                print(f"{name} seed {seed} {method}: {score}", flush=True)
                if asked.record:
                    write(name, method, seed, score, how, trained + time.monotonic() - began)


def vectors(name: str, seed: int) -> tuple[Vectors, Vectors]:
    """The vectors of both languages, of disjoint halves of the text."""
    corpus, source, target = TEXTS[name]
    opened = open_corpus(Config(corpus=corpus, source=source, target=target, unpaired="halves"), ("source", "target"))
    halves = opened.split("train").source
    assert isinstance(halves, Unpaired)
    one, other = (vectors_of(list(halves.side(side)), DIM, seed) for side in (0, 1))
    return one, other


def measured(name: str, method: How, one: Vectors, other: Vectors, seed: int) -> tuple[Score, str]:
    """The precision at 1 of a method on the test dictionary, and how the mapping was found."""
    known = dictionary(name, "train") if method == "supervised" else []
    space = induce(one, other, method, pairs=known, words=MOST_WORDS, seed=seed)
    return precision(space, dictionary(name, "test"), 1), space.how


def dictionary(name: str, split: str) -> list[tuple[str, str]]:
    """The pairs of words of a split of XLing's dictionary."""
    _, source, target = TEXTS[name]
    config = Config(corpus=f"bilingual-lexicons/xling-{source}-{target}", columns=["source", "target"])
    return [(one, other) for one, other in open_corpus(config, ("source", "target")).split(split)]


def write(name: str, method: How, seed: int, score: Score, how: str, seconds: float) -> None:
    """The value as a file in results/."""
    corpus, source, target = TEXTS[name]
    interval = "" if score.low is None else f", 95 % interval {score.low:.1f} to {score.high:.1f}"
    result = Result(
        system=f"lexicon-{method}", corpus=f"bilingual-lexicons/xling-{source}-{target}",
        direction=f"{source}-{target}", split="test", metric="precision at 1, %", value=round(score.value, 2),
        seed=seed,
        protocol=f"vectors of disjoint halves of {corpus}, {how}, {score.count} words{interval}",
        seconds=round(seconds, 1), signature=score.signature,
    )  # fmt: skip
    report.write_result(f"lexicon-{name}-{method}-precision-seed{seed}", result)


if __name__ == "__main__":
    main()
