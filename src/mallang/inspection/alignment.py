"""Attention between the words of a text and of the model's own output.

    seen = attention_of(model, "유나는 지난주에 배를 탔다.")
    seen.maps["decoder.1.cross"].weights        # [heads, output tokens, source tokens]
    in_words(seen).maps["decoder.1.cross"]      # attention between words instead of tokens

Nothing is recorded during the search. When it has ended, `forward` runs again on its output. A language model has no
source: its text is a prompt, and the tokens of prompt and output attend to those before them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mallang import notebook
from mallang.decoding.contract import device_of, inference
from mallang.decoding.ensemble import Ensemble
from mallang.decoding.scoring import score, with_labels
from mallang.errors import UserError, nearest
from mallang.inspection.attention import AttentionMap, Side, attention_maps, sides_of
from mallang.inspection.figures import draw_attention
from mallang.inspection.forward_pass import pass_of
from mallang.inspection.text_with_output import (
    TextWithOutput,
    Words,
    is_searching,
    padded,
    refuse_domain,
    searching,
    text_with_output,
    words_in,
    words_said,
)
from mallang.layers.attention import Observable, record_attention
from mallang.tasks import captioner, classifier, mention_classification
from mallang.text.vocabulary import EOS

CLASS_TOKEN = "[CLS]"


@dataclass(frozen=True)
class Seen:
    """A text, the model's output for it, and the attention maps."""

    input: str
    output: str
    score: float
    """Log-probability of the output, `</s>` included."""
    maps: Mapping[str, AttentionMap]
    """The attention of every layer, by its name."""
    words: Mapping[Side, Words]
    """The words of each side and their tokens; empty once the maps are between words."""

    def _repr_html_(self) -> str:
        """In a notebook: the most informative layer, the mean of its heads, between words."""
        whole = in_words(self)
        shown = whole.maps[main_layer(whole)]
        given = notebook.note(f"{self.input}   ({shown.name}, mean of {len(shown.weights)} heads)")
        weights = notebook.heat(shown.queries, shown.keys, shown.weights.mean(dim=0).tolist())
        return notebook.block(self.output, given, weights)


def attention_of(model: Any, text: str, *, target: str | None = None, domain: str | None = None, **search: Any) -> Seen:
    """The attention maps of a loaded model's output for a text; with `target` those of that output.

    Options of the search are those of `translate`: `beam=8`, `method="greedy"`. To a language model the text is a
    prompt, and `target` is the continuation, including the space between them; an empty one adds nothing.
    """
    if isinstance(model, classifier.Verbs):
        if target is not None or domain is not None or search:
            raise UserError("a classifier has no search, target or domain", todo="leave them out")
        return attention_in(model, text)
    if isinstance(model, captioner.Verbs):
        refuse_domain(domain)
        return attention_on_image(model, text, target, search)
    if not is_searching(model):
        return attention_read(model, text, target, domain, search)
    check_attentive(searching(model).model)
    both = text_with_output(model, text, target=target, domain=domain, **search)
    return seen_of(searching(model).model, both)


def attention_read(model: Any, text: str, target: str | None, domain: str | None, search: Mapping[str, Any]) -> Seen:
    """The attention of a model that searches for no output while it reads a text."""
    if target is not None or domain is not None or search:
        raise UserError("this run has no search, target or domain", todo="leave them out")
    reading = pass_of(model, text)
    maps = {} if reading is None else reading.maps()
    if reading is None or not maps:
        searching(model)  # says what this run is
    assert reading is not None
    return Seen(text, "", 0.0, maps, reading.words_of(maps))


def seen_of(model: Any, both: TextWithOutput) -> Seen:
    """The attention maps of a model over a text and its output."""
    (maps,) = attention_maps(model, both.batch)
    total = sum(score(model, both.batch)[0][both.first :])
    return Seen(both.input, both.output, total, maps, both.words)


