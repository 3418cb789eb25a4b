"""`mallang score`: how probable a model finds a given text, or a given output for a source."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from mallang import console, find
from mallang.commands.inputs import read_lines, read_pairs
from mallang.commands.options import (
    Device,
    Domain,
    Json,
    Plugin,
    Quiet,
    RunFolder,
    With,
    add_plugins,
    check_texts,
    has_verb,
    load_for,
    note_none,
    note_unknown,
)
from mallang.commands.outputs import json_line
from mallang.errors import UserError, nearest, some_of
from mallang.tasks.result_json import as_json, compared

if TYPE_CHECKING:
    from mallang.tasks.surprisal import Scored

EXAMPLES = (
    'mallang score runs/transformer-miniworld "민수는 사과를 먹었다." "Minsu ate an apple."',
    "mallang score runs/transformer-miniworld --file pairs.tsv --json",
    'mallang score runs/gpt-miniworld "민수는 사과를 먹었다."',
    'mallang score runs/gpt-miniworld "민수는 사과를 먹었다." "민수은 사과를 먹었다." --compare',
    "mallang score runs/gpt-miniworld --pairs miniworld-ko",
)
Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="Texts, or a source and its output.", callback=check_texts, show_default=False),
]
Lines = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="Texts, or pairs with a tab between, a line each.", show_default=False),
]
Compare = Annotated[bool, typer.Option("--compare", help="Which of two texts is better formed?", show_default=False)]
Pairs = Annotated[
    str | None,
    typer.Option(
        "--pairs",
        metavar="FILE",
        help="How often is the first text of a line the better? miniworld-ko, miniworld-en are at hand.",
        show_default=False,
    ),
]
By = Annotated[str | None, typer.Option("--by", help="Compare by total or by token.", show_default=False)]
Total = Annotated[
    bool, typer.Option("--total", help="Print the log-probability of each text only.", show_default=False)
]
BUILT_IN = {"miniworld-ko": "ko", "miniworld-en": "en"}
"""Minimal pairs that are always there."""
SCALE = ((2.0, "green"), (5.0, "yellow"), (9.0, "magenta"), (math.inf, "red"))
"""Up to how many bits per token is printed in which color."""


def command(
    run: RunFolder,
    texts: Texts = None,
    file: Lines = None,
    compare: Compare = False,
    pairs: Pairs = None,
    by: By = None,
    total: Total = False,
    others: With = None,
    domain: Domain = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Print log-probabilities: natural logarithm, the end of the sentence included.

    Of a language model: that of texts, and the surprisal of each token in bits. Of others: that of an output for a
    source. Without texts or a file, they are read from standard input.
    """
    add_plugins(plugin)
    wanted = {"--compare": compare, "--pairs": pairs is not None, "--by": by is not None, "--total": total}
    if not is_language_model(run):
        if flags := [flag for flag, given in wanted.items() if given]:
            raise UserError(f"{flags[0]} needs a language model, but {run} is none", todo=f"leave {flags[0]} out")
        given = note_none(read_pairs(texts, file), "score", quiet=quiet)
        score_outputs(run, given, others, domain, json=json, device=device, quiet=quiet)
        return
    check(texts, file, wanted, json=json, domain=domain)
    if by not in (None, "total", "token"):
        raise UserError(f"--by {by} is unknown", todo=nearest(str(by), ("total", "token")))
    rivals = read_rivals(pairs) if pairs is not None else None
    model = load_for(run, None, "score", device, others=others)
    if rivals is not None:
        judge(model, rivals, by or "total", json=json)
        if not json and not quiet:
            texts = [text for pair in rivals for text in (pair.better, pair.worse)]
            note_unknown(str(pairs), texts, model.tokenizer, model.model)
    elif compare:
        choose(model, texts or [], by or "total", json=json, quiet=quiet)
    else:
        tell(model, note_none(read_texts(texts, file), "score", quiet=quiet), json=json, total=total, quiet=quiet)


