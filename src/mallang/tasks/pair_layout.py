"""How an encoder reads a pair of texts: joined in one row, apart in two rows, or one of them alone.

    joined    <cls> first <sep> second <sep>, with a segment for each; without <cls>: first </s> second </s>
    orders    both orders, a row each, whose vectors are added (GPT-1, Radford et al. 2018, section 3.3)
    apart     a row for each text: two vectors, or the two sentences of one document
    first     the first text alone
    second    the second text alone: the control that shows what a label says without the premise

A pair that is longer than the model can read loses tokens at the end of the longer text, until both are equally long.
Nothing is cut silently: `count_cut` says how many pairs lose tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Integer
from torch import Tensor

from mallang.data.batch import Batch, pad_pairs, pad_texts
from mallang.data.sampler import Buckets, Rows, by_length
from mallang.errors import UserError
from mallang.layers.encoded import Encoded
from mallang.models.contract import encode_text
from mallang.tasks.text_windows import longer
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import Vocabulary

Layout = Literal["joined", "orders", "apart", "first", "second"]
Pair = tuple[str, str]


@runtime_checkable
class EmbedsPairs(Protocol):
    """Verbs whose vectors are those of pairs, and not of single texts."""

    embeds_pairs: ClassVar[bool]


@dataclass
class PairLayout:
    """The rows that pairs become."""

    vocabulary: Vocabulary
    layout: Layout
    most: int = 0
    """The maximum number of tokens of a row, special tokens included; 0: no limit."""
    as_documents: bool = False
    """Whether the rows are the sentences of a document, as models with a level of sentences read them."""

    def limit(self, longest: int | None) -> None:
        """Keep to what a model can read, too."""
        self.most = min(self.most, longest or self.most) if self.most else longest or 0
        if self.most and self.most <= self.frame + 1:
            raise UserError(
                f"rows of {self.most} tokens have no room for two texts and {self.frame} special tokens",
                todo="raise task.max_tokens, or model.max_length",
            )

    @property
    def frame(self) -> int:
        """The number of special tokens of a row."""
        is_joined = self.layout in ("joined", "orders")
        return self.vocabulary.pair_frame_length if is_joined else self.vocabulary.frame_length

    @property
    def rows(self) -> int:
        """The number of rows of a pair."""
        return 2 if self.layout in ("apart", "orders") else 1

    def whole_widths(self, lengths: Integer[np.ndarray, "pairs 2"]) -> Integer[np.ndarray, " pairs"]:
        """The tokens of the longest row of each pair if nothing is cut, from the lengths of both texts."""
        first, second = lengths[:, 0], lengths[:, 1]
        both = first + second
        bodies = {
            "joined": both, "orders": both, "apart": np.maximum(first, second), "first": first, "second": second,
        }  # fmt: skip
        return np.asarray(bodies[self.layout] + self.frame)

    def widths(self, lengths: Integer[np.ndarray, "pairs 2"]) -> Integer[np.ndarray, " pairs"]:
        """The tokens of the longest row of each pair."""
        whole = self.whole_widths(lengths)
        return np.minimum(whole, self.most) if self.most else whole

    def count_cut(self, lengths: Integer[np.ndarray, "pairs 2"]) -> int:
        """The number of pairs that lose tokens."""
        return int((self.whole_widths(lengths) > self.most).sum()) if self.most else 0

    def note_cut(self, lengths: Integer[np.ndarray, "pairs 2"]) -> str:
        """A sentence about the pairs that lose tokens; empty where none does."""
        end = "the end of the longer text is"
        which = {"joined": end, "orders": end, "apart": "the ends of such texts are"}.get(self.layout, "the end is")
        return longer(self.count_cut(lengths), len(lengths), "pairs", f"{self.most} tokens", f"{which} not read")

    def plan(
        self,
        lengths: Integer[np.ndarray, "pairs 2"],
        tokens: int,
        sentences: int | None,
        *,
        multiple: int,
        seed: int,
        epoch: int,
    ) -> Sequence[Rows]:
        """The batches of an epoch: pairs of similar length."""
        widths = self.widths(lengths)
        rows = None if self.rows == 1 else np.full(len(widths), self.rows)
        return Buckets(
            widths[:, None], tokens=tokens, sentences=sentences, rows=rows, multiple=multiple, long_alone=True,
            seed=seed, epoch=epoch,
        )  # fmt: skip

    def groups(self, lengths: Integer[np.ndarray, "pairs 2"], tokens: int) -> Iterator[list[int]]:
        """Batches for inference: the numbers of pairs of similar length."""
        widths = self.widths(lengths).tolist()
        yield from by_length(widths, tokens, rows=None if self.rows == 1 else [self.rows] * len(widths))

    def fields(self, pairs: Sequence[tuple[Any, Any]]) -> dict[str, Tensor]:
        """The tokens of pairs as fields of a batch."""
        if self.layout in ("joined", "orders"):
            read = [self.shortened(first, second) for first, second in pairs]
            numbers = {}
            if self.layout == "orders":
                read = [order for one, two in read for order in ((one, two), (two, one))]
                numbers["sentences"] = torch.arange(len(read)).view(-1, 2)
            tokens, lengths, types = pad_pairs([one for one, _ in read], [two for _, two in read], self.vocabulary)
            return {"tokens": tokens, "lengths": lengths, "token_types": types, **numbers}
        room = self.most - self.frame if self.most else None
        if self.layout == "apart":
            tokens, lengths = pad_texts([ids[:room] for pair in pairs for ids in pair], self.vocabulary)
            places = torch.arange(2 * len(pairs)).view(-1, 2)
            return {"tokens": tokens, "lengths": lengths, "sentences": places}
        place = 0 if self.layout == "first" else 1
        tokens, lengths = pad_texts([pair[place][:room] for pair in pairs], self.vocabulary)
        alone = {"sentences": torch.arange(len(pairs)).view(-1, 1)} if self.as_documents else {}
        return {"tokens": tokens, "lengths": lengths, **alone}

    def shortened(self, first: Any, second: Any) -> tuple[Any, Any]:
        """Cut the end of the longer text, where the two do not fit into one row."""
        if not self.most:
            return first, second
        one, two = shares(len(first), len(second), self.most - self.frame)
        return first[:one], second[:two]


def encode_orders(encoder: Any, batch: Batch) -> Encoded:
    """What an encoder makes of pairs in both orders: the vectors of every row; of a pair the sum of its two."""
    assert batch.sentences is not None
    found = encode_text(encoder, replace(batch, sentences=None))
    places = batch.sentences[:, :2].clamp(min=0)  # a batch that was filled up has more columns
    penalties = {name: each[places].sum(dim=1) for name, each in found.penalties.items()}
    return replace(found, pooled=found.pooled[places].sum(dim=1), penalties=penalties)


def check_orders(config: Any, *, symmetric: bool) -> None:
    """Refuse what has no effect on pairs that are read in both orders, or no meaning."""
    for name, is_set in {"symmetric": symmetric, "mix_layers": config.mix_layers}.items():
        if is_set:
            raise ValueError(f"{name} and both_orders exclude each other")


def shares(first: int, second: int, room: int) -> tuple[int, int]:
    """The tokens that two texts keep of so many places: the longer one loses tokens until both are equally long."""
    if first + second <= room:
        return first, second
    half = room // 2
    if first <= half:
        return first, room - first
    if second <= half:
        return room - second, second
    return (room - half, half) if first > second else (half, room - half)


def check_shared(first: Tokenizer, second: Tokenizer) -> Tokenizer:
    """The one tokenizer of both texts."""
    if first.fingerprint != second.fingerprint:
        raise UserError(
            "one encoder reads both texts of a pair, but they have tokenizers of their own",
            todo="leave out text.shared, text.source_unit and text.target_unit",
        )
    return first


def as_pairs(given: Any) -> list[Pair]:
    """The pairs in what a user gives: pairs of texts; anything else is refused with its place."""
    found: list[Pair] = []
    for number, each in enumerate([given] if isinstance(given, str) or is_pair(given) else given, start=1):
        if not is_pair(each):
            raise UserError(
                f"a pair is two texts, but this is {each!r}", where=f"row {number}", todo='give ("first", "second")'
            )
        found.append((each[0], each[1]))
    return found


def is_pair(given: Any) -> bool:
    """Whether this is one pair of texts."""
    return isinstance(given, tuple | list) and len(given) == 2 and all(isinstance(text, str) for text in given)


def lengths_of(pairs: Sequence[tuple[Any, Any]]) -> Integer[np.ndarray, "pairs 2"]:
    """The lengths of both texts of every pair."""
    return np.array([(len(first), len(second)) for first, second in pairs], dtype=np.int64).reshape(-1, 2)
