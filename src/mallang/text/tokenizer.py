"""Tokenizers: text to token ids and back, in eleven units, on the `tokenizers` library.

| unit      | a token is                                             | text comes back                         |
|-----------|--------------------------------------------------------|-----------------------------------------|
| word      | a word or one punctuation mark, ▁ for a space before   | exactly, but for unknown words          |
| space     | a string between spaces, `<unk>` an unknown one        | with single spaces                      |
| char      | a code point                                           | exactly, but for unknown ones           |
| syllable  | what a reader sees as one character: 한, é, 👨‍👩‍👧        | exactly, but for unknown ones           |
| jamo      | a code point of the decomposed text: ᄒ ᅡ ᆫ             | composed, but for unknown ones          |
| byte      | a byte of UTF-8                                        | exactly                                 |
| bpe       | a merged piece, ▁ for a space before                   | exactly, but for unknown characters     |
| byte-bpe  | a merged piece of bytes, as in GPT-2                   | exactly                                 |
| morpheme  | a merged piece of a Korean morpheme, as bpe otherwise   | exactly, but for unknown characters     |
| wordpiece | a merged piece, ## within a word, as in BERT           | without the exact white space           |
| unigram   | a likely piece, ▁ for a space before                   | exactly, but for unknown characters     |

"Exactly" means the text after normalization. Text cannot spell a special token: "<s>" is three characters, and "<mask>"
too unless `encode_marked` is asked. `space` is for text that is tokenized already, where `<unk>` replaces rare words
(the Penn Treebank, WikiText).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from mallang.errors import UserError, nearest
from mallang.text import morphemes, pieces
from mallang.text.analyzed import Analyzer
from mallang.text.pieces import Unit
from mallang.text.tokenizer_files import damaged, names, paths, read, read_pipeline, read_special, with_separators
from mallang.text.unicode import Form
from mallang.text.vocabulary import NAMES, OPTIONAL, SPECIALS, UNK, Vocabulary

FORMAT = 1
MOST = 10_000_000
"""Maximum vocabulary size, more than any model has: the library allocates the memory for all tokens at once."""
SIDES = ("source_unit", "target_unit")
"""Recipe keys for two tokenizers; each tokenizer is saved with its own unit."""
BYTE_UNITS = ("byte", "byte-bpe")
SPACED_UNITS = ("word", "bpe", "morpheme", "unigram")
"""Units whose pieces begin with the space before them; ▁ stands for that space in token names."""
SPACE_MARK = str.maketrans(" ▁", "▁ ")
DETOKENIZING = {
    **dict.fromkeys(get_args(Unit), "join"),
    **dict.fromkeys(SPACED_UNITS, "join, drop the first space"),
    **dict.fromkeys(BYTE_UNITS, "join bytes, read as UTF-8"),
    "jamo": "join, NFC",
    "space": "join with spaces",
    "wordpiece": "join with spaces, ## without, none before punctuation",
}
"""A description of `decode`, for readers of text.json."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of the tokenizer."""

    unit: Unit = "bpe"
    """The unit of a token."""
    vocabulary: int = 8000
    """Maximum vocabulary size, with the four special tokens; `<mask>` and others and the tags of domains are added."""
    normalization: Form = "NFC"
    """Unicode normalization form: NFC keeps the meaning, NFKC also folds ① into 1, none changes nothing."""
    lowercase: bool = False
    """Whether text is converted to lower case."""
    min_count: int = 1
    """Minimum count of a piece in the training text."""
    shared: bool = True
    """Whether source and target share one tokenizer."""
    source_unit: Unit | None = None
    """The unit of the source, if it differs; needs shared = false."""
    target_unit: Unit | None = None
    """The unit of the target, if it differs; needs shared = false."""
    sample: int = 1_000_000
    """Maximum number of lines that it is trained on."""

    def __post_init__(self) -> None:
        known = {**dict.fromkeys(("unit", *SIDES), get_args(Unit)), "normalization": get_args(Form)}
        for name, options in known.items():
            value = getattr(self, name)
            if value not in options and not (value is None and name in SIDES):
                raise UserError(f"text.{name} = {value!r} is unknown", todo=nearest(str(value), options))
        for name in SIDES:
            if self.shared and getattr(self, name) is not None:
                raise UserError(
                    f"text.{name} = {getattr(self, name)!r} needs two tokenizers, but source and target share one",
                    todo="text.shared=false, and model.tie_weights=target where the model shares its embeddings",
                )
        for name in ("min_count", "sample"):
            if getattr(self, name) < 1:
                raise UserError(f"text.{name} = {getattr(self, name)} must be at least 1")
        for unit in {self.side(column).unit for column in ("source", "target")}:
            self._check(unit)

    def _check(self, unit: Unit) -> None:
        """Refuse options that contradict a unit."""
        least = len(SPECIALS) + (len(pieces.BYTES) if unit in BYTE_UNITS else 1)
        if self.vocabulary < least:
            raise UserError(f"text.vocabulary = {self.vocabulary} is too small: {unit} needs at least {least}")
        if self.vocabulary > MOST:
            raise UserError(f"text.vocabulary = {self.vocabulary} is too large: at most {MOST:,} tokens can be learned")
        if unit == "byte" and self.min_count > 1:
            raise UserError(f"text.min_count = {self.min_count} means nothing for bytes: all 256 are tokens")
        if unit == "jamo" and self.normalization == "none":
            raise UserError(
                "text.normalization = 'none' and text.unit = 'jamo' exclude each other: jamo come back composed",
                todo='set text.normalization = "NFC", or text.unit = "char"',
            )

    def side(self, column: str) -> Config:
        """The options of one column's tokenizer."""
        unit = {"source": self.source_unit, "target": self.target_unit}.get(column) or self.unit
        if (unit, self.source_unit, self.target_unit) == (self.unit, None, None):
            return self
        return replace(self, unit=unit, source_unit=None, target_unit=None)


