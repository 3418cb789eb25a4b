"""How several commands print outputs: as text, with scores, or as lines of JSON."""

from __future__ import annotations

import json as json_format
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mallang.decoding.contract import Config
    from mallang.tasks.translator import Translation


def several(nbest: int, options: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """The search options for so many outputs: a beam that is too narrow is widened, unless its width was given."""
    is_beam = options.get("method", config.method) == "beam"
    width = {"beam": nbest} if is_beam and config.beam < nbest else {}
    return {**width, **options, "nbest": nbest}


def show(result: Translation, *, json: bool, nbest: int, scores: bool) -> None:
    """Print one result, at once: someone may be waiting at the other end of a pipe."""
    if json:
        print(json_line(as_json(result, nbest, scores=scores)), flush=True)
    elif nbest > 1:
        for output, value, _ in result.nbest[:nbest] or ((result.output, result.score, result.score),):
            print(f"{value:.4f}\t{output}" if scores else output, flush=True)
    else:
        print(f"{result.score:.4f}\t{result.output}" if scores else result.output, flush=True)


def as_json(result: Translation, nbest: int, *, scores: bool = False) -> dict[str, Any]:
    """What `--json` prints of a result; with `--scores` also the log-probability of each token."""
    line: dict[str, Any] = {
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
    if result.note:
        line["note"] = result.note
    return line


def json_line(line: dict[str, Any]) -> str:
    """A line of JSON, which has no infinite numbers: the score of what is impossible is null."""
    from mallang.inspection.comparison_tables import finite

    return json_format.dumps(finite(line), ensure_ascii=False, allow_nan=False)
