"""Word alignments from attention, and their alignment error rate (AER) against gold alignments.

Outputs are given, not searched for: gold links are between the words of a source and of its reference. A target word is
linked to the source word with the highest attention weight, or to every source word above a threshold.

A recurrent decoder attends to the source word of "ship" at the step that generates "ship". Some heads of a Transformer
attend to the source of the word that they have just read, which is one step later (Chen et al. 2020, Accurate Word
Alignment Induction from Neural Machine Translation, arXiv:2004.14837). So both steps are tried for every layer and
head, and the valid split chooses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mallang.data import miniworld
from mallang.errors import UserError, nearest
from mallang.evaluation.alignment import Link, Links, alignment_scores, error_rate
from mallang.evaluation.score import Score
from mallang.inspection.alignment import check_attentive
from mallang.inspection.attention import attention_maps
from mallang.inspection.text_with_output import Words, padded, words_in
from mallang.tasks import translator

Step = Literal["said", "read"]
THRESHOLDS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)
BATCH = 64
MEAN = 0
"""The index of the mean of the heads; heads are counted from 1."""


@dataclass(frozen=True)
class Way:
    """A rule that extracts links from attention: layer, head, step and threshold."""

    layer: str
    head: int
    """Counted from 1; 0 is the mean of all."""
    step: Step
    """Whether the weights of a word are those of the steps that generate it, or of the steps that read it."""
    threshold: float | None = None
    """The minimum weight of a link; None: each target word has one link, to the source word of highest weight."""

    def __str__(self) -> str:
        head = "mean of the heads" if self.head == MEAN else f"head {self.head}"
        links = "argmax" if self.threshold is None else f"weight ≥ {self.threshold}"
        return f"{self.layer}, {head}, when {self.step}, {links}"


Weights = dict[tuple[str, Step], Float[Tensor, "_heads _target _source"]]
"""Attention between the words of one pair, by layer and step; head 0 is the mean."""


@dataclass(frozen=True)
class Report:
    """The AER of every layer, head and step on the development pairs, and the scores of the best on the test pairs."""

    way: Way
    scores: list[Score]
    tried: dict[Way, float]


def aligned(model: translator.Verbs, pairs: Sequence[tuple[str, str]], way: Way) -> list[set[Link]]:
    """The links (source word, target word) of given pairs; words are separated by spaces."""
    weights = list(word_weights(model, pairs))
    check_way(model, weights, way)
    return [links_by(way, each) for each in weights]


def evaluate_alignment(
    model: translator.Verbs,
    choosing: tuple[Sequence[tuple[str, str]], Sequence[Links]],
    judging: tuple[Sequence[tuple[str, str]], Sequence[Links]],
) -> Report:
    """The AER of a model's attention on the pairs `judging`, by the rule that is best on the pairs `choosing`."""
    pairs, gold = choosing
    weights = list(word_weights(model, pairs))
    tried = {way: error_of(weights, gold, way) for way in every_way(attentive(model, weights))}
    best = min(tried, key=tried.__getitem__)
    tried |= {way: error_of(weights, gold, way) for way in (replace(best, threshold=value) for value in THRESHOLDS)}
    best = min(tried, key=tried.__getitem__)
    pairs, gold = judging
    return Report(best, alignment_scores(aligned(model, pairs, best), gold, how=str(best)), tried)


def every_way(weights: Weights) -> Iterator[Way]:
    """Each layer, head and step."""
    for (layer, step), heads in weights.items():
        only = len(heads) == 2  # one head is its own mean
        yield from (Way(layer, head, step) for head in range(len(heads)) if not (only and head == MEAN))


def error_of(weights: Sequence[Weights], gold: Sequence[Links], way: Way) -> float:
    """The alignment error rate of one rule."""
    return error_rate([links_by(way, each) for each in weights], gold)


def links_by(way: Way, weights: Weights) -> set[Link]:
    """The links of one pair; a text without words has none."""
    return links(weights[way.layer, way.step][way.head], way.threshold) if weights else set()


def attentive(model: translator.Verbs, weights: Sequence[Weights]) -> Weights:
    """The weights of the first pair with words; a model without cross-attention is refused."""
    for each in weights:
        if each:
            return each
    raise UserError(
        f"{type(model.model).__name__} has no attention from output words to source words, or no text has a word",
        todo="use a model that has, such as bahdanau, luong, convs2s or transformer",
    )


