"""What a page shows of a text that a model reads: attention, alignment, next tokens, search tree, labels, highlights.

    shown = shown_text(mallang.load("runs/x"), "유나는 배를 탔다.", Wanted())

Every part is there if the model can fill it, and absent otherwise; page/*.js draws them. Arrays stay tensors until the
page is packed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from mallang.data.batch import Batch, pad_texts
from mallang.decoding.contract import Autoregressive, inference
from mallang.decoding.options import change_search
from mallang.decoding.scoring import score
from mallang.decoding.tree import FATES, Tree
from mallang.errors import UserError
from mallang.inspection.alignment import Seen, attention_in, choose_head, choose_layers, in_words, main_layer, seen_of
from mallang.inspection.attention import AttentionMap, sides_of
from mallang.inspection.figures import show
from mallang.inspection.highlights import Highlights, highlights_of, pools_by_attention, text_attention
from mallang.inspection.next_token import next_tokens
from mallang.inspection.search_tree import tree_of
from mallang.inspection.text_with_output import TextWithOutput, Words, padded, searching, text_with_output, words_in
from mallang.layers.attention import Observable, record_attention
from mallang.models.contract import encode_text
from mallang.tasks import classifier, generation, tagger
from mallang.tasks.occurrences import Contexts
from mallang.tasks.surprisal import closed


@dataclass(frozen=True)
class Wanted:
    """What is asked for."""

    layers: tuple[str, ...] = ()
    """The names of the attention layers to show; all if there are none."""
    head: str | None = None
    """The head to show, from 1, or their `mean`; all if none is given."""
    words: bool = False
    """Whether subwords are joined to words."""
    target: str | None = None
    domain: str | None = None
    search: Mapping[str, Any] = field(default_factory=dict)


def shown_text(verbs: Any, text: str, wanted: Wanted) -> dict[str, Any]:
    """All that the page shows of a text."""
    if isinstance(verbs, classifier.Verbs):
        return of_classifier(verbs, text, wanted)
    if isinstance(verbs, tagger.Verbs):
        found = verbs.tag(text)
        tags = {"words": found.words, "tags": found.tags, "probabilities": torch.tensor(found.probabilities)}
        seen = encoder_attention(verbs, text)
        return {**of_encoder(text, str(found), seen, wanted), "tags": tags}
    if generates(verbs):
        return of_output(verbs, text, wanted)
    return of_encoder(text, "", encoder_attention(verbs, text), wanted)


def generates(verbs: Any) -> bool:
    """Whether a loaded model searches for outputs."""
    try:
        searching(verbs)
    except UserError:
        return False
    return True


def of_output(verbs: Any, text: str, wanted: Wanted) -> dict[str, Any]:
    """A text and the output that a model generates for it."""
    model = searching(verbs).model
    both = text_with_output(verbs, text, target=wanted.target, domain=wanted.domain, **wanted.search)
    seen = seen_of(model, both) if attends(model) else None
    shown = {
        "input": text,
        "output": both.output,
        "score": sum(score(model, closed(model, both.batch))[0][both.first :]),
        "prompt": both.first if isinstance(searching(verbs), generation.Verbs) else None,
        **maps_of(seen, wanted),
    }
    if isinstance(model, Autoregressive):
        shown |= {"next": next_of(model, both), **tree_part(verbs, text, wanted)}
    return shown


def next_of(model: Autoregressive, both: TextWithOutput) -> dict[str, Any]:
    """The next tokens of every step, the tokens of the output, and what they cost."""
    batch = closed(model, both.batch)
    found, tokens = next_tokens(model, batch), model.vocabulary.tokens
    assert batch.labels is not None
    return {
        "ids": found.ids,
        "names": {number: show(tokens[number]) for number in sorted(set(found.ids.flatten().tolist()))},
        "log_probs": found.log_probs,
        "rest": found.rest,
        "others": found.others,
        "labels": [show(tokens[number]) for number in batch.labels[0].tolist()],
        "label_ids": batch.labels[0].tolist(),
        "label_log_probs": found.labels,
    }


def tree_part(verbs: Any, text: str, wanted: Wanted) -> dict[str, Any]:
    """The search tree, if the method of the search has one."""
    model = searching(verbs)
    config = change_search(model.config, wanted.search)
    samples = config.method == "sampling" and isinstance(model, generation.Verbs)
    if config.coverage or not (samples or config.method in ("greedy", "beam", "best-first")):
        return {}
    return {"tree": plain_tree(tree_of(verbs, text, domain=wanted.domain, **wanted.search))}


def plain_tree(tree: Tree) -> dict[str, Any]:
    """A search tree with its nodes by column."""
    fates = list(FATES)
    columns = ("log_prob", "total", "normalized", "bound")
    return {
        "method": tree.method,
        "beam": tree.options["beam"] if tree.method == "beam" else None,
        "parents": [-1 if node.parent is None else node.parent for node in tree.nodes],
        "steps": [node.step for node in tree.nodes],
        "tokens": [show(node.token) for node in tree.nodes],
        "fates": [fates.index(node.fate) for node in tree.nodes],
        "known_fates": fates,
        **{name: torch.tensor([vars(node)[name] for node in tree.nodes]) for name in columns},
        "outputs": list(tree.outputs),
        "proven": tree.proven,
    }


def attends(model: Any) -> bool:
    """Whether a model has attention layers."""
    return any(isinstance(part, Observable) for part in model.modules())


def of_classifier(verbs: Any, text: str, wanted: Wanted) -> dict[str, Any]:
    """A text, the probabilities of its labels, and what the classifier attends to."""
    found = verbs.classify(text)
    shown: dict[str, Any] = {"input": text, "output": found.label, "score": math.log(max(found.probability, 1e-12))}
    shown["labels"] = {"names": list(found.probabilities), "probabilities": list(found.probabilities.values())}
    if pools_by_attention(verbs):
        return {**shown, "highlights": views_of(verbs, text, wanted)}
    seen = attention_in(verbs, text) if has_maps(verbs) else None
    return {**shown, **maps_of(seen, wanted)}


def has_maps(verbs: Any) -> bool:
    """Whether a classifier's encoder attends from token to token."""
    return attends(verbs.encoder) and not pools_by_attention(verbs)


