"""Tokenizers of `transformers` for encoders, as ours and back: WordPiece, byte-level BPE, and unigram (SentencePiece).

Words and special tokens keep their ids. What of their files we do not use, such as a truncation, is kept in text.json
and written back by an export.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from mallang.errors import UserError
from mallang.interop.huggingface_folder import maybe_json, read_json
from mallang.text import tokenizer as text
from mallang.text.pieces import Unit
from mallang.text.vocabulary import NAMES

TOKENIZER, SETTINGS, SPECIAL_MAP, WORDS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
)
BERT = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>", "bos": "<s>", "eos": "</s>"}
"""The special tokens of both families, where a folder names no others."""
THEIRS = "theirs"
"""The key of text.json under which their own settings are kept."""


def read_tokenizer(folder: Path, usual: Mapping[str, str]) -> text.Tokenizer:
    """Our tokenizer of their files."""
    settings, where = maybe_json(folder / SETTINGS), folder / TOKENIZER
    if where.exists():
        pipeline = read_json(where)
    else:
        where = folder / WORDS
        pipeline = from_words(where, settings, usual)
    unit = unit_of(pipeline, where)
    named = special_names({**settings, **maybe_json(folder / SPECIAL_MAP)}, usual)
    kept = {key: pipeline.get(key) for key in ("truncation", "padding")}
    plain = json.dumps({**pipeline, **dict.fromkeys(kept)}, ensure_ascii=False)
    words = {**pipeline_words(pipeline, where)}
    for name, token in named.items():
        if token not in words:
            raise UserError(f"the tokenizer has no {token!r}, its special token {name}", where=str(where))
    config = text.Config(unit=unit, vocabulary=len(words), normalization="none")
    facts = {"format": text.FORMAT, "tokenizers": tokenizers.__version__, "detokenizing": text.DETOKENIZING[unit]}
    facts |= {"special": named, THEIRS: {"pipeline": kept, "settings": settings}}
    facts |= {key: value for key, value in asdict(config).items() if key not in text.SIDES}
    return text.Tokenizer(plain, json.dumps(facts, ensure_ascii=False, indent=2) + "\n", (str(where),) * 2)


def pipeline_words(pipeline: Mapping[str, Any], where: Path) -> dict[str, int]:
    """All tokens of a tokenizer file with their ids."""
    try:
        return dict(tokenizers.Tokenizer.from_str(json.dumps(pipeline)).get_vocab())
    except Exception as error:  # the library raises no narrower one
        raise UserError(f"the tokenizer cannot be read: {error}", where=str(where)) from error


def unit_of(pipeline: Mapping[str, Any], where: Path) -> Unit:
    """The unit of a tokenizer file."""
    kind, levels = (pipeline.get("model") or {}).get("type"), json.dumps(pipeline.get("pre_tokenizer"))
    if kind == "WordPiece":
        return "wordpiece"
    if kind == "BPE" and "ByteLevel" in levels:
        return "byte-bpe"
    if kind == "Unigram":
        return "unigram"
    raise UserError(
        f"a tokenizer of type {kind!r} is not supported, only WordPiece, byte-level BPE and Unigram", where=str(where)
    )


def special_names(settings: Mapping[str, Any], usual: Mapping[str, str]) -> dict[str, str]:
    """The special tokens by our names; a text begins with cls and ends with sep where bos and eos are not named."""
    found = dict(usual)
    for name in ("pad", "unk", "cls", "sep", "mask", "bos", "eos"):
        token = settings.get(f"{name}_token")
        token = token.get("content") if isinstance(token, dict) else token
        if isinstance(token, str):
            found[name] = token
    found.setdefault("bos", found["cls"])
    found.setdefault("eos", found["sep"])
    return {name: found[name] for name in (*NAMES, "cls", "sep", "mask")}


def from_words(path: Path, settings: Mapping[str, Any], usual: Mapping[str, str]) -> dict[str, Any]:
    """The WordPiece tokenizer of a list of words, as the first BERT came."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError as error:
        todo = "save the tokenizer with AutoTokenizer.from_pretrained(…).save_pretrained(FOLDER)"
        raise UserError(f"{path.with_name(TOKENIZER)} is missing, and so is {path.name}", todo=todo) from error
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    words = {word: number for number, word in enumerate(lines)}
    if len(words) < len(lines):
        raise UserError(f"{path} holds a word twice")
    special = special_names(settings, usual)
    backend = tokenizers.Tokenizer(models.WordPiece(words, unk_token=special["unk"]))
    lower = settings.get("do_lower_case", True) is not False
    backend.normalizer = normalizers.BertNormalizer(lowercase=lower, strip_accents=settings.get("strip_accents"))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    backend.add_special_tokens([token for token in dict.fromkeys(special.values()) if token in words])
    pipeline: dict[str, Any] = json.loads(backend.to_str())
    return {**pipeline, "post_processor": framing(special["cls"], special["sep"], words)}


def framing(begin: str, end: str, ids: Mapping[str, int]) -> dict[str, Any]:
    """The part of a tokenizer file that puts special tokens around a text, or around both of a pair."""
    backend = tokenizers.Tokenizer(models.WordLevel({begin: 0}, unk_token=begin))
    backend.post_processor = processors.TemplateProcessing(
        single=f"{begin}:0 $A:0 {end}:0",
        pair=f"{begin}:0 $A:0 {end}:0 $B:1 {end}:1",
        special_tokens=[(token, ids[token]) for token in dict.fromkeys((begin, end))],
    )
    found: dict[str, Any] = json.loads(backend.to_str())["post_processor"]
    return found


def files_for(tokenizer: text.Tokenizer, *, max_length: int) -> dict[str, Any]:
    """The files of a tokenizer of ours in their folder."""
    pipeline, about = (json.loads(file) for file in tokenizer.files)
    vocabulary = tokenizer.vocabulary
    if (theirs := about.get(THEIRS)) is not None:
        settings = theirs["settings"] or {"tokenizer_class": "PreTrainedTokenizerFast"}
        return {TOKENIZER: {**pipeline, **theirs["pipeline"]}, SETTINGS: settings}
    if tokenizer.config.unit == "morpheme":
        raise UserError("tokenizer.json does not hold a morphological analyzer", todo="train with another text.unit")
    begin, end = vocabulary.frame
    if begin is None:
        raise UserError(
            "transformers puts a special token before and after a text, and this tokenizer has none for it",
            todo="export a run that was trained as bert",
        )
    tokens = vocabulary.tokens
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_length}
    settings |= {f"{name}_token": tokens[vocabulary.special(name)] for name in (*NAMES, *dict(vocabulary.optional))}
    pipeline["post_processor"] = framing(tokens[begin], tokens[end], vocabulary.ids)
    return {TOKENIZER: pipeline, SETTINGS: settings}
