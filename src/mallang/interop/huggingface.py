"""GPT-2 of `transformers` as a run of ours, and a GPT of ours as a folder that `transformers` loads.

A folder of theirs: `config.json`, `model.safetensors`, `tokenizer.json`. Nothing else of it is read, nothing is run.

They begin and end a text by one token, <|endoftext|>; ours is `<s>` when it is read and `</s>` when it is said, and our
special four come first. So a word gets another number on the way, both of ours the vector of their one, and
`<pad>`, `<unk>` and `<s>`, which it never says, a bias that no logit can outweigh. On the way back all this is undone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tokenizers
import torch
from torch import Tensor

from mallang.errors import UserError
from mallang.interop.huggingface_chat import FILE as CHAT
from mallang.interop.huggingface_chat import chat_files, read_chat
from mallang.interop.huggingface_folder import (
    check_shapes,
    checked,
    maybe_json,
    read_json,
    read_weights,
    sums,
    write_folder,
)
from mallang.interop.huggingface_tokenizer import SETTINGS, files_of
from mallang.interop.huggingface_vocabularies import BYTE_WORDS, MERGES, from_merges
from mallang.interop.imported_run import write_imported
from mallang.models.gpt import GPT, HF_NAMES, Config
from mallang.recipe import Recipe
from mallang.runs.folder import Run
from mallang.runs.weights import own_weights, set_weights
from mallang.tasks import language_modeling
from mallang.text import tokenizer as text
from mallang.text.vocabulary import BOS, EOS, SPECIALS

END = "<|endoftext|>"
NEVER = -1e9
"""A bias that leaves a token no probability."""
ACTIVATIONS = {"gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu": "gelu", "relu": "relu"}
FILES = ("config.json", "model.safetensors", "tokenizer.json")
ARCHITECTURES = ("GPT2LMHeadModel", "GPT2Model")
"""Their classes that can be imported."""
SIZED = {"vocab_size": "wte.weight", "n_positions": "wpe.weight"}
"""The keys of config.json that state the number of rows of a tensor."""


def import_gpt2(
    source: Path, folder: Path, *, allow_bin: bool = False, fresh: bool = False, as_pairs: bool = False
) -> Run:
    """A finished run with the weights and the tokenizer of a GPT-2 folder."""
    if as_pairs:
        raise UserError("--pairs has no effect on a language model, which has no classes", todo="leave it out")
    about = read_json(source / "config.json")
    config = config_of(about, source / "config.json")
    given, files = read_weights(source, about, allow_bin=allow_bin)
    check_shapes(about, shapes_of(given, source), source / "config.json")
    tokenizer, end = tokenizer_of(source)
    check_words(tokenizer, given, source)
    chat, told = read_chat(source, [END])
    layout = language_modeling.Config(chat=chat)
    recipe = Recipe.make(name=folder.name, task=layout, model=config, text=tokenizer.config)
    model = GPT(config, tokenizer.vocabulary)
    set_weights(model, to_ours(given, model, end), files[0])
    card = f"A GPT-2 that was imported from {source.name}, not trained here.{told}"
    sources = sums([source / "config.json", *files, *files_of(source), source / CHAT])
    return write_imported(folder, recipe, tokenizer, model, about=card, sources=sources, fresh=fresh)


def export_gpt2(verbs: language_modeling.Verbs, folder: Path) -> None:
    """Write a GPT so that `AutoModelForCausalLM.from_pretrained(FOLDER)` and `AutoTokenizer` load it."""
    model, tokenizer = verbs.model, verbs.task.text
    if not isinstance(model, GPT):
        raise UserError(f"transformers has no {type(model).__name__} like ours", todo="export a gpt")
    if model.config.max_length is None:
        raise UserError(
            "GPT-2 of transformers has positions, this model has none", todo="train it with model.max_length"
        )
    about = config_for(model)
    bias = model.head.bias
    imported = bias is not None
    if bias is not None and not (bool((bias[:EOS] == NEVER).all()) and bool((bias[EOS:] == 0).all())):
        raise UserError("GPT-2 of transformers has no bias in its output, this model has", todo="model.biases=inner")
    if tokenizer.config.unit not in ("byte-bpe", "byte"):
        raise UserError(
            f"a GPT-2 of transformers reads bytes, but the unit of this run is {tokenizer.config.unit}",
            todo="train with text.unit=byte-bpe",
        )
    weights, pipeline = to_theirs(own_weights(model), model), json.loads(tokenizer.files[0])
    if imported:  # `</s>` becomes their one special token again, at the end
        table = weights["transformer.wte.weight"]
        weights["transformer.wte.weight"] = torch.cat((table[len(SPECIALS) :], table[EOS : EOS + 1]))
        pipeline = renumbered(pipeline, [END], first=False)
        about |= {"bos_token_id": len(tokenizer.vocabulary) - 4, "eos_token_id": len(tokenizer.vocabulary) - 4}
    else:
        about |= {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": 0}
    about["vocab_size"] = len(weights["transformer.wte.weight"])
    names = [END] * 2 if imported else ["<s>", "</s>"]
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": names[0], "eos_token": names[1]}
    settings |= chat_files(verbs.task.config.chat)
    files = {"config.json": about, "tokenizer.json": pipeline, "tokenizer_config.json": settings}
    write_folder(folder, weights, files)


def config_of(about: Mapping[str, Any], where: Path) -> Config:
    """Our shape of their model, or what of it we do not have."""
    if about.get("model_type") != "gpt2":
        raise UserError(
            f"the model is of type {about.get('model_type')!r}, and only 'gpt2' can be imported", where=str(where)
        )
    named = about.get("architectures")
    if isinstance(named, list) and named and named[0] not in ARCHITECTURES:
        todo = "for the language model alone: AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(OTHER)"
        why = ""
        if named[0] == "GPT2ForSequenceClassification":
            why = ": it reads the last token of a text, and a classifier here reads `</s>` after it"
        raise UserError(f"the head of {named[0]} cannot be imported{why}", where=str(where), todo=todo)
    expected = {
        "layer_norm_epsilon": 1e-5, "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False, "tie_word_embeddings": True,
    }  # fmt: skip
    checked(about, expected, where)
    if (activation := about.get("activation_function", "gelu_new")) not in ACTIVATIONS:
        raise UserError(f"the activation {activation!r} is not supported", where=str(where))
    try:
        return Config(
            layers=about["n_layer"], dim=about["n_embd"], heads=about["n_head"], hidden_dim=about.get("n_inner"),
            max_length=about["n_positions"], activation=ACTIVATIONS[activation],  # type: ignore[arg-type]
            dropout=about.get("resid_pdrop", 0.1), embedding_dropout=about.get("embd_pdrop", 0.1),
            attention_dropout=about.get("attn_pdrop", 0.1), biases="all",
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"the shape of the model cannot be read: {error}", where=str(where)) from error


def config_for(model: GPT) -> dict[str, Any]:
    """Their description of our model, or what of it they do not have."""
    config = model.config
    known = {ours: theirs for theirs, ours in ACTIVATIONS.items() if theirs != "gelu_pytorch_tanh"}
    for option, wanted in (("norm", "pre"), ("window", None)):
        if (value := getattr(config, option)) != wanted:
            raise UserError(f"GPT-2 of transformers has no {option} = {value!r}")
    if config.activation not in known:
        raise UserError(f"GPT-2 of transformers has no activation {config.activation!r}")
    embedding_dropout = config.dropout if config.embedding_dropout is None else config.embedding_dropout
    return {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": config.layers, "n_embd": config.dim,
        "n_head": config.heads, "n_inner": config.hidden_dim, "n_positions": config.max_length,
        "activation_function": known[config.activation], "resid_pdrop": config.dropout,
        "embd_pdrop": embedding_dropout, "attn_pdrop": config.attention_dropout, "layer_norm_epsilon": 1e-5,
    }  # fmt: skip


def their_name(name: str) -> tuple[str, bool]:
    """What one of our parameters is called there, and whether it lies transposed."""
    part, kind = name.rsplit(".", 1)
    number = next((piece for piece in part.split(".") if piece.isdigit()), None)
    other = HF_NAMES[part if number is None else part.replace(f".{number}.", ".{}.", 1)][0]
    return f"{other.format(number)}.{kind}", ".c_" in other and kind == "weight"


def to_ours(given: Mapping[str, Tensor], model: GPT, end: int) -> dict[str, Tensor]:
    """Their weights by our names; `end` is their number of <|endoftext|>."""
    weights = {name.removeprefix("transformer."): value.float() for name, value in given.items()}
    ours: dict[str, Tensor] = {}
    for name, own in own_weights(model).items():
        if name == "head.bias":
            ours[name] = torch.zeros_like(own)
            ours[name][:EOS] = NEVER
            continue
        theirs, is_transposed = their_name(name)
        if theirs in weights:
            ours[name] = weights[theirs].T if is_transposed else weights[theirs]
    if (table := ours.get("embedding.own.weight")) is not None and len(table) > end:
        words = len(model.vocabulary) - len(SPECIALS) + 1  # a table may be longer than the list of words
        others = torch.cat((table[:end], table[end + 1 : words]))
        ours["embedding.own.weight"] = torch.cat((torch.zeros_like(table[:2]), table[[end, end]], others))
    return ours


def to_theirs(weights: Mapping[str, Tensor], model: GPT) -> dict[str, Tensor]:
    """Our weights by their names; where we have no biases theirs are zero."""
    theirs: dict[str, Tensor] = {}
    for name, value in weights.items():
        if name == "head.bias":
            continue
        other, is_transposed = their_name(name)
        theirs[f"transformer.{other}"] = value.T if is_transposed else value
        bias = other.removesuffix("weight") + "bias"
        if model.config.biases == "none" and value.dim() > 0 and not other.startswith(("wte", "wpe")):
            theirs[f"transformer.{bias}"] = torch.zeros(len(value))
    return theirs


def shapes_of(given: Mapping[str, Tensor], source: Path) -> dict[str, int]:
    """The sizes that the weights have, by the keys of config.json."""
    weights = {name.removeprefix("transformer."): value for name, value in given.items()}
    if "wte.weight" not in weights:
        raise UserError("the weights hold no word embeddings of a GPT-2", where=str(source))
    found = {key: len(weights[name]) for key, name in SIZED.items() if name in weights}
    layers = {name.split(".")[1] for name in weights if name.startswith("h.")}
    return {**found, "n_embd": weights["wte.weight"].shape[-1], "n_layer": len(layers)}


def check_words(tokenizer: text.Tokenizer, given: Mapping[str, Tensor], source: Path) -> None:
    """Refuse a tokenizer with more tokens than the weights have; the table may be longer than the list of words."""
    rows = next(len(value) for name, value in given.items() if name.endswith("wte.weight"))
    words = len(tokenizer.vocabulary) - len(SPECIALS) + 1
    if words > rows:
        raise UserError(
            f"the tokenizer does not fit the weights: it has {words:,} tokens, and the weights have {rows:,}",
            where=str(source),
            todo="take the tokenizer that the model was trained with",
        )


def tokenizer_of(source: Path) -> tuple[text.Tokenizer, int]:
    """Our tokenizer of their files, and their number of the token that ends a text."""
    path = source / "tokenizer.json"
    if path.exists() or not (source / BYTE_WORDS).exists() or not (source / MERGES).exists():
        pipeline = read_json(path)
    else:
        special = dict.fromkeys(("unk", "cls", "sep"), END)
        pipeline = from_merges(source / BYTE_WORDS, source / MERGES, maybe_json(source / SETTINGS), special)
        pipeline["post_processor"] = None
    model, added = pipeline.get("model") or {}, pipeline.get("added_tokens") or []
    levels = json.dumps(pipeline.get("pre_tokenizer"))
    if model.get("type") != "BPE" or "ByteLevel" not in levels or [one.get("content") for one in added] != [END]:
        raise UserError(
            f"the tokenizer is no byte-level BPE with {END} as its one special token",
            where=str(path),
            todo="import a folder with the tokenizer of GPT-2; a GPT that was exported from here is still in its run",
        )
    end = int(added[0]["id"])
    changed = renumbered(pipeline, list(SPECIALS), first=True)
    config = text.Config(unit="byte-bpe", vocabulary=len(changed["model"]["vocab"]), normalization="none")
    facts = {"format": text.FORMAT, "tokenizers": tokenizers.__version__, "detokenizing": text.DETOKENIZING["byte-bpe"]}
    facts |= {key: value for key, value in asdict(config).items() if key not in text.SIDES}
    made = text.Tokenizer(json.dumps(changed, ensure_ascii=False), json.dumps(facts, indent=2) + "\n", (str(path),) * 2)
    return made, end


def renumbered(pipeline: Mapping[str, Any], specials: list[str], *, first: bool) -> dict[str, Any]:
    """A tokenizer file with its special tokens replaced, first or last; words keep their order."""
    old = {one["content"] for one in pipeline["added_tokens"]}
    words = sorted(pipeline["model"]["vocab"].items(), key=lambda pair: int(pair[1]))
    kept = [word for word, _ in words if word not in old]
    vocabulary = {word: place for place, word in enumerate([*specials, *kept] if first else [*kept, *specials])}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": vocabulary[token], "content": token, **flags} for token in specials]
    return {**pipeline, "model": {**pipeline["model"], "vocab": vocabulary}, "added_tokens": added}