@dataclass(frozen=True)
class Encoding:
    """A text as tokens."""

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    """The character span of each token in the original text."""
    unk: int = UNK
    """The id of what has no token."""

    def unknown_in(self, text: str) -> list[str]:
        """The parts of that text without a token; a literal `<unk>`, as in some corpora, has one."""
        places = zip(self.ids, self.offsets, strict=True)
        pieces = [text[begin:end].strip() for token, (begin, end) in places if token == self.unk]
        return [piece for piece in pieces if piece != "<unk>"]


class Tokenizer:
    """Encodes text to tokens and decodes them; made by `train` or `load`."""

    def __init__(self, pipeline: str, about: str, where: tuple[str, str] = ("tokenizer.json", "text.json")) -> None:
        # The files are kept as they were read: another version of the library might write them differently.
        self.files = (pipeline, about)
        self.config = read_config(about, where[1])
        special = read_special(about, where[1])
        is_own = special.keys().isdisjoint(NAMES)
        self.backend = read_pipeline(pipeline, where[0], has_usual=is_own)
        self.backend.encode_special_tokens = True  # "<s>" in a text is text
        tokens = names(self.backend)
        if self.config.unit in SPACED_UNITS and is_own:  # SentencePiece writes ▁ itself
            tokens = [token.translate(SPACE_MARK) for token in tokens]
        try:
            self.vocabulary = with_separators(Vocabulary.named(tokens, special), self.backend)
        except ValueError as error:
            raise damaged(where[1], error) from error
        self.not_words = self.vocabulary.specials - {self.vocabulary.unk}
        """Special tokens that a text with unit space may spell but never means."""

    @classmethod
    def train(
        cls, lines: Iterable[str], config: Config, domains: Iterable[str] = (), special: Iterable[str] = ()
    ) -> Tokenizer:
        """Train a tokenizer on lines of text, deterministically. Each domain gets a tag.

        `special` are the names of special tokens that it has beyond the four: mask, cls, sep.
        """
        normalizer, facts = normalizer_of(config), dict[str, str]()
        if config.unit == "morpheme":
            analyzer = morphemes.analyzer()
            facts["analyzer"] = analyzer.name
            lines = morphemes.in_chunks(lines, normalizer, analyzer)
        counts = {} if config.unit == "byte" else pieces.count(lines, normalizer, pre_tokenizer_of(config.unit))
        model = pieces.learn(config.unit, counts, config.vocabulary, config.min_count)
        return cls.around(model, config, facts, domains, special)

    @classmethod
    def of_words(cls, tokens: Iterable[str], config: Config, domains: Iterable[str] = ()) -> Tokenizer:
        """A tokenizer of unit word or space with given tokens, special tokens first; ids follow their order."""
        names = (token.translate(SPACE_MARK) if config.unit in SPACED_UNITS else token for token in tokens)
        vocabulary = {name: number for number, name in enumerate(names)}
        return cls.around(models.WordLevel(vocab=vocabulary, unk_token=SPECIALS[UNK]), config, domains=domains)

    @classmethod
    def around(
        cls,
        model: models.Model,
        config: Config,
        facts: Mapping[str, Any] | None = None,
        domains: Iterable[str] = (),
        special: Iterable[str] = (),
    ) -> Tokenizer:
        """The tokenizer around a model of the library; `facts` go into text.json."""
        backend = tokenizers.Tokenizer(model)
        backend.normalizer = normalizer_of(config)
        if (pre_tokenizer := pre_tokenizer_of(config.unit)) is not None:
            backend.pre_tokenizer = pre_tokenizer
        backend.decoder = decoder_of(config.unit)
        named, tags = {name: OPTIONAL[name] for name in special}, [f"<{domain}>" for domain in domains]
        if taken := {*tags} & {*SPECIALS, *OPTIONAL.values()}:
            raise UserError(f"a domain cannot have the name of a special token: {min(taken)}", todo="rename it")
        backend.add_special_tokens([*SPECIALS, *named.values(), *tags])
        about = {"format": FORMAT, "tokenizers": tokenizers.__version__, "detokenizing": DETOKENIZING[config.unit]}
        about |= {
            **(facts or {}),
            **({"special": named} if named else {}),
            **{key: value for key, value in asdict(config).items() if key not in SIDES},
        }
        return cls(backend.to_str(), json.dumps(about, ensure_ascii=False, indent=2) + "\n")

    @classmethod
    def load(cls, folder: Path, name: str = "tokenizer") -> Tokenizer:
        """Read what `save` wrote."""
        files = paths(folder, name)
        pipeline, about = (read(path) for path in files)
        return cls(pipeline, about, where=(str(files[0]), str(files[1])))

    def save(self, folder: Path, name: str = "tokenizer") -> None:
        """Write `<name>.json`, which the `tokenizers` library reads, after `text.json`, which describes it."""
        for path, content in reversed(list(zip(paths(folder, name), self.files, strict=True))):
            partial = path.with_name(f"{path.name}.partial")
            partial.write_text(content, encoding="utf-8", newline="\n")
            partial.replace(path)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the files that `save` writes: equal for equal tokenizers."""
        return hashlib.sha256("\0".join(self.files).encode()).hexdigest()

    @property
    def domains(self) -> dict[str, int]:
        """The id of the tag of each domain it was trained with; text cannot spell a tag."""
        added = self.backend.get_added_tokens_decoder()
        return {added[number].content[1:-1]: number for number in sorted(added.keys() - self.vocabulary.specials)}

    @cached_property
    def analyzer(self) -> Analyzer:
        """The morphological analyzer, for unit morpheme."""
        return morphemes.analyzer_like(json.loads(self.files[1]).get("analyzer", "another analyzer"))

    def encode(self, text: str) -> Encoding:
        """The tokens of a text, without `<s>` and `</s>`, and their offsets."""
        try:
            if self.config.unit == "morpheme":
                ids, offsets = morphemes.encode(text, self.backend, self.analyzer)
            else:
                encoded = self.backend.encode(text, add_special_tokens=False)
                ids, offsets = self.unspelled(encoded.ids), encoded.offsets
        except (TypeError, UnicodeEncodeError) as error:
            raise pieces.not_text(text, "the text to encode") from error
        tokens = [self.vocabulary.tokens[number] for number in ids]
        return Encoding(ids, tokens, self.spread(text, tokens, offsets), self.vocabulary.unk)

    def encode_marked(self, text: str) -> list[int]:
        """The ids of a text that spells special tokens, such as `<mask>`; white space beside them is not read."""
        known = {self.vocabulary.tokens[number]: number for _, number in self.vocabulary.optional}
        parts = re.split(f"({'|'.join(map(re.escape, known))})", text) if known else [text]
        ids = [[known[part]] if part in known else self.encode(part.strip()).ids for part in parts]
        return [number for part in ids for number in part]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, in one call of the library."""
        try:
            if self.config.unit == "morpheme":
                parts = morphemes.chunks(texts, self.backend.normalizer, self.analyzer)
                encoded = self.backend.encode_batch_fast(parts, is_pretokenized=True, add_special_tokens=False)
            else:
                encoded = self.backend.encode_batch_fast(list(texts), add_special_tokens=False)
        except (TypeError, UnicodeEncodeError) as error:
            for number, text in enumerate(texts, start=1):
                if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
                    raise pieces.not_text(text, f"text {number} of those to encode") from error
            raise
        return [self.unspelled(encoding.ids) for encoding in encoded]

    def unknown_in(self, text: str) -> list[str]:
        """The parts of a text without a token."""
        return self.encode(text).unknown_in(text)

    def words(self, text: str) -> list[str]:
        """The words of a text, in the vocabulary or not; for units word and space."""
        assert self.config.unit in ("word", "space")
        found = self.backend.pre_tokenizer.pre_tokenize_str(self.backend.normalizer.normalize_str(text))
        return [piece.translate(SPACE_MARK) if self.config.unit == "word" else piece for piece, _ in found]

    def unspelled(self, ids: list[int]) -> list[int]:
        """The ids with `<unk>` for special tokens that a text spells, which only unit space allows."""
        if self.config.unit != "space" or self.not_words.isdisjoint(ids):
            return ids
        return [self.vocabulary.unk if number in self.not_words else number for number in ids]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some tokens; special tokens are left out."""
        if self.config.unit == "space":  # with unit space `<unk>` is a word like others
            return " ".join(self.vocabulary.tokens[i] for i in ids if i not in self.not_words)
        text: str = self.backend.decode(list(ids), skip_special_tokens=True)
        return normalizers.NFC().normalize_str(text) if self.config.unit == "jamo" else text

    def spread(self, text: str, tokens: list[str], offsets: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The library's offsets without gaps: where characters were composed to one, it gives only the first."""
        gaps: dict[int, int] = {}
        reached = 0
        for start, end in (*offsets, (len(text), len(text))):
            if start > reached:
                missing = text[reached:start]
                gaps[reached] = reached + len(
                    missing.rstrip() if self.config.unit in ("wordpiece", "space") else missing
                )
            reached = max(reached, end)
        spread = [(start, gaps.get(end, end)) for start, end in offsets]
        if self.config.unit in SPACED_UNITS and tokens[:1] == ["▁"]:
            spread[0] = (0, 0)  # the space prepended to every text
        return spread

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[str, str]]:
        return Tokenizer, self.files


