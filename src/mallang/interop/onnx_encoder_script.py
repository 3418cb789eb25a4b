"""Predict with the files of this folder: pip install onnxruntime tokenizers, then python predict.py "a text"."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import tokenizers

BATCH = 64


class Predictor:
    """An exported model and its tokenizer."""

    def __init__(self, folder: str | Path, **options: Any) -> None:
        folder = Path(folder)
        self.about = json.loads((folder / "export.json").read_text("utf-8"))
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.tokenizer.encode_special_tokens = True  # "<s>" in a text is text
        options = {"providers": ["CPUExecutionProvider"], **options}
        self.session = onnxruntime.InferenceSession(folder / "model.onnx", **options)

    def predict(self, texts: Sequence[str]) -> list[Any]:
        """The probability of every label, the tag of every word, or the vector of each text."""
        if self.about["task"] == "tagging":
            return [self.tags(self.words(text)) for text in texts]
        rows = [self.ids(text) for text in texts]
        order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
        found: list[Any] = [None] * len(rows)
        for first in range(0, len(order), BATCH):
            group = order[first : first + BATCH]
            for place, output in zip(group, self.run([rows[place] for place in group]), strict=True):
                found[place] = output if self.about["task"] == "encoding" else self.shares(output)
        return found

    def ids(self, text: str) -> list[int]:
        """The ids of a text, truncated to what the model reads, with the special tokens around it."""
        return self.framed(self.tokenizer.encode(text, add_special_tokens=False).ids[: self.about["max_tokens"]])

    def framed(self, ids: list[int]) -> list[int]:
        """Ids with the special tokens around them."""
        begin = [] if self.about["begin"] is None else [self.about["begin"]]
        return [*begin, *ids, self.about["end"]]

    def run(self, rows: list[list[int]]) -> Any:
        """What the graph gives for padded rows of ids."""
        lengths = np.array([len(row) for row in rows])
        tokens = np.full((len(rows), lengths.max()), self.about["pad"])
        for line, row in zip(tokens, rows, strict=True):
            line[: len(row)] = row
        mask = np.arange(tokens.shape[1])[None] < lengths[:, None]
        return self.session.run(None, {"tokens": tokens, "mask": mask.astype(np.int64)})[0]

    def shares(self, logits: Any) -> dict[str, float]:
        """The probability of every class."""
        logits, kind = logits.astype(np.float64), self.about["kind"]
        if kind == "single":
            shares = np.exp(logits - logits.max())
            shares = shares / shares.sum()
        else:
            shares = 1 / (1 + np.exp(-logits))
        if kind == "ordinal":  # of lying above each threshold
            shares = -np.diff(np.concatenate(([1.0], shares, [0.0])))
        return dict(zip(self.about["labels"], shares.tolist(), strict=True))

    def words(self, text: str) -> list[str]:
        """The words of a text, split as those that the model was trained with."""
        split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(self.about["words"]), "isolated")
        found = [word for word, _ in split.pre_tokenize_str(text)]
        return found if self.about["split"] == "characters" else [word for word in found if not word.isspace()]

    def tags(self, words: Sequence[str]) -> list[tuple[str, str]]:
        """The tag of every word: that of its first token. Words beyond what the model reads have none."""
        ids: list[int] = []
        starts: list[int] = []
        for word in words:
            own = self.tokenizer.encode(word, add_special_tokens=False).ids or [self.about["unk"]]
            if len(ids) + len(own) > self.about["max_tokens"]:
                break
            starts.append(len(ids) + (self.about["begin"] is not None))
            ids += own
        if not ids:
            return []
        best = self.run([self.framed(ids)])[0].argmax(-1)
        return [(word, self.about["labels"][best[place]]) for word, place in zip(words, starts, strict=False)]


def shown(found: Any) -> str:
    """A prediction in one line."""
    if isinstance(found, dict):
        return "  ".join(f"{label} {share:.3f}" for label, share in sorted(found.items(), key=lambda pair: -pair[1]))
    if isinstance(found, list):
        return " ".join(f"{word}/{tag}" for word, tag in found)
    return " ".join(f"{value:.5f}" for value in found)


if __name__ == "__main__":
    for line in Predictor(Path(__file__).parent).predict(sys.argv[1:] or sys.stdin.read().splitlines()):
        print(shown(line))
