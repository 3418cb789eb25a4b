"""Texts longer than a model can read: split at sentence ends, and between words where a sentence is too long."""

from __future__ import annotations

from mallang.text.tokenizer import Tokenizer
from mallang.text.unicode import split_sentences


def split_long(text: str, tokenizer: Tokenizer, most: int) -> list[str]:
    """Split a text of `most` tokens or more (0: no limit) into sentences; a sentence that long between words."""
    if most == 0 or len(tokenizer.encode_batch([text])[0]) < most:
        return [text]
    parts = [part for sentence in split_sentences(text) for part in split_words(sentence, tokenizer, most)]
    return [part.strip() for part in parts if part.strip()] or [text]


def split_words(sentence: str, tokenizer: Tokenizer, most: int) -> list[str]:
    """Split a sentence into pieces of fewer than `most` tokens, before the word that no longer fits."""
    parts: list[str] = []
    while sentence:
        encoding = tokenizer.encode(sentence)
        if len(encoding.ids) < most:
            return [*parts, sentence]
        end = encoding.offsets[most - 2][1]
        space = sentence.rfind(" ", 1, end)
        end = space if space > 0 else max(1, end)
        parts.append(sentence[:end])
        sentence = sentence[end:]
    return parts
