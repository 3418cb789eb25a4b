"""Lists of classifiers and taggers: which jobs come when, how settings are chosen, and what is written of them."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed
from benchmarks import understanding, understanding_order, understanding_results  # noqa: E402
from benchmarks.kinds import kind_of  # noqa: E402
from benchmarks.understanding import STAGES, parser, read_systems, todo  # noqa: E402
from benchmarks.understanding_runs import Job, Place, bits, do, is_right  # noqa: E402

from mallang import recipe as recipes  # noqa: E402
from mallang.errors import UserError  # noqa: E402

LISTS = [
    ROOT / "benchmarks" / f"{name}.toml"
    for name in (
        "understanding",
        "documents",
        "tagging",
        "finetuning",
        "adaptation",
        "adaptation-miniworld",
        "knowledge",
        "roles",
        "distillation",
        "features",
        "sequence-pretraining",
        "korean-pretraining",
    )
]
TASKS = (
    "classification", "tagging", "pairs", "similarity", "graph_choice", "question_answering",
    "distilled_classification", "distilled_pairs", "semantic_roles", "multiple_choice",
)  # fmt: skip
LIST = """
[defaults]
overrides = ["train.epochs=1"]
[[systems]]
name = "cnn-miniworld"
cost = 30
settings = [[], ["model.dropout=0.4"], ["model.filters=8"]]
[[systems]]
name = "slow"
recipe = "rnn-classifier-miniworld"
cost = 90
seeds = [1]
"""


@pytest.fixture
def systems(tmp_path):
    path = tmp_path / "list.toml"
    path.write_text(LIST, "utf-8")
    return read_systems(path)


def line_of(job, value, **more):
    """What a job would leave."""
    score = {"name": "accuracy", "value": value, "signature": "x", "low": value - 1, "high": value + 1, "count": 100}
    return {
        "stage": job.stage, "system": job.system, "recipe": job.recipe, "overrides": list(job.overrides),
        "seed": job.seed, "model": "cnn", "corpus": "nsmc", "metric": "accuracy", "steps": 9, "parameters": 1234,
        "seconds": 5.0, "wall": 6.0, "commit": "0123456789ab", "hardware": "a machine", "dev": {"accuracy": score},
        **more,
    }  # fmt: skip


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_every_system_of_a_list_can_be_trained(path):
    for system in read_systems(path):
        for setting in system.settings:
            recipe = recipes.read(system.recipe, setting).build()
            assert recipe.task_name in TASKS
            assert recipe.data.corpus, system.name


def test_a_sweep_comes_first_and_its_best_setting_gets_all_seeds(systems):
    first = todo(systems, [], STAGES)
    assert [(job.stage, job.system) for job in first] == [("sweep", "cnn-miniworld")] * 3 + [("final", "slow")]
    assert todo(systems, [], STAGES, running=first) == []
    scores = {"train.epochs=1": 80.0, "train.epochs=1 model.dropout=0.4": 82.0, "train.epochs=1 model.filters=8": 81.0}
    lines = [line_of(job, scores[" ".join(job.overrides)]) for job in first[:3]]
    assert all(job.stage == "sweep" for job in todo(systems, lines[:2], STAGES) if job.system == "cnn-miniworld")
    then = todo(systems, lines, STAGES)
    assert [job.system for job in then] == ["slow", *["cnn-miniworld"] * 3]  # the longest first
    assert [(job.seed, job.overrides[-1]) for job in then[1:]] == [(seed, "model.dropout=0.4") for seed in (1, 2, 3)]
    assert then[1].folder == first[1].folder  # its run need not be trained again
    assert len({job.folder for job in (*first, *then)}) == 6


def test_a_failed_setting_is_not_chosen(systems):
    first = todo(systems, [], ["sweep"])
    lines = [line_of(job, 80.0) for job in first]
    lines[0] |= {"failed": "no memory"}
    assert {job.overrides for job in todo(systems, lines, STAGES) if job.system == "cnn-miniworld"} == {
        ("train.epochs=1", "model.dropout=0.4")  # of equal ones the first
    }
    failed = [line | {"failed": "no memory"} for line in lines]
    assert {job.system for job in todo(systems, failed, STAGES)} == {"slow"}


class Instant:
    """Workers that end every job at once; it fails if its system is `failing`."""

    failing, has_room = "", True

    def __init__(self, count, place):
        self.running = []

    def start(self, job):
        self.running.append(job)

    def jobs(self):
        return self.running

    def wait(self):
        ended, self.running = self.running, []
        return [line_of(job, 80.0) | ({"failed": "no memory"} if job.system == self.failing else {}) for job in ended]

    def close(self):
        pass


def test_a_failed_job_is_left_and_tried_again_by_the_next_command(tmp_path, monkeypatch, capsys):
    path, out = tmp_path / "list.toml", tmp_path / "lines.jsonl"
    path.write_text("".join(f'[[systems]]\nname = "{name}"\nseeds = [1]\n' for name in ("good", "bad")), "utf-8")
    arguments = parser().parse_args(["run", str(path), "--out", str(out), "--commit", "x"])
    monkeypatch.setattr(understanding, "Workers", Instant)
    monkeypatch.setattr(understanding_results, "summary", str)
    monkeypatch.setattr(Instant, "failing", "bad")
    arguments.do(arguments)
    assert "1 jobs are left, 1 failed\n  final bad" in capsys.readouterr().out
    monkeypatch.setattr(Instant, "failing", "")
    arguments.do(arguments)
    assert "0 jobs are left, 0 failed" in capsys.readouterr().out
    assert [line["system"] for line in understanding_results.read_lines(out)].count("good") == 1
    assert [line["system"] for line in understanding_results.read_lines(out) if "failed" not in line].count("bad") == 1


@pytest.mark.parametrize("stages", ["swep", "sweep,finals", ""])
def test_a_misspelled_stage_is_refused(tmp_path, stages):
    path = tmp_path / "list.toml"
    path.write_text('[[systems]]\nname = "cnn-miniworld"\n', "utf-8")
    arguments = parser().parse_args(["run", str(path), "--out", str(tmp_path / "lines.jsonl"), "--stages", stages])
    with pytest.raises(UserError, match="there is no stage"):
        arguments.do(arguments)


def write_tsv(path, rows):
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows), "utf-8")
    return str(path)


def test_a_final_run_is_scored_with_and_without_texts_of_the_training_split(tmp_path):
    train = [(f"good number {i}", "pos") for i in range(20)] + [(f"bad number {i}", "neg") for i in range(20)]
    test = [("Good  NUMBER 3", "neg"), ("bad number 99", "neg"), ("good number 77", "pos")]
    files = {"train": write_tsv(tmp_path / "train.tsv", train), "test": write_tsv(tmp_path / "test.tsv", test)}
    files["valid"] = write_tsv(tmp_path / "valid.tsv", train[::5])
    given = (*(f"data.{split}={path}" for split, path in files.items()), "model.size=tiny", "text.unit=word")
    given += ("text.lowercase=true", "train.epochs=8", "optimizer.learning_rate=0.02", "train.workers=0")
    place = Place(folder=tmp_path / "work", device="cpu", about={"commit": "0123456789ab", "hardware": "here"})
    line = do(Job(stage="sweep", system="x", recipe="cnn", overrides=given, seed=1, cost=1), place)
    assert "failed" not in line, line["failed"]
    assert line["dev"]["accuracy"]["value"] == 100.0
    final = do(Job(stage="final", system="x", recipe="cnn", overrides=given, seed=1, cost=1), place)
    assert set(final) - set(line) == {"test", "test-new", "right"}
    assert final["dev"] == line["dev"]
    assert final["steps"] == line["steps"]
    assert (final["test"]["accuracy"]["count"], final["test-new"]["accuracy"]["count"]) == (3, 2)
    assert final["test"]["accuracy"]["value"] == pytest.approx(200 / 3)  # the seen one has the other label
    assert final["test-new"]["accuracy"]["value"] == 100.0
    assert is_right(final["right"], 3) == [False, True, True]
    assert not list((tmp_path / "work").iterdir())


@pytest.mark.parametrize(("task", "label"), [("pairs", "accuracy"), ("similarity", "spearman")])
def test_pairs_are_scored_by_their_last_column(task, label, tmp_path):
    rows = [("a b", "a b", "5"), ("a b", "c d", "0"), ("c d", "c d", "5"), ("c", "a", "0")]
    path = tmp_path / "pairs.tsv"
    path.write_text("first\tsecond\tgold\n" + "".join("\t".join(row) + "\n" for row in rows * 4), "utf-8")
    given = (
        f"data.train={path}", f"data.valid={path}", "train.epochs=1", "model.dim=8", f"task.name={task}",
        'data.columns=["first", "second", "gold"]', "train.workers=0",
    )  # fmt: skip
    place = Place(folder=tmp_path / "work", device="cpu", about={"commit": "0", "hardware": "h"})
    final = do(Job(stage="final", system="x", recipe="bag-of-means", overrides=given, seed=1, cost=1), place)
    assert "failed" not in final, final
    assert understanding_results.chief(final)[0] == label and "test" not in final, "there is no test split"
    assert "test" not in understanding_results.summary(final).partition("dev")[2]
    (name, value), *_ = understanding_results.results(final)
    assert value.split == "valid" and "valid chose no setting" in value.protocol and name.startswith("x-valid-")


def test_choices_are_scored_by_the_name_of_the_right_one(tmp_path):
    """Whether a row says which it is by a letter, a number or a text."""
    answers = ("A", "1", "x")
    for split in ("train", "valid", "test"):
        rows = [{"question": f"{split} {n}", "choices": ["x", "y"], "answer": answers[n % 3]} for n in range(12)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    data = [f"data.{split}={tmp_path / split}.jsonl" for split in ("train", "valid", "test")]
    overrides = (*data, "task.name=multiple_choice", "model.size=tiny", "train.epochs=1", "train.workers=0")
    job = Job(stage="final", system="x", recipe="rnn_classifier", overrides=overrides, seed=1, cost=1)
    line = do(job, Place(folder=tmp_path, device="cpu", about={}))
    assert "failed" not in line, line
    assert list(line["test"]) == ["accuracy"] and len(is_right(line["right"], 12)) == 12
    assert line["test"]["accuracy"]["value"] == pytest.approx(100 * sum(is_right(line["right"], 12)) / 12)


def test_answers_are_scored_by_the_best_of_several(tmp_path):
    for split in ("train", "valid", "test"):
        rows = [
            {"question": f"who {split} {n}", "context": "Anna went to Seoul", "answers": ["Seoul", "Anna"][: 1 + n % 2]}
            for n in range(8)
        ]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    data = [f"data.{split}={tmp_path / split}.jsonl" for split in ("train", "valid", "test")]
    overrides = (*data, "task.name=question_answering", "model.size=tiny", "train.epochs=1", "train.workers=0")
    job = Job(stage="final", system="x", recipe="rnn_tagger", overrides=overrides, seed=1, cost=1)
    line = do(job, Place(folder=tmp_path, device="cpu", about={"commit": "0", "hardware": "h"}))
    assert "failed" not in line, line
    assert list(line["test"]) == list(line["test-new"]) == ["exact-match", "answer-f1"]
    assert line["test"]["answer-f1"]["count"] == 8 and understanding_results.chief(line)[0] == "answer-f1"


def test_a_wrong_job_says_why(tmp_path):
    place = Place(folder=tmp_path, device="cpu", about={})
    line = do(Job(stage="sweep", system="x", recipe="cnn", overrides=("model.dim=3",), seed=1, cost=1), place)
    assert "dim" in line["failed"]


def test_values_and_the_sweep_are_written(tmp_path, systems, capsys):
    jobs = todo(systems, [], ["sweep"])
    lines = [line_of(job, 80.0 + number) for number, job in enumerate(jobs)]
    finals = [job for job in todo(systems, lines, ["final"]) if job.system == "cnn-miniworld"]
    for number, job in enumerate(finals):
        dev = line_of(job, 80.0 + number)
        lines.append(dev | {"test": dev["dev"], "test-new": line_of(job, 79.0)["dev"], "right": "f"})
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"cut', "utf-8")
    kept = (tmp_path / "results", tmp_path / "sweep.jsonl", tmp_path / "right.jsonl")
    understanding_results.show([path])
    assert "81.00 ± 1.00" in capsys.readouterr().out
    understanding_results.collect([path], *kept)
    understanding_results.collect([path], *kept)
    assert [each["stage"] for each in understanding_results.read_lines(tmp_path / "sweep.jsonl")] == ["sweep"] * 3
    found = {each.stem: json.loads(each.read_text("utf-8")) for each in (tmp_path / "results").glob("*.json")}
    assert len(found) == 9
    one = found["cnn-miniworld-test-accuracy-new-seed2"]
    assert (one["value"], one["metric"], one["split"]) == (79.0, "accuracy on new texts, %", "test")
    assert "100 texts that are not in the training split" in one["protocol"]
    path.write_text(json.dumps(lines[0] | {"commit": "0123456789ab-dirty"}) + "\n", "utf-8")
    with pytest.raises(UserError, match="no commit"):
        understanding_results.collect([path], *kept)


def test_systems_of_a_corpus_are_ordered_with_the_interval_of_their_difference(systems, capsys):
    job = todo(systems, [], ["sweep"])[0]
    known = {"a": [True] * 90 + [False] * 10, "b": [True] * 60 + [False] * 40}
    lines = []
    for system, right in known.items():
        line = line_of(job, 100 * sum(right) / len(right)) | {"stage": "final", "system": system, "right": bits(right)}
        lines.append(line | {"test": line["dev"]})
    understanding_results.show_order(lines[::-1])
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert first.split()[:3] == ["a", "90.00", "0.00"]
    assert second.split()[:3] == ["b", "60.00", "30.00"]
    low, high = (float(text) for text in second.split()[3::2])
    assert 20 < low < 30 < high < 40  # a binomial share of 0.3 of 100 texts: ± 9


def test_the_order_is_kept_and_joined_by_systems_that_are_measured_later(systems, tmp_path):
    """Texts are compared one by one: errors in other places make a difference less sure than errors in the same."""
    job, path = todo(systems, [], ["sweep"])[0], tmp_path / "right.jsonl"

    def line(system, seed, right):
        found = line_of(job, 100 * sum(right) / len(right)) | {"system": system, "seed": seed, "right": bits(right)}
        return found | {"test": found["dev"]}

    best, same = [True] * 90 + [False] * 10, [True] * 85 + [False] * 15
    other = [False] * 15 + [True] * 85
    first = understanding_order.keep_right([line("best", 1, [False] * 100), line("same", 1, same)], path)
    assert [name for name, _ in understanding_order.order_results(first)] == ["behind-nsmc-best"]
    again = understanding_order.keep_right(
        [line("best", 1, best), line("other", 1, other), line("other", 2, best), {"corpus": "a regression"}], path
    )
    assert [(each["system"], each["seed"]) for each in again] == [
        ("best", 1), ("other", 1), ("other", 2), ("same", 1)
    ]  # fmt: skip
    found = dict(understanding_order.order_results(again))
    assert {name: result.value for name, result in found.items()} == {
        "behind-nsmc-other": 2.5, "behind-nsmc-same": 5.0
    }  # fmt: skip
    assert found["behind-nsmc-other"].protocol.startswith("87.50 against 90.00 of best, mean over 2 and 1 seeds, 100 t")
    behind, low, high = understanding_order.gap(np.array(best, float), np.array(other, float))
    assert (behind, low < 0 < high) == (5.0, True)  # 15 texts lost and 10 won: the interval holds 0
    assert understanding_order.gap(np.array(best, float), np.array(same, float))[1] > 0
    assert kind_of("behind-nsmc-other").table == "understanding"


def test_gains_of_role_labelers_are_paired_over_sentences(systems, tmp_path, capsys):
    """Of 50 sentences with four arguments one system finds two and another three: F1 50 and 75, in any resample."""
    job = todo(systems, [], ["sweep"])[0]
    lines = [
        line_of(job, 50.0) | {"stage": "final", "system": system, "seed": seed, "counts": [[right, 4, 4]] * 50}
        for system, right in (("plain-english-propbank", 2), ("elmo-english-propbank", 3))
        for seed in (1, 2)
    ]
    ((system, first, mine, *values),) = understanding_results.gains(lines)
    assert (system, first, len(mine)) == ("elmo-english-propbank", "plain-english-propbank", 2)
    assert values == pytest.approx([25, 25, 25])
    name, result = understanding_results.result_of_gain(system, first, mine, *values)
    assert result.value == 25 and "+25.00 to +25.00" in result.protocol and kind_of(name).table == "understanding"
    understanding_results.show_gains(lines)
    assert "+25.00" in capsys.readouterr().out


def test_roles_leave_their_counts_by_sentence(tmp_path):
    place = Place(folder=tmp_path, device="cpu", about={})
    overrides = ("model.size=tiny", "train.epochs=none", "train.steps=2", "train.validate_every=none")
    job = Job(stage="final", system="a", recipe="dependency-srl-miniworld", overrides=overrides, seed=1, cost=1)
    line = do(job, place)
    right, ours, gold = np.sum(line["counts"], axis=0)
    precision, recall = right / max(1, ours), right / gold
    f1 = 200 * precision * recall / max(1e-9, precision + recall)
    assert line["test"]["role-f1"]["value"] == pytest.approx(f1) and "derived-span-f1" not in line["test"]


def test_results_of_every_system_have_a_kind():
    for system in (system for path in LISTS for system in read_systems(path)):
        assert kind_of(f"{system.name}-test-accuracy-seed1").table == "understanding", system.name


def test_a_run_needs_an_output_file(capsys):
    with pytest.raises(SystemExit):
        parser().parse_args(["run", str(LISTS[0])])
    assert "--out" in capsys.readouterr().err


@pytest.mark.parametrize("count", [0, 1, 4, 7])
def test_bits_are_read_back(count):
    values = [place % 3 == 0 for place in range(count)]
    assert is_right(bits(values), count) == values
