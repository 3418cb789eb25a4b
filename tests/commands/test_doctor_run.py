"""`mallang doctor RUN` on a run that works, on one that was hardly trained, and on runs that lost something."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from commands.running import TINY, Ended, mallang, write_corpus
from mallang.runs.files import sha256


def examined(run: Path, *more: str | Path) -> dict[str, Any]:
    ended = mallang("doctor", run, "--json", *more, cwd=run.parent.parent)
    assert (ended.code, ended.err) == (0, "")
    report: dict[str, Any] = json.loads(ended.out)
    return report


def names(report: dict[str, Any]) -> set[str]:
    return {finding["name"] for finding in report["findings"]}


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one step."""
    home = tmp_path_factory.mktemp("untrained")
    write_corpus(home)
    ended = mallang("train", "transformer", *TINY, "train.steps=1", cwd=home)
    assert ended.code == 0, ended.err
    return home / "runs" / "transformer"


def test_a_good_run_is_well(trained: Path) -> None:
    report = examined(trained)
    assert report["status"] == "finished" and report["serious"] == 0
    assert not names(report) & {"hardly learned", "one output", "copied source", "unknown tokens", "cut off"}
    assert report["facts"]["unknown source"] == "0.00% of the tokens"
    assert report["facts"]["texts"] == "20 pairs of valid"
    assert report["notes"] == []


def test_a_run_of_one_step_is_not(untrained: Path) -> None:
    report = examined(untrained)
    assert report["serious"] >= 2
    assert "hardly learned" in names(report)
    assert names(report) & {"one output", "loops", "empty outputs", "cut off"}
    shown = mallang("doctor", untrained, cwd=untrained.parent.parent)
    assert shown.code == 0, "findings are no failure of the command"
    assert "problem: the validation loss is" in shown.out
    assert shown.out.count("remedy:") == len(report["findings"])
    quiet = mallang("doctor", untrained, "-q", cwd=untrained.parent.parent)
    assert quiet.out.startswith("problem: ") and "unknown source" not in quiet.out


