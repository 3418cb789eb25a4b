"""`mallang embed`: a vector for every text, and a map of them."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.inputs import note_cut, note_long, read_inputs, read_texts, set_long_texts
from mallang.commands.options import Device, Json, LongTexts, Plugin, Quiet, RunFolder, Texts, add_plugins, load_for
from mallang.commands.outputs import json_line
from mallang.errors import UserError
from mallang.tasks.result_json import embedded

if TYPE_CHECKING:
    import numpy as np

EXAMPLES = (
    'mallang embed runs/autoencoder-miniworld "유나는 지난주에 배를 탔다." --json',
    "mallang embed runs/autoencoder-miniworld --file texts.txt --out vectors.npy",
    "mallang embed runs/autoencoder-miniworld --file texts.txt --map map.png --method tsne",
    "mallang embed runs/transformer-miniworld --words --file words.txt --map words.svg",
    'mallang embed runs/rnn-lm-miniworld "유나는 지난주에 배를 탔다." --tokens --json',
)
VECTORS = (".npy", ".safetensors")
File = Annotated[Path | None, typer.Option("--file", "-f", help="Take each line of this file.", show_default=False)]
Words = Annotated[
    bool, typer.Option("--words", help="The learned vectors of words, not those of texts.", show_default=False)
]
Tokens = Annotated[
    bool,
    typer.Option("--tokens", help="A vector of every token after each layer of an rnn_lm.", show_default=False),
]
Join = Annotated[
    Path | None,
    typer.Option("--join", metavar="RUN", help="With --tokens: join a backward model's.", show_default=False),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="Write vectors: .npy or .safetensors.", show_default=False),
]
MapFile = Annotated[
    list[Path] | None,
    typer.Option(
        "--map", metavar="FILE", help="Draw them on a plane: .png, .svg; .json: as data. Repeatable.",
        show_default=False,
    ),
]  # fmt: skip
Method = Annotated[
    str | None, typer.Option("--method", help="How a map is made: pca (usual) or tsne.", show_default=False)
]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="What t-SNE begins with.", show_default=False)]


def command(
    run: RunFolder,
    texts: Texts = None,
    file: File = None,
    words: Words = False,
    tokens: Tokens = False,
    join: Join = None,
    out: Out = None,
    maps: MapFile = None,
    method: Method = None,
    seed: Seed = None,
    long_texts: LongTexts = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Print the vector of each text: what a model with a fixed vector (sutskever, cho, autoencoder) keeps of it.

    With --words it is the vector that any model learned for a word; a word of several tokens has the mean of theirs.
    With --tokens it is a vector of every token in its context, after each layer of a recurrent language model; --join
    adds those of a model that reads backwards (task.name=backward_language_modeling), so that both sides are known.
    A run that classifies pairs takes pairs, as two arguments or lines with a tab between. Blank lines are left out.
    Vectors are printed unless --out or --map says where they go.
    """
    from mallang.inspection.projections import make_map

    add_plugins(plugin)
    check(out, maps or (), method, seed)
    if join is not None and not tokens:
        raise UserError(f"--join {join} has no effect without --tokens", todo="--tokens: vectors of every token")
    if tokens:
        refused = {"--words": words, "--map": maps, "--method": method, "--long-texts": long_texts}
        for name, value in refused.items():
            if value:
                raise UserError(f"{name} has no effect with --tokens", todo=f"leave out --tokens or {name}")
        embed_tokens(run, join, given_texts(None, texts, file), out, device)
        return
    if words and long_texts is not None:
        raise UserError("--long-texts has no effect with --words", todo="leave out --words or --long-texts")
    model = load_for(run, None, "embed", device)
    given = given_texts(None if words else model, texts, file)
    set_long_texts(model, long_texts)
    vectors = model.embed(given, words=words)
    if not words:
        (note_cut if isinstance(given[0], tuple) else note_long)(model, given, quiet=quiet)
    if out is not None:
        write_vectors(out, vectors)
        say(f"{len(given)} vectors of {vectors.shape[1]} numbers in {out}", quiet)
    if maps:
        made = make_map([shown(each) for each in given], vectors, method or "pca", 1 if seed is None else seed)
        for path in maps:
            made.write(path)
            say(f"the map is in {path}", quiet)
    if json or not (out or maps):
        print_vectors(given, vectors, json=json)


