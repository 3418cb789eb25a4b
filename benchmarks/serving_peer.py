"""The language model of `serving_load` as `transformers serve` reads it: the same weights, the same words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.gpt_models import Shape, hugging_face


def save_peer(folder: Path, shape: Shape, words: Any) -> None:
    """A folder of Hugging Face's; without an end token, so that outputs have the length that was asked for."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    model = hugging_face(shape)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    model.config.eos_token_id = None
    model.save_pretrained(folder)
    ids = {token: number for number, token in enumerate(words.vocabulary.tokens)}
    backend = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", pad_token="<pad>").save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": None}), "utf-8")
