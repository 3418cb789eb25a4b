"""The folder that an export is written to: whole or not there, and of use where there is no mallang."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mallang
from mallang.errors import UserError
from mallang.find import ROOT
from mallang.layers.quantization import Int8Linear
from mallang.models.transformer import Transformer
from mallang.runs.files import unwritable
from mallang.tasks.translator import Verbs
from mallang.text.tokenizer_files import names

ABOUT, SCRIPT, README = "export.json", "translate.py", "README.md"
NEEDS = {"ctranslate2": "ctranslate2 tokenizers", "onnx": "onnxruntime tokenizers numpy"}
"""What must be installed to run an export of each kind."""
TEXT = """\
# A translation model for {kind}

Written by mallang {version}. To use it, neither mallang nor torch is needed:

    pip install {needs}
    python translate.py "a text" "another text"
    python translate.py < texts.txt

`translate.py` is short and meant to be read: it shows all that a program of your own has to do.

- `tokenizer.json` (or one each for source and target) is read by the package `tokenizers`.
- The source is the tokens of a text and `</s>` at the end{end}; the output begins after `<s>` and ends with `</s>`.
- A text of a domain that the model knows has the tag of it before its tokens: `domains` in `export.json`.
- `<pad>` and `<s>` are never said: suppress them.
- An output has at most {ratio:g} tokens per source token and 10 more, and never more than {longest}.
- A text may have {positions} tokens at most, `</s>` counted.
- The outputs of greedy search are those of `mallang translate RUN --search method=greedy`, but a text of {trained}
  tokens or more is not split into sentences here.
"""


def transformer_of(model: Verbs) -> Transformer:
    """The network of a loaded run, if it is one that can be exported."""
    if model.task.source.config.unit == "morpheme":
        raise UserError(
            "a source that an analyzer cuts at its morphemes cannot be exported: tokenizer.json does not hold the "
            "analyzer, so the folder would be of no use without mallang",
            todo='train with text.source_unit="bpe", or another unit',
        )
    if not isinstance(model.model, Transformer):
        raise UserError(
            f"only the Transformer can be exported, not {type(model.model).__name__}", todo="export another run"
        )
    if any(isinstance(part, Int8Linear) for part in model.model.modules()):
        raise UserError("a model that was loaded with int8 weights cannot be exported", todo='weights="float32"')
    return model.model


@contextmanager
def write_folder(model: Verbs, folder: Path, *, kind: str, positions: int) -> Iterator[Path]:
    """A new folder to write the model into; the tokenizers, the script and a readme are put beside it."""
    with draft_of(folder) as draft:
        yield draft
        write_rest(model, draft, kind=kind, positions=positions)


@contextmanager
def draft_of(folder: Path) -> Iterator[Path]:
    """A new folder that gets its name when all has been written; one that is there already is refused."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is there already", todo="remove it, or choose another with --output")
    draft = folder.with_name(f".draft-{folder.name}")
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        yield draft
        if folder.exists():
            folder.rmdir()
        draft.rename(folder)
    except OSError as error:
        raise unwritable(folder, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_rest(model: Verbs, folder: Path, *, kind: str, positions: int) -> None:
    """Everything but the model itself."""
    source, target = model.task.source, model.task.target
    shared = source.fingerprint == target.fingerprint
    files = {"source": "tokenizer", "target": "tokenizer"} if shared else {}
    for side, tokenizer in (("source", source), ("target", target)):
        tokenizer.save(folder, files.setdefault(side, f"tokenizer.{side}"))
    about = {
        "format": 1,
        "kind": kind,
        "mallang": mallang.__version__,
        **{side: f"{file}.json" for side, file in files.items()},
        "domains": {name: names(source.backend)[tag] for name, tag in source.domains.items()},
        "compose": target.config.unit == "jamo",
        "max_length": min(model.config.max_length, positions),
        "max_ratio": model.config.max_ratio,
        "positions": positions,
    }
    (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    shutil.copyfile(ROOT / "interop" / f"{kind}_script.py", folder / SCRIPT)
    text = TEXT.format(
        kind={"ctranslate2": "CTranslate2", "onnx": "ONNX Runtime"}[kind],
        version=mallang.__version__,
        needs=NEEDS[kind],
        end=", which CTranslate2 adds itself" if kind == "ctranslate2" else "",
        ratio=model.config.max_ratio,
        longest=min(model.config.max_length, positions),
        positions=positions,
        trained=model.max_length or "many",
    )
    (folder / README).write_text(text, encoding="utf-8")
