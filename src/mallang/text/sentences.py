"""Sentences of a document: at line breaks, those of HTML too, and where a sentence ends within a line."""

from __future__ import annotations

import re

BREAK = re.compile(r"(?:\s*<(?:br|p)\s*/?>\s*|\n)+")
END = re.compile(r"(?<=[.!?…。])\s+|(?<=[.!?…。][\"'”’)\]])\s+")
"""White space after an end mark, or after a quote behind it. Abbreviations end a sentence too: no harm is done here."""


def split_sentences(text: str) -> list[str]:
    """The sentences of a document in order, without white space around them; a text has at least one."""
    found = [sentence.strip() for line in BREAK.split(text) for sentence in END.split(line)]
    return [sentence for sentence in found if sentence] or [text.strip()]
