"""Question answering by Trainer of transformers, as its example run_qa does it: windows, positions, n-best answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.finetuning_entrants import Peer
from mallang.data.answers import locate, read_answers

OVERLAP = 3
"""A window shares a third of its tokens with the one before it: 128 of 384."""
BEST = 20
"""The begins and the ends of a window that are paired."""


class Questions(Peer):
    """The begin and the end of an answer in each window of the context; `<cls>` where a window has no answer."""

    head = "ForQuestionAnswering"

    def labels_of(self, rows: Sequence[Any]) -> list[str]:
        """Two outputs for every token."""
        return ["begin", "end"]

    def windows(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """The windows of all rows: what the model reads, the row of each, and where its context's tokens stand."""
        most = self.recipe.task.window
        found = self.tokenizer(
            [row[0] for row in rows], [row[1] for row in rows], truncation="only_second", max_length=most,
            stride=most // OVERLAP, return_overflowing_tokens=True, return_offsets_mapping=True,
        )  # fmt: skip
        return [
            {
                **{name: found[name][place] for name in self.tokenizer.model_input_names if name in found},
                "row": row,
                "context": [
                    span if side == 1 else None
                    for span, side in zip(found["offset_mapping"][place], found.sequence_ids(place), strict=True)
                ],
            }
            for place, row in enumerate(found["overflow_to_sample_mapping"])
        ]

    def target(self, row: Any, encoded: dict[str, Any]) -> tuple[int, int]:
        """The first and the last token of the first answer; `<cls>` twice if the window does not hold all of it."""
        answer, context = locate(read_answers(row[2]), row[1])[0], encoded["context"]
        inside = [
            place
            for place, span in enumerate(context)
            if span is not None and span[0] < answer.end and span[1] > answer.start
        ]
        whole = inside and context[inside[0]][0] <= answer.start and context[inside[-1]][1] >= answer.end
        return (inside[0], inside[-1]) if whole else (0, 0)

    def parts(self, rows: Sequence[Any]) -> dict[str, Any]:
        """What Trainer is given besides its arguments."""
        examples = []
        for each in self.windows(rows):
            first, last = self.target(rows[each["row"]], each)
            examples.append({**self.inputs(each), "start_positions": first, "end_positions": last})
        return {
            "model": self.model, "train_dataset": examples, "eval_dataset": examples[:1],
            "data_collator": self.collator(), "processing_class": self.tokenizer,
        }  # fmt: skip

    def outputs(self, trainer: Any, rows: Sequence[Any], batch: int = 64) -> list[str]:
        """The best answer to every row over its windows, in batches of like lengths."""
        import torch

        model, windows = trainer.model.eval(), self.windows(rows)
        best = [(float("-inf"), "")] * len(rows)
        windows.sort(key=lambda each: len(each["input_ids"]))
        for first in range(0, len(windows), batch):
            some = windows[first : first + batch]
            padded = self.tokenizer.pad([self.inputs(each) for each in some], return_tensors="pt")
            with torch.inference_mode():
                found = model(**padded.to(model.device))
            begins, ends = found.start_logits.float().cpu(), found.end_logits.float().cpu()
            for each, begin, end in zip(some, begins, ends, strict=True):
                row, tokens = each["row"], len(each["context"])
                begin, end = begin[:tokens], end[:tokens]  # without the padding
                best[row] = max(best[row], self.best_of(each, begin, end, rows[row][1]), key=lambda one: one[0])
        model.train()
        return [text for _, text in best]

    def best_of(self, window: dict[str, Any], begins: Any, ends: Any, context: str) -> tuple[float, str]:
        """The best answer of a window, and its score."""
        spans = window["context"]
        found = (float("-inf"), "")
        for begin in begins.topk(min(BEST, len(begins))).indices.tolist():
            for end in ends.topk(min(BEST, len(ends))).indices.tolist():
                if begin > end or end - begin >= self.recipe.task.max_answer or not (spans[begin] and spans[end]):
                    continue
                score = float(begins[begin] + ends[end])
                if score > found[0]:
                    found = score, context[spans[begin][0] : spans[end][1]]
        return found
