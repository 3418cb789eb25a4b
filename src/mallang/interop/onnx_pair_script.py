"""Predict for pairs, questions or choices with the files of this folder: pip install onnxruntime tokenizers numpy.

python predict.py "the first text" "the second text"          pairs, similarity
python predict.py "a question" "the context of its answer"    question answering
python predict.py "a question" "a choice" "another choice"    multiple choice
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import tokenizers

BATCH = 32
LINES = "python predict.py < texts.txt"
USAGE = {
    "pairs": '"the first text" "the second text"',
    "question_answering": '"a question" "the context of its answer"',
    "multiple_choice": '"a question" "a choice" "another choice"',
}


class Predictor:
    """An exported model and its tokenizer."""

    def __init__(self, folder: str | Path, **options: Any) -> None:
        folder = Path(folder)
        self.about = json.loads((folder / "export.json").read_text("utf-8"))
        self.tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.tokenizer.encode_special_tokens = True  # "<s>" in a text is text
        self.about["frame"] = [] if self.about["begin"] is None else [self.about["begin"]]
        options = {"providers": ["CPUExecutionProvider"], **options}
        self.session = onnxruntime.InferenceSession(folder / "model.onnx", **options)

    def predict(self, examples: Sequence[Sequence[str]]) -> list[Any]:
        """What the model says of each example, which is several texts: probabilities, a score, or an answer."""
        if not examples:
            return []
        if self.about["task"] == "question_answering":
            return [self.answer(question, context) for question, context in examples]
        if self.about["task"] == "multiple_choice":
            return [self.choose(question, choices) for question, *choices in examples]
        pairs = [(self.ids(first), self.ids(second)) for first, second in examples]
        if self.about.get("kind") == "bi":
            first, second = (self.run([self.alone(pair[place]) for pair in pairs])[0] for place in (0, 1))
            lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
            return self.on_scale((first * second).sum(axis=1) / np.maximum(lengths, 1e-8))
        outputs = self.run([self.row(*pair) for pair in pairs])[0]
        return outputs.tolist() if self.about["task"] == "similarity" else [self.shares(each) for each in outputs]

    def ids(self, text: str) -> list[int]:
        """The ids of a text."""
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return found

    def alone(self, ids: list[int]) -> tuple[list[int], list[int]]:
        """The row of one text, truncated to what the model reads."""
        frame = self.about["frame"]
        row = [*frame, *ids[: self.about["max_tokens"] - len(frame) - 1], self.about["end"]]
        return row, [0] * len(row)

    def joined(self, first: list[int], second: list[int]) -> tuple[list[int], list[int]]:
        """The row of a pair: ids, and 1 for each token of the second text."""
        begin = [*self.about["frame"], *first, *self.about["between"]]
        return [*begin, *second, self.about["end"]], [0] * len(begin) + [1] * (len(second) + 1)

    def row(self, first: list[int], second: list[int]) -> Any:
        """What the model reads of a pair, cut at the end of the longer text; in both orders it is two rows."""
        reading = self.about["reading"]
        if reading in ("first", "second"):
            return self.alone(first if reading == "first" else second)
        room = self.about["max_tokens"] - len(self.joined([], [])[0])
        if len(first) + len(second) > room:
            half = room // 2
            kept = room - half if len(first) > len(second) else half
            kept = len(first) if len(first) <= half else room - len(second) if len(second) <= half else kept
            first, second = first[:kept], second[: room - kept]
        both = self.joined(first, second)
        return (both, self.joined(second, first)) if reading == "orders" else both

    def run(self, rows: list[Any]) -> list[Any]:
        """The outputs of the graph for rows of any length, in their order."""
        parts = [self.run_batch(rows[first : first + BATCH]) for first in range(0, len(rows), BATCH)]
        if self.about["task"] == "question_answering":
            return [[line for part in parts for line in part[place]] for place in (0, 1)]
        return [np.concatenate(output) for output in zip(*parts, strict=True)]

    def run_batch(self, rows: list[Any]) -> list[Any]:
        """The outputs of the graph for rows that are padded to one length."""
        orders = self.about["reading"] == "orders"
        plain = [each for row in rows for each in row] if orders else rows
        lengths = np.array([len(ids) for ids, _ in plain])
        tokens = np.full((len(plain), lengths.max()), self.about["pad"], dtype=np.int64)
        types = np.zeros_like(tokens)
        for line, kinds, (ids, own) in zip(tokens, types, plain, strict=True):
            line[: len(ids)], kinds[: len(ids)] = ids, own
        mask = (np.arange(tokens.shape[1]) < lengths[:, None]).astype(np.int64)
        given = {"tokens": tokens, "types": types, "mask": mask}
        if orders:
            given = {name: each.reshape(-1, 2, each.shape[1]) for name, each in given.items()}
        found: list[Any] = self.session.run(None, {each.name: given[each.name] for each in self.session.get_inputs()})
        return found

    def shares(self, logits: Any) -> dict[str, float]:
        """The probability of every class."""
        logits, kind = logits.astype(np.float64), self.about["kind"]
        shares = np.exp(log_softmax(logits)) if kind == "single" else 1 / (1 + np.exp(-logits))
        if kind == "ordinal":  # of lying above each threshold
            shares = -np.diff(np.concatenate(([1.0], shares, [0.0])))
        return dict(zip(self.about["labels"], shares.tolist(), strict=True))

    def on_scale(self, shares: Any) -> list[float]:
        """Scores on the scale of the data."""
        lowest, highest = self.about["lowest"], self.about["highest"]
        found: list[float] = (lowest + (highest - lowest) * shares).tolist()
        return found

    def choose(self, question: str, choices: Sequence[str]) -> list[float]:
        """The probability of every choice."""
        is_joined = self.about["reading"] == "joined"
        asked = self.ids(question) if is_joined else []
        empty, _ = self.joined(asked, []) if is_joined else self.alone([])
        ids, most = [self.ids(choice) for choice in choices], self.about["max_tokens"] - len(empty)
        if (longest := max(map(len, ids))) > most:
            raise ValueError(f"a choice has {longest} tokens, and there is room for {most}")
        rows = [self.row(asked, each) for each in ids]
        shares: list[float] = np.exp(log_softmax(self.run(rows)[0].astype(np.float64))).tolist()
        return shares

    def answer(self, question: str, context: str) -> dict[str, Any]:
        """The most probable part of the context, with its place and its probability; empty where there is no answer."""
        about, asked = self.about, self.ids(question)[: self.about["max_question"] or None]
        encoded = self.tokenizer.encode(context, add_special_tokens=False)
        first = self.tokenizer.id_to_token(encoded.ids[0]) if encoded.ids else None
        offsets = places_of(context, encoded.offsets, first, about["unit"])
        room = about["max_tokens"] - len(self.joined([], [])[0]) - len(asked)
        if room < 1 or not asked or not (offsets[:, 1] > offsets[:, 0]).any():
            raise ValueError("the question is empty or too long, or the context holds no token")
        starts = self.starts(len(encoded.ids), room)
        outputs = self.run([self.joined(asked, encoded.ids[start : start + room]) for start in starts])
        null = 0 if about["frame"] else len(asked)
        begins = len(self.joined(asked, [])[0]) - 1
        table = np.full((len(encoded.ids), min(about["max_answer"], len(encoded.ids))), -np.inf)
        nothing = np.inf
        for start, *logits in zip(starts, *outputs, strict=True):
            size = min(room, len(encoded.ids) - start)
            begin, end = (
                log_softmax(np.append(each[begins : begins + size], each[null]).astype(np.float64)) for each in logits
            )
            nothing = min(nothing, begin[-1] + end[-1])
            for further in range(min(table.shape[1], size)):
                place = table[start : start + size - further, further]
                np.maximum(place, begin[: size - further] + end[further:size], out=place)
        return self.best(table, nothing, offsets, context)

    def starts(self, length: int, room: int) -> list[int]:
        """The first token of each window of a context: two neighbors share every answer."""
        if length <= room:
            return [0]
        step = max(1, min(self.about["stride"], room - min(self.about["max_answer"], max(1, room // 2)) + 1))
        return [*range(0, length - room, step), length - room]

    def best(self, table: Any, nothing: float, offsets: Any, context: str) -> dict[str, Any]:
        """The answer out of the log-probabilities of all spans: a row per first token, a column per further tokens."""
        empty = offsets[:, 1] <= offsets[:, 0]  # a token without a character begins and ends no answer
        table[empty] = -np.inf
        for further in range(table.shape[1]):
            table[: len(table) - further, further][empty[further:]] = -np.inf
        first, further = divmod(int(table.argmax()), table.shape[1])
        known = [*table.ravel(), *([nothing] if self.about["no_answer"] else [])]
        total = np.logaddexp.reduce(known)
        if self.about["no_answer"] and nothing - table.max() > self.about["threshold"]:
            return {"answer": "", "start": None, "end": None, "probability": float(np.exp(nothing - total))}
        start, end = int(offsets[first, 0]), int(offsets[first + further, 1])
        share = float(np.exp(table.max() - total))
        return {"answer": context[start:end], "start": start, "end": end, "probability": share}


def places_of(text: str, offsets: Sequence[tuple[int, int]], first: str | None, unit: str) -> Any:
    """The first character of every token, and the first one after it, without white space at its sides.

    `first` is the first token.
    """
    gaps, reached = dict[int, int](), 0
    for start, end in (*offsets, (len(text), len(text))):  # of several that were composed it has the first
        if start > reached:
            missing = text[reached:start]
            gaps[reached] = reached + len(missing.rstrip() if unit in ("wordpiece", "space") else missing)
        reached = max(reached, end)
    places = [(start, gaps.get(end, end)) for start, end in offsets]
    if first in (" ", "▁") and unit in ("word", "bpe", "unigram"):
        places[0] = (0, 0)
    trimmed = []
    for start, end in places:
        left = end - len(text[start:end].lstrip())
        trimmed.append((left, max(left, start + len(text[start:end].rstrip()))))
    return np.array(trimmed, dtype=np.int64).reshape(-1, 2)


def log_softmax(values: Any) -> Any:
    """The log-probabilities of logits."""
    shifted = values - values.max()
    return shifted - np.log(np.exp(shifted).sum())


def shown(found: Any, texts: Sequence[str]) -> str:
    """A prediction in one line."""
    if isinstance(found, float):
        return f"{found:.4f}"
    if isinstance(found, dict) and "answer" in found:
        return f"{found['answer']}  {found['probability']:.3f}"
    # Pairs and no dict: two choices may be the same text.
    shares = list(found.items()) if isinstance(found, dict) else list(zip(texts[1:], found, strict=True))
    return "  ".join(f"{label} {share:.3f}" for label, share in sorted(shares, key=lambda pair: -pair[1]))


TEXTS = {"multiple_choice": (float("inf"), "a question and its choices are needed")}
"""The maximum number of texts of an example by task, where it is not a pair, and how to say what is needed."""


def check(given: Sequence[Sequence[str]], task: str) -> None:
    """A ValueError for an example that has not the texts of the task."""
    if not given:
        raise ValueError("there is no text")
    for number, texts in enumerate(given, start=1):
        if not any(text.strip() for text in texts):
            raise ValueError(f"example {number} is blank")
        most, wanted = TEXTS.get(task, (2, "2 are needed"))
        if not 2 <= len(texts) <= most:
            raise ValueError(f"example {number} has {len(texts)} text{'s' * (len(texts) != 1)}, and {wanted}")


def main(arguments: Sequence[str]) -> int:
    """Print a line for each example, of the arguments or the lines of the standard input; 2 if one is no example."""
    predictor = Predictor(Path(__file__).parent)
    task = predictor.about["task"]
    try:
        given = [arguments] if arguments else [line.split("\t") for line in sys.stdin.read().splitlines()]
        check(given, task)
        outputs = predictor.predict(given)
    except ValueError as error:
        usage = f"usage: python predict.py {USAGE.get(task, USAGE['pairs'])}"
        print(f"error: {error}\n{usage}\n       or lines of them with tabs between: {LINES}", file=sys.stderr)
        return 2
    for example, output in zip(given, outputs, strict=True):
        print(shown(output, example))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