def test_a_language_model_that_learned_nothing_is_told_from_one_that_did(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("a cat sat on a mat\nthe dog ate the cat\n" * 20, "utf-8")
    common = ("rnn-lm-miniworld", *(f"data.{split}=book.txt" for split in ("train", "valid", "test")), "text.unit=word",
              "model.size=tiny", "optimizer.learning_rate=0.02")  # fmt: skip
    for name, steps in (("short", 2), ("long", 60)):
        ended = mallang("train", *common, f"train.steps={steps}", "train.epochs=none", "--name", name, cwd=tmp_path)
        assert ended.code == 0, ended.err
    backward = ("task.name=backward_language_modeling", "train.steps=2", "train.epochs=none", "--name", "backward")
    assert mallang("train", *common, *backward, cwd=tmp_path).code == 0
    for name in ("short", "backward"):
        assert "hardly learned" in names(examined(tmp_path / "runs" / name))
    assert "hardly learned" not in names(examined(tmp_path / "runs" / "long"))


@pytest.mark.parametrize("task", ["classifier", "tagger"])
def test_a_run_that_gives_one_label_is_told_from_one_that_learned(tmp_path: Path, task: str) -> None:
    model, suffix = {"classifier": ("bag-of-means", "tsv"), "tagger": ("rnn-tagger", "conll")}[task]

    def write(name: str, rare: int) -> str:
        """Animals, of which one in `rare` is a dog."""
        labels = [("dog", "B-DOG") if n % rare == 0 else ("cat", "O") for n in range(40)]
        form = "a {0} number {2}\t{1}\n" if task == "classifier" else "a O\n{0} {1}\nnumber{2} O\n\n"
        rows = "".join(form.format(*label, n) for n, label in enumerate(labels))
        (tmp_path / f"{name}.{suffix}").write_text(rows, "utf-8")
        return f"{name}.{suffix}"

    even, rare = write("even", 2), write("rare", 39)
    for data, steps in ((even, 60), (rare, 10)):
        files = [f"data.{split}={data}" for split in ("train", "valid", "test")]
        options = ("text.unit=space", "train.batch_sentences=8", "train.epochs=none", f"train.steps={steps}")
        rate = ("optimizer.learning_rate=0.05", "--name", Path(data).stem)
        ended = mallang("train", model, *files, *options, *rate, cwd=tmp_path)
        assert ended.code == 0, ended.err
    good, poor = (examined(tmp_path / "runs" / name, "--data", tmp_path / even, "-v") for name in ("even", "rare"))
    assert "one output" in names(poor) and poor["serious"] >= 1
    assert good["serious"] == 0 and not names(good) & {"one output", "hardly learned", "missing labels"}
    assert good["notes"] == [] and good["facts"]["outputs"].startswith("2 different labels")
    wanted = {"B-DOG", "O"} if task == "classifier" else {"O B-DOG O", "O O O"}
    assert {row["output"] for row in good["outputs"]} == wanted == {row["reference"] for row in good["outputs"]}
    strange = tmp_path / f"strange.{suffix}"
    strange.write_text((tmp_path / even).read_text("utf-8").replace("number", "動物動物動物"), "utf-8")
    assert "other script" in names(examined(tmp_path / "runs/even", "--data", strange))
    strange.write_text((tmp_path / even).read_text("utf-8").replace("B-DOG", "B-CAT"), "utf-8")
    assert "B-CAT" in examined(tmp_path / "runs/even", "--data", strange)["notes"][-1]


def test_own_pairs_and_how_many(trained: Path, tmp_path: Path) -> None:
    turned = [line.split("\t")[::-1] for line in (trained.parent.parent / "valid.tsv").read_text("utf-8").splitlines()]
    data = tmp_path / "turned.tsv"
    data.write_text("".join(f"{source}\t{target}\n" for source, target in turned), "utf-8")
    report = examined(trained, "--data", data, "--limit", "12")
    assert report["facts"]["texts"] == "12 pairs of data-turned"
    assert "other script" in names(report), "English was given to a model that reads Korean"
    strange = tmp_path / "strange.tsv"
    strange.write_text("漢字は難しい。\tQuixotic jazz fizzes.\n" * 12, "utf-8")
    assert {"unknown tokens", "other script"} <= names(examined(trained, "--data", strange))


def test_more_is_said_of_a_run(trained: Path) -> None:
    home = trained.parent.parent
    source, target = (home / "valid.tsv").read_text("utf-8").splitlines()[0].split("\t")
    report = examined(trained, "-v")
    assert (report["outputs"][0]["source"], report["outputs"][0]["reference"]) == (source, target)
    assert len(report["outputs"]) == 20 and all(row["output"] for row in report["outputs"])
    assert "outputs" not in examined(trained)
    shown, more = (mallang("doctor", trained, *flags, cwd=home).out for flags in ((), ("-v",)))
    assert f"\n{source}\n  output" in more and f"\n{source}\n" not in shown


def test_an_unfinished_run_is_examined_at_its_checkpoint(run: Path) -> None:
    info = json.loads((run / "run.json").read_text("utf-8"))
    (run / "run.json").write_text(json.dumps({**info, "status": "training", "weights": None}), "utf-8")
    (run / "model.safetensors").unlink()
    report = examined(run)
    assert report["status"] == "training" and report["serious"] == 0
    assert "not finished" in report["notes"][0] and "texts" in report["facts"]
    for path in (run / "checkpoints").glob("*/model.safetensors"):
        path.write_bytes(b"broken")
    report = examined(run)
    assert "damaged checkpoints" in names(report) and report["serious"] == 1
    assert "no checkpoint yet" in report["notes"][-1]


def test_files_that_were_exchanged(run: Path) -> None:
    text = (run / "text.json").read_text("utf-8")
    (run / "text.json").write_text(text.replace('"lowercase": false', '"lowercase": true'), "utf-8")
    report = examined(run)
    assert names(report) >= {"other tokenizer"} and report["serious"] == 1
    assert "cannot be loaded" in report["notes"][-1]
    (run / "text.json").write_text(text, "utf-8")
    (run / "model.safetensors").write_bytes((run / "model.safetensors").read_bytes()[:-1] + b"x")
    assert names(examined(run)) >= {"damaged weights"}


def test_weights_that_are_nan_are_told(run: Path) -> None:
    path = run / "model.safetensors"
    save_file({name: torch.full_like(tensor, torch.nan) for name, tensor in load_file(path).items()}, path)
    info = json.loads((run / "run.json").read_text("utf-8"))
    (run / "run.json").write_text(json.dumps({**info, "weights": sha256(path)}), "utf-8")
    report = examined(run)
    assert "NaN weights" in names(report)
    assert report["notes"] == ["outputs were not looked at: weights are NaN or infinite"]


def forget_training_folder(run: Path) -> None:
    """Make it a run of before that folder was written down."""
    info = json.loads((run / "run.json").read_text("utf-8"))
    assert info.pop("trained_in")["from_run"] == "../.."
    (run / "run.json").write_text(json.dumps(info), "utf-8")


@pytest.mark.parametrize("moved", ["nothing", "the run", "all", "all of an older run"])
def test_the_text_is_found_from_any_folder(trained: Path, run: Path, tmp_path: Path, moved: str) -> None:
    """The run was trained on files with relative paths, in another folder than the one that doctor is started in."""
    here = tmp_path / "here"
    here.mkdir()
    given = {"nothing": trained, "the run": tmp_path / "alone"}.get(moved, run)
    if moved == "the run":
        shutil.copytree(trained, given)
    if moved == "all of an older run":
        forget_training_folder(run)
    ended = mallang("doctor", given, "--json", cwd=here)
    report = json.loads(ended.out)
    assert (ended.code, report["notes"]) == (0, [])
    assert report["facts"]["texts"] == "20 pairs of valid" and "in training" in report["facts"]["length"]


def test_the_text_is_found_in_the_folder_of_ones_data(run: Path, tmp_path: Path) -> None:
    forget_training_folder(run)
    alone, data = tmp_path / "deep" / "below" / "alone", tmp_path / "data"
    shutil.copytree(run, alone)
    data.mkdir()
    for name in ("train.tsv", "valid.tsv"):
        shutil.copy(run.parent.parent / name, data)
    here = tmp_path / "here"
    here.mkdir()
    lost = json.loads(mallang("doctor", alone, "--json", cwd=here).out)
    [note] = lost["notes"]
    assert "there is no file train.tsv" in note and f"looked in {here} or {alone.parent.parent}" in note
    assert lost["facts"]["steps"] == "160" and "texts" not in lost["facts"]
    found = json.loads(mallang("doctor", alone, "--json", cwd=here, env={"MALLANG_DATA": str(data)}).out)
    assert found["notes"] == [] and found["facts"]["texts"] == "20 pairs of valid"


def test_outputs_of_a_language_model_are_examined(writer: Path) -> None:
    report = examined(writer, "-v", "--limit", "12")
    assert report["facts"]["texts"] == "12 texts of valid" and report["notes"] == []
    assert report["facts"]["unknown text"] == "0.00% of the tokens"
    assert not names(report) & {"one output", "copied source", "other script", "empty outputs"}
    for row in report["outputs"]:
        assert row["source"] and row["output"] and row["reference"]
    lines = (writer.parent.parent / "valid.txt").read_text("utf-8").splitlines()
    assert {f"{row['source']} {row['reference']}" for row in report["outputs"]} <= set(lines)


PAIRS = ("data.train=train.tsv", "data.valid=valid.tsv", "text.vocabulary=120", "model.size=tiny")
LINES = ("data.train=train.txt", "data.valid=valid.txt", "text.vocabulary=120", "model.size=tiny")


@pytest.mark.parametrize(
    ("recipe", "options", "texts", "wanted"),
    [
        (
            "transformer",
            ("task.name=dialogue", "decoding.max_length=16", *PAIRS),
            "20 pairs of valid",
            {"one output", "hardly learned"},
        ),
        ("sutskever-autoencoder-miniworld", LINES, "20 texts of valid", {"loops", "one output", "length drift"}),
        ("autoencoder-miniworld", LINES, "20 texts of valid", {"one output", "length drift", "empty outputs"}),
        ("gpt-miniworld", LINES, "20 texts of valid", {"hardly learned"}),
    ],
    ids=["dialogue", "autoencoding", "bags", "language-modeling"],
)
def test_outputs_of_every_task_are_examined(
    tmp_path: Path, recipe: str, options: tuple[str, ...], texts: str, wanted: set[str]
) -> None:
    """Runs of one step, whatever their task: none of them can have learned anything."""
    write_corpus(tmp_path)
    for name in ("train", "valid"):
        lines = (tmp_path / f"{name}.tsv").read_text("utf-8").splitlines()
        (tmp_path / f"{name}.txt").write_text("".join(f"{line.partition(chr(9))[0]}\n" for line in lines), "utf-8")
    train = ("train.epochs=none", "train.steps=1", "train.validate_every=none", "schedule.warmup=1")
    ended = mallang("train", recipe, *options, *train, "--name", "short", cwd=tmp_path)
    assert ended.code == 0, ended.err
    report = examined(tmp_path / "runs" / "short")
    assert report["facts"]["texts"] == texts and report["notes"] == []
    assert "outputs" in report["facts"] and names(report) & wanted, report


def test_a_run_that_writes_nothing_is_examined_otherwise(writer: Path, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "backward"
    shutil.copytree(writer, run)
    info = json.loads((run / "run.json").read_text("utf-8"))
    (run / "run.json").write_text(json.dumps({**info, "task": "backward_language_modeling"}), "utf-8")
    report = examined(run)
    assert report["notes"] == ["outputs were not looked at: a run for backward language modeling writes nothing"]
    assert set(report["facts"]) == {"steps"} and report["serious"] == 0


def test_a_run_whose_text_is_gone(run: Path) -> None:
    home = run.parent.parent
    forget_training_folder(run)
    (home / "train.tsv").unlink()
    report = examined(run, "--data", home / "valid.tsv")
    assert "training text cannot be read" in report["notes"][0]
    (home / "valid.tsv").unlink()
    report = examined(run)
    assert "--data FILE" in report["notes"][0] and report["facts"]["steps"] == "160"


def refused(ended: Ended, word: str) -> None:
    assert ended.code == 2 and word in ended.err and "Traceback" not in ended.err


def test_what_is_no_run_is_refused(trained: Path, tmp_path: Path) -> None:
    refused(mallang("doctor", "nowhere", cwd=tmp_path), "there is no run folder nowhere")
    refused(mallang("doctor", "--data", "x.tsv", cwd=tmp_path), "--data has no effect without a run")
    refused(mallang("doctor", trained, "--data", "x.tsv", cwd=tmp_path), "x.tsv")
    both = mallang("doctor", trained, "--split", "test", "--data", "valid.tsv", cwd=trained.parent.parent)
    refused(both, "--split and --data were both given")
    refused(mallang("doctor", trained, "--split", "tset", cwd=trained.parent.parent), "tset")
