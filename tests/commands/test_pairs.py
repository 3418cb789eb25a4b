"""`mallang classify`, `similarity` and `evaluate` on pairs of texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mallang as mallang_api
from commands.running import as_served, mallang
from mallang.recipe import read
from mallang.training.train import Options, train

ROWS = [
    ("a b", "a", "same", "5"),
    ("c d", "b", "other", "0"),
    ("b c", "c", "same", "4"),
    ("a d", "c", "other", "1"),
] * 6


def run(*arguments: Any, cwd: Path = Path()) -> str:
    """What a command prints."""
    done = mallang(*map(str, arguments), cwd=cwd)
    assert done.code == 0, done.err
    return str(done.out)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each task, trained for a moment."""
    folder = tmp_path_factory.mktemp("pairs")
    for name, columns, place in (("pairs", "first\tsecond\tlabel", 2), ("similarity", "first\tsecond\tscore", 3)):
        lines = ["\t".join((row[0], row[1], row[place])) for row in ROWS]
        (folder / f"{name}.tsv").write_text("\n".join([columns, *lines]) + "\n", "utf-8")
        kind = ["task.kind=bi"] if name == "similarity" else []
        built = read("bag-of-means", [
            f"data.train={folder / name}.tsv", f"data.valid={folder / name}.tsv", f"task.name={name}", *kind,
            "text.unit=space", "model.dim=8", "train.steps=5", "train.validate_every=5", "train.workers=0",
        ]).build()  # fmt: skip
        train(built, Options(folder=folder / name, quiet=True))
    return folder


def test_a_pair_is_two_arguments_or_a_line_with_a_tab(runs: Path, tmp_path: Path) -> None:
    found = json.loads(run("classify", runs / "pairs", "a b", "a", "--json"))
    assert found["input"] == ["a b", "a"] and set(found["probabilities"]) == {"same", "other"}
    assert [found] == as_served(runs / "pairs", "classify", [("a b", "a")])
    (tmp_path / "in.tsv").write_text("a b\ta\nc d\tb\n", "utf-8")
    lines = run("classify", runs / "pairs", "--file", tmp_path / "in.tsv").splitlines()
    assert len(lines) == 2 and lines[0] == found["output"]
    score = float(run("similarity", runs / "similarity", "a b", "a"))
    found = json.loads(run("similarity", runs / "similarity", "a b", "a", "--json"))
    assert found["input"] == ["a b", "a"] and found["score"] == pytest.approx(score, abs=1e-4)
    assert [found] == as_served(runs / "similarity", "similarity", [("a b", "a")])
    assert "note" in json.loads(run("similarity", runs / "similarity", "a b", " ", "--json"))
    assert "the similarity of an empty text means" in mallang("similarity", runs / "similarity", "", "a", cwd=runs).err
    assert "note" in json.loads(run("classify", runs / "pairs", "", "a", "--json"))
    lines = run("similarity", runs / "similarity", "--file", tmp_path / "in.tsv").splitlines()
    assert len(lines) == 2 and float(lines[0]) == score


def test_a_pair_has_one_vector(runs: Path, tmp_path: Path) -> None:
    found = json.loads(run("embed", runs / "pairs", "a b", "a", "--json"))
    assert found["input"] == ["a b", "a"] and len(found["vector"]) == 8
    (tmp_path / "in.tsv").write_text("a b\ta\nc d\tb\na\tb\n", "utf-8")
    made = ("--out", tmp_path / "v.npy", "--map", tmp_path / "m.json")
    run("embed", runs / "pairs", "--file", tmp_path / "in.tsv", *made)
    vectors = np.load(tmp_path / "v.npy")
    assert vectors.shape == (3, 8) and vectors[0].tolist() == pytest.approx(found["vector"], abs=1e-6)
    points = json.loads((tmp_path / "m.json").read_text("utf-8"))["points"]
    assert [point["text"] for point in points] == ["a b ↔ a", "c d ↔ b", "a ↔ b"]
    expected = mallang_api.load(runs / "pairs", device="cpu").embed([("a b", "a"), ("c d", "b"), ("a", "b")])
    assert vectors == pytest.approx(expected, abs=1e-6)
    words = json.loads(run("embed", runs / "pairs", "a", "--words", "--json"))
    assert words["input"] == "a" and len(words["vector"]) == 8