def attention_on_image(model: captioner.Verbs, cell: str, target: str | None, search: Mapping[str, Any]) -> Seen:
    """The attention of every word of a caption to the regions of its image, numbered from 1, row after row."""
    tokenizer = model.task.caption
    if target is None:
        ((found, *_),) = model.search([cell], **search)
        labels, output = list(found.labels(EOS)), tokenizer.decode(found.tokens)
        words = words_said(tokenizer, found.tokens)
    elif search:
        raise UserError("options of the search have no effect on a given target", todo="leave one of them out")
    else:
        given = tokenizer.encode(target)
        labels, output, words = [*given.ids, EOS], target, words_in(target, given.offsets)
    batch = with_labels(model.read([cell]), [labels], tokenizer.vocabulary).to(model.device)
    with inference(model.model), record_attention(model.model) as recorded:
        model.model(batch)
    queries = tuple(tokenizer.vocabulary.tokens[number] for number in labels)
    maps = {
        name: AttentionMap(name, weights[0].float().cpu(), queries, tuple(map(str, range(1, weights.shape[-1] + 1))))
        for name, weights in recorded.items()
    }
    regions = max(len(each.keys) for each in maps.values())
    sides: dict[Side, Words] = {
        "said": padded(words, 0, len(labels) - len(words.owners)),
        "read": Words((), (None,) * regions),
    }
    return Seen(captioner.short(cell), output, sum(score(model.model, batch)[0]), maps, sides)


def attention_in(model: classifier.Verbs, text: str) -> Seen:
    """The self-attention of a classifier's encoder over a text; its output is the predicted label.

    Models that pool by attention have one weight per token instead of a map: see highlights.py.
    """
    check_attentive(model.encoder)
    ((_, batch),) = model.task.batches(model.examples([text]), 1)
    with inference(model.model), record_attention(model.encoder) as recorded:
        model.task.logits(model.model, batch.to(device_of(model.model)))
    tokens = tuple(model.task.text.vocabulary.tokens[number] for number in batch.tokens[0].tolist())
    # A model that pools by a class token reads it before the text.
    first = any(weights.shape[2:] == (len(tokens) + 1, len(tokens) + 1) for weights in recorded.values())
    tokens = (CLASS_TOKEN, *tokens) if first else tokens
    maps = {
        name: AttentionMap(name, weights[0].float().cpu(), tokens, tokens)
        for name, weights in recorded.items()
        if weights.shape[2:] == (len(tokens), len(tokens))
    }
    if not maps:
        raise UserError(
            f"{type(model.encoder).__name__} has one weight per token, not a map of all pairs",
            todo="mallang inspect RUN TEXT, or highlights_of",
        )
    if isinstance(model, mention_classification.Verbs):  # tokens are not only those of the text
        words = Words((), (None,) * len(tokens))
    else:
        words = padded(words_in(text, model.task.text.encode(text).offsets), int(first), 1)
    found = model.classify(text)
    sides: dict[Side, Words] = {"source": words, "said": words, "read": words}
    return Seen(text, found.label, math.log(max(found.probability, 1e-12)), maps, sides)


def check_attentive(model: nn.Module) -> None:
    """Refuse a model without attention, before any computation."""
    if isinstance(model, Ensemble):
        raise UserError("an ensemble has no attention of its own", todo="inspect its members one by one")
    if not any(isinstance(module, Observable) for module in model.modules()):
        raise UserError(
            f"{type(model).__name__} has no attention",
            todo="use a model that has, such as bahdanau, luong, convs2s, transformer or gpt",
        )


def in_words(seen: Seen) -> Seen:
    """Attention between words: weights are summed over the subwords of a key, averaged over those of a query."""
    if not seen.words:
        return seen
    maps = {}
    for name, shown in seen.maps.items():
        queries, keys = (seen.words[side] for side in sides_of(name))
        weights = by_query_word(by_key_word(shown.weights, keys), queries)
        maps[name] = AttentionMap(name, weights, labels_of(queries, shown.queries), labels_of(keys, shown.keys))
    return replace(seen, maps=maps, words={})