def normalizer_of(config: Config) -> normalizers.Normalizer:
    """The normalizer of a tokenizer."""
    steps: list[normalizers.Normalizer] = []
    if config.unit == "jamo":
        steps.append(normalizers.NFD() if config.normalization == "NFC" else normalizers.NFKD())
    elif config.normalization != "none":
        steps.append(normalizers.NFC() if config.normalization == "NFC" else normalizers.NFKC())
    if config.lowercase:
        steps.append(normalizers.Lowercase())
    if config.unit in SPACED_UNITS and config.unit != "morpheme":  # morphemes.py prepends it to the first chunk
        steps.append(normalizers.Prepend(" "))  # so that the first word is the same token as elsewhere
    return normalizers.Sequence(steps)


def pre_tokenizer_of(unit: Unit) -> pre_tokenizers.PreTokenizer | None:
    """The pre-tokenizer of a unit; None where the model takes each code point."""
    match unit:
        case "word":
            return pre_tokenizers.Split(Regex(r" ?\w+| ?[^\w\s]|\s"), "isolated")
        case "space":
            return pre_tokenizers.WhitespaceSplit()
        case "syllable":
            return pre_tokenizers.Split(Regex(r"\X"), "isolated")
        case "byte":
            return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        case "byte-bpe":
            return pre_tokenizers.ByteLevel(add_prefix_space=False)
        case "bpe" | "morpheme" | "unigram":
            # "Hut", "Hut," and "Hut." share a piece: words end before punctuation. "<" is split off, so that no piece
            # can spell a special token, in training or later.
            return pre_tokenizers.Split(Regex(r" ?\w+| ?[^\w\s<]+| ?<|\s"), "isolated")
        case "wordpiece":
            return pre_tokenizers.BertPreTokenizer()
        case _:
            return None


def decoder_of(unit: Unit) -> decoders.Decoder:
    """The decoder of a unit."""
    if unit in BYTE_UNITS:
        return decoders.ByteLevel()
    if unit in SPACED_UNITS:
        return decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return decoders.WordPiece("##") if unit == "wordpiece" else decoders.Fuse()


def read_config(about: str, where: str) -> Config:
    """The Config that text.json holds."""
    try:
        facts = json.loads(about)
        is_newer = facts["format"] > FORMAT
        if not is_newer:
            return Config(**{field.name: facts[field.name] for field in fields(Config) if field.name not in SIDES})
    except (ValueError, KeyError, TypeError, RecursionError, UserError) as error:
        raise damaged(where, error) from error
    what = f"the tokenizer is of format {facts['format']}, and this version reads up to {FORMAT}"
    raise UserError(what, where=where, todo="git pull && pip install -e .")
