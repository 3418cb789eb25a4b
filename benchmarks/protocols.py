"""Two ways to score translations, from one file of saved hypotheses.

python -m benchmarks.protocols HYPOTHESES --corpus multi30k --split test2016 --target de
python -m benchmarks.protocols runs/transformer-multi30k-en-de       # every split in RUN/outputs

moses-lc-tok   what papers on Multi30k print: both sides lower-cased, then put through Moses' normalizer and tokenizer,
               as the authors of the corpus made their `lc.norm.tok` files; BLEU over the tokens. Needs sacremoses.
sacrebleu      raw text as a reader gets it: BLEU with the tokenizer 13a, and chrF.

Numbers of different protocols cannot be compared.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from mallang.data.corpus import Config, open_corpus
from mallang.data.readers import lines
from mallang.errors import UserError, require
from mallang.evaluation.score import Score
from mallang.evaluation.translation import bleu, chrf, tokenization

WORDS: Mapping[tuple[str, str, str], int] = {
    ("multi30k", "test2016", "de"): 12_103,
    ("multi30k", "test2016", "en"): 12_968,
    ("multi30k", "test2016", "fr"): 13_988,
    ("multi30k", "test2017", "de"): 10_758,
    ("multi30k", "test2017", "en"): 11_376,
    ("multi30k", "test2017", "fr"): 12_596,
}
"""Words in the authors' own tokenized references, by corpus, split and language: what papers print as `ref_len`.

Line by line ours equal theirs, but for one line of test2016.fr, where a full stop changes places with a quote.
"""


@dataclass(frozen=True)
class Reference:
    """The reference that hypotheses are scored against."""

    corpus: str
    split: str
    language: str
    texts: Sequence[str]


def score_all(hypotheses: Sequence[str], reference: Reference) -> dict[str, list[Score]]:
    """The scores of every protocol that the corpus has, by name."""
    if len(hypotheses) != len(reference.texts):
        raise UserError(
            f"there are {len(hypotheses)} hypotheses, but {reference.corpus} {reference.split} has "
            f"{len(reference.texts)} lines",
            todo="give the outputs of that split, one per line",
        )
    scores = {"sacrebleu": plain(hypotheses, reference)}
    if any(corpus == reference.corpus for corpus, _, _ in WORDS):
        scores = {"moses-lc-tok": [moses_lc_tok(hypotheses, reference)], **scores}
    return scores


def moses_lc_tok(hypotheses: Sequence[str], reference: Reference) -> Score:
    """BLEU of lower-cased text as Moses cuts it."""
    cut = moses_tokens(reference.texts, reference.language)
    known = WORDS.get((reference.corpus, reference.split, reference.language))
    words = sum(len(text.split()) for text in cut)
    if known not in (None, words):
        raise UserError(
            f"the reference of {reference.corpus} {reference.split} has {words} words, but {known} in published tables",
            todo=f"the numbers would not be comparable; sacremoses {version('sacremoses')} cuts differently",
        )
    score = bleu(moses_tokens(hypotheses, reference.language), cut, tokenize="none")
    how = f"pre:lc.norm.tok-{reference.language}|sacremoses:{version('sacremoses')}|ref-words:{words}"
    return replace(score, signature=f"{score.signature}|{how}")


def moses_tokens(texts: Sequence[str], language: str) -> list[str]:
    """Lower-case, normalize, tokenize, in this order: Moses takes "Bart." (beard) for an abbreviation, not "bart."."""
    sacremoses = require("sacremoses", "bench")
    normalizer, tokenizer = sacremoses.MosesPunctNormalizer(language), sacremoses.MosesTokenizer(language)
    # Quotes come out escaped (&quot;), as in Moses; both sides do, and no token is split or joined by it.
    return [tokenizer.tokenize(normalizer.normalize(text.lower()), return_str=True) for text in texts]


def plain(hypotheses: Sequence[str], reference: Reference) -> list[Score]:
    """BLEU and chrF of raw text."""
    tokenize = tokenization(reference.language)
    return [bleu(hypotheses, reference.texts, tokenize=tokenize), chrf(hypotheses, reference.texts)]


def read_reference(corpus: str, split: str, language: str) -> Reference:
    """One side of a split of a named corpus."""
    rows = open_corpus(Config(corpus=corpus, target=language), ("target",)).split(split)
    return Reference(corpus, split, language, [text for (text,) in rows])


def read_run(folder: Path) -> list[tuple[Path, Reference]]:
    """The outputs that `mallang evaluate` left in a run folder, each with its reference."""
    from mallang.inspection.outputs import read_parts
    from mallang.runs.folder import Run

    data = Run.open(folder).recipe().data
    corpus = open_corpus(data, ("source", "target"))
    outputs = sorted((folder / "outputs").glob("*.txt"))
    splits = [split for split in corpus.splits if any(path.stem.endswith(split) for path in outputs)]
    parts = [(split, part) for split in splits for part in read_parts(folder, split, None, None)]
    found = [(folder / "outputs" / f"{part.name}.txt", split, part) for split, part in parts]
    if not any(path in outputs for path, _, _ in found):
        raise UserError(f"{folder} holds no outputs", todo=f"mallang evaluate {folder} --split SPLIT")
    return [
        (path, Reference(part.corpus or corpus.name, split, data.target, [target for _, target in part.rows]))
        for path, split, part in found
        if path in outputs
    ]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.protocols",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "hypotheses", type=Path, nargs="+", help="files of outputs, one per line (.xz too), or run folders"
    )
    parser.add_argument("--corpus", help="a name that `mallang data list` shows, such as multi30k")
    parser.add_argument("--split", help="such as test2016")
    parser.add_argument("--target", help="the language of the hypotheses, such as de")
    arguments = parser.parse_args()
    try:
        for path in arguments.hypotheses:
            if not path.exists():
                raise UserError(f"there is no {path}")
            for file, reference in read_run(path) if path.is_dir() else [(path, named(arguments))]:
                show(file, score_all(list(lines(file)), reference))
    except UserError as error:
        sys.exit(f"benchmarks.protocols: {error}")


def named(arguments: argparse.Namespace) -> Reference:
    """The reference that the options name."""
    for option in ("corpus", "split", "target"):
        if getattr(arguments, option) is None:
            raise UserError(
                f"a file of hypotheses needs --{option}", todo="--corpus multi30k --split test2016 --target de"
            )
    return read_reference(arguments.corpus, arguments.split, arguments.target)


def show(file: Path, scores: Mapping[str, Sequence[Score]]) -> None:
    """Print every score with its protocol."""
    print(file)
    for protocol, found in scores.items():
        for score in found:
            print(f"  {protocol:12}  {score}")


if __name__ == "__main__":
    main()
