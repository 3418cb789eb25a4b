"""Exact match and F1 of answers, by the rules of SQuAD and of KorQuAD; the best of several gold answers counts.

| rules   | equal are                                                       | F1 counts   | F1 of nothing with nothing |
|---------|-----------------------------------------------------------------|-------------|----------------------------|
| squad   | case, ASCII punctuation, the words a, an, the, and white space  | words       | 0                          |
| squad2  | the same                                                        | words       | 1                          |
| korquad | case, ASCII punctuation, quotes and brackets, and white space   | characters  | 0                          |

SQuAD: Rajpurkar et al. 2016, arXiv:1606.05250; with questions that have no answer: Rajpurkar et al. 2018,
arXiv:1806.03822. KorQuAD 1.0: Lim et al. 2019, arXiv:1909.07005. KorQuAD reads its quotes and brackets as spaces and
removes all other punctuation; particles stay. The last column is about answers of which these rules leave nothing, such
as "the" and "a": exact match is 1, but the F1 of the official scripts of SQuAD 1.1 and KorQuAD is 0. That of SQuAD 2
leaves out such gold answers. A question without a gold answer asks for an empty one: F1 is then 1 or 0 by all rules.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float

from mallang.errors import UserError
from mallang.evaluation.score import RESAMPLES, SEED, Score, Statistics

Rules = Literal["squad", "squad2", "korquad"]
ARTICLES = re.compile(r"\b(?:a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
SPACES = str.maketrans(dict.fromkeys("'\"《》<>〈〉()‘’", " "))
"""What KorQuAD reads as spaces, before it removes the punctuation that is left."""


def squad_words(text: str) -> list[str]:
    """The words of an answer that SQuAD compares."""
    return ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split()


def korquad_words(text: str) -> list[str]:
    """The words of an answer that KorQuAD compares."""
    return text.translate(SPACES).lower().translate(NO_PUNCTUATION).split()


WORDS: dict[Rules, Callable[[str], list[str]]] = {
    "squad": squad_words,
    "squad2": squad_words,
    "korquad": korquad_words,
}


def exact_match(output: str, golds: Sequence[str], rules: Rules = "squad") -> float:
    """1 where the output equals one of the gold answers, else 0; without gold answers it must be empty."""
    words = WORDS[rules]
    return float(any(words(output) == words(gold) for gold in asked(golds, rules) or ("",)))


def answer_f1(output: str, golds: Sequence[str], rules: Rules = "squad") -> float:
    """The harmonic mean of precision and recall of words, or characters, by the best of the gold answers."""
    if known := asked(golds, rules):
        return max(f1_of(output, gold, rules) for gold in known)
    return float(not units(output, rules))


def asked(golds: Sequence[str], rules: Rules) -> Sequence[str]:
    """The gold answers that count: those of SQuAD 2 of which its rules leave nothing do not."""
    return [gold for gold in golds if units(gold, rules)] if rules == "squad2" else golds


def f1_of(output: str, gold: str, rules: Rules) -> float:
    """The F1 of one pair; 0 where they share nothing."""
    ours, theirs = (Counter(units(text, rules)) for text in (output, gold))
    both = (ours & theirs).total()
    return 2 * both / (ours.total() + theirs.total()) if both else 0.0


def units(text: str, rules: Rules) -> list[str]:
    """What F1 counts of an answer."""
    words = WORDS[rules](text)
    return list("".join(words)) if rules == "korquad" else words


def answer_table(
    outputs: Sequence[str], golds: Sequence[Sequence[str]], rules: Rules
) -> Float[np.ndarray, "questions 2"]:
    """Exact match and F1 of every question."""
    if len(outputs) != len(golds) or not golds:
        raise UserError(f"there are {len(outputs)} answers to {len(golds)} questions; one question at least is needed")
    return np.array(
        [(exact_match(one, gold, rules), answer_f1(one, gold, rules)) for one, gold in zip(outputs, golds, strict=True)]
    )


def answer_scores(outputs: Sequence[str], golds: Sequence[Sequence[str]], rules: Rules = "squad") -> list[Score]:
    """EM and F1 with intervals; where some questions have no answer, also of those with one and of those without."""
    table, has_answer = answer_table(outputs, golds, rules), np.array([bool(gold) for gold in golds])
    parts = {"": np.ones(len(golds), dtype=bool)}
    if not has_answer.all():
        parts |= {" answerable": has_answer, " unanswerable": ~has_answer}
    found = []
    for name, chosen in parts.items():
        for place, measure in enumerate(("EM", "F1")):
            if chosen.any():
                found.append(mean_score(measure + name, table[chosen, place], f"rules:{rules}|golds:best"))
    return found


def mean_score(name: str, values: Float[np.ndarray, " questions"], signature: str) -> Score:
    """100 times the mean of some values, with its interval."""
    table = np.stack((values, np.ones(len(values))), axis=1)
    whole = f"{signature}|bs:{RESAMPLES}|seed:{SEED}"
    return Statistics(name, table, lambda sums: 100 * float(sums[0] / sums[1]), whole).score()


def best_threshold(
    margins: Float[np.ndarray, " questions"],
    answered: Float[np.ndarray, " questions"],
    unanswered: Float[np.ndarray, " questions"],
) -> float:
    """The margin above which a question is not answered, for the highest sum.

    `margins` say by how much no answer is more probable than the best one; the others are what each question is worth
    if it is answered, and if not. It lies between two margins, or beyond them all; of equal ones the lowest is taken.
    """
    order = np.argsort(margins, kind="stable")
    gains = np.concatenate(([0.0], np.cumsum((answered - unanswered)[order])))
    steps = margins[order]
    is_cut = np.concatenate(([True], steps[1:] > steps[:-1], [True]))  # equal margins are on one side
    best = int(np.argmax(np.where(is_cut, gains, -np.inf)))
    if best == 0:
        return float(steps[0]) - 1.0
    return float(steps[-1]) if best == len(steps) else float(steps[best - 1] + steps[best]) / 2
