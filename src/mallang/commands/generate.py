"""`mallang generate`: a language model continues from a prompt."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.options import (
    Device,
    Int8,
    Json,
    Plugin,
    Quiet,
    RunFolder,
    Search,
    With,
    add_plugins,
    check_texts,
    load_for,
    read_search,
)
from mallang.commands.outputs import json_line, several
from mallang.errors import UserError
from mallang.tasks.result_json import output_json

if TYPE_CHECKING:
    from mallang.tasks.generation import Generated

EXAMPLES = (
    "mallang generate runs/gpt-miniworld",
    'mallang generate runs/gpt-miniworld "민수는" -n 3 --temperature 0.8 --top-k 40',
    'mallang generate runs/gpt-miniworld "민수는" --method beam --search beam=8 --scores',
    "mallang generate runs/gpt-shakespeare --lines 20 --seed 7",
    "mallang generate runs/gpt-miniworld --file prompts.txt --json > out.jsonl",
)
Prompts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PROMPT",
        help="What to continue from; none: a text from its beginning.",
        callback=check_texts,
        show_default=False,
    ),
]
File = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="A prompt on each line; - is standard input.", show_default=False),
]
Count = Annotated[int, typer.Option("--nbest", "-n", min=1, help="Outputs for each prompt.")]
MaxTokens = Annotated[
    int | None, typer.Option("--max-tokens", min=1, help="The longest line, in tokens.", show_default=False)
]
Lines = Annotated[int, typer.Option("--lines", min=1, help="Lines to write, if the model has learned from streams.")]
Stop = Annotated[
    list[str] | None,
    typer.Option("--stop", metavar="TEXT", help="End before this text. Repeatable.", show_default=False),
]
Method = Annotated[
    str | None,
    typer.Option("--method", help="sampling, greedy, beam, best-first or exhaustive.", show_default=False),
]
Temperature = Annotated[
    float | None, typer.Option("--temperature", help="Below 1 sharper, above 1 flatter.", show_default=False)
]
TopK = Annotated[int | None, typer.Option("--top-k", help="Draw from the k most probable tokens.", show_default=False)]
TopP = Annotated[float | None, typer.Option("--top-p", help="Draw from the most probable share.", show_default=False)]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Another seed, other samples.", show_default=False)]
NoEcho = Annotated[bool, typer.Option("--no-echo", help="Leave the prompt out.", show_default=False)]
Scores = Annotated[bool, typer.Option("--scores", help="Print the score before each output.", show_default=False)]
Streaming = Annotated[
    bool | None,
    typer.Option("--stream/--no-stream", help="Print the text as it grows; at a terminal.", show_default=False),
]


def command(
    run: RunFolder,
    prompts: Prompts = None,
    file: File = None,
    nbest: Count = 1,
    max_tokens: MaxTokens = None,
    lines: Lines = 1,
    stop: Stop = None,
    method: Method = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    search: Search = None,
    no_echo: NoEcho = False,
    scores: Scores = False,
    stream: Streaming = None,
    others: With = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    int8: Int8 = False,
    quiet: Quiet = False,
) -> None:
    """Go on from prompts: in arguments, in a file, or on standard input, a line each; without any, write a text.

    --search changes how outputs are looked for: --search beam=8 --search length_penalty=none.
    """
    add_plugins(plugin)
    told = {"max_length": max_tokens, "method": method, "temperature": temperature, "top_k": top_k, "top_p": top_p}
    options = with_flags(read_search(search), {**told, "seed": seed, "nbest": nbest if nbest > 1 else None})
    check_printing(json=json, scores=scores, no_echo=no_echo, stream=stream)
    given = read_prompts(prompts, file)
    model = load_for(run, None, "generate", device, int8=int8, others=others)
    nbest = int(options.get("nbest", 1))
    if nbest > 1:
        options = several(nbest, options, model.config)
    options |= {"lines": lines, "stop": tuple(stop or ())}
    if stream is None:
        alone = sys.stdout.isatty() and isinstance(given, list) and len(given) == 1 and not json and not scores
        stream = alone and nbest == 1 and options.get("method", model.config.method) in ("greedy", "sampling")
    if stream:
        say(tell(model, list(given), options, echo=not no_echo), quiet)
        return
    for number, result in enumerate(model.stream(given, parts=not json, **options)):
        if json:
            print(json_line(output_json(result, nbest, scores=scores)), flush=True)
            continue
        if number and lines > 1:
            print()
        show(result, echo=not no_echo, scores=scores, apart=lines > 1)
        say(result, quiet or result.first > 0)


def with_flags(options: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """The search options with those that have a flag of their own."""
    given = {key: value for key, value in flags.items() if value is not None}
    for key in given:
        if key in options:
            flag = "max-tokens" if key == "max_length" else key.replace("_", "-")
            raise UserError(f"--{flag} and --search {key} say the same", todo="give one of them")
    return {**options, **given}


def check_printing(*, json: bool, scores: bool, no_echo: bool, stream: bool | None) -> None:
    """Refuse ways of printing that exclude each other."""
    if json and no_echo:
        raise UserError("--no-echo has no effect with --json, which tells everything", todo="leave --no-echo out")
    if stream and (json or scores):
        flag = "--json" if json else "--scores"
        raise UserError(f"--stream prints a text as it grows, and {flag} needs all of it", todo="leave out one of them")


def read_prompts(prompts: list[str] | None, file: Path | None) -> list[str] | Iterator[str]:
    """The prompts, a line at a time; a blank line is the beginning of a text, and so is no prompt at all."""
    from mallang.data.readers import lines

    if prompts and file is not None:
        raise UserError("prompts and --file were both given", todo="give one of them")
    if prompts:
        return prompts
    if file is None and not is_piped():
        return [""]
    source = lines(Path("/dev/stdin") if file is None or str(file) == "-" else file)
    first = next(source, None)
    if first is None and file is not None:
        raise UserError(
            "there is no prompt", where=str(file), todo="write one on each line; a blank line is a prompt, too"
        )
    return [""] if first is None else after(first, source)


def after(first: str, others: Iterator[str]) -> Iterator[str]:
    """One prompt, then the others, each when it is asked for."""
    yield first
    yield from others


def is_piped() -> bool:
    """Whether standard input is a pipe or a file: a terminal, or nothing at all, has no prompts."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def tell(model: Any, prompts: list[str], options: Mapping[str, Any], *, echo: bool) -> Generated:
    """Print one text as it grows."""
    if len(prompts) != 1:
        raise UserError(f"--stream prints one text as it grows, not {len(prompts)}", todo="give one prompt")
    writing = model.write(prompts[0], echo=echo, **options)
    while True:
        try:
            print(next(writing), end="", flush=True)
        except StopIteration as ended:
            print(flush=True)
            result: Generated = ended.value
            return result


def show(result: Generated, *, echo: bool, scores: bool, apart: bool) -> None:
    """Print the outputs of one prompt, at once: someone may be waiting at the other end of a pipe."""
    outputs = zip(result.texts, result.nbest, strict=True)
    for rank, (text, (output, score, _)) in enumerate(outputs):
        if rank and apart:
            print()
        shown = text if echo else output
        print(f"{score:.4f}\t{shown}" if scores else shown, flush=True)


def say(result: Generated, quiet: bool) -> None:
    """Print what the reader should know of a result, but not among the results."""
    if result.note and not quiet:
        typer.echo(f"note: {result.input[:40]!r}: {result.note}", err=True)
