"""Words that are added to the vocabulary of a tokenizer, such as those that pretrained vectors know."""

from __future__ import annotations

from collections.abc import Iterable

from mallang.errors import UserError
from mallang.text.tokenizer import Tokenizer

UNITS = ("word", "space")
"""Units whose tokens are whole words."""


def with_words(tokenizer: Tokenizer, words: Iterable[str]) -> Tokenizer:
    """A tokenizer that knows more words; the ids of the others stay, but those of domains, which come last.

    What the tokenizer would not read as one word, such as "New York", is left out.
    """
    if tokenizer.config.unit not in UNITS:
        raise UserError(
            f"words cannot be added to a vocabulary of unit {tokenizer.config.unit}, whose tokens are no words",
            todo="text.unit=word, or text.unit=space for text that is split already",
        )
    pieces = (tokenizer.words(word) for word in words)
    domains = tokenizer.domains
    known = [token for number, token in enumerate(tokenizer.vocabulary.tokens) if number not in domains.values()]
    tokens = dict.fromkeys([*known, *(found[0] for found in pieces if len(found) == 1)])
    return Tokenizer.of_words(tokens, tokenizer.config, domains)
