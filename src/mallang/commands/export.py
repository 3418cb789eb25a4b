"""`mallang export`: a trained model for other runtimes and formats."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mallang.commands.options import Plugin, Quiet, RunFolder, add_plugins, check_run, load_for
from mallang.errors import UserError

EXAMPLES = (
    "mallang export runs/transformer-miniworld --to ctranslate2",
    "mallang export runs/transformer-miniworld --to ctranslate2 --int8 --output small",
    "mallang export runs/transformer-miniworld --to onnx",
    "mallang export runs/bert-miniworld --to onnx --output classifier",
    "mallang export runs/ngram-miniworld --to arpa --output miniworld.arpa.gz",
    "mallang export runs/my-gpt --to huggingface",
    "mallang export runs/bert-miniworld --to huggingface --output my-bert",
    "mallang export runs/word2vec-miniworld --to word2vec --output vectors.bin",
)


class Format(StrEnum):
    """What a model can be exported to."""

    ctranslate2 = "ctranslate2"
    onnx = "onnx"
    arpa = "arpa"
    huggingface = "huggingface"
    word2vec = "word2vec"


To = Annotated[Format, typer.Option("--to", help="The runtime or format.", show_default=False)]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="Folder, or file for arpa and word2vec; otherwise in RUN.",
        show_default=False,
    ),
]
Int8 = Annotated[
    bool,
    typer.Option("--int8", help="CTranslate2: quantize weights to int8, a quarter of the size.", show_default=False),
]


def command(
    run: RunFolder, to: To, output: Output = None, int8: Int8 = False, plugin: Plugin = None, quiet: Quiet = False
) -> None:
    """Write a trained Transformer for CTranslate2 or ONNX Runtime, or a model in a format of others.

    --to onnx also takes what classifies texts or pairs, tags without a CRF, encodes, compares, answers questions or
    chooses: one graph, for any batch and length.

    --to arpa writes n-grams, --to huggingface a GPT or a BERT for transformers, --to word2vec word vectors: as text, or
    binary where the name of the file ends in .bin.

    The folder of a Transformer also holds the tokenizers and a script, so that it runs where there is neither mallang
    nor torch: python FOLDER/translate.py "a text".
    """
    if int8 and to is not Format.ctranslate2:
        raise UserError(f"--int8 has no effect on --to {to.value}", todo="leave --int8 out, or --to ctranslate2")
    add_plugins(plugin)
    if to is Format.arpa:
        export_arpa(run, output, quiet)
        return
    if to is Format.huggingface:
        export_huggingface(run, output or run / to.value, quiet)
        return
    if to is Format.word2vec:
        export_vectors(run, output or run / "vectors.txt", quiet)
        return
    folder = output or run / to.value
    if to is Format.onnx and is_encoder(run):
        export_encoder(run, folder, quiet)
        return
    if to is Format.onnx:
        check_graph(run)
    model = load_for(run, "translation", f"export --to {to.value}", "cpu")
    if to is Format.ctranslate2:
        from mallang.interop import ctranslate2

        ctranslate2.write(model, folder, int8=int8)
    else:
        from mallang.interop import onnx

        onnx.write(model, folder)
    if not quiet:
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        print(f'{folder}  {size:.1f} MB; try: python {folder}/translate.py "a text"')


def is_encoder(run: Path) -> bool:
    """Whether a run reads texts without generating any, so that it is exported to ONNX as one graph."""
    from mallang.interop.onnx_encoder import TASKS
    from mallang.runs.folder import Run

    check_run(run)
    return Run.open(run).task in TASKS


def check_graph(run: Path) -> None:
    """Refuse a run that no graph of ONNX is written of."""
    from mallang.interop.onnx_encoder import TASKS
    from mallang.runs.folder import Run

    if (task := Run.open(run).task) != "translation":
        known = ", ".join((*TASKS, "translation"))
        raise UserError(
            f"{run} was trained for {task.replace('_', ' ')}, and is not exported to ONNX",
            todo=f"give a run of one of these tasks: {known}; --to huggingface writes a GPT, and a BERT with its head",
        )


def export_encoder(run: Path, folder: Path, quiet: bool) -> None:
    """Write a model that reads texts as an ONNX graph."""
    from mallang.interop import onnx_encoder
    from mallang.loading import load

    verbs = load(run, "cpu")
    onnx_encoder.write(verbs, folder)
    if not quiet:
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        print(f"{folder}  {size:.1f} MB; try: python {folder}/predict.py {onnx_encoder.use_of(verbs)}")


def export_arpa(run: Path, output: Path | None, quiet: bool) -> None:
    """Write n-grams to RUN/model.arpa, or to a file; one that ends in .gz is packed."""
    from mallang.interop import ngram_run

    path = output or run / "model.arpa"
    if path.exists():
        raise UserError(f"{path} is there already", todo="remove it, or --output FILE")
    ngram_run.export_arpa(load_for(run, "language_modeling", "export --to arpa", "cpu"), path)
    if not quiet:
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB; KenLM and others read it")


def export_huggingface(run: Path, folder: Path, quiet: bool) -> None:
    """Write a GPT or a BERT as a folder of transformers."""
    from mallang.interop.huggingface_models import export_model
    from mallang.loading import load

    check_run(run)
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is there already", todo="remove it, or --output FOLDER")
    kind = export_model(load(run, "cpu"), folder)
    if not quiet:
        print(f'{folder}; transformers loads it: {kind}.from_pretrained("{folder}")')


def export_vectors(run: Path, path: Path, quiet: bool) -> None:
    """Write word vectors in the text or binary format of word2vec."""
    from mallang.interop import word_vectors

    if path.exists():
        raise UserError(f"{path} is there already", todo="remove it, or --output FILE")
    word_vectors.export_vectors(load_for(run, "word_vectors", "export --to word2vec", "cpu"), path)
    if not quiet:
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB; gensim and others read it")
