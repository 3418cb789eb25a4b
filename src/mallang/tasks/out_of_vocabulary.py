"""Out-of-vocabulary (OOV) words as inputs of character-aware models: read from their characters, not as `<unk>`.

The output vocabulary is closed: as a label such a word is `<unk>`, and perplexity counts it as `<unk>`.
"""

from __future__ import annotations

from collections.abc import Sequence

from mallang.layers.spelling import ReadsSpelling
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import SPECIALS

UNITS = ("word", "space")
"""Units in which `<unk>` stands for a word; in others it stands for a character that was not in the training text."""


def reads_oov(model: object, tokenizer: Tokenizer) -> bool:
    """Whether a model reads words outside its vocabulary."""
    return isinstance(model, ReadsSpelling) and tokenizer.config.unit in UNITS


def ids_to_read(model: object, tokenizer: Tokenizer, texts: Sequence[str], ids: Sequence[list[int]]) -> list[list[int]]:
    """The input ids of texts; `ids` are those of the vocabulary, with `<unk>` for words that the model cannot predict.

    A literal `<unk>` in a text, as in the Penn Treebank, stays `<unk>`.
    """
    if not isinstance(model, ReadsSpelling) or not reads_oov(model, tokenizer):
        return list(ids)
    unk, read, words = tokenizer.vocabulary.unk, [list(line) for line in ids], dict[tuple[int, int], str]()
    for row, (text, line) in enumerate(zip(texts, ids, strict=True)):
        for place, word in enumerate(tokenizer.words(text) if unk in line else []):
            if line[place] == unk and word not in SPECIALS:
                words[row, place] = word
    for (row, place), number in zip(words, model.ids_of_oov(list(words.values())), strict=True):
        read[row][place] = number
    return read


def forget_oov(model: object, most: int | None = None) -> None:
    """Forget the ids of words outside the vocabulary if there are many; call it before new texts are read."""
    if isinstance(model, ReadsSpelling):
        model.forget_oov(most)
