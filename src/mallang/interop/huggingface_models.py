"""Models of `transformers`: which import reads a folder, and which export writes a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mallang.errors import UserError
from mallang.interop import huggingface, huggingface_bert
from mallang.interop.archive import unpacked
from mallang.interop.huggingface_albert import export_albert, import_albert
from mallang.interop.huggingface_distilbert import export_distilbert, import_distilbert
from mallang.interop.huggingface_electra import export_electra, import_electra
from mallang.interop.huggingface_folder import CONFIG, locate, read_json
from mallang.layers.head import Headed
from mallang.models.albert import ALBERT
from mallang.models.bert import BERT
from mallang.models.distilbert import DistilBERT
from mallang.models.electra import ELECTRA
from mallang.models.gpt import GPT
from mallang.runs.folder import Run
from mallang.tasks import language_modeling, pairs, similarity

IMPORTS = {
    "gpt2": huggingface.import_gpt2,
    **dict.fromkeys(huggingface_bert.TYPES, huggingface_bert.import_bert),
    "albert": import_albert,
    "electra": import_electra,
    "distilbert": import_distilbert,
}
"""What reads each model_type."""


def import_model(
    source: Path, folder: Path, *, allow_bin: bool = False, fresh: bool = False, as_pairs: bool = False
) -> Run:
    """A finished run of a folder, of an archive of one, or of a name in the local cache of the hub.

    With `as_pairs` the head of a classifier reads pairs of texts, as one of NLI does: config.json does not say that.
    """
    if source.is_file():
        with unpacked(source) as own:
            return import_model(own, folder, allow_bin=allow_bin, fresh=fresh, as_pairs=as_pairs)
    found = locate(source)
    kind = read_json(found / CONFIG).get("model_type")
    if kind not in IMPORTS:
        raise UserError(
            f"the model is of type {kind!r}, which cannot be imported" if kind else "there is no model_type",
            where=str(found / CONFIG),
            todo=f"types that can be imported: {', '.join(IMPORTS)}",
        )
    return IMPORTS[kind](found, folder, allow_bin=allow_bin, fresh=fresh, as_pairs=as_pairs)


def export_model(verbs: Any, folder: Path) -> str:
    """Write a run as a folder of theirs; returns the class of `transformers` that loads it."""
    if isinstance(verbs, pairs.Verbs | similarity.Verbs) and verbs.task.layout.layout == "orders":
        raise UserError(
            "transformers has no head that reads a pair in both orders", todo="train with task.both_orders=false"
        )
    model = verbs.model.model if isinstance(verbs.model, Headed) else verbs.model
    if isinstance(model, BERT):
        return huggingface_bert.export_bert(verbs, folder)
    if isinstance(model, ALBERT):
        return export_albert(verbs, folder)
    if isinstance(model, ELECTRA):
        return export_electra(verbs, folder)
    if isinstance(model, DistilBERT):
        return export_distilbert(verbs, folder)
    if isinstance(model, GPT) and isinstance(verbs, language_modeling.Verbs):
        huggingface.export_gpt2(verbs, folder)
        return "AutoModelForCausalLM"
    if isinstance(model, GPT):
        raise UserError(
            f"transformers has no GPT-2 with the {verbs.task_name.replace('_', ' ')} head of this run: theirs has no "
            "bias and reads the last token of a text, and ours reads a token of its own after the text",
            todo="--to onnx exports it",
        )
    raise UserError(
        f"transformers has no {type(model).__name__} like ours",
        todo="export a gpt, bert, albert, electra or distilbert",
    )