def views_of(verbs: Any, text: str, wanted: Wanted) -> list[dict[str, Any]]:
    """The highlights of a text: the mean of the views, and every view of a model that has several."""
    names = [wanted.head] if wanted.head else ["mean", *map(str, range(1, count_views(verbs, text) + 1))]
    names = names[:1] if len(names) == 2 else names
    return [
        {"name": name, "sentences": plain_sentences(highlights_of(verbs, text, head=name, words=wanted.words))}
        for name in names
    ]


def count_views(verbs: Any, text: str) -> int:
    """The number of views that a classifier has of a text."""
    count = 1
    while True:
        try:
            text_attention(verbs, [text], head=str(count + 1))
        except UserError:
            return count
        count += 1


def plain_sentences(found: Highlights) -> list[dict[str, Any]]:
    """The sentences of highlights: their own weights, and their pieces with theirs."""
    return [
        {
            "weight": each.weight if found.has_sentences else None,
            "pieces": [piece.text for piece in each.pieces],
            "spaced": [piece.spaced for piece in each.pieces],
            "weights": torch.tensor([piece.weight for piece in each.pieces]),
        }
        for each in found.sentences
    ]


def of_encoder(text: str, output: str, seen: Seen | None, wanted: Wanted) -> dict[str, Any]:
    """A text that is read and not answered by a text."""
    return {"input": text, "output": output, "score": None, **maps_of(seen, wanted)}


def encoder_attention(verbs: Any, text: str) -> Seen | None:
    """The attention maps of an encoder that reads a text from token to token; none if it has none."""
    try:
        contexts = Contexts(verbs)
    except UserError:
        return None
    if not attends(contexts.model):
        return None
    encoded, vocabulary = contexts.tokenizer.encode(text), contexts.tokenizer.vocabulary
    tokens, lengths = pad_texts([encoded.ids], vocabulary)
    batch = Batch(tokens=tokens, lengths=lengths)
    with inference(contexts.model), record_attention(contexts.model) as recorded:
        encode_text(contexts.model, batch.to(next(contexts.model.parameters()).device))
    names = tuple(vocabulary.tokens[number] for number in tokens[0].tolist())
    maps = {
        name: AttentionMap(name, weights[0].float().cpu(), names, names)
        for name, weights in recorded.items()
        if weights.shape[2:] == (len(names), len(names))
    }
    before = vocabulary.frame_length - 1
    words = padded(words_in(text, encoded.offsets), before, len(names) - before - len(encoded.ids))
    return Seen(text, "", 0.0, maps, {"source": words, "said": words, "read": words}) if maps else None


def maps_of(seen: Seen | None, wanted: Wanted) -> dict[str, Any]:
    """The attention maps, and the words that their tokens are part of."""
    if seen is None:
        if wanted.layers or wanted.head:
            raise UserError("the model has no attention", todo="leave out --layer and --head")
        return {}
    words = {side: plain_words(each) for side, each in seen.words.items()}
    seen = in_words(seen) if wanted.words else seen
    names = choose_layers(seen, wanted.layers)
    first = main_layer(seen)
    return {
        "maps": [plain_map(seen.maps[name], wanted.head) for name in names],
        "first": names.index(first) if first in names else len(names) - 1,
        "words": {} if wanted.words else words,
    }


def plain_map(shown: AttentionMap, head: str | None) -> dict[str, Any]:
    """The attention of one layer."""
    queries, keys = sides_of(shown.name)
    return {
        "name": shown.name,
        "sides": [queries, keys],
        "queries": [show(token) for token in shown.queries],
        "keys": [show(token) for token in shown.keys],
        "heads": [head] if head else [str(number) for number in range(1, len(shown.weights) + 1)],
        "weights": choose_head(shown.weights, head),
    }


def plain_words(words: Words) -> dict[str, Sequence[Any]]:
    """Words, and the word that each token is part of."""
    return {"words": list(words.words), "owners": list(words.owners)}
