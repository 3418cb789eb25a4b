"""Words outside the vocabulary, as a model reads them that spells its words: from their characters, not as `<unk>`.

What a model says is closed: as a label such a word is `<unk>`, and a perplexity counts it as that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mallang.layers.characters import ReadsSpelling
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import SPECIALS

UNITS = ("word", "space")
"""Units in which `<unk>` stands for a word; in others it stands for a character that the model never met."""


def reads_unseen(model: Any, tokenizer: Tokenizer) -> bool:
    """Whether a model reads words that are not in its vocabulary."""
    return isinstance(model, ReadsSpelling) and tokenizer.config.unit in UNITS


def ids_to_read(model: Any, tokenizer: Tokenizer, texts: Sequence[str], ids: Sequence[list[int]]) -> list[list[int]]:
    """The ids of texts as a model reads them; `ids` are those of its vocabulary, `<unk>` for words it cannot say.

    `<unk>` that stands in a text, as in the Penn Treebank, stays what it is.
    """
    if not reads_unseen(model, tokenizer):
        return list(ids)
    unk, found = tokenizer.vocabulary.unk, []
    for text, line in zip(texts, ids, strict=True):
        words = tokenizer.words(text) if unk in line else []
        places = [place for place, word in enumerate(words) if line[place] == unk and word not in SPECIALS]
        read = list(line)
        for place, number in zip(places, model.unseen([words[place] for place in places]), strict=True):
            read[place] = number
        found.append(read)
    return found


def forget_unseen(model: Any) -> None:
    """Give up the ids of words outside the vocabulary, if there are many: before new texts are read."""
    if isinstance(model, ReadsSpelling):
        model.forget_unseen()
