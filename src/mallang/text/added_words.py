"""Words that are added to the vocabulary of a tokenizer, such as those that pretrained vectors know; special tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable

import tokenizers

from mallang.errors import UserError
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import OPTIONAL

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


def with_special_tokens(tokenizer: Tokenizer, names: Iterable[str]) -> Tokenizer:
    """A tokenizer with more special tokens, by name, after all others: the ids of these stay."""
    wanted = {name: OPTIONAL[name] for name in names}
    pipeline, about = tokenizer.files
    backend, facts = tokenizers.Tokenizer.from_str(pipeline), json.loads(about)
    if taken := [token for token in wanted.values() if backend.token_to_id(token) is not None]:
        raise UserError(f"the vocabulary has an ordinary word {taken[0]}, which would be a special token")
    backend.add_special_tokens(list(wanted.values()))
    facts["special"] = {**facts.get("special", {}), **wanted}
    return Tokenizer(backend.to_str(), json.dumps(facts, ensure_ascii=False, indent=2) + "\n")
