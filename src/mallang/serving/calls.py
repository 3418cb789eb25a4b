"""A worker's side of the verbs: items of several requests to one call, results to plain values for JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mallang.errors import UserError
from mallang.inspection.comparison_tables import finite
from mallang.serving import shown
from mallang.tasks import translator
from mallang.tasks.contract import ReadsPairs
from mallang.tasks.pair_layout import EmbedsPairs
from mallang.tasks.result_json import as_json, compared, embedded

Items = Sequence[Any]
Options = Mapping[str, Any]


def call(verbs: Any, verb: str, items: Items, options: Options) -> list[Any]:
    """The result of a verb for each item, as plain values."""
    check(verbs, verb, items)
    found = CALLS.get(verb, texts_by(verb))(verbs, items, options)
    return [plain(verb, result) for result in found]


def plain(verb: str, result: Any) -> Any:
    """A result as `mallang VERB --json` prints it; what is shown on the page are plain values already."""
    return finite(result if isinstance(result, dict) else as_json(verb, result))


def wants_pairs(verbs: Any, verb: str) -> bool:
    """Whether a run needs pairs for a verb that may read texts or pairs."""
    if verb == "score":
        return isinstance(verbs, translator.Verbs)
    return isinstance(verbs, ReadsPairs) and verbs.reads_pairs


def check(verbs: Any, verb: str, items: Items) -> None:
    """Refuse texts where the run reads pairs, and pairs where it reads texts."""
    if verb == "embed" and isinstance(verbs, EmbedsPairs):
        raise UserError("this run has vectors of pairs, and the server embeds texts", todo="use mallang embed")
    if verb not in ("score", "classify"):
        return
    is_paired = wants_pairs(verbs, verb)
    if not items:
        raise UserError("there is neither texts nor pairs in the request", todo="pairs" if is_paired else "texts")
    if any(isinstance(item, str) == is_paired for item in items):
        needed, given = ("pairs", "texts") if is_paired else ("texts", "pairs")
        raise UserError(f"this run needs {needed} to {verb}, not {given}")


def tokens_read(verbs: Any, verb: str, items: Items) -> int:
    """The number of tokens of the texts of a chat or of embeddings, whose answers say it."""
    if verb not in ("reply", "embed"):
        return 0
    reader = next(iter(verbs.task.tokenizers.values()))
    return sum(map(len, reader.encode_batch([item for item in items if isinstance(item, str)])))


def texts_by(verb: str) -> Callable[[Any, Items, Options], Sequence[Any]]:
    """The call of a verb that takes a list of texts or pairs."""
    return lambda verbs, items, options: getattr(verbs, verb)(list(items), **options)


def score(verbs: Any, items: Items, options: Options) -> Sequence[Any]:
    """Scores of texts, or of pairs of a source and its output; only a source has a domain."""
    if "domain" in options and not wants_pairs(verbs, "score"):
        raise UserError("this run has no domains: it scores texts without a source", todo="leave domain out")
    return verbs.score(list(items), **options)  # type: ignore[no-any-return]


def answer(verbs: Any, items: Items, options: Options) -> Sequence[Any]:
    """Answers to questions, each in its context."""
    return verbs.answer([item[0] for item in items], [item[1] for item in items], **options)  # type: ignore[no-any-return]


def choose(verbs: Any, items: Items, options: Options) -> Sequence[Any]:
    """The right choice of each question."""
    return verbs.choose([item[0] for item in items], [item[1] for item in items], **options)  # type: ignore[no-any-return]


def embed(verbs: Any, items: Items, options: Options) -> Sequence[Any]:
    """The vectors of texts, each with its text."""
    vectors = verbs.embed(list(items), **options)
    return [embedded(text, vector.tolist()) for text, vector in zip(items, vectors, strict=True)]


def prefer(verbs: Any, items: Items, options: Options) -> Sequence[Any]:
    """The more probable text of each pair."""
    by = options.get("by", "total")
    return [compared(found, by) for found in verbs.prefer(list(items), by=by)]


def complete(verbs: Any, items: Items, options: Options) -> Sequence[Any]:
    """The missing ends of triples of a knowledge graph."""
    return [verbs.complete(entity, relation, **options) for entity, relation in items]


CALLS: Mapping[str, Callable[[Any, Items, Options], Sequence[Any]]] = {
    "answer": answer, "choose": choose, "complete": complete, "embed": embed, "prefer": prefer, "score": score,
    "inspect": shown.inspect, "live": shown.live,
}  # fmt: skip
"""Verbs that take something else than a list of texts or pairs."""
