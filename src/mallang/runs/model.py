"""The model of a run folder, without its task: built from its config and vocabularies, with its trained weights.

A task adds verbs and a head (loading.py). Other runs need neither: they are given the model itself, such as an encoder
whose vectors they read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from mallang.data.columns import LabelSet
from mallang.errors import UserError
from mallang.find import find
from mallang.models.contract import Classifier, Tagger, TripleScorer
from mallang.renamed import fit_names
from mallang.runs.folder import Run
from mallang.runs.own_files import WEIGHTS
from mallang.runs.weights import head_alone, own_weights, set_weights, without_head
from mallang.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TrainedModel:
    """A trained model and how it reads text."""

    model: nn.Module
    """In eval mode, on the CPU."""
    tokenizer: Tokenizer
    """The tokenizer of the text that it reads: of the source, if it reads one."""
    head: Mapping[str, Tensor] = field(default_factory=dict)
    """The weights of the head that its task put on the model, by their names in it."""


def open_model(run: Run) -> TrainedModel:
    """The model of a finished run, without the head of its task."""
    recipe = run.recipe()
    kind = find("models", recipe.model_name).Model
    if issubclass(kind, Classifier):
        raise UserError(f"{recipe.model_name} is a classifier as a whole: there is no model below its output")
    columns = vocabularies_of(run, reads_source=kind.reads_source)
    tokenizers = run.tokenizers(tuple(columns.values()))
    vocabularies = {argument: tokenizers[column].vocabulary for argument, column in columns.items()}
    more = {"relations": len(LabelSet.load(run.folder, "relation"))} if issubclass(kind, TripleScorer) else {}
    model: nn.Module = kind(recipe.model, **vocabularies, **more)
    whole = run.read_weights()
    weights, head = without_head(whole), head_alone(whole)
    if isinstance(model, Tagger):  # it was built as an encoder: its own CRF is left out
        own = own_weights(model)
        weights = {name: tensor for name, tensor in fit_names(weights, own).items() if name in own}
    set_weights(model, weights, run.folder / WEIGHTS)
    return TrainedModel(model.eval(), tokenizers[columns.get("source_vocabulary", columns["vocabulary"])], head)


def vocabularies_of(run: Run, *, reads_source: bool) -> dict[str, str]:
    """The column whose tokenizer has the vocabulary for each argument of the model's constructor."""
    known: dict[str, str] | None = run.info.get("vocabularies")
    return known or arguments_of(list(run.info.get("tokenizers", ["text"])), reads_source=reads_source)


def arguments_of(columns: Sequence[str], *, reads_source: bool) -> dict[str, str]:
    """The column of each argument where a task has these columns of text: source first, output last."""
    return {"vocabulary": columns[-1], **({"source_vocabulary": columns[0]} if reads_source else {})}