def is_language_model(run: Path) -> bool:
    """Whether a run scores texts by themselves; of one that is none, `load_for` says what is wrong."""
    from mallang.runs.folder import Run

    return has_verb(find.plain(Run.open(run).task), "prefer")


def check(
    texts: Sequence[str] | None, file: Path | None, wanted: dict[str, bool], *, json: bool, domain: str | None
) -> None:
    """Refuse options that exclude each other or would do nothing."""
    if domain is not None:
        raise UserError("--domain has no effect: a language model has no domains", todo="leave it out")
    if texts and file is not None:
        raise UserError("texts and --file were both given", todo="give one of them")
    if wanted["--pairs"] and (texts or file is not None or wanted["--compare"]):
        raise UserError("--pairs and other texts were both given", todo="give one of them")
    if wanted["--compare"] and (file is not None or len(texts or ()) != 2):
        raise UserError(f"--compare needs two texts, but {len(texts or ())} were given", todo="--pairs FILE for many")
    if wanted["--by"] and not (wanted["--pairs"] or wanted["--compare"]):
        raise UserError("--by has no effect without --pairs or --compare", todo="leave it out")
    if wanted["--total"] and (json or wanted["--pairs"] or wanted["--compare"]):
        raise UserError("--total has no effect with --json, --pairs or --compare", todo="leave it out")


def score_outputs(
    run: Path,
    pairs: Iterator[tuple[str, str]],
    others: list[Path] | None,
    domain: str | None,
    *,
    json: bool,
    device: str,
    quiet: bool,
) -> None:
    """The log-probability of given outputs for their sources."""
    model = load_for(run, None, "score", device, others=others)
    for chunk in model.score_chunks(pairs, domain):
        for scored in chunk:
            print(json_line(as_json("score", scored)) if json else f"{scored.score:.4f}", flush=True)
        if not json and not quiet:
            note_unknown("source", [scored.source for scored in chunk], model.task.source)
            note_unknown("target", [scored.target for scored in chunk], model.task.target)


def read_texts(texts: Iterable[str] | None, file: Path | None) -> Iterator[str]:
    """The texts to score, a line at a time."""
    return iter(texts) if texts else read_lines(file)


class Rivals(NamedTuple):
    """Two texts, the better one first, and in what they differ."""

    better: str
    worse: str
    kind: str = ""


def read_rivals(name: str) -> list[Rivals]:
    """Minimal pairs that are at hand, or from a file: better, worse and perhaps a kind, with tabs between."""
    if name in BUILT_IN and not Path(name).exists():
        from mallang.data.miniworld_pairs import minimal_pairs

        return [Rivals(*pair) for pair in minimal_pairs("test", BUILT_IN[name])]
    from mallang.data.readers import lines

    found = []
    for number, line in enumerate(lines(Path(name)), 1):
        parts, where = line.split("\t"), f"{name}, line {number}"
        if len(parts) not in (2, 3):
            raise UserError("a line must hold the better text, a tab and the worse one, perhaps a kind", where=where)
        if parts[0] == parts[1]:
            raise UserError("both texts of a pair are the same", where=where)
        found.append(Rivals(*parts))
    if not found:
        raise UserError("there are no pairs", where=name)
    return found


def tell(model: Any, texts: Iterator[str], *, json: bool, total: bool, quiet: bool) -> None:
    """Print what the model makes of each text, and of all of them together."""
    from mallang.models.contract import is_probability
    from mallang.tasks.out_of_vocabulary import reads_oov

    numbers: list[float] = []
    count, told = 0, "unknown to the model, and read as <unk>"
    if reads_oov(model.model, model.tokenizer):
        told = "not in the vocabulary: read from the characters, and scored as <unk>"
    for chunk in model.score_chunks(texts):
        for scored in chunk:
            count += 1
            numbers += scored.token_scores
            if json:
                print(json_line(as_json("score", scored)), flush=True)
            else:
                shown = f"{scored.score:.4f}" if total else described(scored)
                print(shown, file=console.own(sys.stdout), flush=True)
            if scored.unknown and not quiet and not json:
                unknown = some_of(dict.fromkeys(scored.unknown))
                typer.echo(f"note: {scored.text[:40]!r}: {told}: {unknown}", err=True)
    if count > 1 and not json and not total:
        # Scores that are no probabilities have no perplexity.
        told = f", perplexity {perplexity(numbers):.2f} a token" if is_probability(model.model) else ""
        print(f"together  {summary(numbers)}{told}")


