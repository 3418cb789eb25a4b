"""Training of tokenizer models: from counted pieces of text to a model of the `tokenizers` library.

All units count first, so the model does not depend on the order of the lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal, TypeAlias

from tokenizers import Tokenizer, models, trainers
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer

from mallang.errors import UserError
from mallang.text.vocabulary import SPECIALS, UNK

Unit: TypeAlias = Literal[
    "word", "space", "char", "syllable", "jamo", "byte", "bpe", "byte-bpe", "morpheme", "wordpiece", "unigram"
]

COVERAGE = 0.9995
"""Character coverage: the share of the text that the alphabet covers if it would fill over half of the vocabulary."""
BYTES = sorted(ByteLevel.alphabet())
UNKNOWN = SPECIALS[UNK]


def learn(unit: Unit, counts: Mapping[str, int], size: int, min_count: int) -> models.Model:
    """The model of a unit: at most `size` tokens, special tokens first, all others with a count of `min_count` on."""
    if unit != "byte" and not counts:
        raise UserError("there is no text to learn a tokenizer from", todo="look at what data.train names")
    match unit:
        case "word" | "space" | "syllable":
            return models.WordLevel(
                vocab=numbered(ranked(counts, min_count)[: size - len(SPECIALS)]), unk_token=UNKNOWN
            )
        case "char" | "jamo":  # a BPE model without merges gives the characters, faster than splitting at each
            return models.BPE(numbered(ranked(counts, min_count)[: size - len(SPECIALS)]), [], unk_token=UNKNOWN)
        case "byte":
            return models.BPE(numbered(BYTES), [])
        case "byte-bpe":
            return learn_bpe(counts, BYTES, size, min_count)
        case "bpe" | "morpheme":
            alphabet = choose_alphabet(unit, counts, size, min_count)
            return learn_bpe(spelled_in(alphabet, counts), alphabet, size, min_count)
        case "wordpiece":
            alphabet = choose_alphabet(unit, counts, size, min_count)
            return learn_wordpiece(spelled_in(alphabet, counts), alphabet, size, min_count)
        case "unigram":
            from mallang.text import unigram  # numpy is not needed to use a tokenizer

            alphabet = choose_alphabet(unit, counts, size, min_count)
            pieces = unigram.learn(spelled_in(alphabet, counts), alphabet, size - len(SPECIALS), min_count)
            return models.Unigram([*((token, 0.0) for token in SPECIALS), *pieces], unk_id=UNK)


def count(lines: Iterable[str], normalizer: Normalizer, pre_tokenizer: PreTokenizer | None) -> Counter[str]:
    """The count of each piece; without a pre-tokenizer each code point is a piece."""
    counts: Counter[str] = Counter()
    for number, line in enumerate(lines, start=1):
        try:
            text = normalizer.normalize_str(line)
        except (TypeError, UnicodeEncodeError) as error:
            raise not_text(line, f"line {number} of the text to learn from") from error
        counts.update(text if pre_tokenizer is None else (piece for piece, _ in pre_tokenizer.pre_tokenize_str(text)))
    return counts


def not_text(line: str, where: str) -> UserError:
    """The error for a string with a lone surrogate."""
    place = next((i for i, character in enumerate(line) if "\ud800" <= character <= "\udfff"), 0)
    return UserError(
        f"character {place + 1} is the lone surrogate U+{ord(line[place]):04X}, which is no character",
        where=where,
        todo="write it in UTF-8; a file can be read with errors='replace'",
    )


def ranked(counts: Mapping[str, int], min_count: int) -> list[str]:
    """The frequent pieces, most frequent first, ties by code point; `<unk>` has its id already."""
    frequent = (piece for piece in counts if counts[piece] >= min_count and piece not in SPECIALS)
    return sorted(frequent, key=lambda piece: (-counts[piece], piece))


def numbered(pieces: Iterable[str]) -> dict[str, int]:
    """Pieces and their ids, after the special tokens."""
    return {piece: number for number, piece in enumerate((*SPECIALS, *pieces))}


def choose_alphabet(unit: Unit, words: Mapping[str, int], size: int, min_count: int) -> list[str]:
    """The alphabet of the pieces; the rarest characters are left out if they would crowd out longer pieces."""
    counts: Counter[str] = Counter()
    for word, times in words.items():
        for character in word:
            counts[character] += times
    letters = ranked(counts, min_count)
    forms = 2 if unit == "wordpiece" else 1  # in WordPiece a character may be two tokens, x and ##x
    room = (size - len(SPECIALS)) // forms
    if len(letters) > room // 2:
        rest, kept = counts.total() * COVERAGE, 0
        while kept < len(letters) and (kept < room // 2 or rest > 0):
            rest -= counts[letters[kept]]
            kept += 1
        letters = letters[:kept]
    if len(letters) > room:
        raise UserError(
            f"a vocabulary of {size} is too small for {unit}: {len(letters)} characters make up "
            f"{COVERAGE:.2%} of the text, and with the special tokens they need {forms * len(letters) + len(SPECIALS)}",
            todo='raise text.vocabulary or text.min_count, or use text.unit = "byte-bpe"',
        )
    return sorted(letters)


def spelled_in(alphabet: Collection[str], words: Mapping[str, int]) -> dict[str, int]:
    """The words that consist of characters of the alphabet."""
    letters = frozenset(alphabet)
    return {word: times for word, times in words.items() if letters.issuperset(word)}


def learn_bpe(words: Mapping[str, int], alphabet: Collection[str], size: int, min_count: int) -> models.Model:
    """Byte-pair encoding (BPE): pairs of pieces are merged, the most frequent first."""
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=min_count,
        special_tokens=list(SPECIALS),
        initial_alphabet=list(alphabet),
        show_progress=False,
    )
    learner = Tokenizer(models.BPE(unk_token=UNKNOWN))
    learner.train_from_iterator(repeated(words), trainer)
    model: models.Model = learner.model
    return model


def learn_wordpiece(words: Mapping[str, int], alphabet: Collection[str], size: int, min_count: int) -> models.Model:
    """WordPiece as in BERT: merged as in BPE, pieces within a word marked with ##."""
    # The trainer would number the ##x in the random order of a hash map; as special tokens their order is fixed.
    within = sorted({f"##{character}" for word in words for character in word[1:]})
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_count,
        special_tokens=[*SPECIALS, *within],
        initial_alphabet=list(alphabet),
        show_progress=False,
    )
    learner = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    learner.train_from_iterator(repeated(words), trainer)
    return models.WordPiece(learner.get_vocab(), unk_token=UNKNOWN)


def repeated(words: Mapping[str, int], most: int = 1000) -> Iterator[list[str]]:
    """Each word as often as it occurs: the trainers count words themselves and take no counts."""
    for word, times in words.items():
        for done in range(0, times, most):
            yield [word] * min(most, times - done)