def by_key_word(weights: Float[Tensor, "*heads query key"], keys: Words) -> Float[Tensor, "*heads query word"]:
    """Weights on key words: the sum over their subwords. Tokens that are part of no word stay as they are."""
    return weights @ membership(keys).T.to(weights)


def by_query_word(weights: Float[Tensor, "*heads query key"], queries: Words) -> Float[Tensor, "*heads word key"]:
    """Weights of query words: the mean over their subwords, so that they still sum to one."""
    members = membership(queries).to(weights)
    return (members / members.sum(dim=1, keepdim=True)) @ weights


def membership(words: Words) -> Float[Tensor, "words tokens"]:
    """1 where a token is part of a word; a token that is part of no word has its own row, in order."""
    rows = groups(words)
    table = torch.zeros(len(rows), len(words.owners))
    for row, (_, tokens) in enumerate(rows):
        table[row, tokens] = 1.0
    return table


def labels_of(words: Words, tokens: Sequence[str]) -> tuple[str, ...]:
    """Labels of the words, and of the tokens that are part of no word."""
    return tuple(tokens[members[0]] if owner is None else words.words[owner] for owner, members in groups(words))


def groups(words: Words) -> list[tuple[int | None, list[int]]]:
    """The tokens of each word, in order; a token of no word is its own group. Words without tokens are left out."""
    found: list[tuple[int | None, list[int]]] = []
    places: dict[int, int] = {}
    for token, owner in enumerate(words.owners):
        if owner is not None and owner in places:
            found[places[owner]][1].append(token)
        else:
            if owner is not None:
                places[owner] = len(found)
            found.append((owner, [token]))
    return found


def choose_layers(seen: Seen, wanted: Sequence[str] | None) -> list[str]:
    """The names of the requested layers; all layers where none is named."""
    for name in wanted or ():
        if name not in seen.maps:
            raise UserError(f"the model has no layer {name!r} with attention", todo=nearest(name, seen.maps))
    return list(wanted or seen.maps)


def main_layer(seen: Seen) -> str:
    """The most informative layer: the last one that attends to the source, else the last."""
    return next((name for name in reversed(list(seen.maps)) if name.endswith("cross")), list(seen.maps)[-1])


def choose_head(weights: Float[Tensor, "heads query key"], head: str | None) -> Float[Tensor, "chosen query key"]:
    """One head, counted from 1, the `mean` of the heads, or all heads."""
    if head is None:
        return weights
    if head == "mean":
        return weights.mean(dim=0, keepdim=True)
    if not head.isdecimal() or not 1 <= int(head) <= len(weights):
        raise UserError(f"there is no head {head!r} in a layer of {len(weights)}", todo="give 1 for the first, or mean")
    return weights[int(head) - 1 : int(head)]


def draw_seen(seen: Seen, path: Path, layer: str | None = None, head: str | None = None) -> Path:
    """A figure of one layer, PNG or SVG by the suffix of the name, with one panel per head."""
    shown = seen.maps[layer or main_layer(seen)]
    which = "" if head is None else f", {'mean of the heads' if head == 'mean' else f'head {head}'}"
    text = seen.input if len(seen.input) <= 60 else seen.input[:59] + "…"
    weights = choose_head(shown.weights, head)
    return draw_attention(path, weights, shown.keys, shown.queries, title=f"{text}  ({shown.name}{which})")


def translation_maps(model: Any, text: str) -> Mapping[str, AttentionMap]:
    """The attention maps of one translation, by layer."""
    return attention_of(model, text).maps


def draw_translation(model: Any, text: str, path: Path) -> None:
    """A figure of the last layer's attention for the translation, with one panel per head."""
    draw_seen(attention_of(model, text), path)
