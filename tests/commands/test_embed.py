"""`mallang embed` and `mallang reconstruct`: vectors, maps and texts again, of an autoencoder and of a translator."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from commands.running import Ended, as_served, mallang

TEXTS = ["민수는 물을 산다.", "지호는 책을 본다.", "민수는 책을 산다.", "지호는 물을 본다."]
TRAIN = (
    "train", "autoencoder", "model.hidden_dims=[64]", "model.dim=12", "text.unit=word", "data.train=texts.txt",
    "data.valid=texts.txt", "train.steps=300", "train.validate_every=300", "train.workers=0", "train.metric=exact",
    "optimizer.learning_rate=0.01", "schedule.name=constant", "train.batch_tokens=64", "schedule.warmup=0",
)  # fmt: skip


@pytest.fixture(scope="session")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a trained vector autoencoder."""
    home = tmp_path_factory.mktemp("vectors")
    (home / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    ended = mallang(*TRAIN, cwd=home)
    assert ended.code == 0, ended.err
    assert "exact 100.0" in ended.err
    return home / "runs" / "autoencoder"


def embed(run: Path, *arguments: str, cwd: Path, text: str = "") -> Ended:
    ended = mallang("embed", run, *arguments, cwd=cwd, text=text)
    assert ended.code == 0, ended.err
    return ended


def test_vectors_are_the_same_in_every_form(vectors: Path, tmp_path: Path) -> None:
    text = "".join(f"{text}\n\n" for text in TEXTS)  # blank lines are left out
    lines = [json.loads(line) for line in embed(vectors, "--json", cwd=tmp_path, text=text).out.splitlines()]
    assert [line["input"] for line in lines] == TEXTS
    assert lines == as_served(vectors, "embed", TEXTS)
    expected = np.array([line["vector"] for line in lines], dtype=np.float32)
    assert expected.shape == (4, 12)
    plain = embed(vectors, *TEXTS, cwd=tmp_path).out
    np.testing.assert_allclose(np.loadtxt(plain.splitlines()), expected, rtol=1e-4, atol=1e-5)
    told = embed(vectors, *TEXTS, "--out", "v.npy", cwd=tmp_path)
    assert told.out == "" and "4 vectors of 12 numbers" in told.err
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), expected)
    assert embed(vectors, *TEXTS, "--out", "v.safetensors", "--quiet", cwd=tmp_path).err == ""
    np.testing.assert_array_equal(load_file(tmp_path / "v.safetensors")["vectors"], expected)


def test_a_map_is_drawn_and_told(vectors: Path, tmp_path: Path) -> None:
    embed(vectors, *TEXTS, "--map", "map.svg", "--map", "map.json", cwd=tmp_path)
    made = json.loads((tmp_path / "map.json").read_text("utf-8"))
    assert [point["text"] for point in made["points"]] == TEXTS
    assert (tmp_path / "map.svg").read_text("utf-8").count("<path") > 20


