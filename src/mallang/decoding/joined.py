"""Texts of unequal lengths in common decode steps: others join at any step, and finished ones leave.

    joined = Joined(model)
    joined.join({"a": [1, 17, 4], "b": [1, 9]})     prefill: all but the last token of each
    joined.steps({"a": 4, "b": 9}, choose, 8)       eight tokens of each, from its last one; the host does not wait
    joined.join({"c": [1]})                          at any time
    joined.leave(["a"])

A prompt is read as `Prompted` reads it, so every text gets the numbers that it gets alone. Rows that texts have left
are computed and ignored until others take them, or until they are more than a third.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.decoding.contract import Autoregressive, Config, device_of, inference, normalize
from mallang.decoding.precision import at_precision, follow_spelling
from mallang.decoding.prompted import prompt_batch
from mallang.decoding.runner import bucket
from mallang.kernels.prepacked import PrepackedWeights
from mallang.layers.cache import DynamicCache, Nest, State, map_nest, rows_of
from mallang.layers.joined_cache import JoinedCache

Choose = Callable[[int, Float[Tensor, "texts vocabulary"]], Int[Tensor, " texts"]]
"""Gives the tokens of a step, which is counted from 0, for the texts in their order."""
PREFILL = 4096
"""The maximum number of tokens of one prefill."""


class Joined:
    """The texts that share the decode steps of a language model."""

    def __init__(self, model: Autoregressive, config: Config | None = None) -> None:
        self.given, self.model, self.device = model, at_precision(model, config or Config()), device_of(model)
        self.weights = PrepackedWeights()
        self.rows: list[Hashable | None] = []
        """The text of each row; None: free."""
        self.moving: Nest = None

    def __len__(self) -> int:
        """The number of texts."""
        return sum(text is not None for text in self.rows)

    def join(self, prompts: Mapping[Any, Sequence[int]]) -> None:
        """Read prompts without their last tokens; prompts of one length are read together."""
        by_length: dict[int, list[Any]] = {}
        for text, ids in prompts.items():
            by_length.setdefault(len(ids), []).append(text)
        follow_spelling(self.model, self.given)
        with inference(self.model), self.weights.in_use():
            for length, texts in by_length.items():
                for first in range(0, len(texts), size := max(1, PREFILL // length)):
                    some = texts[first : first + size]
                    self.place(some, self.prefill([prompts[text] for text in some]))

    def prefill(self, prompts: Sequence[Sequence[int]]) -> Nest:
        """The state after all tokens of prompts of one length but the last."""
        batch = prompt_batch(prompts).to(self.device)
        state = self.model.start(batch)
        if batch.tokens.shape[1] > 1:
            state = self.model.step(batch.tokens[:, :-1], state)[1]
        return state.moving

    def place(self, texts: Sequence[Hashable], moving: Nest) -> None:
        """Give each text a free row."""
        if not len(self):
            self.rows, self.moving = [None] * bucket(len(texts)), None
        if self.moving is None:
            self.moving = map_nest(moving, lambda leaf: empty_like(leaf, len(self.rows)), (DynamicCache,))
        elif len(self) + len(texts) > len(self.rows):
            count = bucket(len(self) + len(texts))
            self.take([*range(len(self.rows)), *[0] * (count - len(self.rows))])
        free = [row for row, text in enumerate(self.rows) if text is None]
        for own, (row, text) in enumerate(zip(free, texts, strict=False)):
            self.rows[row] = text
            self.moving = written(self.moving, row, moving, own)

    def take(self, chosen: Sequence[int]) -> None:
        """Keep these rows only, in this order; a row that is taken again becomes a free one."""
        index = torch.tensor(chosen, device=self.device)
        rows, seen = [], set[int]()
        for row in chosen:
            rows.append(None if row in seen else self.rows[row])
            seen.add(row)
        self.rows = rows
        used = self.used()
        self.moving = map_nest(
            self.moving,
            lambda leaf: leaf.take(index).forget(used) if isinstance(leaf, JoinedCache) else rows_of(leaf, index),
            (JoinedCache,),
        )

    def used(self) -> list[int]:
        """The rows that hold texts."""
        return [row for row, text in enumerate(self.rows) if text is not None]

    def order(self) -> list[Any]:
        """The texts in the order of their rows: that of log-probabilities."""
        return [text for text in self.rows if text is not None]

    def steps(self, last: Mapping[Any, int], choose: Choose, count: int = 1) -> None:
        """So many tokens of each text after its last one: `choose` gives them from their log-probabilities.

        Tokens stay on the device between steps, so that the host need not wait for any of them.
        """
        nothing = self.model.vocabulary.bos
        tokens = torch.tensor([nothing if text is None else last[text] for text in self.rows], device=self.device)
        used = torch.tensor(self.used(), device=self.device)
        with inference(self.model), self.weights.in_use():
            for place in range(count):
                moving = map_nest(self.moving, lambda cache: cache.make_room(0), (JoinedCache,), tensors=False)
                logits, state = self.model.step(tokens[:, None], State(None, moving))
                self.moving, is_full = state.moving, len(used) == len(self.rows)
                chosen = logits[:, -1] if is_full else logits[:, -1].index_select(0, used)
                said = choose(place, normalize(chosen, self.model.vocabulary))
                tokens = said if is_full else tokens.index_copy(0, used, said)

    def leave(self, texts: Iterable[Hashable]) -> None:
        """These texts are finished."""
        left = set(texts)
        self.rows = [None if text in left else text for text in self.rows]
        used = self.used()
        if not used:
            self.rows, self.moving = [], None
            return
        if 3 * len(used) <= 2 * len(self.rows) and bucket(len(used)) < len(self.rows):
            spare = [row for row, text in enumerate(self.rows) if text is None]
            self.take([*used, *spare[: bucket(len(used)) - len(used)]])
        else:
            self.moving = map_nest(self.moving, lambda cache: cache.forget(used), (JoinedCache,), tensors=False)


def empty_like(leaf: Tensor | DynamicCache, rows: int) -> Tensor | JoinedCache:
    """Free rows for what a prefill gave."""
    return leaf.new_zeros(rows, *leaf.shape[1:]) if isinstance(leaf, Tensor) else JoinedCache.like(leaf, rows)


def written(moving: Nest, row: int, given: Nest, own: int) -> Nest:
    """The state with row `own` of another one in a row."""
    new = iter(leaves_of(given))

    def write(leaf: Tensor | JoinedCache) -> Tensor | JoinedCache:
        other = next(new)
        if isinstance(leaf, JoinedCache) and isinstance(other, DynamicCache):
            return leaf.join(row, other, own)
        if not (isinstance(leaf, Tensor) and isinstance(other, Tensor)):
            raise TypeError("the states of two texts of one model have different parts")
        return leaf.index_copy(0, torch.tensor([row], device=leaf.device), other[own : own + 1])

    return map_nest(moving, write, (JoinedCache,))


def leaves_of(nest: Nest) -> list[Tensor | DynamicCache]:
    """The tensors and caches of a nest, in order."""
    found: list[Tensor | DynamicCache] = []

    def note(leaf: Tensor | DynamicCache) -> Tensor | DynamicCache:
        found.append(leaf)
        return leaf

    map_nest(nest, note, (DynamicCache,))
    return found


def can_join(model: Autoregressive) -> bool:
    """Whether the texts of a model can share steps: its state is a cache, or has one shape whatever was read."""
    bos, shapes = model.vocabulary.bos, []
    with inference(model):
        for length in (1, 3):
            batch = prompt_batch([[bos] * length]).to(device_of(model))
            state = model.step(batch.tokens, model.start(batch))[1]
            if leaves_of(state.fixed):
                return False
            leaves = leaves_of(state.moving)
            shapes.append([leaf.shape if isinstance(leaf, Tensor) else None for leaf in leaves])
    return shapes[0] == shapes[1]
