"""What a page shows of the answer of a run that generates no text: labels, tags, spans, fillings, choices, neighbors.

A part is {"title", "names", "shares", "kind"}: names with their probabilities ("probability"), or with scores that are
none ("score", "cosine").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from mallang.inspection.figures import show
from mallang.inspection.forward_pass import parts_of
from mallang.inspection.role_figures import parts_of as parts_of_roles
from mallang.tasks import (
    answerer,
    chooser,
    classifier,
    completer,
    filler,
    resolver,
    role_labeler,
    similarity,
    tagger,
    word_vectors,
)
from mallang.tasks.contract import ReadsPairs

COUNT = 10
"""Candidates that are shown of each gap, question or word."""


def told_of(verbs: Any, text: str) -> dict[str, Any]:
    """The answer of a run to a text, and what else it considered."""
    if isinstance(verbs, classifier.Verbs):
        return of_classifier(verbs, text)
    if isinstance(verbs, tagger.Verbs):
        found = verbs.tag(text)
        tags = {"words": found.words, "tags": found.tags, "probabilities": torch.tensor(found.probabilities)}
        return {"output": str(found), "tags": tags}
    if isinstance(verbs, answerer.Verbs):
        return of_question(verbs, text)
    if isinstance(verbs, chooser.Verbs):
        question, *choices = parts_of(text, None)
        chosen = verbs.choose(question, choices)
        return {"output": chosen.choice, "candidates": [part("", chosen.nbest)]}
    if isinstance(verbs, filler.Verbs):
        return of_gaps(verbs, text)
    if isinstance(verbs, completer.Verbs):
        entity, relation = parts_of(text, 2)
        answers = [verbs.complete(entity, relation, heads=heads) for heads in (False, True)]
        titles = (f"{entity} · {relation} · ?", f"? · {relation} · {entity}")
        parts = [part(title, each.nbest, "score") for title, each in zip(titles, answers, strict=True)]
        return {"output": str(answers[0]), "candidates": parts}
    if isinstance(verbs, similarity.Verbs):
        found = verbs.similarity(parts_of(text, 2))
        kind = "probability" if verbs.task.config.kind == "cross" else "cosine"
        return {"output": str(found), "candidates": [part("", [(" ↔ ".join(found.input), found.score)], kind)]}
    if isinstance(verbs, word_vectors.Verbs):
        words = [verbs.neighbors(word, COUNT) for word in dict.fromkeys(text.split())]
        return {"candidates": [part(each.input, each.neighbors, "cosine") for each in words]}
    if isinstance(verbs, role_labeler.Verbs):
        labeled = verbs.roles(text)
        roles = [[each._asdict() for each in parts_of_roles(labeled, one)] for one in labeled.propositions]
        return {"output": str(labeled), "roles": roles}
    if isinstance(verbs, resolver.Verbs):
        resolved = verbs.coref(text)
        return {"output": str(resolved), "clusters": [[each.text for each in one] for one in resolved.clusters]}
    return {}


def part(title: str, pairs: Sequence[Any], kind: str = "probability") -> dict[str, Any]:
    """Names and their shares."""
    return {
        "title": title,
        "names": [str(name) for name, _ in pairs],
        "shares": [float(share) for _, share in pairs],
        "kind": kind,
    }


def of_classifier(verbs: classifier.Verbs, text: str) -> dict[str, Any]:
    """The label of a text, or of a pair, and the probabilities of all labels."""
    found = verbs.classify(parts_of(text, 2) if isinstance(verbs, ReadsPairs) else text)
    return {
        "output": found.label,
        "score": math.log(max(found.probability, 1e-12)),
        "labels": {"names": list(found.probabilities), "probabilities": list(found.probabilities.values())},
    }


def of_question(verbs: answerer.Verbs, text: str) -> dict[str, Any]:
    """The answer to a question, where it is in the context, and other spans."""
    question, context = parts_of(text, 2)
    found = verbs.answer(question, context, nbest=COUNT)
    spans = [(each.text, each.probability) for each in found.nbest]
    if found.no_answer is not None:
        spans = sorted([*spans, ("∅", found.no_answer)], key=lambda span: -span[1])
    return {
        "output": found.answer,
        "answer": {"question": question, "context": context, "start": found.start, "end": found.end},
        "candidates": [part("", spans)],
    }


def of_gaps(verbs: filler.Verbs, text: str) -> dict[str, Any]:
    """The tokens for every gap of a text; a text without a gap has its attention alone."""
    if not filler.GAP.search(text):
        return {}
    found = verbs.fill(text, count=COUNT)
    gaps = [
        part(str(number), [(show(each.token), each.probability) for each in gap])
        for number, gap in enumerate(found.gaps, start=1)
    ]
    whole = [(each.text, each.probability) for each in found.nbest]
    return {"output": str(found), "candidates": [*gaps, *([part("", whole)] if len(gaps) > 1 else [])]}
