"""`mallang lexicon`: a bilingual lexicon from the word vectors of two languages, without parallel text."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from mallang.commands.options import Json, Quiet
from mallang.errors import UserError

if TYPE_CHECKING:
    from mallang.evaluation.lexicon_induction import How

EXAMPLES = (
    "mallang lexicon runs/fasttext-en runs/fasttext-de > en-de.tsv",
    "mallang lexicon runs/fasttext-en runs/fasttext-de --by adversarial --word dog --word cat --count 5",
    "mallang lexicon en.vec de.vec --gold bilingual-lexicons/xling-en-de",
    "mallang lexicon en.vec de.vec --by supervised --pairs bilingual-lexicons/xling-en-de --gold test.tsv --json",
)
METHODS = ("identical", "adversarial", "similarities", "supervised")
Side = Annotated[
    str, typer.Argument(metavar="VECTORS", help="A run of word vectors, or a file of them.", show_default=False)
]
By = Annotated[str, typer.Option("--by", metavar="START", help=f"How the mapping starts: {', '.join(METHODS)}.")]
Word = Annotated[
    list[str] | None,
    typer.Option("--word", metavar="WORD", help="Translate this word alone. Repeatable.", show_default=False),
]
Gold = Annotated[
    str | None,
    typer.Option(
        "--gold", metavar="LEXICON", help="Print the precision on this lexicon: a file, or a corpus.",
        show_default=False,
    ),
]  # fmt: skip
PairsOption = Annotated[
    str | None,
    typer.Option("--pairs", metavar="LEXICON", help="With --by supervised: known translations.", show_default=False),
]
Count = Annotated[int, typer.Option("--count", "-k", min=1, help="Translations of each word; k of precision at k.")]
Words = Annotated[int, typer.Option("--words", min=2, help="The most frequent words of each language.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="The random seed of the adversarial start.")]


def command(
    source: Side,
    target: Side,
    by: By = "identical",
    pairs: PairsOption = None,
    gold: Gold = None,
    word: Word = None,
    count: Count = 1,
    words: Words = 20_000,
    seed: Seed = 1,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Print source word, target word and CSLS, with tabs between; or with --gold the precision.

    The vectors of the first language are mapped into the space of the second. The mapping starts from words with the
    same spelling, from an adversarial game, from words whose similarities to the others of their language are alike, or
    from known pairs. Without known pairs, mutual nearest neighbors then refine it in several rounds.
    """
    how = check(by, pairs, gold, word)
    from mallang.data.word_vectors import everything
    from mallang.evaluation.lexicon_induction import induce, precision
    from mallang.training.pretrained import Source

    one, other = (Source.open(name).read(everything) for name in (source, target))
    known = read_pairs(pairs, "train") if pairs else []
    space = induce(one, other, how, pairs=known, words=words, seed=seed)
    if not quiet:
        typer.echo(f"mapping: {space.how}", err=True)
    if gold is not None:
        score = precision(space, read_pairs(gold, "test"), count)
        print(json_format.dumps(score.to_json(), ensure_ascii=False) if json else score)
        return
    for name, found in zip(word or space.source_words, space.translations(word, count), strict=True):
        if json:
            nbest = [{"word": each, "csls": value} for each, value in found]
            print(json_format.dumps({"input": name, "translations": nbest}, ensure_ascii=False))
        else:
            for each, value in found:
                print(f"{name}\t{each}\t{value:.4f}")


def check(by: str, pairs: str | None, gold: str | None, word: Sequence[str] | None) -> How:
    """The start, after options that have no effect on it are refused."""
    if by not in METHODS:
        raise UserError(f"--by {by!r} is not known", todo=f"give one of {', '.join(METHODS)}")
    if (by == "supervised") != (pairs is not None):
        raise UserError("--by supervised and --pairs LEXICON need each other", todo="give both, or neither")
    if gold is not None and word:
        raise UserError("--gold scores all its words, and --word names some", todo="give one of them")
    return by  # type: ignore[return-value]


def read_pairs(name: str, split: str) -> list[tuple[str, str]]:
    """The pairs of a lexicon: a file, or a split of a corpus with columns source and target."""
    from pathlib import Path

    from mallang.data.corpus import Config, open_corpus
    from mallang.data.lexicon import read_lexicon
    from mallang.data.registry import names

    if name not in names() or Path(name).is_file():
        return read_lexicon(name)
    rows = open_corpus(Config(corpus=name, columns=["source", "target"]), ("source", "target")).split(split)
    return [(source, target) for source, target in rows]