def test_words_of_any_model_have_vectors(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("물\n책\n민수\n지호\n", encoding="utf-8")
    pytest.importorskip("sklearn")
    options = ("--words", "--file", "words.txt", "--map", "map.png", "--method", "tsne", "--seed", "3", "--json")
    lines = embed(trained, *options, cwd=tmp_path).out.splitlines()
    assert [json.loads(line)["input"] for line in lines] == ["물", "책", "민수", "지호"]
    assert (tmp_path / "map.png").stat().st_size > 1000


def test_an_autoencoder_says_what_it_kept(vectors: Path, tmp_path: Path) -> None:
    ended = mallang("reconstruct", vectors, TEXTS[0], "--json", cwd=tmp_path)
    assert ended.code == 0, ended.err
    line = json.loads(ended.out)
    assert [{**line, "token_scores": []}] == as_served(vectors, "reconstruct", TEXTS[:1])
    assert sorted(line["output"].split()) == sorted(["민수는", "물을", "산다", "."]) and line["input"] == TEXTS[0]
    assert mallang("reconstruct", vectors, TEXTS[0], cwd=tmp_path).out == line["output"] + "\n"
    empty = mallang("reconstruct", vectors, cwd=tmp_path)
    assert (empty.code, empty.out, empty.err) == (0, "", "note: there was nothing to reconstruct\n")


def test_an_autoencoder_is_scored(vectors: Path, tmp_path: Path) -> None:
    ended = mallang("evaluate", vectors, "--split", "valid", "--json", cwd=vectors.parent.parent)
    assert ended.code == 0, ended.err
    assert [score["value"] for score in json.loads(ended.out)] == [100.0] * 4


@pytest.mark.parametrize("option", [("--explain", "1"), ("--explain", "all"), ("--against", "texts.txt")])
def test_bags_of_words_are_not_judged_as_texts(vectors: Path, option: tuple[str, str]) -> None:
    ended = mallang("evaluate", vectors, "--split", "valid", *option, cwd=vectors.parent.parent)
    assert ended.code == 2 and "Traceback" not in ended.err and ended.out == ""
    assert f"{option[0]} compares texts, but" in ended.err and "words without their order" in ended.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("가", "--out", "v.txt"), ".npy"),
        (("가", "--out", "nowhere/v.npy"), "there is no folder nowhere"),
        (("가", "나", "다", "--map", "nowhere/m.png"), "there is no folder nowhere"),
        (("가", "나", "다", "--map", "m.pdf"), ".json"),
        (("가", "나", "--map", "m.png"), "at least 3"),
        (("가", "나", "다", "--map", "m.png", "--method", "umap"), "umap"),
        (("가", "--method", "pca"), "no effect"),
        (("가", "나", "다", "--map", "m.png", "--seed", "1"), "no effect"),
        (("가", "--words"), "no word vectors"),
        (("가", "--words", "--long-texts", "cut"), "no effect with --words"),
        ((" ",), "no text"),
    ],
)
def test_a_mistake_is_one_message(vectors: Path, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    ended = mallang("embed", vectors, *arguments, cwd=tmp_path)
    assert ended.code == 2 and said in ended.err and "Traceback" not in ended.err


def test_a_run_that_cannot_do_it_is_named(trained: Path, vectors: Path, tmp_path: Path) -> None:
    ended = mallang("reconstruct", trained, "가", cwd=tmp_path)
    assert ended.code == 2 and "`mallang reconstruct` needs" in ended.err
    ended = mallang("embed", trained, "가", cwd=tmp_path)
    assert ended.code == 2 and "no single vector" in ended.err
    ended = mallang("reconstruct", vectors, "가", "--search", "beam=3", cwd=tmp_path)
    assert ended.code == 2 and "no effect" in ended.err


def test_language_models_have_vectors_of_words(writer: Path, tmp_path: Path) -> None:
    lines = embed(writer, "--words", "물을", "책을", cwd=tmp_path).out.splitlines()
    assert len(lines) == 2 and lines[0] != lines[1] and len(lines[0].split()) == len(lines[1].split()) > 1
    [text] = embed(writer, "물을", cwd=tmp_path).out.splitlines()  # the vector of its last token
    assert len(text.split()) == len(lines[0].split())


def test_tokens_in_both_directions_after_every_layer(tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    quick = (
        "train", "rnn_lm", "model.size=tiny", "text.unit=word", "data.train=texts.txt", "data.valid=texts.txt",
        "train.steps=2", "train.workers=0",
    )  # fmt: skip
    for name, task in (("forward", "language_modeling"), ("backward", "backward_language_modeling")):
        ended = mallang(*quick, f"task.name={task}", "--name", name, cwd=tmp_path)
        assert ended.code == 0, ended.err
    joined = ("--tokens", "--join", "runs/backward")
    ended = mallang("embed", "runs/forward", *joined, TEXTS[0], cwd=tmp_path)
    found = json.loads(ended.out)
    assert found["input"] == TEXTS[0] and [len(layer) for layer in found["layers"]] == [len(found["tokens"])] * 3
    assert [len(layer[0]) for layer in found["layers"]] == [2 * 24, 2 * 32, 2 * 32]
    ended = mallang("embed", "runs/forward", *joined, "--file", "texts.txt", "--out", "f.safetensors", cwd=tmp_path)
    tensors = load_file(tmp_path / "f.safetensors")
    assert set(tensors) == {f"{text}.{layer}" for text in range(4) for layer in range(3)}, ended.err
    np.testing.assert_allclose(tensors["0.2"], found["layers"][2], rtol=1e-5)
    for given, message in (
        (("--join", "runs/backward", "a"), "--join runs/backward has no effect without --tokens"),
        (("--tokens", "--words", "a"), "--words has no effect with --tokens"),
        (("--tokens", "--out", "f.npy", "a"), "cannot be written as f.npy"),
        (("--tokens", "--out", "nowhere/f.safetensors", "a"), "there is no folder nowhere"),
    ):
        ended = mallang("embed", "runs/forward", *given, cwd=tmp_path)
        assert ended.code == 2 and message in ended.err and "Traceback" not in ended.err, ended.err
    ended = mallang("generate", "runs/backward", cwd=tmp_path)
    assert ended.code == 2 and "backward language modeling" in ended.err, ended.err
