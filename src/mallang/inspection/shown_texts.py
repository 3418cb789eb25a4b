"""What a page shows of a text that a model reads: attention, alignment, next tokens, search tree, labels, highlights.

    shown = shown_text(mallang.load("runs/x"), "유나는 배를 탔다.", Wanted())

Every part is there if the model can fill it, and absent otherwise; page/*.js draws them. Arrays stay tensors until the
page is packed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mallang.data.images import Images
from mallang.decoding.contract import Autoregressive
from mallang.decoding.options import change_search
from mallang.decoding.scoring import score
from mallang.decoding.tree import FATES, Tree
from mallang.errors import UserError
from mallang.inspection.alignment import Seen, attention_of, choose_head, choose_layers, in_words, main_layer
from mallang.inspection.attention import AttentionMap, Side, sides_of
from mallang.inspection.attention_steps import AttentionSteps, choose_steps
from mallang.inspection.figures import show
from mallang.inspection.forward_pass import ForwardPass, pass_of, pass_of_output
from mallang.inspection.gates import GateTrace
from mallang.inspection.highlights import Highlights, highlights_of, pools_by_attention, text_attention
from mallang.inspection.image_attention import Looked, looked_at
from mallang.inspection.next_token import next_tokens
from mallang.inspection.search_tree import tree_of
from mallang.inspection.shown_answers import told_of
from mallang.inspection.text_with_output import TextWithOutput, Words, is_searching, searching, text_with_output
from mallang.layers.attention import Observable
from mallang.tasks import captioner, classifier, generation
from mallang.tasks.surprisal import closed

LONGEST, SHORTEST = 128, 16
"""The largest and the smallest window of a long text, in tokens."""
MOST_WEIGHTS = 600_000
"""Attention weights of a text that a page holds at most; windows of longer texts are as large as that allows."""
MOST_NUMBERS, MOST_ASKED = 60_000, 600_000
"""Numbers of attention layers that a page holds at most: without being asked for them, and when it is asked."""
UNITS = 64
"""Units of a recurrent layer that are shown one by one."""


@dataclass(frozen=True)
class Wanted:
    """What is asked for."""

    layers: tuple[str, ...] = ()
    """The names of the attention layers to show; all if there are none."""
    head: str | None = None
    """The head to show, from 1, or their `mean`; all if none is given."""
    words: bool = False
    """Whether subwords are joined to words."""
    numbers: bool = False
    """Whether attention is shown step by step with its numbers, though they are many."""
    start: int = 0
    """The first token of a long text that is shown."""
    target: str | None = None
    domain: str | None = None
    search: Mapping[str, Any] = field(default_factory=dict)


def shown_text(verbs: Any, text: str, wanted: Wanted) -> dict[str, Any]:
    """All that the page shows of a text."""
    if is_searching(verbs):
        return of_output(verbs, text, wanted)
    if isinstance(verbs, captioner.Verbs):
        return of_image(verbs, text, wanted)
    if isinstance(verbs, classifier.Verbs) and pools_by_attention(verbs):
        inner: dict[str, Any] = {"highlights": views_of(verbs, text, wanted)}
    else:
        reading = pass_of(verbs, text)
        check_wanted(reading, wanted)
        inner = {} if reading is None else inside(reading, text, wanted)
    return {"input": text, "output": "", "score": None, **told_of(verbs, text), **inner}


def read_text(verbs: Any, text: str, **options: Any) -> ForwardPass | None:
    """A text as a model reads it, with the output that it finds for it if it searches for one; none without tokens."""
    if not is_searching(verbs):
        return pass_of(verbs, text)
    return pass_of_output(searching(verbs).model, text_with_output(verbs, text, **options))


def of_output(verbs: Any, text: str, wanted: Wanted) -> dict[str, Any]:
    """A text and the output that a model generates for it."""
    model = searching(verbs).model
    both = text_with_output(verbs, text, target=wanted.target, domain=wanted.domain, **wanted.search)
    reading = pass_of_output(model, both) if isinstance(model, nn.Module) else None
    check_wanted(reading, wanted)
    shown = {
        "input": text,
        "output": both.output,
        "score": sum(score(model, closed(model, both.batch))[0][both.first :]),
        "prompt": both.first if isinstance(searching(verbs), generation.Verbs) else None,
        **({} if reading is None else inside(reading, text, wanted)),
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
    model = verbs if isinstance(verbs, captioner.Verbs) else searching(verbs)
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


def of_image(verbs: captioner.Verbs, cell: str, wanted: Wanted) -> dict[str, Any]:
    """An image, its caption, and where every word of it attended."""
    tree = tree_part(verbs, cell, wanted) if wanted.target is None else {}
    if not isinstance(verbs.task.picture, Images):  # features that were given have no place in an image
        seen = attention_of(verbs, cell, target=wanted.target, domain=wanted.domain, **wanted.search)
        return {"input": seen.input, "output": seen.output, "score": seen.score, **maps_of(seen, wanted), **tree}
    found: Looked = looked_at(verbs, cell, target=wanted.target, domain=wanted.domain, **wanted.search)
    return {
        "input": found.input,
        "output": found.output,
        "score": found.score,
        "image": {
            "pixels": torch.from_numpy(found.pixels.astype("float32")),
            "words": list(found.words),
            "weights": torch.from_numpy(found.weights),
        },
        **tree,
    }


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


def check_wanted(reading: ForwardPass | None, wanted: Wanted) -> None:
    """Refuse layers, a head or numbers of a model that has no attention."""
    if reading is not None and any(isinstance(part, Observable) for part in reading.model.modules()):
        return
    for option, given in (("--layer", wanted.layers), ("--head", wanted.head), ("--numbers", wanted.numbers)):
        if given:
            raise UserError("the model has no attention between tokens", todo=f"leave out {option}")


def inside(reading: ForwardPass, text: str, wanted: Wanted) -> dict[str, Any]:
    """What the layers of a model do while it reads a text: attention, its numbers, gates."""
    maps = reading.maps()
    shown = maps_of(Seen(text, "", 0.0, maps, reading.words_of(maps)) if maps else None, wanted)
    first, most = (window["start"], window["size"]) if (window := shown.get("window")) else (wanted.start, LONGEST)
    if numbers := numbers_of(reading, wanted, first, most) if maps else []:
        shown["numbers"] = numbers
    if gates := [plain_gates(trace, tokens, first, most) for trace, tokens in reading.gates()]:
        shown["gates"] = gates
    return shown


def numbers_of(reading: ForwardPass, wanted: Wanted, first: int, most: int) -> list[dict[str, Any]]:
    """The numbers of attention layers: of those that are asked for, else of as many as are small."""
    found, left = [], MOST_ASKED if wanted.numbers else MOST_NUMBERS
    steps = reading.steps()
    if wanted.numbers:
        choose_steps(steps, None)
    for name in wanted.layers or steps:
        if name not in steps:
            continue
        shown = plain_steps(steps[name].window(first, most))
        left -= sum(each.numel() for each in shown.values() if isinstance(each, Tensor))
        if left < 0:
            break
        found.append(shown)
    return found


def plain_steps(steps: AttentionSteps) -> dict[str, Any]:
    """The numbers of a layer that the others follow from."""
    return {
        "name": steps.name,
        "queries": [show(token) for token in steps.queries],
        "keys": [show(token) for token in steps.keys],
        "x": steps.x,
        **({} if steps.memory is None else {"memory": steps.memory}),
        "q": steps.q,
        "k": steps.k,
        "v": steps.v,
        "mask": steps.mask,
        "weights": steps.weights,
        "output": steps.output,
    }


def plain_gates(trace: GateTrace, tokens: Sequence[str], first: int, most: int) -> dict[str, Any]:
    """The gates of a layer: of each the mean over all units, and the first units."""
    part = slice(first, first + most)
    return {
        "name": trace.name,
        "kind": trace.kind,
        "tokens": [show(token) for token in tokens[part]],
        "units": trace.gates["h"].shape[1],
        "means": {name: gate[part].mean(dim=1) for name, gate in trace.gates.items()},
        "gates": {name: gate[part, :UNITS] for name, gate in trace.gates.items()},
    }


def maps_of(seen: Seen | None, wanted: Wanted) -> dict[str, Any]:
    """The attention maps, and the words that their tokens are part of."""
    if seen is None:
        return {}
    words: Mapping[Side, Words] = {} if wanted.words else seen.words
    seen = in_words(seen) if wanted.words else seen
    names = choose_layers(seen, wanted.layers)
    first = main_layer(seen)
    maps = [plain_map(seen.maps[name], wanted.head) for name in names]
    size = window_size(maps)
    longest = max(max(len(each["queries"]), len(each["keys"])) for each in maps)
    start = min(wanted.start, max(0, longest - 1))
    is_cut = longest > size or start > 0
    return {
        "maps": [cut_map(each, start, size) for each in maps] if is_cut else maps,
        "first": names.index(first) if first in names else len(names) - 1,
        "words": {side: plain_words(each, start, size) for side, each in words.items()},
        **({"window": {"start": start, "size": size, "of": longest}} if is_cut else {}),
    }


def window_size(maps: Sequence[Mapping[str, Any]]) -> int:
    """How many tokens of a long text are shown at once: as many as keep the page small."""
    size = LONGEST
    while (
        size > SHORTEST
        and sum(len(each["heads"]) * min(size, len(each["queries"])) * min(size, len(each["keys"])) for each in maps)
        > MOST_WEIGHTS
    ):
        size //= 2
    return size


def cut_map(shown: Mapping[str, Any], start: int, size: int) -> dict[str, Any]:
    """The attention of one layer within a window of tokens."""
    part = slice(start, start + size)
    return {
        **shown,
        "queries": shown["queries"][part],
        "keys": shown["keys"][part],
        "weights": shown["weights"][:, part, part],
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


def plain_words(words: Words, start: int, size: int) -> dict[str, Sequence[Any]]:
    """Words, and the word that each token is part of, within a window of tokens."""
    return {"words": list(words.words), "owners": list(words.owners[start : start + size])}
