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

from mallang.errors import UserError
from mallang.interop.huggingface_folder import maybe_json, read_json
from mallang.interop.huggingface_vocabularies import framing, from_older, older_files
from mallang.text import tokenizer as text
from mallang.text.pieces import Unit
from mallang.text.vocabulary import NAMES

TOKENIZER, SETTINGS, SPECIAL_MAP = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
BERT = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>", "bos": "<s>", "eos": "</s>"}
"""The special tokens of both families, where a folder names no others."""
THEIRS = "theirs"
"""The key of text.json under which their own settings are kept."""


def read_tokenizer(folder: Path, usual: Mapping[str, str], kind: str, *, spaced: bool = False) -> text.Tokenizer:
    """Our tokenizer of the files of a model of this model_type.

    With `spaced` a text begins with a space, as every word must where words are read one by one.
    """
    settings, where = maybe_json(folder / SETTINGS), folder / TOKENIZER
    named = special_names({**settings, **maybe_json(folder / SPECIAL_MAP)}, usual)
    if where.exists():
        pipeline = read_json(where)
    else:
        pipeline = from_older(folder, settings, named, kind)
        where = older_files(folder)[0]
    if spaced:
        pipeline = {**pipeline, "pre_tokenizer": with_space(pipeline.get("pre_tokenizer"))}
    unit = unit_of(pipeline, where)
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


def files_of(folder: Path) -> list[Path]:
    """The files of the tokenizer of a folder."""
    return [folder / TOKENIZER] if (folder / TOKENIZER).exists() else older_files(folder)


def with_space(step: Any) -> Any:
    """A pre-tokenizer of a tokenizer file that puts a space before every text, if it works on bytes."""
    if not isinstance(step, dict):
        return step
    if step.get("type") == "ByteLevel":
        return {**step, "add_prefix_space": True}
    inner = step.get("pretokenizers")
    return {**step, "pretokenizers": [with_space(each) for each in inner]} if isinstance(inner, list) else step


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
