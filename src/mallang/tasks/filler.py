"""The verbs of a trained masked language model: words for gaps, scores of held-out text, vectors of texts.

    fill("the man went to [MASK] store")     →  the man went to the store

Several gaps are filled from left to right by beam search: each candidate reads the words already chosen, and what is
still masked. The score of a filling is the sum of the log-probabilities of its words, each given those before it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from mallang import notebook
from mallang.data.batch import Batch, pad_rows
from mallang.data.columns import ColumnEncoder
from mallang.data.passages import Documents
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.models.contract import longest_of
from mallang.tasks.contract import Evaluated
from mallang.tasks.embedding import text_vectors, word_vectors
from mallang.tasks.masked_scores import masked_scores, measure, pair_scores
from mallang.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from mallang.tasks.masked_lm import Task

GAP = re.compile(r"\[MASK\]|<mask>")
"""How a user writes a gap, whatever the tokenizer calls it."""
ROWS = 64
"""Texts in a batch of pseudo-log-likelihoods."""


@dataclass(frozen=True)
class Candidate:
    """A token for one gap, and its probability while all other gaps are open."""

    token: str
    probability: float


@dataclass(frozen=True)
class Filling:
    """Tokens for all gaps of a text, and the text with them."""

    text: str
    tokens: tuple[str, ...]
    score: float
    """The log-probability of the tokens."""

    @property
    def probability(self) -> float:
        """The probability of the tokens."""
        return math.exp(self.score)


@dataclass(frozen=True)
class Filled:
    """A text with gaps, and what they may be filled with."""

    input: str
    gaps: tuple[tuple[Candidate, ...], ...]
    """The most probable tokens of each gap by itself."""
    nbest: tuple[Filling, ...]
    """The best fillings of all gaps together."""

    def __str__(self) -> str:
        return self.nbest[0].text

    def _repr_html_(self) -> str:
        """In a notebook: the text with the best filling, and the candidates of every gap."""
        gaps = (notebook.bars([(each.token, each.probability) for each in gap]) for gap in self.gaps)
        return notebook.block(self.output, notebook.note(self.input), *gaps)

    @property
    def output(self) -> str:
        """The text with the best filling."""
        return self.nbest[0].text


class Verbs:
    """A trained masked language model."""

    task_name = "masked_lm"
    verbs = ("fill", "embed", "evaluate")
    compared_by = ("mlm loss",)
    evaluated: Evaluated = "masked tokens"

    def __init__(self, task: Task, model: Any, config: None, max_length: int) -> None:
        self.task, self.model, self.config, self.max_length = task, model, config, max_length

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of its texts."""
        return self.task.text

    def fill(self, texts: str | Iterable[str], *, count: int = 5) -> Any:
        """The most probable words for the gaps of a text, or of each; a gap is written [MASK] or <mask>."""
        if count < 1:
            raise UserError(f"count = {count} asks for no filling", todo="give 1 or more")
        if isinstance(texts, str):
            return self.fill_one(texts, count)
        return [self.fill_one(text, count) for text in texts]

    def fill_one(self, text: str, count: int) -> Filled:
        """The fillings of one text."""
        vocabulary = self.tokenizer.vocabulary
        ids = framed(self.tokenizer, marked_ids(self.tokenizer, text))
        self.check(ids, text)
        gaps = [place for place, number in enumerate(ids) if number == vocabulary.mask]
        if not gaps:
            raise UserError(f"{text[:60]!r} has no gap to fill", todo="write [MASK] or <mask> in place of a word")
        count = min(count, len(vocabulary) - len(vocabulary.specials))
        alone = self.log_probs([ids], gaps)[0].topk(count, dim=1)
        tokens = vocabulary.tokens
        candidates = tuple(
            tuple(Candidate(tokens[number], float(np.exp(value))) for value, number in zip(*pair, strict=True))
            for pair in zip(alone.values.tolist(), alone.indices.tolist(), strict=True)
        )
        found = self.search(ids, gaps, count)
        fillings = [
            Filling(self.tokenizer.decode(filled), tuple(tokens[filled[gap]] for gap in gaps), score)
            for filled, score in found
        ]
        return Filled(text, candidates, tuple(fillings))

    def search(self, ids: list[int], gaps: Sequence[int], width: int) -> list[tuple[list[int], float]]:
        """The best fillings by beam search, gap after gap, with their log-probabilities."""
        beam = [(ids, 0.0)]
        for gap in gaps:
            found = self.log_probs([filled for filled, _ in beam], [gap])[:, 0]
            totals = found + torch.tensor([score for _, score in beam], dtype=found.dtype)[:, None]
            best = totals.flatten().topk(min(width, totals.numel()))
            beam = [
                ([*beam[row][0][:gap], word, *beam[row][0][gap + 1 :]], value)
                for value, (row, word) in zip(
                    best.values.tolist(), (divmod(each, found.shape[1]) for each in best.indices.tolist()), strict=True
                )
            ]
        return beam

    def log_probs(self, rows: Sequence[list[int]], places: Sequence[int]) -> Tensor:
        """The log-probabilities at these places of rows of one length; a special token is never filled in."""
        vocabulary, device = self.tokenizer.vocabulary, device_of(self.model)
        tokens, lengths = pad_rows(rows, vocabulary.pad)
        types = None if self.task.pair_part is None else torch.zeros_like(tokens)
        with inference(self.model):
            hidden = self.model(Batch(tokens=tokens, lengths=lengths, token_types=types).to(device))
            logits = self.model.output(hidden[:, list(places)]).float().cpu()
        log_probs: Tensor = logits.double().log_softmax(dim=-1)
        log_probs[..., list(vocabulary.specials)] = -torch.inf
        return log_probs

    def pseudo_log_likelihood(self, text: str) -> float:
        """The sum of the log-probability of every token, each masked by itself (Salazar et al. 2020)."""
        vocabulary = self.tokenizer.vocabulary
        ids = framed(self.tokenizer, self.tokenizer.encode(text).ids)
        self.check(ids, text)
        places = [place for place, number in enumerate(ids) if number not in vocabulary.specials]
        total = 0.0
        for begin in range(0, len(places), ROWS):
            some = places[begin : begin + ROWS]
            rows = [[*ids[:place], vocabulary.mask, *ids[place + 1 :]] for place in some]
            found = self.log_probs(rows, some)
            total += sum(float(found[row, row, ids[place]]) for row, place in enumerate(some))
        return total

    def check(self, ids: Sequence[int], text: str) -> None:
        """Refuse a text that the model cannot read at once."""
        longest = longest_of(self.model)
        if longest is not None and len(ids) > longest:
            raise UserError(
                f"{text[:40]!r} … has {len(ids)} tokens, and the model reads {longest}", todo="give a shorter text"
            )

    def embed(self, texts: str | Iterable[str], *, words: bool = False) -> Float32[np.ndarray, "*texts dim"]:
        """The vector of a text, or one row per text; with `words` the embeddings of words."""
        given = [texts] if isinstance(texts, str) else list(texts)
        found = (word_vectors if words else text_vectors)(self.model, self.tokenizer, given)
        return found[0] if isinstance(texts, str) else found

    def evaluate(
        self, rows: Sequence[tuple[str, ...]], *, domain: str | None = None, **options: Any
    ) -> tuple[list[Score], list[str]]:
        """The scores of masked tokens, and of pairs; for each row the log-probability of its masked tokens.

        Masks are fixed, so that models with one tokenizer are asked for the same tokens. A model that was trained on
        one kind of pairs is scored on the other too.
        """
        if options := {name: value for name, value in options.items() if value is not None}:
            raise UserError(f"{next(iter(options))} has no effect on a masked language model", todo="leave it out")
        encoders = [each.encoder for each in self.task.arrays() if isinstance(each.encoder, ColumnEncoder)]
        texts = [text for (text,) in rows]
        arrays = list(zip(*(encoder.encode_batch(texts) for encoder in encoders), strict=True))
        documents = Documents.from_rows(arrays)
        passages = self.task.passages(documents, "none")
        found = measure(self.task, self.model, passages)
        scores = masked_scores(found)
        if self.task.pair_part is not None:
            for pairing, name in (("next", "nsp"), ("order", "sop")):
                if pairing == "next" and len(documents) < 2:
                    continue
                pairs = self.task.passages(documents, pairing)  # type: ignore[arg-type]
                scores += pair_scores(name, measure(self.task, self.model, pairs))
        ends = np.cumsum([len(tokens) for tokens, _ in arrays])
        sums = np.zeros(len(rows))
        np.add.at(sums, np.searchsorted(ends, passages.spans[:, 0], side="right"), -found.nats)
        return scores, [f"{value:.4f}" for value in sums]


def marked_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of a text with gaps. A gap stands for a token and the space before it, if tokens begin with spaces.

    Where spaces are tokens of their own, they stay; where a tokenizer puts a space before every text, none is left.
    """
    unit, ids = tokenizer.config.unit, list[int]()
    for number, part in enumerate(GAP.split(text)):
        if number:
            ids.append(tokenizer.vocabulary.mask)
        if unit not in ("char", "syllable", "jamo", "byte"):
            part = part.rstrip() if unit == "byte-bpe" else part.strip()
        ids += tokenizer.encode(part).ids
    return ids


def framed(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """What an encoder reads: the ids between the special tokens of the vocabulary."""
    begin, end = tokenizer.vocabulary.frame
    return [*([] if begin is None else [begin]), *ids, end]
