"""Write the vectors of the words of some corpora to a small file, for a machine that cannot install the whole of them.

python -m benchmarks.vector_subset glove-6b-50d conll2003 trec --out glove-subset.txt.gz

The file has the words of all splits, also of dev and test: a word has the vector that it has in the whole file, so a
model that starts from either, and adds all words of the vectors to its vocabulary (model.extra_words), reads the same
vectors. The format is word2vec's text format; the order of the words stays.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path

from mallang.data.corpus import Config, open_corpus
from mallang.interop.word_vectors import write_vectors
from mallang.training.pretrained import Source

PIECE = re.compile(r"\w+|[^\w\s]")
"""Words and punctuation marks, as text.unit=word splits a text."""


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.vector_subset",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("vectors", help="a file, a run of word vectors, or the name of a package")
    parser.add_argument("corpora", nargs="+", help="names of corpora")
    parser.add_argument("--out", type=Path, required=True, help="the file to write: .txt, .bin, .txt.gz or .bin.gz")
    arguments = parser.parse_args()
    words = {word for name in arguments.corpora for word in words_of(texts_of(name))}
    found = Source.open(arguments.vectors).of_words(words)
    write_vectors(arguments.out, found.words, found.values)
    size = arguments.out.stat().st_size
    print(f"{len(words):,} words, {len(found):,} with a vector: {arguments.out}, {size:,} bytes")


def texts_of(name: str) -> Iterable[str]:
    """All texts of a corpus, those of all splits."""
    corpus = open_corpus(Config(corpus=name), ("text",))
    return (text for rows in corpus.splits.values() for (text,) in rows)


def words_of(texts: Iterable[str]) -> set[str]:
    """What a tokenizer may read as a word: strings between spaces, and words without the punctuation around them."""
    return {word for text in texts for part in text.split() for word in (part, *PIECE.findall(part))}


if __name__ == "__main__":
    main()
