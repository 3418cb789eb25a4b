"""What `--json` prints of the result of a verb, and what the server answers: one function per verb, the same for both.

as_json("classify", found)      # {"input": …, "output": …, "score": …, "probabilities": {…}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mallang.evaluation.minimal_pairs import Preference
    from mallang.tasks import surprisal
    from mallang.tasks.answerer import Answered
    from mallang.tasks.chooser import Chosen
    from mallang.tasks.classifier import Classification
    from mallang.tasks.comparer import Similarity
    from mallang.tasks.completer import Completion
    from mallang.tasks.filler import Filled
    from mallang.tasks.generation import Generated
    from mallang.tasks.resolver import Resolution
    from mallang.tasks.role_labeler import RoleLabeling
    from mallang.tasks.tagger import Tagging
    from mallang.tasks.translator import Scored, Translation
    from mallang.tasks.word_lookup import Neighbors

Line = dict[str, Any]
EMPTY = "the text is empty, so the result means nothing"
"""What is noted of a text without a letter, which a model labels all the same."""


def as_json(verb: str, result: Any) -> Line:
    """The result of a verb as plain values."""
    return AS_JSON[verb](result)


def is_empty(given: Any) -> bool:
    """Whether a text, or one of several, holds nothing but white space."""
    if isinstance(given, str):
        return not given.strip()
    return isinstance(given, tuple | list) and any(map(is_empty, given))


def note_on(given: Any) -> Line:
    """The note on a text, or on several, where there is something to note."""
    return {"note": EMPTY} if is_empty(given) else {}


def output_json(result: Translation | Generated, nbest: int | None = None, *, scores: bool = True) -> Line:
    """A generated output, with so many entries of its n-best list, and with the log-probability of each token."""
    from mallang.tasks.generation import Generated

    line: Line = {
        "input": result.input,
        "output": result.output,
        "score": result.score,
        "tokens": list(result.tokens),
        "nbest": [
            {"output": output, "score": value, "normalized": rank} for output, value, rank in result.nbest[:nbest]
        ],
    }
    if scores:
        line["token_scores"] = list(result.token_scores)
    if isinstance(result, Generated):
        line["text"] = result.text
    line["finished"] = not result.is_cut
    if result.note:
        line["note"] = result.note
    return line


def scored(result: Scored | surprisal.Scored) -> Line:
    """The log-probability of a text, or of an output for its source."""
    from mallang.tasks import surprisal

    if not isinstance(result, surprisal.Scored):
        return asdict(result)
    line: Line = {
        "text": result.text,
        "score": result.score,
        "bits": sum(result.surprisals),
        "tokens": list(result.tokens),
        "token_scores": list(result.token_scores),
        "surprisals": list(result.surprisals),
    }
    return {**line, **({"unknown": list(result.unknown)} if result.unknown else {})}


def classified(result: Classification) -> Line:
    """The label of a text, or of a pair."""
    line: Line = {"input": result.input, "output": result.label, "score": result.probability}
    return {**line, "probabilities": result.probabilities, **note_on(result.input)}


def tagged(result: Tagging) -> Line:
    """A text with its tags."""
    nbest = [{"tags": list(tags), "probability": share} for tags, share in result.nbest]
    return {
        "input": result.input,
        "words": list(result.words),
        "offsets": [list(place) for place in result.offsets],
        "tags": list(result.tags),
        "probabilities": list(result.probabilities),
        "spans": [asdict(span) for span in result.spans],
        **({"nbest": nbest} if nbest else {}),
        **note_on(result.input),
    }


def resolved(result: Resolution) -> Line:
    """A text with the clusters of its mentions."""
    clusters = [
        [{"text": each.text, "start": each.start, "end": each.end, "words": list(each.words)} for each in cluster]
        for cluster in result.clusters
    ]
    return {
        "input": result.input,
        "words": list(result.words),
        "offsets": [list(place) for place in result.offsets],
        "clusters": clusters,
    }


def labeled(result: RoleLabeling) -> Line:
    """A text with its predicates and their roles."""
    return {
        "input": result.input,
        "words": list(result.words),
        "offsets": [list(place) for place in result.offsets],
        "predicates": "given" if result.are_given else "found",
        "propositions": [
            {**asdict(each), "roles": list(each.roles), "arguments": [asdict(part) for part in each.arguments]}
            for each in result.propositions
        ],
    }


def answered(result: Answered) -> Line:
    """The answer to a question, and its place in the context."""
    line: Line = {"input": result.question, "output": result.answer, "score": result.probability}
    line |= {"start": result.start, "end": result.end}
    if result.no_answer is not None:
        line["no_answer"] = result.no_answer
    return {**line, "nbest": [asdict(each) for each in result.nbest]}


def chosen(result: Chosen) -> Line:
    """The choice of a question."""
    line: Line = {"input": result.question, "output": result.choice, "score": result.probability}
    line |= {"name": result.name, "number": result.number}
    return {**line, "nbest": [{"output": text, "probability": share} for text, share in result.nbest]}


def filled(result: Filled) -> Line:
    """A text with its gaps filled."""
    best = result.nbest[0]
    return {
        "input": result.input,
        "output": best.text,
        "score": best.score,
        "tokens": list(best.tokens),
        "nbest": [asdict(each) for each in result.nbest],
        "gaps": [[asdict(candidate) for candidate in gap] for gap in result.gaps],
    }


def near(result: Neighbors) -> Line:
    """The words nearest to a word."""
    return {
        "input": result.input,
        "neighbors": [{"word": word, "cosine": cosine} for word, cosine in result.neighbors],
    }


def completed(result: Completion) -> Line:
    """The missing ends of a triple."""
    known = result.known or (None,) * len(result.nbest)
    return {
        "input": [result.entity, result.relation, "heads" if result.heads else "tails"],
        "output": str(result),
        "score": result.nbest[0][1],
        "nbest": [
            {"output": name, "score": score, "known": is_known}
            for (name, score), is_known in zip(result.nbest, known, strict=True)
        ],
    }


def similar(result: Similarity) -> Line:
    """How similar two texts are."""
    return {"input": list(result.input), "score": result.score, **note_on(result.input)}


def compared(result: Preference, by: str) -> Line:
    """Two texts with their scores; `better` is the more probable one, null where both are equally probable."""
    better = (result.better if result.is_right else result.worse) if result.margin else None
    return {
        "texts": [result.better, result.worse],
        "scores": [result.better_score, result.worse_score],
        "by": by,
        "better": better,
    }


def embedded(text: Any, vector: list[float]) -> Line:
    """A text, or a pair, with its vector."""
    return {"input": text, "vector": vector}


AS_JSON: Mapping[str, Callable[[Any], Line]] = {
    **dict.fromkeys(("translate", "reply", "reconstruct", "generate", "caption"), output_json),
    "score": scored, "classify": classified, "tag": tagged, "coref": resolved, "roles": labeled, "answer": answered,
    "choose": chosen, "fill": filled, "neighbors": near, "complete": completed, "similarity": similar,
}  # fmt: skip
"""The verbs whose results say all that is printed of them."""
OUTPUT = ("input", "output", "score")
SEARCHED = (*OUTPUT, "tokens", "token_scores", "nbest", "finished")
WORDS = ("input", "words", "offsets")
KEYS: Mapping[str, tuple[str, ...]] = {
    "translate": SEARCHED, "reply": SEARCHED, "reconstruct": SEARCHED, "generate": (*SEARCHED, "text"),
    "caption": SEARCHED, "score": ("score", "tokens", "token_scores"), "classify": (*OUTPUT, "probabilities"),
    "tag": (*WORDS, "tags", "probabilities", "spans"), "coref": (*WORDS, "clusters"),
    "roles": (*WORDS, "predicates", "propositions"), "answer": (*OUTPUT, "start", "end", "nbest"),
    "choose": (*OUTPUT, "name", "number", "nbest"), "fill": (*OUTPUT, "tokens", "nbest", "gaps"),
    "neighbors": ("input", "neighbors"), "complete": (*OUTPUT, "nbest"), "similarity": ("input", "score"),
    "prefer": ("texts", "scores", "by", "better"), "embed": ("input", "vector"),
}  # fmt: skip
"""The keys that every result of a verb has, as the server's schema says them."""
