"""Heads of `transformers` as tasks of ours: the classes or tags of a folder, and the weights of its head by our names.

    …ForSequenceClassification   a run for classification: one class, or several (problem_type); for pairs where asked
      with one output            a run for similarity: the score of a pair
    …ForNextSentencePrediction   a run for pairs: whether the second text is next
    …ForTokenClassification      a run for tagging
    …ForQuestionAnswering        a run for question_answering
    …ForMultipleChoice           a run for multiple_choice

The classes are those of `id2label`. Tags that spell spans are numbered as ours are, so the rows of the head may move; a
tag that their scheme has and their head has not gets a bias that leaves it no probability. One bias for all tokens of a
context, or for all choices, changes no probability: it is left out, and written as zero. The score of a pair is the
logit itself, or its sigmoid where config.json names it as sentence-transformers does. Heads of other tasks are refused
by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mallang.data.columns import Kind, LabelSet
from mallang.data.passages import Pairing
from mallang.errors import UserError
from mallang.find import find
from mallang.interop.huggingface_folder import CONFIG
from mallang.interop.imported_run import write_imported
from mallang.recipe import Recipe
from mallang.runs.folder import Run
from mallang.runs.weights import own_weights, set_weights
from mallang.tasks import (
    classification,
    encoding,
    masked_lm,
    multiple_choice,
    pairs,
    question_answering,
    replaced_token,
    similarity,
    tagging,
)
from mallang.tasks.contract import PredictsLabels, text_columns
from mallang.tasks.tag_set import TagSet
from mallang.text.tag_scheme import OUTSIDE, Scheme, is_span_tag, split_tag
from mallang.text.tokenizer import Tokenizer

FAMILY = re.compile(r"(Bert|Roberta|XLMRoberta|Camembert|Albert|Electra|DistilBert)(?=Model$|For|LMHead)")
"""The begin of the names of their classes."""
PLAIN = ("Model", "ForPreTraining", "ForMaskedLM")
"""Their classes without a head of a task."""
CLASSIFICATION, TAGGING = "ForSequenceClassification", "ForTokenClassification"
QUESTION, CHOICE, NEXT = "ForQuestionAnswering", "ForMultipleChoice", "ForNextSentencePrediction"
IS_NEXT = "next", "random"
"""The classes of a head for the next sentence."""
SCORES = "sentence_transformers", "activation_fn"
"""The keys of config.json that name what the score of a pair is computed by from its logit."""
ACTIVATIONS = {"sigmoid": "torch.nn.modules.activation.Sigmoid", "identity": "torch.nn.modules.linear.Identity"}
"""Their names of these activations."""
RANGE = "score_range"
"""The key of config.json under which an export keeps the lowest and the highest score."""
DROPOUTS = "classifier_dropout", "classifier_dropout_prob", "seq_classif_dropout", "hidden_dropout_prob", "dropout"
"""The keys of config.json that may state the dropout before the head, the first one first."""
NEVER = -1e9
"""A bias that leaves a tag no probability."""
ALONE = "for the encoder alone: AutoModel.from_pretrained(FOLDER).save_pretrained(OTHER), and import that"


@dataclass(frozen=True)
class TaskHead:
    """The head of a folder as that of a task of ours."""

    task: (
        classification.Config
        | pairs.Config
        | similarity.Config
        | tagging.Config
        | question_answering.Config
        | multiple_choice.Config
    )
    labels: Mapping[str, LabelSet]
    """The classes or tags by their column, where there are any."""
    weights: Mapping[str, Tensor]
    """The weights of the head by our names."""


def kind_of(about: Mapping[str, Any], where: Path) -> str:
    """The kind of model that config.json names, without its family: one that can be imported."""
    named = about.get("architectures")
    if not isinstance(named, list) or not named:
        return "Model"
    kind = FAMILY.sub("", str(named[0]), count=1)
    if kind not in (*PLAIN, CLASSIFICATION, TAGGING, QUESTION, CHOICE, NEXT):
        raise UserError(f"the head of {named[0]} cannot be imported", where=str(where), todo=ALONE)
    return kind


def head_of(
    kind: str, about: Mapping[str, Any], given: dict[str, Tensor], source: Path, *, as_pairs: bool = False
) -> TaskHead | None:
    """The head of a task, if the folder has one; its last layer is taken out of `given`.

    With `as_pairs` a head for classification reads pairs of texts.
    """
    if as_pairs and (kind != CLASSIFICATION or has_score(about, given)):
        raise UserError("--pairs is for a head that classifies, and this folder has none", where=str(source / CONFIG))
    if kind in PLAIN:
        return None
    if kind in (QUESTION, CHOICE):
        return unlabeled_head(kind, about, given, source)
    last = {NEXT: "cls.seq_relationship"}.get(kind, "classifier")
    last = "classifier.out_proj" if "classifier.out_proj.weight" in given else last
    weight, bias = (given.pop(f"{last}.{part}", None) for part in ("weight", "bias"))
    if weight is None or bias is None or weight.dim() != 2 or bias.shape != weight.shape[:1]:
        raise UserError(f"{CONFIG} names a model {kind}, but the weights hold no classifier", where=str(source))
    weights = {"head.linear.weight": weight, "head.linear.bias": bias}
    if kind == NEXT:
        return TaskHead(pairs.Config(), {"label": LabelSet(IS_NEXT, "label")}, weights)
    if kind == CLASSIFICATION and has_score(about, {last: bias}):
        return score_head(about, weights, source)
    names, dropout = names_of(about, len(weight), source), dropout_of(about, source)
    if kind == TAGGING:
        return tagging_head(names, weight, bias, dropout)
    several = about.get("problem_type") == "multi_label_classification"
    read = pairs.Config if as_pairs else classification.Config
    task = read(kind="multi" if several else "single", head_dropout=dropout)
    labels: Kind = "labels" if several else "label"
    return TaskHead(task, {"label": LabelSet(names, labels)}, weights)


def has_score(about: Mapping[str, Any], given: Mapping[str, Tensor]) -> bool:
    """Whether the output of a head is a number: config.json says so, or there is only one."""
    biases = [value for name, value in given.items() if name.startswith("classifier") and "dense" not in name]
    return about.get("problem_type") == "regression" or any(len(value) == 1 for value in biases)


def score_head(about: Mapping[str, Any], weights: dict[str, Tensor], source: Path) -> TaskHead:
    """The head that gives the score of a pair."""
    if (outputs := len(weights["head.linear.bias"])) != 1:
        raise UserError(
            f"a head for regression with {outputs} outputs cannot be imported, only one with one score",
            where=str(source),
            todo=ALONE,
        )
    where, theirs = str(source / CONFIG), about.get(SCORES[0])
    named = theirs.get(SCORES[1]) if isinstance(theirs, dict) else about.get("sbert_ce_default_activation_function")
    kind = str(named or ACTIVATIONS["identity"]).rsplit(".", 1)[-1].lower()
    if kind not in ACTIVATIONS:
        raise UserError(f"the activation {named!r} of a score is not supported, only Sigmoid and Identity", where=where)
    usual, dropout = similarity.Config(), dropout_of(about, source)
    try:
        lowest, highest = map(float, about.get(RANGE, (0, 1) if kind == "sigmoid" else (usual.lowest, usual.highest)))
        task = similarity.Config(activation=kind, lowest=lowest, highest=highest, head_dropout=dropout)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise UserError(f"{RANGE} = {about[RANGE]!r} is no range of scores", where=where) from error
    return TaskHead(task, {}, weights)


def unlabeled_head(kind: str, about: Mapping[str, Any], given: dict[str, Tensor], source: Path) -> TaskHead:
    """The head that finds an answer, or scores a choice."""
    last, outputs = ("qa_outputs", 2) if kind == QUESTION else ("classifier", 1)
    weight, _ = (given.pop(f"{last}.{part}", None) for part in ("weight", "bias"))
    if weight is None or weight.dim() != 2 or len(weight) != outputs:
        raise UserError(f"{CONFIG} names a model {kind}, but the weights hold no head of it", where=str(source))
    weights = {"head.linear.weight": weight}
    if kind == QUESTION:
        return TaskHead(question_answering.Config(), {}, weights)
    if about.get("model_type") == "electra":
        about = {DROPOUTS[0]: about.get("summary_last_dropout", 0.1)}
    return TaskHead(multiple_choice.Config(head_dropout=dropout_of(about, source)), {}, weights)


def tagging_head(names: tuple[str, ...], weight: Tensor, bias: Tensor, dropout: float) -> TaskHead:
    """The head of a tagger, its rows in the order of our tags."""
    labels, rows = LabelSet(names, "tags", scheme=scheme_of(names)), list[Tensor]()
    biases, nothing, never = list[Tensor](), torch.zeros_like(weight[0]), torch.tensor(NEVER)
    for name in TagSet(labels, "same").names:
        place = labels.ids.get(name)
        rows.append(nothing if place is None else weight[place])
        biases.append(never if place is None else bias[place])
    weights = {"head.scores.linear.weight": torch.stack(rows), "head.scores.linear.bias": torch.stack(biases)}
    task = tagging.Config(head="softmax", scheme="same", head_dropout=dropout)
    return TaskHead(task, {"tags": labels}, weights)


def task_alone(encoder: Any, pairing: Pairing, max_tokens: int = 0) -> Any:
    """What a model without the head of a task was trained for, by its other heads; without them it encodes.

    `pairing` is what its head for two texts tells, if it has one; texts are cut at `max_tokens`, unless it is 0.
    """
    heads, longest = encoder.config.pretraining_heads, encoder.config.max_length
    length = min(masked_lm.Config().length, longest)
    if isinstance(encoder, replaced_token.ReplacedTokens) and heads == "both":
        return replaced_token.Config(length=length)
    if isinstance(encoder, masked_lm.MaskedLM) and heads != "none":
        return masked_lm.Config(length=length, pairs=pairing if heads == "both" else "none")
    return encoding.Config(max_tokens=max_tokens, long_texts="cut" if max_tokens else "windows")


def write_run(
    folder: Path,
    encoder: nn.Module,
    head: TaskHead | None,
    tokenizer: Tokenizer,
    *,
    alone: Any,
    about: str,
    sources: Mapping[str, str],
    fresh: bool,
) -> Run:
    """The run of an encoder with its head of a task; without one its task is `alone`."""
    config: Any = encoder.config
    if head is None:
        recipe = Recipe.make(name=folder.name, task=alone, model=config, text=tokenizer.config)
        return write_imported(folder, recipe, tokenizer, encoder, about=about, sources=sources, fresh=fresh)
    task = head.task
    if isinstance(task, question_answering.Config):
        task = replace(task, window=min(task.window, config.max_length))
    recipe = Recipe.make(name=folder.name, task=task, model=config, text=tokenizer.config)
    kind, labels = find("tasks", recipe.task_name).Task, head.labels
    tokenizers = dict.fromkeys(text_columns(kind, task), tokenizer)
    model = kind(task, tokenizers, labels).build(find("models", recipe.model_name), config)
    whole = {f"model.{name}": value for name, value in own_weights(encoder).items()}
    set_weights(model, {**whole, **head.weights}, folder)
    return write_imported(folder, recipe, tokenizer, model, about=about, sources=sources, fresh=fresh, labels=labels)


def names_of(about: Mapping[str, Any], outputs: int, source: Path) -> tuple[str, ...]:
    """The names of the classes by number; without them LABEL_0 and so on, as in transformers."""
    where, found = str(source / CONFIG), about.get("id2label")
    if not found:
        return tuple(f"LABEL_{number}" for number in range(outputs))
    try:
        named = {int(number): str(name) for number, name in found.items()}
    except (AttributeError, ValueError) as error:
        raise UserError(f"id2label cannot be read: {error}", where=where) from error
    if sorted(named) != list(range(outputs)):
        raise UserError(
            f"the weights do not fit {CONFIG}: it names {len(named)} labels, and the head has {outputs} outputs",
            where=where,
        )
    names = tuple(named[number] for number in range(outputs))
    if len(set(names)) < outputs or not all(name.strip() for name in names):
        raise UserError("id2label holds a name twice, or an empty one", where=where, todo="give each label a name")
    return names


def label_names(verbs: Any, kind: str) -> dict[str, Any]:
    """The names of classes or tags as config.json holds them; of a score its activation and its range."""
    if kind == CLASSIFICATION and not isinstance(verbs, PredictsLabels):  # its output is a logit
        config = verbs.task.config
        told = {SCORES[0]: {SCORES[1]: ACTIVATIONS[config.activation]}, RANGE: [config.lowest, config.highest]}
        return {"id2label": {"0": "score"}, "label2id": {"score": 0}, "problem_type": "regression", **told}
    if kind == CLASSIFICATION:
        several = verbs.task.config.kind == "multi"
        names, more = (
            verbs.task.labels.names,
            {"problem_type": f"{'multi' if several else 'single'}_label_classification"},
        )
    elif kind == TAGGING:
        names, more = verbs.task.tags.names, {}
    else:
        return {}
    ids = {name: number for number, name in enumerate(names)}
    return {"id2label": {str(number): name for name, number in ids.items()}, "label2id": ids, **more}


def dropout_of(about: Mapping[str, Any], source: Path) -> float:
    """The dropout before the head."""
    named = [(key, about[key]) for key in DROPOUTS if about.get(key) is not None]
    key, share = named[0] if named else (DROPOUTS[0], 0.1)
    if not isinstance(share, int | float) or not 0 <= share < 1:
        raise UserError(f"{key} = {share!r} is no probability", where=str(source / CONFIG))
    return float(share)


def scheme_of(names: tuple[str, ...]) -> Scheme | None:
    """The scheme in which tags spell spans; none if they spell none."""
    prefixes = {split_tag(name)[0] for name in names}
    if OUTSIDE not in names or not all(map(is_span_tag, names)) or prefixes == {OUTSIDE}:
        return None
    if prefixes & {"E", "S"}:
        return "bioes"
    return "iob2" if "B" in prefixes else "iob1"
