"""`mallang embed`: a vector for every text, and a map of them."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mallang.commands.options import Device, Json, Plugin, Quiet, RunFolder, Texts, add_plugins, load_for
from mallang.commands.translate import read_texts
from mallang.errors import UserError

if TYPE_CHECKING:
    import numpy as np

EXAMPLES = (
    'mallang embed runs/autoencoder-miniworld "유나는 지난주에 배를 탔다." --json',
    "mallang embed runs/autoencoder-miniworld --file texts.txt --out vectors.npy",
    "mallang embed runs/autoencoder-miniworld --file texts.txt --map map.png --method tsne",
    "mallang embed runs/transformer-miniworld --words --file words.txt --map words.svg",
)
VECTORS = (".npy", ".safetensors")
File = Annotated[Path | None, typer.Option("--file", "-f", help="Take each line of this file.", show_default=False)]
Words = Annotated[
    bool, typer.Option("--words", help="The learned vectors of words, not those of texts.", show_default=False)
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
Seed = Annotated[int | None, typer.Option("--seed", help="What t-SNE begins with.", show_default=False)]


def command(
    run: RunFolder,
    texts: Texts = None,
    file: File = None,
    words: Words = False,
    out: Out = None,
    maps: MapFile = None,
    method: Method = None,
    seed: Seed = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Print the vector of each text: what a model with a fixed vector (sutskever, cho, autoencoder) keeps of it.

    With --words it is the vector that any model learned for a word; a word of several tokens has the mean of theirs.
    Blank lines are left out. Vectors are printed unless --out or --map says where they go.
    """
    from mallang.inspection.projections import make_map

    add_plugins(plugin)
    check(out, maps or (), method, seed)
    given = [text for text in read_texts(texts, file) if text.strip()]
    if not given:
        raise UserError("there is no text to embed", todo="give texts, or a file with a text a line")
    model = load_for(run, None, "embed", device)
    vectors = model.embed(given, words=words)
    if out is not None:
        write_vectors(out, vectors)
        say(f"{len(given)} vectors of {vectors.shape[1]} numbers in {out}", quiet)
    if maps:
        made = make_map(given, vectors, method or "pca", 1 if seed is None else seed)
        for path in maps:
            made.write(path)
            say(f"the map is in {path}", quiet)
    if json or not (out or maps):
        print_vectors(given, vectors, json=json)


def check(out: Path | None, maps: Sequence[Path], method: str | None, seed: int | None) -> None:
    """Refuse what cannot be written, or would have no effect, before a model is loaded."""
    from mallang.inspection.projections import check_map_format

    if out is not None and out.suffix.lower() not in VECTORS:
        raise UserError(f"vectors cannot be written as {out.name}", todo=f"end the name in {' or '.join(VECTORS)}")
    for path in maps:
        check_map_format(path)
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
        safetensors.numpy.save_file({"vectors": vectors}, path)


def print_vectors(texts: Sequence[str], vectors: np.ndarray[Any, Any], *, json: bool) -> None:
    """A line a text: as JSON, or the numbers with blanks between."""
    for text, vector in zip(texts, vectors.tolist(), strict=True):
        if json:
            print(json_format.dumps({"input": text, "vector": vector}, ensure_ascii=False), flush=True)
        else:
            print(" ".join(f"{value:.6g}" for value in vector), flush=True)


def say(text: str, quiet: bool) -> None:
    """Tell what was written, unless only results are wanted."""
    if not quiet:
        typer.echo(text, err=True)