def described(scored: Scored) -> str:
    """A text in two lines: its log-probability, and each token with its surprisal, colored at a terminal."""
    return f"{summary(scored.token_scores)}\n" + "  ".join(
        f"{paint(token, bits)} {bits:.2f}" for token, bits in zip(readable(scored), scored.surprisals, strict=True)
    )


def readable(scored: Scored) -> list[str]:
    """The tokens as a person can read them: parts of characters by the character, further parts by a dot."""
    shown, before = [], None
    for token, place in zip(scored.tokens, scored.places, strict=True):
        text = scored.text[slice(*place)].strip()
        is_part = token.isascii() or any(letter in token for letter in text)
        shown.append(token if is_part or not text else "·" if place == before else text)
        before = place
    return shown


def summary(numbers: Sequence[float]) -> str:
    """Log-probabilities in one line."""
    bits = -sum(numbers) / math.log(2)
    return (
        f"{sum(numbers):.4f} = {bits:.2f} bits, {len(numbers)} tokens, {bits / max(1, len(numbers)):.2f} bits per token"
    )


def perplexity(numbers: Sequence[float]) -> float:
    """The perplexity of tokens by their log-probabilities."""
    mean = -sum(numbers) / max(1, len(numbers))
    return math.exp(mean) if mean < 700 else math.inf


def paint(text: str, bits: float) -> str:
    """A token in the color of its surprisal; plain in a pipe and with NO_COLOR."""
    text = console.visible(text)
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return typer.style(text, fg=next(color for most, color in SCALE if bits < most or most == math.inf))


def choose(model: Any, texts: Sequence[str], by: str, *, json: bool, quiet: bool) -> None:
    """Say which of two texts is better formed."""
    (found,) = model.prefer([(texts[0], texts[1])], by=by)
    if json:
        print(json_line(compared(found, by)))
        return
    tell(model, iter(texts), json=False, total=False, quiet=quiet)
    better = compared(found, by)["better"]
    unit = "nats per token" if by == "token" else "nats"
    print(f"better formed: {better}  (by {abs(found.margin):.4f} {unit})" if better else "both are equally probable")


def judge(model: Any, rivals: Sequence[Rivals], by: Any, *, json: bool) -> None:
    """Print how often the model prefers the better text: of all pairs, and of each kind."""
    from mallang.evaluation.minimal_pairs import accuracy

    found = model.prefer([(pair.better, pair.worse) for pair in rivals], by=by)
    kinds: dict[str, list[Any]] = {}
    for pair, preference in zip(rivals, found, strict=True):
        kinds.setdefault(pair.kind, []).append(preference)
        if json:
            line = {**asdict(preference), "right": preference.is_right, **({"kind": pair.kind} if pair.kind else {})}
            unknown = [word for text in (pair.better, pair.worse) for word in model.tokenizer.unknown_in(text)]
            print(json_line(line | ({"unknown": unknown} if unknown else {})))
    named = sorted(kinds.items()) if len(kinds) > 1 else []
    scores = [accuracy(found, by), *(accuracy(some, by, f"accuracy of {kind or 'others'}") for kind, some in named)]
    if json:
        print(json_line({"scores": [each.to_json() for each in scores]}))
        return
    for each in scores:
        print(f"{each}, {each.count} pairs")
