"""Translate with the files of this folder: pip install onnxruntime tokenizers, then python translate.py "a text"."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import tokenizers

PAD, BOS, EOS, BATCH = 0, 2, 3, 64


class Translator:
    """An exported model and its tokenizers."""

    def __init__(self, folder: str | Path, **options: Any) -> None:
        folder = Path(folder)
        self.about = json.loads((folder / "export.json").read_text("utf-8"))
        self.source, self.target = (tokenizers.Tokenizer.from_file(str(folder / self.about[side])) for side in SIDES)
        self.source.encode_special_tokens = True  # "<s>" in a text is text
        options = {"providers": ["CPUExecutionProvider"], **options}
        self.encoder, self.step = (onnxruntime.InferenceSession(folder / f"{name}.onnx", **options) for name in GRAPHS)

    def translate(self, texts: Sequence[str], domain: str | None = None) -> list[str]:
        """The translations of some texts, by greedy search; texts of like length are translated together."""
        if domain is not None and domain not in self.about["domains"]:
            raise ValueError(f"there is no domain {domain!r}; known: {', '.join(self.about['domains']) or 'none'}")
        tag = [] if domain is None else [self.source.get_vocab()[self.about["domains"][domain]]]
        rows = [self.source.encode(text, add_special_tokens=False).ids for text in texts]
        rows = [[*tag, *row] if text.strip() else [] for text, row in zip(texts, rows, strict=True)]
        if (longest := max(map(len, rows), default=0) + 1) > self.about["positions"]:
            raise ValueError(f"a text has {longest} tokens, the model reads {self.about['positions']}: split it")
        order = sorted((place for place, row in enumerate(rows) if row), key=lambda place: len(rows[place]))
        outputs = [""] * len(texts)
        for first in range(0, len(order), BATCH):
            group = order[first : first + BATCH]
            for place, ids in zip(group, self.greedy([[*rows[place], EOS] for place in group]), strict=True):
                text = self.target.decode(ids, skip_special_tokens=True)
                outputs[place] = unicodedata.normalize("NFC", text) if self.about["compose"] else text
        return outputs

    def greedy(self, rows: list[list[int]]) -> list[list[int]]:
        """The ids that are said after these ids are read, always the most probable one next."""
        lengths = np.array([len(row) for row in rows])
        source = np.full((len(rows), lengths.max()), PAD)
        for line, row in zip(source, rows, strict=True):
            line[: len(row)] = row
        limits = np.minimum(self.about["max_length"], (self.about["max_ratio"] * lengths).astype(int) + 10)
        names = [output.name for output in self.encoder.get_outputs()]
        memory = dict(zip(names, self.encoder.run(None, {"source": source, "lengths": lengths}), strict=True))
        past = {  # keys and values of what was said so far: nothing yet
            each.name: np.zeros((len(rows), each.shape[1], 0, each.shape[3]), np.float32)
            for each in self.step.get_inputs()
            if each.name.startswith("past.")
        }
        said: list[Any] = []
        tokens, ended = np.full((len(rows), 1), BOS), np.zeros(len(rows), bool)
        while not (ended | (limits <= len(said))).all():
            logits, *grown = self.step.run(None, {"tokens": tokens, **memory, **past})
            past = dict(zip(past, grown, strict=True))
            logits[:, :, [PAD, BOS]] = -np.inf  # never said
            tokens = logits[:, -1:].argmax(-1)
            said.append(np.where(ended, EOS, tokens[:, 0]))
            ended |= tokens[:, 0] == EOS
        lines = [[*line[:limit], EOS] for line, limit in zip(np.array(said).T.tolist(), limits, strict=True)]
        return [line[: line.index(EOS)] for line in lines]


SIDES, GRAPHS = ("source", "target"), ("encoder", "step")

if __name__ == "__main__":
    for line in Translator(Path(__file__).parent).translate(sys.argv[1:] or sys.stdin.read().splitlines()):
        print(line)