def usual_way(model: translator.Verbs) -> Way:
    """The default rule: the last layer, the mean of its heads, one link per word."""
    layers = [name for name, _ in attentive(model, list(word_weights(model, [("a", "a")])))]
    return Way(layers[-1], MEAN, "said")


def check_way(model: translator.Verbs, weights: Sequence[Weights], way: Way) -> None:
    """Refuse a layer or a head that the model does not have."""
    known = attentive(model, weights) if any(weights) else {}
    layers = list(dict.fromkeys(layer for layer, _ in known))
    if known and way.layer not in layers:
        raise UserError(f"no layer {way.layer!r} attends to the source", todo=nearest(way.layer, layers))
    if known and not 0 <= way.head < len(known[way.layer, way.step]):
        raise UserError(
            f"there is no head {way.head} in a layer of {len(known[way.layer, way.step]) - 1}",
            todo="give 1 for the first, or mean",
        )


def links(weights: Float[Tensor, "target source"], threshold: float | None) -> set[Link]:
    """Links from weights between words: one per target word with any weight, or all links of at least `threshold`."""
    if threshold is None:
        most = weights.max(dim=1)  # 0 for a word without a token, which attends to nothing
        looks = zip(most.indices.tolist(), most.values.tolist(), strict=True)
        return {(source, target) for target, (source, weight) in enumerate(looks) if weight > 0}
    return {(source, target) for target, source in (weights >= threshold).nonzero().tolist()}


def word_weights(model: translator.Verbs, pairs: Iterable[tuple[str, str]]) -> Iterator[Weights]:
    """Attention of target words to source words for given pairs, in every layer, head and step."""
    check_attentive(model.model)
    pairs = list(pairs)
    for begin in range(0, len(pairs), BATCH):
        chunk = pairs[begin : begin + BATCH]
        sources = [model.task.source.encode(source) for source, _ in chunk]
        targets = [model.task.target.encode(target) for _, target in chunk]
        rows = [((source.ids, target.ids),) for source, target in zip(sources, targets, strict=True)]
        batch = model.task.prepare(rows, np.random.default_rng(0))
        found = attention_maps(model.model, batch.to(model.device))
        for (source, target), read, said, maps in zip(chunk, sources, targets, found, strict=True):
            keys, queries = padded(words_in(source, read.offsets), 0, 1), words_in(target, said.offsets)
            looks = {name: shown.weights for name, shown in maps.items() if name.endswith("cross")}
            yield between_words(looks, keys, queries) if keys.words and queries.words else {}


def between_words(looks: dict[str, Tensor], keys: Words, queries: Words) -> Weights:
    """Weights between words without `</s>`, the mean of the heads first. A word is read one step after it is generated.

    Every word keeps its index: a word without a token attends to nothing, and nothing attends to it.
    """
    found: Weights = {}
    sources, targets = pieces(keys).T, pieces(queries)
    targets = targets / targets.sum(dim=1, keepdim=True).clamp(min=1.0)
    for name, weights in looks.items():
        every = torch.cat((weights.mean(dim=0, keepdim=True), weights)) @ sources
        found[name, "said"] = targets @ every[:, : len(queries.owners)]
        found[name, "read"] = targets @ every[:, 1 : len(queries.owners) + 1]
    return found


def pieces(words: Words) -> Float[Tensor, "words tokens"]:
    """1 where a token is part of a word, with a row for every word; tokens of no word have no 1."""
    table = torch.zeros(len(words.words), len(words.owners))
    for token, owner in enumerate(words.owners):
        if owner is not None:
            table[owner, token] = 1.0
    return table


def miniworld_gold(split: str, source: str, target: str) -> tuple[list[tuple[str, str]], list[set[Link]]]:
    """The pairs of a split of miniworld in this direction, and their gold links."""
    if {source, target} != {"ko", "en"}:
        raise UserError(
            f"there are gold word alignments between ko and en of miniworld, not between {source} and {target}",
            todo="use a run on miniworld from ko to en, or from en to ko",
        )
    scenes = miniworld.scenes(split)
    if source == "ko":
        return [(scene.korean, scene.english) for scene in scenes], [set(scene.alignment) for scene in scenes]
    turned = [{(english, korean) for korean, english in scene.alignment} for scene in scenes]
    return [(scene.english, scene.korean) for scene in scenes], turned
