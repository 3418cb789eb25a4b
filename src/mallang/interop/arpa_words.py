"""How the tokens of unit `word` are spelled in ARPA files: as the words of a text whose tokens stand between spaces.

    she said: "it's late."      ▁she ▁said : ▁" it ' s ▁late . "      she said : ▁" ￭it ' ￭s late . "

A word usually has a space before it and a punctuation mark has none, so these two carry no sign in the file. The
exceptions do: ▁ before a mark that follows a space, ￭ (the joiner of OpenNMT) before a word that follows none. Every
token has exactly one spelling, so the probabilities of the file are those of the model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mallang.errors import UserError
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import SPECIALS

SPACE, JOINER = "▁", "￭"
WORD = re.compile(r"\w+")


def written(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Each token of a vocabulary as an ARPA file spells it."""
    if tokenizer.config.unit != "word":
        return tokenizer.vocabulary.tokens
    return tuple(map(written_word, tokenizer.vocabulary.tokens))


def written_word(token: str) -> str:
    """One token of unit `word` as an ARPA file spells it."""
    if token in SPECIALS or token == SPACE:
        return token
    spaced, body = token.startswith(SPACE), token.removeprefix(SPACE)
    if WORD.fullmatch(body):
        return body if spaced else f"{JOINER}{body}"
    return token


def read_word(word: str) -> str:
    """The token of unit `word` that an ARPA file spells so."""
    if word in SPECIALS or word.startswith(SPACE):
        return word
    if WORD.fullmatch(body := word.removeprefix(JOINER)):
        return body if word.startswith(JOINER) else f"{SPACE}{body}"
    return word


def spaced(tokenizer: Tokenizer, text: str) -> str:
    """A text as KenLM must be given it: its tokens, as the ARPA file spells them, with spaces between."""
    words = written(tokenizer)
    return " ".join(words[number] for number in tokenizer.encode(text).ids)


def tokens_of(words: Sequence[str]) -> tuple[str, ...]:
    """The tokens of unit `word` that the words of a file stand for."""
    tokens = tuple(map(read_word, words))
    if len(set(tokens)) < len(tokens):
        twice = next(token for token in tokens if tokens.count(token) > 1)
        raise UserError(f"{twice!r} and {written_word(twice)!r} are the same word", todo="remove one of them")
    return tokens
