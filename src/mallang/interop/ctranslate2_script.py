"""Translate with the files of this folder: pip install ctranslate2 tokenizers, then python translate.py "a text"."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import tokenizers


class Translator:
    """An exported model and its tokenizers."""

    def __init__(self, folder: str | Path, **options: Any) -> None:
        folder = Path(folder)
        self.about = json.loads((folder / "export.json").read_text("utf-8"))
        self.source, self.target = (tokenizers.Tokenizer.from_file(str(folder / self.about[side])) for side in SIDES)
        self.source.encode_special_tokens = True  # "<s>" in a text is text
        self.model = ctranslate2.Translator(str(folder), **{"compute_type": "default", **options})

    def translate(self, texts: Sequence[str], domain: str | None = None, **options: Any) -> list[str]:
        """The translations of some texts; options of the search such as beam_size=5 are CTranslate2's."""
        if refused := [name for name in options if name in OTHER_RESULTS or name.startswith("return_")]:
            raise ValueError(f"{', '.join(refused)}: a text each is given here; ask `.model.translate_batch` for more")
        if domain is not None and domain not in self.about["domains"]:
            raise ValueError(f"there is no domain {domain!r}; known: {', '.join(self.about['domains']) or 'none'}")
        tag = [] if domain is None else [self.about["domains"][domain]]
        tokens = [self.source.encode(text, add_special_tokens=False).tokens for text in texts]
        tokens = [[*tag, *row] if text.strip() else [] for text, row in zip(texts, tokens, strict=True)]
        if (longest := max(map(len, tokens), default=0) + 1) > self.about["positions"]:
            raise ValueError(f"a text has {longest} tokens, the model reads {self.about['positions']}: split it")
        limits = [min(self.about["max_length"], int(self.about["max_ratio"] * (len(row) + 1)) + 10) for row in tokens]
        if "max_decoding_length" in options:
            limits = [options["max_decoding_length"]] * len(texts)
        given = [place for place, row in enumerate(tokens) if row]
        usual = {
            "beam_size": 1,
            "max_batch_size": 4096,
            "batch_type": "tokens",
            "max_input_length": 0,  # cut nothing off
            "min_decoding_length": 0,  # an output may be empty
            "max_decoding_length": max(limits, default=1),
        }
        never = [["<pad>"], ["<s>"], *(options.pop("suppress_sequences", None) or [])]
        rows = [tokens[place] for place in given]
        found = self.model.translate_batch(rows, suppress_sequences=never, **{**usual, **options})
        outputs = [""] * len(texts)
        for place, result in zip(given, found, strict=True):
            outputs[place] = self.join(result.hypotheses[0][: limits[place]])
        return outputs

    def join(self, tokens: list[str]) -> str:
        """Text from tokens."""
        ids = [number for token in tokens if (number := self.target.token_to_id(token)) is not None]
        text: str = self.target.decode(ids, skip_special_tokens=True)
        return unicodedata.normalize("NFC", text) if self.about["compose"] else text


SIDES = ("source", "target")
OTHER_RESULTS = ("asynchronous", "num_hypotheses", "replace_unknowns", "target_prefix")
"""With these CTranslate2 gives, or takes, other than a text each."""

if __name__ == "__main__":
    for line in Translator(Path(__file__).parent).translate(sys.argv[1:] or sys.stdin.read().splitlines()):
        print(line)