def test_the_control_of_a_similarity_stands_beside_it(runs: Path) -> None:
    def trained(name: str, *changes: str) -> None:
        built = read("bag-of-means", [
            f"data.train={runs}/similarity.tsv", f"data.valid={runs}/similarity.tsv", "task.name=similarity",
            "text.unit=space", "model.dim=8", "train.steps=5", "train.validate_every=5", "train.workers=0", *changes,
        ]).build()  # fmt: skip
        train(built, Options(folder=runs / name, quiet=True))

    trained("cross", "task.symmetric=true")
    told = mallang("evaluate", str(runs / "cross"), "--split", "valid", cwd=runs).err
    command = f"mallang train {runs}/cross task.read=second task.symmetric=false --name cross-control"
    assert f"the control (task.read=second task.symmetric=false) is not trained: {command}" in told
    trained("cross-control", "task.read=second")
    told = mallang("evaluate", str(runs / "cross"), "--split", "valid", cwd=runs).err
    assert f"{runs}/cross-control, which is not scored on valid yet" in told
    done = mallang("evaluate", str(runs / "cross-control"), "--split", "valid", "--json", cwd=runs)
    assert "control" not in done.err
    spearman = next(each["value"] for each in json.loads(done.out) if each["name"] == "Spearman")
    told = mallang("evaluate", str(runs / "cross"), "--split", "valid", cwd=runs).err
    assert f"{runs}/cross-control, has Spearman {spearman:.2f} on valid" in told
    alone = mallang_api.load(runs / "cross-control", device="cpu").similarity([("a b", "a"), ("c d", "a")])
    assert alone[0].score == alone[1].score  # the first text is not read
    assert "control" not in mallang("evaluate", str(runs / "similarity"), "--split", "valid", cwd=runs).err  # a cosine


def test_numbers_of_a_file_are_correlated(runs: Path) -> None:
    shown = run("similarity", runs / "similarity", "--data", runs / "similarity.tsv")
    assert shown.startswith("Pearson ") and "\nSpearman " in shown and "\nMSE " in shown
    scores = json.loads(run("similarity", runs / "similarity", "--data", runs / "similarity.tsv", "--json"))
    evaluated = json.loads(run("evaluate", runs / "similarity", "--split", "valid", "--json"))
    assert [each["value"] for each in scores] == [each["value"] for each in evaluated]


def test_the_vectors_of_another_run_have_cosines(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.tsv").write_text("text\tlabel\n" + "".join(f"{row[0]}\t{row[2]}\n" for row in ROWS), "utf-8")
    built = read("bag-of-means", [
        f"data.train={tmp_path}/texts.tsv", f"data.valid={tmp_path}/texts.tsv", "text.unit=space", "model.dim=8",
        "train.steps=2", "train.workers=0",
    ]).build()  # fmt: skip
    train(built, Options(folder=tmp_path / "run", quiet=True))
    assert float(run("similarity", tmp_path / "run", "a b", "b a")) == pytest.approx(1.0, abs=1e-4)
    shown = run("similarity", tmp_path / "run", "--data", runs / "similarity.tsv")
    assert shown.count("\n") == 2 and "MSE" not in shown


WRONG: list[tuple[list[Any], str]] = [
    (["classify", "pairs", "a"], "a pair is two texts, but 1 were given"),
    (["classify", "pairs", "--file", "plain.txt"], "a line must hold a first text, a tab and a second text"),
    (["classify", "pairs", "a", "b", "--uncertain", "3"], "--uncertain is for single texts"),
    (["similarity", "similarity", "a", "b", "--split", "valid"], "--split has no effect without --data or --corpus"),
    (["similarity", "similarity", "a", "b", "--data", "x.tsv"], "FIRST SECOND and --data were both given"),
    (["similarity", "similarity", "--data", "x.tsv", "--split", "test"], "--split has no effect on --data"),
    (["similarity", "pairs", "a", "b"], "was trained for pairs"),
    (["evaluate", "similarity", "--split", "valid", "--report", "r"], "--report is for runs that give labels or tags"),
    (["evaluate", "similarity", "--split", "valid", "--explain", "1"], "compares texts"),
    (["inspect", "pairs", "a"], "this run reads 2 texts at once"),
    (["inspect", "pairs", "a", "--attribution", "gradient"], "a pair is two texts, but 1 were given"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_mistakes_are_said(arguments: list[str], message: str, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("no tab\n", "utf-8")
    (tmp_path / "x.tsv").write_text("first\tsecond\tscore\na\tb\t1\n", "utf-8")
    verb, name, *others = arguments
    done = mallang(verb, str(runs / name), *others, cwd=tmp_path)
    assert done.code == 2 and message in done.err and "Traceback" not in done.err
