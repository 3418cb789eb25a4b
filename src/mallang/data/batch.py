"""A padded batch of examples. Batch first everywhere, mask True = may be seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor
from torch.nn.functional import pad

from mallang.text.vocabulary import PAD, Vocabulary

IGNORE = -100
"""The label of an example or a word that has none: no class has this number. Class 0 is an ordinary class."""
VARYING = ("time", "source", "words")
"""The axes that are padded in width; rows are padded along `batch` and `examples`."""
DOUBLED = (
    "sentences", "ngrams", "features", "choices", "entities", "distinct", "concepts", "paths", "pairs", "documents",
    "text", "mentions",
)  # fmt: skip
"""The axes whose width varies beside that of `time`: they are padded to few widths, each twice the one before."""
STEPPED = ("masked",)
"""The axes whose width is nearly the same in batches of one shape: padded by at most an eighth."""


def axes(names: str, fill: int | float) -> dict[str, Any]:
    """What a field of a batch declares: the names of its axes, and the value that fills positions added to it."""
    return {"axes": tuple(names.split()), "fill": fill}


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Padded tensors; every field but `tokens` and `lengths` is present only where the task needs it.

    A row of `tokens` is an example, except in documents and in multiple choice: there it is a sentence, or a choice,
    and `sentences`, or `choices`, says which rows belong to each example. Padding, filling up, pinning and moving read
    the declared axes; they know no field by name.
    """

    tokens: Int[Tensor, "batch time"] = field(metadata=axes("batch time", PAD))
    """The input ids; in a decoder `<s>` and the words, so that position t predicts `labels[t]`."""
    lengths: Int[Tensor, " batch"] = field(metadata=axes("batch", 1))  # attention needs at least one position per row
    labels: Int[Tensor, "batch ..."] | None = field(default=None, metadata=axes("batch time", PAD))
    """The tokens to predict: for a decoder the words and `</s>`; `<pad>` where there is no label."""
    source: Int[Tensor, "batch source"] | None = field(default=None, metadata=axes("batch source", PAD))
    """The sentence to translate, ended by `</s>`."""
    source_lengths: Int[Tensor, " batch"] | None = field(default=None, metadata=axes("batch", 1))
    segments: Int[Tensor, "batch time"] | None = field(default=None, metadata=axes("batch time", 0))
    """Where several texts are packed into one row: the index of each token's text, from 1; padding has 0."""
    token_types: Int[Tensor, "batch time"] | None = field(default=None, metadata=axes("batch time", 0))
    """The segment of each token in BERT's sense: 0 in the first text of a pair, 1 in the second; padding has 0."""
    masked: Int[Tensor, "masked 3"] | None = field(default=None, metadata=axes("masked facts", -1))
    """The row, the position and the original token of every masked token; −1 where there is none: id 0 is a token."""
    classes: Int[Tensor, " examples"] | None = field(default=None, metadata=axes("examples", IGNORE))
    """The class of each example; IGNORE where it has none."""
    class_sets: Float[Tensor, "examples classes"] | None = field(
        default=None, metadata=axes("examples classes", IGNORE)
    )
    """Several classes per example: 1 for each that applies, 0 for the others; IGNORE in rows without an example."""
    numbers: Float[Tensor, " examples"] | None = field(default=None, metadata=axes("examples", math.nan))
    """The number to predict for each example; NaN where it has none."""
    words: Int[Tensor, "batch words"] | None = field(default=None, metadata=axes("batch words", -1))
    """The position of the first token of each word; −1 where there is no word."""
    tags: Int[Tensor, "batch words"] | None = field(default=None, metadata=axes("batch words", IGNORE))
    """The tag of each word; IGNORE where there is none."""
    asked: Int[Tensor, " batch"] | None = field(default=None, metadata=axes("batch", -1))
    """The word that is the predicate whose roles are asked for; −1: it is asked which words are predicates."""
    lemmas: Int[Tensor, " batch"] | None = field(default=None, metadata=axes("batch", 0))
    """The lemma of that predicate; 0 where it is unknown, or none is asked for."""
    marks: Int[Tensor, "batch words"] | None = field(default=None, metadata=axes("batch words", IGNORE))
    """Whether each word is a predicate; IGNORE where the roles of one are asked for, and where there is no word."""
    sentences: Int[Tensor, "examples sentences"] | None = field(default=None, metadata=axes("examples sentences", -1))
    """The rows of `tokens` that are the sentences of each document, in order; −1 where there is no sentence."""
    feature_tokens: Int[Tensor, "examples features"] | None = field(
        default=None, metadata=axes("examples features", PAD)
    )
    """Each text as the encoder of `given.features` reads it, with its own tokens."""
    feature_lengths: Int[Tensor, " examples"] | None = field(default=None, metadata=axes("examples", 1))
    second_feature_tokens: Int[Tensor, "examples seconds"] | None = field(
        default=None, metadata=axes("examples features", PAD)
    )
    """The second text of each pair, or the context of each question, as that encoder reads it."""
    second_feature_lengths: Int[Tensor, " examples"] | None = field(default=None, metadata=axes("examples", 1))
    feature_words: Int[Tensor, "examples words"] | None = field(default=None, metadata=axes("examples words", -1))
    """The position of the first of those tokens of each word, or of each token of a row; −1 where there is none."""
    candidates: Bool[Tensor, "batch time"] | None = field(default=None, metadata=axes("batch time", 0))
    """Where an answer may begin and end: the tokens of the context, and the one that means no answer."""
    answers: Int[Tensor, "batch ends"] | None = field(default=None, metadata=axes("batch ends", IGNORE))
    """The first and the last token of each answer; IGNORE where none is known."""
    choices: Int[Tensor, "examples choices"] | None = field(default=None, metadata=axes("examples choices", -1))
    """The rows of `tokens` that are the choices of each question, in order; −1 where there is no choice."""
    concepts: Int[Tensor, "batch concepts"] | None = field(default=None, metadata=axes("batch concepts", -1))
    """The concepts of the schema graph of each row, by their numbers; −1 where there is none."""
    paths: Int[Tensor, "paths facts"] | None = field(default=None, metadata=axes("paths facts", -1))
    """Every path of these graphs: its row, the positions of its concepts in the row, and its relations; −1: none."""
    pairs: Int[Tensor, "batch pairs alternatives"] | None = field(
        default=None, metadata=axes("batch pairs alternatives", -1)
    )
    """The paths of each pair of a concept of the question and one of the choice, by their lines; −1: none."""
    statements: Float[Tensor, "batch statement"] | None = field(default=None, metadata=axes("batch statement", 0))
    """The vector of each row of tokens as a frozen encoder gave it, so that it need not be computed again."""
    images: UInt8[Tensor, "batch height width colors"] | None = field(
        default=None, metadata=axes("batch height width colors", 255)
    )
    """The image of each example: red, green and blue from 0 to 255."""
    regions: Float[Tensor, "batch regions region_dim"] | None = field(
        default=None, metadata=axes("batch regions region_dim", 0)
    )
    """The given features of the regions of each image."""
    ngrams: Int[Tensor, "examples ngrams"] | None = field(default=None, metadata=axes("examples ngrams", 0))
    """The hashed n-grams of each example, from 1; 0 where there is none."""
    entities: Int[Tensor, "batch entities"] | None = field(default=None, metadata=axes("batch entities", -1))
    """The entities that each text names, by their ids in a given graph; −1 where there is none, or it is hidden."""
    entity_places: Int[Tensor, "batch entities"] | None = field(default=None, metadata=axes("batch entities", -1))
    """The position of the first token of each of these names; −1 where there is none."""
    entity_labels: Int[Tensor, "batch entities"] | None = field(default=None, metadata=axes("batch entities", IGNORE))
    """The entity to predict at each of these positions, as a row of `distinct_entities`; IGNORE where there is none."""
    distinct_entities: Int[Tensor, " distinct"] | None = field(default=None, metadata=axes("distinct", -1))
    """The entities of all texts of the batch, each once, by their ids; −1 where there is none."""
    document_words: Int[Tensor, "documents text 2"] | None = field(
        default=None, metadata=axes("documents text place", -1)
    )
    """The row of `tokens` and the position in it of every word of each document; −1 where there is no word."""
    document_sentences: Int[Tensor, "documents text"] | None = field(default=None, metadata=axes("documents text", -1))
    """The number of the sentence of every word of each document; −1 where there is no word."""
    mentions: Int[Tensor, "documents mentions 3"] | None = field(
        default=None, metadata=axes("documents mentions facts", -1)
    )
    """The first word, the last word and the cluster of every mention of each document; −1 where there is none."""

    texts: Int[Tensor, "batch languages time"] | None = field(default=None, metadata=axes("batch languages time", PAD))
    """Unpaired sentences of two languages, each ended by `</s>`."""
    text_lengths: Int[Tensor, "batch languages"] | None = field(default=None, metadata=axes("batch languages", 1))
    noisy: Int[Tensor, "batch languages time"] | None = field(default=None, metadata=axes("batch languages time", PAD))
    """These sentences with words dropped and shuffled."""
    noisy_lengths: Int[Tensor, "batch languages"] | None = field(default=None, metadata=axes("batch languages", 1))
    translated: Int[Tensor, "batch languages translated"] | None = field(
        default=None, metadata=axes("batch languages time", PAD)
    )
    """The model's translation of each sentence into the other language."""
    translated_lengths: Int[Tensor, "batch languages"] | None = field(default=None, metadata=axes("batch languages", 1))

    @property
    def mask(self) -> Bool[Tensor, "batch time"]:
        """True where `tokens` is not padding."""
        return lengths_to_mask(self.lengths, self.tokens.shape[1])

    @property
    def source_mask(self) -> Bool[Tensor, "batch source"]:
        """True where `source` is not padding."""
        if self.source is None or self.source_lengths is None:
            raise ValueError("this batch has no source")
        return lengths_to_mask(self.source_lengths, self.source.shape[1])

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """A batch with a function applied to every tensor."""
        changed: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, Tensor):
                changed[each.name] = change(value)
        return replace(self, **changed)

    def to(self, device: torch.device | str) -> Batch:
        """A copy of the batch on another device."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> Batch:
        """A copy in pinned memory, for asynchronous transfers to a GPU; the loader calls this."""
        return self.map(Tensor.pin_memory)

    def __reduce__(self) -> tuple[Any, ...]:
        # Sent between processes as plain bytes: torch would open a file for every tensor, which takes 2 ms per batch.
        arrays = {each.name: getattr(self, each.name) for each in fields(self)}
        return from_arrays, ({name: value.cpu().numpy() for name, value in arrays.items() if value is not None},)


def from_arrays(arrays: dict[str, Any]) -> Batch:
    """The batch whose tensors these were."""
    return Batch(**{name: torch.from_numpy(array) for name, array in arrays.items()})


@dataclass(frozen=True)
class Shapes:
    """A short list of batch shapes, for engines that compile or capture every shape.

    Widths are rounded up to a multiple, but not beyond what the model reads; every batch of one width has the same
    number of rows.
    """

    tokens: int
    """Padded tokens per batch, counted on its longer side."""
    sentences: int | None = None
    """Maximum number of rows."""
    multiple: int = 8
    longest: int | None = None
    """The maximum number of positions that the model has, which need not be a multiple; None: it has no limit."""

    def fill(self, batch: Batch) -> Batch:
        """The batch padded to the next of these shapes; added positions are masked and have no labels."""
        longest = max(self.rounded(value.shape[1]) for name, value in rectangles(batch))
        rows = min(self.tokens // longest, self.sentences or self.tokens)
        several = batch.choices if batch.sentences is None else batch.sentences
        if several is None:
            rows = examples = max(len(batch), rows)
        else:
            rows = rows if len(batch) <= rows else self.doubled(len(batch))
            examples = self.doubled(len(several))
        changed = {}
        for each in fields(batch):
            if (value := getattr(batch, each.name)) is not None:
                wanted = [
                    self.size(*pair, rows, examples) for pair in zip(each.metadata["axes"], value.shape, strict=False)
                ]
                changed[each.name] = padded(value, wanted, each.metadata["fill"])
        return replace(batch, **changed)

    def size(self, axis: str, size: int, rows: int, examples: int) -> int:
        """The padded size of an axis."""
        if axis in DOUBLED:
            return self.doubled(size)
        if axis in STEPPED:
            return stepped(size)
        return self.rounded(size) if axis in VARYING else {"batch": rows, "examples": examples}.get(axis, size)

    def rounded(self, width: int) -> int:
        """A width, rounded up to the multiple, or to `longest` where that comes first."""
        found = -(-width // self.multiple) * self.multiple
        return found if self.longest is None or width > self.longest else min(found, self.longest)

    def doubled(self, size: int) -> int:
        """A size, rounded up to the multiple, twice it, four times it …: for batches with several varying sizes."""
        return self.multiple << (-(-max(1, size) // self.multiple) - 1).bit_length()


def stepped(size: int) -> int:
    """A size, rounded up to one of a short list: multiples of 8 up to 64, then eight sizes per doubling."""
    step = max(8, 1 << max(0, (size - 1).bit_length() - 4))
    return max(8, -(-size // step) * step)


def padded(value: Tensor, sizes: Sequence[int], fill: int | float) -> Tensor:
    """A tensor with positions added at the end of its axes."""
    more = [after - before for before, after in zip(value.shape, sizes, strict=True)]
    return pad(value, [each for extra in reversed(more) for each in (0, extra)], value=fill)


def rectangles(batch: Batch) -> list[tuple[str, Tensor]]:
    """The tensors of a batch that have an axis of tokens, by name."""
    named = ((each, getattr(batch, each.name)) for each in fields(batch))
    return [
        (each.name, value)
        for each, value in named
        if value is not None and value.dim() == 2 and each.metadata["axes"][1] in ("time", "source")
    ]


def lengths_to_mask(lengths: Int[Tensor, " batch"], width: int | torch.SymInt) -> Bool[Tensor, "batch width"]:
    """True in the first `lengths[i]` positions of row i."""
    places = torch.arange(width, device=lengths.device)  # type: ignore[arg-type]  # its stub knows no SymInt
    return places[None, :] < lengths[:, None]


def pad_texts(rows: Sequence[Any], vocabulary: Vocabulary) -> tuple[Int[Tensor, "rows width"], Int[Tensor, " rows"]]:
    """Pad texts for an encoder, each with the special tokens that the vocabulary has for their begin and end."""
    begin, end = vocabulary.frame
    return pad_rows(rows, vocabulary.pad, begin=begin, end=end)


def pad_pairs(
    firsts: Sequence[Any], seconds: Sequence[Any], vocabulary: Vocabulary
) -> tuple[Int[Tensor, "rows width"], Int[Tensor, " rows"], Int[Tensor, "rows width"]]:
    """Pad pairs of texts, each joined to one row, with their lengths and the segment of every token.

    `<cls>` first `<sep>` second `<sep>`, or `<start>` first `<delimiter>` second `<extract>` as in GPT-1, or first
    `</s>` second `</s>` where the vocabulary has none of these.
    """
    begin, end = vocabulary.frame
    between = np.full(vocabulary.pair_separators, vocabulary.between, dtype=np.int64)
    rows = [np.concatenate((one, between, two)) for one, two in zip(firsts, seconds, strict=True)]
    tokens, lengths = pad_rows(rows, vocabulary.pad, begin=begin, end=end)
    starts = torch.tensor([len(one) + len(between) + (begin is not None) for one in firsts], dtype=torch.int64)
    places = torch.arange(tokens.shape[1])[None, :]
    types = (places >= starts[:, None]) & (places < lengths[:, None])
    return tokens, lengths, types.long()


def pad_rows(
    rows: Sequence[Any], value: int = PAD, *, begin: int | None = None, end: int | None = None
) -> tuple[Int[Tensor, "rows width"], Int[Tensor, " rows"]]:
    """Pad rows of unequal length to one tensor, with their lengths; `begin` goes before each row, `end` after it."""
    bodies = np.array([len(row) for row in rows], dtype=np.int64)
    first, extra = int(begin is not None), (begin is not None) + (end is not None)
    rectangle = np.full((len(rows), bodies.max(initial=0) + (extra if len(rows) else 0)), value, dtype=np.int64)
    if rectangle.size:
        places = np.arange(rectangle.shape[1] - first)
        rectangle[:, first:][places < bodies[:, None]] = np.concatenate(rows)
        if begin is not None:
            rectangle[:, 0] = begin
        if end is not None:
            rectangle[np.arange(len(rows)), bodies + first] = end
    return torch.from_numpy(rectangle), torch.from_numpy(bodies + extra)
