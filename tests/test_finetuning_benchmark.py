"""The comparison with Trainer of transformers, in miniature: both train on the same rows, are timed and scored."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are not installed
from benchmarks import finetuning, finetuning_entrants, finetuning_questions
from benchmarks.finetuning_entrants import Clock, Setting

from interop.test_huggingface_bert import save, wordpiece

SHAPE = ("model.dim=16", "model.layers=2", "model.heads=4", "model.hidden_dim=24", "model.max_length=40")
TASKS = {
    "tagging": ("bert-conll2003", "words\ttags", ["cat sat\tB-A O", "mat\tB-A", "the cat\tO B-A", "sat on\tO O"]),
    "similarity": (
        "bert-glue-small-sts-b", "sentence1\tsentence2\tscore",
        ["cat\tcat\t5", "cat\tmat\t1", "the cat\ta cat\t4", "sat\tmat\t0"],
    ),
    "classification": (
        "bert-glue-small-sst-2", "sentence\tlabel", ["cat\tgood", "mat\tbad", "the cat\tgood", "the mat\tbad"],
    ),
    "question_answering": (
        "bert-squad", "question\tcontext\tanswers",
        ["cat\tthe cat sat on the mat\tcat", "mat\tthe cat sat on the mat\tmat", "the\tcat sat\tsat", "sat\tcat\tcat"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_both_train_on_the_same_rows(task: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    save(tmp_path / "weights", "bert")
    assert {"cat", "mat"} <= set(wordpiece().get_vocab())
    recipe, header, rows = TASKS[task]
    (tmp_path / "rows.tsv").write_text("\n".join([header, *rows * 4]) + "\n", "utf-8")
    setting = Setting(
        name="small", recipe=recipe, weights=str(tmp_path / "weights"), split="valid",
        overrides=(
            *SHAPE, f"data.train={tmp_path / 'rows.tsv'}", f"data.valid={tmp_path / 'rows.tsv'}", "train.epochs=3",
            "train.batch_sentences=8", "train.workers=0",
            f"text.vocabulary={len(wordpiece().get_vocab())}", "optimizer.learning_rate=0.003", "schedule.warmup=2",
            *(("data.columns=[\"words\", \"tags\"]",) if task == "tagging" else ()),
            *(("task.window=24", "task.stride=8") if task == "question_answering" else ()),
        ),
    )  # fmt: skip
    for system in finetuning.SYSTEMS.values():
        found = json.loads(json.dumps(system(setting)))
        assert found["metric"] in found["scores"] and found["scores"][found["metric"]]["count"] == 16
        times, values = zip(*found["curve"], strict=True)
        assert len(times) == 3 and list(times) == sorted(times) and 0 <= times[-1] <= found["seconds"] + 0.1
        assert all(-100 <= value <= 100 for value in values)
        assert values[-1] == pytest.approx(found["scores"][found["metric"]]["value"], abs=0.01) or task != "similarity"


def test_the_clock_counts_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, times = Clock("cpu"), iter([10.0, 13.0, 20.0, 21.0])
    monkeypatch.setattr(clock, "now", lambda: next(times))
    with clock.running(), clock.stopped():
        assert clock.spent == 3.0
    assert clock.spent == 4.0


def line(by: str, seed: int) -> dict[str, Any]:
    """A line of the output file."""
    score = {"name": "Spearman", "value": 80.0 + seed, "signature": "x", "low": 79.0, "high": 82.0, "count": 9}
    return {
        "name": "sts-b", "recipe": "bert-glue-small-sts-b", "weights": "w", "seed": seed, "overrides": [], "by": by,
        "device": "cpu", "split": "valid", "system": {"ours": "mallang", "theirs": "transformers Trainer"}[by],
        "corpus": "glue-small/STS-B", "metric": "Spearman", "scores": {"Spearman": score}, "seconds": 9.0 * seed,
        "curve": [[3.0 * seed, 70.0], [9.0 * seed, 80.0 + seed]], "epochs": 2, "commit": "0", "hardware": "h",
    }  # fmt: skip


def test_results_and_the_figure(tmp_path: Path) -> None:
    lines = [line(by, seed) for by in ("ours", "theirs") for seed in (1, 2)]
    assert finetuning.mean_curve(lines[:2]) == [(4.5, 70.0), (13.5, 81.5)]
    drawn = finetuning.figure(lines)
    assert drawn.startswith("<svg") and "mallang 81.5" in drawn and "Trainer 81.5" in drawn
    names = [name for one in lines for name, _ in finetuning.results(one)]
    assert len(set(names)) == 8 and "finetuning-sts-b-trainer-score-seed2" in names
    out = tmp_path / "lines.jsonl"
    out.write_text("".join(json.dumps(one) + "\n" for one in lines), "utf-8")
    finetuning.show(argparse.Namespace(files=[out]))


def test_what_is_done_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, asked = tmp_path / "lines.jsonl", []
    out.write_text(json.dumps(line("ours", 1)) + "\n", "utf-8")

    def system(setting: Setting) -> dict[str, Any]:
        asked.append(setting.seed)
        return line("ours", setting.seed)

    monkeypatch.setattr(finetuning, "SYSTEMS", {"ours": system})
    arguments = finetuning.parser().parse_args(
        ["run", str(tmp_path), "--out", str(out), "--only", "sts-b", "--systems", "ours", "--seeds", "1", "2"]
    )
    arguments.do(arguments)
    assert asked == [2] and len(finetuning.read(out)) == 2


def test_tags_are_read_off_the_first_piece_of_a_word() -> None:
    encoded = {"words": [None, 0, 0, 1, None]}
    assert finetuning_entrants.Tags.firsts(None, encoded) == [1, 3]  # type: ignore[arg-type]


def test_answers_stand_in_windows_and_the_best_pair_is_found(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    save(tmp_path / "weights", "bert")
    rows = [("cat", "the cat sat on the mat. the mat sat.", "sat."), ("mat", "cat sat", "cat")]
    (tmp_path / "rows.tsv").write_text("\n".join("\t".join(row) for row in rows) + "\n", "utf-8")
    setting = Setting(
        name="small", recipe="bert-squad", weights=str(tmp_path / "weights"),
        overrides=(f"data.train={tmp_path / 'rows.tsv'}", "task.window=10", "task.max_answer=2"),
    )  # fmt: skip
    reader = finetuning_questions.Questions(setting.read(), setting)
    windows, found = reader.windows(rows), []
    assert max(len(each["context"]) for each in windows) == 10
    for each in windows:
        first, last = reader.target(rows[each["row"]], each)
        if first:
            found.append((each["row"], rows[each["row"]][1][each["context"][first][0] : each["context"][last][1]]))
    assert set(found) == {(0, "sat."), (1, "cat")}
    window = next(each for each in windows if each["row"] == 1)
    places = [place for place, span in enumerate(window["context"]) if span]
    begins, ends = torch.zeros(len(window["context"])), torch.zeros(len(window["context"]))
    begins[0] = ends[0] = 9.0  # no token of the context
    begins[places[1]], ends[places[0]] = 3.0, 4.0  # the end would be before the begin
    assert reader.best_of(window, begins, ends, rows[1][1]) == (4.0, "cat")
    begins[places[0]], ends[places[1]] = 2.0, 3.0
    assert reader.best_of(window, begins, ends, rows[1][1]) == (6.0, "sat")
