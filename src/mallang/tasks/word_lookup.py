"""Words by their vectors: the vector of a word, its nearest neighbors, analogies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float32
from torch import Tensor

from mallang import notebook
from mallang.decoding.contract import inference
from mallang.errors import UserError, nearest
from mallang.models.contract import SpelledVectors, WordVectors
from mallang.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Neighbors:
    """The words nearest to a vector, by cosine, the nearest first; `str()` gives one per line."""

    input: str
    neighbors: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        return "\n".join(f"{word} {cosine:.4f}" for word, cosine in self.neighbors)

    def _repr_html_(self) -> str:
        """In a notebook: the word, and the cosine of every neighbor."""
        return notebook.block(self.input, notebook.bars(self.neighbors))


class WordLookup:
    """The words of a model, with their vectors on the CPU."""

    def __init__(self, model: Any, tokenizer: Tokenizer) -> None:
        assert isinstance(model, WordVectors)
        self.model, self.tokenizer, self.specials = model, tokenizer, tokenizer.vocabulary.specials

    @cached_property
    def vectors(self) -> Float32[Tensor, "words dim"]:
        """The vector of every word."""
        with inference(self.model):
            return self.model.vectors().detach().float().cpu()

    @cached_property
    def directions(self) -> Float32[Tensor, "words dim"]:
        """The vectors scaled to length 1; an inner product of two is their cosine."""
        return F.normalize(self.vectors, dim=1)

    @cached_property
    def names(self) -> list[str]:
        """Every word as text, without the sign of the space before it."""
        tokens = self.tokenizer.vocabulary.tokens
        return [
            token if number in self.specials else self.tokenizer.decode([number]).strip() or token
            for number, token in enumerate(tokens)
        ]

    @cached_property
    def folded(self) -> dict[str, int]:
        """The first word of every spelling, whatever its case; the vocabulary begins with the most frequent."""
        found: dict[str, int] = {}
        for number, name in enumerate(self.names):
            if number not in self.specials:
                found.setdefault(name.casefold(), number)
        return found

    def find(self, text: str, *, fold: bool = False) -> Float[Tensor, " dim"] | None:
        """The vector of a word, or the mean of several; None where nothing of it is known.

        Unknown words are computed from their spelling, if the model can do that, or looked for in another case, if
        `fold` allows it.
        """
        encoded = self.tokenizer.encode(text)
        found = [self.vectors[number] for number in encoded.ids if number not in self.specials]
        unknown = [word.strip() for word in encoded.unknown_in(text)]
        if unknown and fold and (number := self.folded.get(text.casefold())) is not None:
            return self.vectors[number]
        if isinstance(self.model, SpelledVectors) and (spelled := [word for word in unknown if word]):
            with inference(self.model):
                rows = self.model.spelled_vectors(spelled).float().cpu()
            found += [row for row in rows if row.any()]
        return torch.stack(found).mean(dim=0) if found else None

    def vector(self, text: str) -> Float[Tensor, " dim"]:
        """The vector of a word; raises a UserError where there is none."""
        vector = self.find(text)
        if vector is None:
            known = [name for number, name in enumerate(self.names) if number not in self.specials]
            raise UserError(f"the model has no vector of {text!r}", todo=nearest(text.strip(), known[:50_000]))
        return vector

    def nearest(
        self, vector: Float[Tensor, " dim"], count: int, without: Iterable[str]
    ) -> tuple[tuple[str, float], ...]:
        """The words nearest to a vector, other than those `without`; one that is spelled in two ways comes once."""
        cosines = self.directions @ F.normalize(vector, dim=0)
        cosines[sorted(self.specials)] = -torch.inf
        seen, found = {word.strip() for word in without}, list[tuple[str, float]]()
        values, order = cosines.sort(descending=True, stable=True)
        for value, number in zip(values.tolist(), order.tolist(), strict=True):
            if len(found) == count or number in self.specials:
                break
            if (name := self.names[number]) not in seen:
                seen.add(name)
                found.append((name, value))
        return tuple(found)

    def neighbors(self, text: str, count: int) -> Neighbors:
        """The words nearest to a word."""
        return Neighbors(text, self.nearest(self.vector(text), count, [text, self.normalized(text)]))

    def analogy(self, words: Sequence[str], count: int) -> Neighbors:
        """The words nearest to first − second + third, each scaled to length 1: king − man + woman."""
        first, second, third = (F.normalize(self.vector(word), dim=0) for word in words)
        without = [*words, *map(self.normalized, words)]
        name = f"{words[0]} − {words[1]} + {words[2]}"
        return Neighbors(name, self.nearest(first - second + third, count, without))

    def normalized(self, text: str) -> str:
        """A text as the tokenizer reads it, such as in lower case."""
        return str(self.tokenizer.backend.normalizer.normalize_str(text)).strip()
