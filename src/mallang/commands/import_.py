"""`mallang import`: a model of others as a run folder of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mallang.commands.options import Quiet, folder_of_run
from mallang.errors import UserError

EXAMPLES = (
    "mallang import news.arpa",
    "mallang import news.arpa.gz --name news",
    "mallang import models/gpt2",
    "mallang import models/bert-base-uncased --name bert",
    "mallang import klue/bert-base",
    "mallang import sentiment-model.zip --name sentiment",
    "mallang import roberta-large-mnli --pairs --name nli",
    "mallang import glove.6B.50d.txt --name glove",
)
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz")
"""Endings of archives of a folder."""
SUFFIXES = (".arpa", ".arpa.gz", ".lm", ".lm.gz")
VECTORS = tuple(f"{suffix}{packed}" for suffix in (".txt", ".vec", ".bin") for packed in ("", ".gz", ".xz"))
"""Endings of files of word vectors, besides .npy."""

File = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="An ARPA file, word vectors, or the folder, archive or hub name of a GPT-2, BERT or model like BERT.",
        show_default=False,
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="NAME", help="Name of the run; otherwise that of the file or folder.", show_default=False
    ),
]
Runs = Annotated[Path, typer.Option("--runs", metavar="FOLDER", help="Where run folders are.")]
AllowBin = Annotated[
    bool,
    typer.Option("--allow-bin", help="Read pickled weights (.bin) where there are no others.", show_default=False),
]
Pairs = Annotated[
    bool,
    typer.Option("--pairs", help="The classes of its head are those of pairs of texts (NLI).", show_default=False),
]
Fresh = Annotated[bool, typer.Option("--fresh", help="Replace a run of that name.", show_default=False)]


def command(
    file: File,
    name: Name = None,
    runs: Runs = Path("runs"),
    allow_bin: AllowBin = False,
    pairs: Pairs = False,
    fresh: Fresh = False,
    quiet: Quiet = False,
) -> None:
    """Make a run of the n-grams in an ARPA file, of word vectors, or of a model that transformers has saved.

    KenLM, SRILM and others write ARPA files; tokens are then what stands between spaces. Word vectors are in the text
    or binary format of word2vec, in GloVe's text format, or in a .npy file with a file of words beside it. The folder
    of a GPT-2, BERT, RoBERTa, ALBERT, ELECTRA or DistilBERT holds config.json, model.safetensors and tokenizer.json; it
    may be packed as .zip or .tar.gz. A hub name is looked up in the local cache, and nothing is downloaded. A model
    with a head that classifies texts or tags words does so at once; --pairs says that it classifies pairs of texts. The
    run is used like one that was trained here.
    """
    suffix = ending(file, SUFFIXES)
    is_vectors = file.suffix == ".npy" or ending(file, VECTORS) is not None
    packed = None if file.is_dir() else ending(file, ARCHIVES)
    if packed is not None and not file.exists():
        raise UserError(f"there is no file {file}")
    is_model = file.is_dir() or packed is not None or (suffix is None and not is_vectors and not file.exists())
    if allow_bin and not is_model:
        raise UserError(f"--allow-bin has no effect on {file}, which is no model of transformers", todo="leave it out")
    if pairs and not is_model:
        raise UserError(f"--pairs has no effect on {file}, which is no model of transformers", todo="leave it out")
    if is_vectors and not is_model:
        from mallang.interop.word_vectors import import_vectors

        own = name or file.name.removesuffix(ending(file, VECTORS) or ".npy")
        made = import_vectors(file, folder_of_run(runs, own), fresh=fresh)
        if not quiet:
            print(f"the run is in {made.folder}")
        return
    if is_model:
        from mallang.interop.huggingface_models import import_model

        place = folder_of_run(runs, name or file.resolve().name.removesuffix(packed or ""))
        imported = import_model(file, place, allow_bin=allow_bin, fresh=fresh, as_pairs=pairs)
        if not quiet:
            print(f"the run is in {imported.folder}")
        return
    if suffix is None:
        raise UserError(
            f"{file} is no file that can be imported: ARPA files end in .arpa or .arpa.gz, word vectors in .txt, .vec, "
            ".bin or .npy, archives of a folder in .zip or .tar.gz",
            todo="rename it, if it is one",
        )
    from mallang.interop.ngram_run import import_arpa

    run = import_arpa(file, folder_of_run(runs, name or file.name.removesuffix(suffix)), fresh=fresh)
    if not quiet:
        print(f"the run is in {run.folder}")


def ending(file: Path, suffixes: tuple[str, ...]) -> str | None:
    """The longest of these suffixes that a file has."""
    return max((suffix for suffix in suffixes if file.name.endswith(suffix)), key=len, default=None)
