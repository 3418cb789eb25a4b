"""`mallang neighbors`, and word vectors from training to a map: the commands agree with the Python interface."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from commands.running import as_served, mallang
from mallang.loading import load

LINES = ["왕 은 궁궐 에 산다", "여왕 은 궁궐 에 산다", "개 는 마당 에서 짖는다", "고양이 는 마당 에서 운다"] * 40
TRAIN = (
    "train", "word2vec", "model.dim=12", "model.epochs=20", "model.block=16", "model.learning_rate=0.1",
    "model.subsample=0.0", "text.unit=space", "text.min_count=1", "data.train=text.txt", "data.valid=text.txt",
    "data.test=text.txt",
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of trained vectors."""
    home = tmp_path_factory.mktemp("words")
    (home / "text.txt").write_text("".join(f"{line}\n" for line in LINES), "utf-8")
    ended = mallang(*TRAIN, cwd=home)
    assert ended.code == 0, ended.err
    return home / "runs" / "word2vec"


def test_neighbors_are_printed_as_the_model_finds_them(run: Path, tmp_path: Path) -> None:
    ended = mallang("neighbors", run, "왕", "개", "--count", "3", cwd=tmp_path)
    assert ended.code == 0, ended.err
    model = load(run, "cpu")
    wanted = [(word, name, cosine) for word in ("왕", "개") for name, cosine in model.neighbors(word, 3).neighbors]
    found = [line.split("\t") for line in ended.out.splitlines()]
    assert found == [[word, name, f"{cosine:.4f}"] for word, name, cosine in wanted]
    assert found[0][1] == "여왕"


def test_lines_of_a_file_as_json(run: Path, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("왕\n\n고양이\n", "utf-8")
    ended = mallang("neighbors", run, "--file", "words.txt", "--json", "-k", "2", cwd=tmp_path)
    rows = [json.loads(line) for line in ended.out.splitlines()]
    assert [row["input"] for row in rows] == ["왕", "고양이"]
    assert [len(row["neighbors"]) for row in rows] == [2, 2]
    assert rows == as_served(run, "neighbors", ["왕", "고양이"], count=2)


def test_an_analogy(run: Path, tmp_path: Path) -> None:
    ended = mallang("neighbors", run, "--analogy", "왕", "개", "고양이", "-k", "1", cwd=tmp_path)
    (found,) = load(run, "cpu").analogy("왕", "개", "고양이", 1).neighbors
    assert ended.out == f"왕 − 개 + 고양이\t{found[0]}\t{found[1]:.4f}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("여와",), "no vector of '여와'"),
        (("왕", "--analogy", "왕", "개", "고양이"), "--analogy and other words were both given"),
        (("왕", "--layer", "0"), "--layer has no effect without --context"),
        (("왕", "개", "--context", "왕 은 궁궐 에 산다"), "--context is about one word"),
    ],
)
def test_mistakes_are_told(run: Path, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    ended = mallang("neighbors", run, *arguments, cwd=tmp_path)
    assert ended.code == 2 and message in ended.err and "Traceback" not in ended.err


def test_exported_vectors_become_the_same_run(run: Path, tmp_path: Path) -> None:
    for name in ("vectors.bin", "vectors.txt"):
        ended = mallang("export", run, "--to", "word2vec", "--output", name, cwd=tmp_path)
        assert ended.code == 0, ended.err
        ended = mallang("import", name, "--name", name.replace(".", "-"), cwd=tmp_path)
        assert ended.code == 0, ended.err
        model = load(tmp_path / "runs" / name.replace(".", "-"), "cpu")
        np.testing.assert_array_equal(model.embed(["왕", "개"]), load(run, "cpu").embed(["왕", "개"]))


def test_words_are_drawn_on_a_map(run: Path, tmp_path: Path) -> None:
    ended = mallang("embed", run, "왕", "여왕", "개", "고양이", "--map", "map.json", "--map", "map.svg", cwd=tmp_path)
    assert ended.code == 0, ended.err
    made = json.loads((tmp_path / "map.json").read_text("utf-8"))
    assert [point["text"] for point in made["points"]] == ["왕", "여왕", "개", "고양이"]
    assert (tmp_path / "map.svg").stat().st_size > 1000
