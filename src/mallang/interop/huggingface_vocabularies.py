"""Older files of tokenizers of `transformers`, of folders without a tokenizer.json, as what would be in it.

vocab.txt                       WordPiece, as the first BERT came: one token per line
vocab.json and merges.txt       byte-level BPE, as GPT-2 and RoBERTa came
spiece.model and others         unigram of SentencePiece, as ALBERT and XLM-RoBERTa came (sentencepiece_model.py)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from mallang.errors import UserError
from mallang.interop.huggingface_folder import read_json
from mallang.interop.sentencepiece_model import CONTROL, UNKNOWN, Pieces, read_pieces

WORDS, BYTE_WORDS, MERGES = "vocab.txt", "vocab.json", "merges.txt"
SENTENCEPIECE = ("sentencepiece.bpe.model", "spiece.model", "tokenizer.model", "spm.model")
"""The names of files of SentencePiece."""
FAIRSEQ = ("roberta", "xlm-roberta", "camembert")
"""The values of model_type of models that were trained with fairseq."""


def older_files(folder: Path) -> list[Path]:
    """The files of the tokenizer of a folder without a tokenizer.json; empty where it has none."""
    if (folder / WORDS).exists():
        return [folder / WORDS]
    if (folder / BYTE_WORDS).exists() and (folder / MERGES).exists():
        return [folder / BYTE_WORDS, folder / MERGES]
    return [folder / name for name in SENTENCEPIECE if (folder / name).exists()][:1]


def from_older(folder: Path, settings: Mapping[str, Any], special: Mapping[str, str], kind: str) -> dict[str, Any]:
    """The content of a tokenizer.json that these files amount to; `kind` is the model_type of config.json."""
    files = older_files(folder)
    if not files:
        todo = "save the tokenizer with AutoTokenizer.from_pretrained(…).save_pretrained(FOLDER)"
        raise UserError(
            f"{folder / 'tokenizer.json'} is missing, and so is {WORDS}, {BYTE_WORDS} with {MERGES}, and "
            f"{SENTENCEPIECE[0]}", todo=todo,
        )  # fmt: skip
    if files[0].name == WORDS:
        return from_words(files[0], settings, special)
    if files[0].name == BYTE_WORDS:
        return from_merges(files[0], files[1], settings, special)
    return from_sentencepiece(files[0], settings, special, kind)


def from_words(path: Path, settings: Mapping[str, Any], special: Mapping[str, str]) -> dict[str, Any]:
    """The WordPiece tokenizer of a list of words."""
    lines = read_lines(path)
    words = {word: number for number, word in enumerate(lines)}
    if len(words) < len(lines):
        raise UserError(f"{path} holds a word twice")
    backend = tokenizers.Tokenizer(models.WordPiece(words, unk_token=special["unk"]))
    lower = settings.get("do_lower_case", True) is not False
    chinese = settings.get("tokenize_chinese_chars", True) is not False
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=lower, strip_accents=settings.get("strip_accents"), handle_chinese_chars=chinese
    )
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    return finished(backend, special, words)


def from_merges(path: Path, merges: Path, settings: Mapping[str, Any], special: Mapping[str, str]) -> dict[str, Any]:
    """The byte-level BPE tokenizer of a vocabulary and a list of merges."""
    words = read_json(path)
    pairs = [tuple(line.split(" ")) for line in read_lines(merges) if line and not line.startswith("#version")]
    if not all(isinstance(number, int) for number in words.values()) or any(len(pair) != 2 for pair in pairs):
        raise UserError(f"{path} and {merges.name} are no vocabulary with its merges")
    try:
        backend = tokenizers.Tokenizer(models.BPE(words, [(first, second) for first, second in pairs]))
    except Exception as error:  # the library raises no narrower one
        raise UserError(f"{merges} does not fit {path.name}: {error}") from error
    spaced = settings.get("add_prefix_space", False) is True
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    backend.decoder = decoders.ByteLevel()
    return finished(backend, special, words, doubled=True)


def from_sentencepiece(
    path: Path, settings: Mapping[str, Any], special: Mapping[str, str], kind: str
) -> dict[str, Any]:
    """The unigram tokenizer of a SentencePiece model, with the ids that a family of models gives its pieces."""
    found = read_pieces(path)
    words, unk = numbered(found, special, kind)
    backend = tokenizers.Tokenizer(models.Unigram(words, unk_id=unk, byte_fallback=found.byte_fallback))
    steps: list[Any] = []
    if kind == "albert":
        steps += [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        if settings.get("keep_accents") is not True:
            steps += [normalizers.NFKD(), normalizers.StripAccents()]
        if settings.get("do_lower_case", True) is not False:
            steps.append(normalizers.Lowercase())
    if found.charsmap:
        steps.append(normalizers.Precompiled(found.charsmap))
    if found.remove_extra_spaces:
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    backend.normalizer = normalizers.Sequence(steps)
    scheme = "always" if found.begins_with_space else "never"
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    backend.decoder = decoders.Metaspace(prepend_scheme=scheme)
    ids = {word: number for number, (word, _) in enumerate(words)}
    return finished(backend, special, ids, doubled=kind in FAIRSEQ)


def numbered(found: Pieces, special: Mapping[str, str], kind: str) -> tuple[list[tuple[str, float]], int]:
    """The pieces in the order of their ids, and the id of the unknown one."""
    pieces = [(word, score) for word, score, _ in found.pieces]
    unk = next((number for number, (_, _, sort) in enumerate(found.pieces) if sort == UNKNOWN), 0)
    if kind in FAIRSEQ:  # fairseq put its own special tokens before the pieces
        usual = [word for word, _, sort in found.pieces if sort in (CONTROL, UNKNOWN)]
        first = ["<s>", "<pad>", "</s>", "<unk>"]
        if kind == "camembert":
            first = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"]
        rest = [pair for pair in pieces if pair[0] not in usual and pair[0] not in first]
        return [*((word, 0.0) for word in first), *rest, (special["mask"], 0.0)], first.index("<unk>")
    known = {word for word, _ in pieces}
    more = [token for token in dict.fromkeys(special.values()) if token not in known]
    return [*pieces, *((token, 0.0) for token in more)], unk


def finished(
    backend: tokenizers.Tokenizer, special: Mapping[str, str], ids: Mapping[str, int], *, doubled: bool = False
) -> dict[str, Any]:
    """A tokenizer with its special tokens, as a file; `doubled` puts two of them between the texts of a pair."""
    backend.add_special_tokens([token for token in dict.fromkeys(special.values()) if token in ids])
    pipeline: dict[str, Any] = json.loads(backend.to_str())
    if special["cls"] not in ids or special["sep"] not in ids:
        return pipeline
    return {**pipeline, "post_processor": framing(special["cls"], special["sep"], ids, doubled=doubled)}


def framing(begin: str, end: str, ids: Mapping[str, int], *, doubled: bool = False) -> dict[str, Any]:
    """The part of a tokenizer file that puts special tokens around a text, or around both of a pair.

    Where these are doubled between the texts, as in RoBERTa, both texts are of the first segment.
    """
    pair = f"{begin} $A {end} {end} $B {end}" if doubled else f"{begin}:0 $A:0 {end}:0 $B:1 {end}:1"
    backend = tokenizers.Tokenizer(models.WordLevel({begin: 0}, unk_token=begin))
    backend.post_processor = processors.TemplateProcessing(
        single=f"{begin}:0 $A:0 {end}:0",
        pair=pair,
        special_tokens=[(token, ids[token]) for token in dict.fromkeys((begin, end))],
    )
    found: dict[str, Any] = json.loads(backend.to_str())["post_processor"]
    return found


def read_lines(path: Path) -> list[str]:
    """The lines of a file; only a line feed ends one, since tokens hold other breaks."""
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    return [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]