def given_texts(model: Any, texts: list[str] | None, file: Path | None) -> list[Any]:
    """The texts without blank ones, or the pairs of texts of a run that embeds pairs."""
    from mallang.tasks.pair_layout import EmbedsPairs

    if isinstance(model, EmbedsPairs):
        given = list(read_inputs(model, texts, file))
    else:
        given = [text for text in read_texts(texts, file) if text.strip()]
    if not given:
        raise UserError("there is no text to embed", todo="give texts, or a file with a text a line")
    return given


def embed_tokens(run: Path, join: Path | None, texts: Sequence[str], out: Path | None, device: str) -> None:
    """The vectors of tokens, as a line of JSON for each text, or in a file with a tensor for each text and layer."""
    import safetensors.numpy

    if out is not None and out.suffix.lower() != ".safetensors":
        raise UserError(f"vectors of tokens cannot be written as {out.name}", todo="end the name in .safetensors")
    from mallang.tasks.embedding import token_vectors

    found = token_vectors(load_for(run, None, "embed", device), texts)
    if join is not None:
        others = token_vectors(load_for(join, None, "embed", device), texts)
        found = [one.join(other) for one, other in zip(found, others, strict=True)]
    if out is not None:
        named = {f"{text}.{layer}": rows for text, one in enumerate(found) for layer, rows in enumerate(one.layers)}
        out.write_bytes(safetensors.numpy.save(named))
        return
    for text, one in zip(texts, found, strict=True):
        layers = [rows.tolist() for rows in one.layers]
        print(
            json_format.dumps({"input": text, "tokens": one.tokens, "layers": layers}, ensure_ascii=False), flush=True
        )


def check(out: Path | None, maps: Sequence[Path], method: str | None, seed: int | None) -> None:
    """Refuse what cannot be written, or would have no effect, before a model is loaded."""
    from mallang.inspection.projections import check_map_format

    if out is not None and out.suffix.lower() not in VECTORS:
        raise UserError(f"vectors cannot be written as {out.name}", todo=f"end the name in {' or '.join(VECTORS)}")
    for path in maps:
        check_map_format(path)
    for path in [*maps] if out is None else [out, *maps]:
        if not path.parent.is_dir():
            raise UserError(f"there is no folder {path.parent} for {path.name}", todo="make it first")
    if method is not None and not maps:
        raise UserError(f"--method {method} has no effect without a map", todo="--map FILE.png")
    if seed is not None and method != "tsne":
        raise UserError(f"--seed {seed} has no effect: only t-SNE draws random numbers", todo="--method tsne")


def write_vectors(path: Path, vectors: np.ndarray[Any, Any]) -> None:
    """A row a text, as NumPy or safetensors has it."""
    import numpy as np
    import safetensors.numpy

    if path.suffix.lower() == ".npy":
        np.save(path, vectors)
    else:
        path.write_bytes(safetensors.numpy.save({"vectors": vectors}))


def print_vectors(texts: Sequence[Any], vectors: np.ndarray[Any, Any], *, json: bool) -> None:
    """A line a text: as JSON, or the numbers with blanks between."""
    for text, vector in zip(texts, vectors.tolist(), strict=True):
        if json:
            print(json_line(embedded(text, vector)), flush=True)
        else:
            print(" ".join(f"{value:.6g}" for value in vector), flush=True)


def shown(given: Any) -> str:
    """A text, or both of a pair, in one line."""
    return given if isinstance(given, str) else " ↔ ".join(given)


def say(text: str, quiet: bool) -> None:
    """Tell what was written, unless only results are wanted."""
    if not quiet:
        typer.echo(text, err=True)
