"""What goes wrong gets one clear message: what, where, what to do; exit code 2, no traceback, nothing lost."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from commands.running import TINY, Ended, environment, mallang, start, write_corpus
from mallang import load
from mallang.data import registry
from mallang.errors import UserError

QUICK = ("train", "transformer", *TINY, "train.steps=2")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a small corpus."""
    write_corpus(tmp_path, rows=40)
    return tmp_path


def refused(ended: Ended, *words: str) -> None:
    """The command ended with one message that has all these words."""
    assert "Traceback" not in ended.err, ended.err
    assert ended.code == 2, ended
    message = ended.err.partition("mallang: ")[2] or ended.err
    for word in words:
        assert word in message, f"{word!r} is not in:\n{message}"


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, to see that nothing was lost."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


# The recipe


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["transformer-miniwrld"], ["no recipe 'transformer-miniwrld'", "did you mean transformer-miniworld"]),
        (["mine.toml"], ["mine.toml does not exist", "mallang recipes"]),
        (["transformer", "train.stepps=3"], ["train.stepps", "command line", "did you mean steps"]),
        (["transformer", "trian.steps=3"], ["no section [trian]", "did you mean train"]),
        (["transformer", "steps=3"], ["steps", "did you mean train.steps"]),
        (["transformer", "model.name=transfomer"], ["no model 'transfomer'", "did you mean transformer"]),
        (["transformer", "model.size=tinny"], ["no size 'tinny'", "did you mean tiny"]),
        (["transformer", "train.steps"], ["'train.steps' changes nothing", "section.key=value"]),
    ],
)
def test_names_that_nobody_knows(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    refused(mallang("train", *arguments, cwd=tmp_path), *words)
    assert not (tmp_path / "runs").exists()


def test_what_a_machine_cannot_do_is_told_before_any_work(tmp_path: Path) -> None:
    ended = mallang("train", "transformer-miniworld", "train.precision=fp8", "--device", "cpu", cwd=tmp_path)
    refused(ended, "fp8", "needs a GPU", "train.precision=auto")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("verb", ["translate", "generate", "score", "reply", "reconstruct", "embed", "inspect"])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("decoding.beam=8", ["stands where a text should", "commands that search take --search beam=8"]),
        ("train.steps=3", ["stands where a text should", "stays as it is"]),
    ],
)
def test_an_option_among_the_texts(tmp_path: Path, verb: str, given: str, words: list[str]) -> None:
    refused(mallang(verb, str(tmp_path), "a text", given, cwd=tmp_path), given, *words)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.steps=many", ['train.steps = "many"', "valid integer"]),
        ("model.dropout=1.5", ["model", "dropout", "1.5"]),
        ("model.heads=5", ["dim 32", "5 heads"]),
        ("train.epochs=3", ["steps = 2 and epochs = 3"]),
        ("train.metric=blue", ["train.metric = 'blue'", "did you mean bleu"]),
        ("text.unit=sillable", ["text.unit", "sillable", "syllable"]),
    ],
)
def test_values_of_the_wrong_kind(home: Path, override: str, words: list[str]) -> None:
    refused(mallang(*QUICK, override, cwd=home), *words)


def test_a_recipe_that_is_wrong_names_file_and_line(home: Path) -> None:
    (home / "mine.toml").write_text('[model]\nname = "transformer"\nlayerz = 3\n')
    refused(mallang("train", "mine.toml", cwd=home), "model.layerz", "mine.toml, line 3", "did you mean layers")
    (home / "mine.toml").write_text("[model\n")
    refused(mallang("train", "mine.toml", cwd=home), "mine.toml is not TOML", "line 1")


@pytest.mark.parametrize("seeds", ["one,two", "", "1,,2", "1,1", "1.5"])
def test_seeds_that_are_none(home: Path, seeds: str) -> None:
    refused(mallang(*QUICK, "--seeds", seeds, cwd=home), f"--seeds {seeds!r}", "--seeds 1,2,3")
    assert not (home / "runs").exists()


@pytest.mark.parametrize(("device", "words"), [("nonsense", ["no device 'nonsense'"]), ("meta", ["not supported"])])
def test_a_device_that_is_none(home: Path, device: str, words: list[str]) -> None:
    refused(mallang(*QUICK, "--device", device, cwd=home), *words, "--device")


# The data


def test_parallel_files_of_different_length(home: Path) -> None:
    (home / "a.ko").write_text("하나\n둘\n셋\n")
    (home / "a.en").write_text("one\ntwo\n")
    refused(mallang(*QUICK, "data.train=a", cwd=home), "a.ko", "3 lines", "a.en", "2")


def test_bytes_that_are_not_utf8(home: Path) -> None:
    good = (home / "train.tsv").read_bytes()
    (home / "bad.tsv").write_bytes(good + "고양이\tcat\n".encode("cp949") + good)
    line = good.count(b"\n") + 1
    refused(mallang(*QUICK, "data.train=bad.tsv", cwd=home), "not UTF-8", f"bad.tsv, line {line}", "iconv")


def test_an_empty_file(home: Path) -> None:
    (home / "empty.tsv").touch()
    refused(mallang(*QUICK, "data.train=empty.tsv", cwd=home), "empty.tsv is empty", "at least one line")
    refused(mallang(*QUICK, "data.valid=empty.tsv", cwd=home), "empty.tsv is empty")


def test_a_file_that_is_not_there(home: Path) -> None:
    refused(mallang(*QUICK, "data.train=trian.tsv", cwd=home), "no file trian.tsv", "train.tsv")
    given = ("train", "transformer-miniworld", "data.train=train.tsv")
    refused(mallang(*given, cwd=home), "no split 'valid'", "data.valid=FILE")


def test_lines_that_are_all_filtered(home: Path) -> None:
    ended = mallang(*QUICK, "data.max_length=2", cwd=home)
    refused(ended, "no row is left", "40 read, 0 kept", "40 longer than 2 tokens", "data.max_length")


def test_a_table_with_too_few_columns(home: Path) -> None:
    (home / "one.tsv").write_text("하나\n둘\n")
    refused(mallang(*QUICK, "data.train=one.tsv", cwd=home), "one.tsv has 1 column", "source, target", "tabs")


def test_a_packed_file_that_is_cut_off(home: Path) -> None:
    packed = gzip.compress((home / "train.tsv").read_bytes())
    (home / "cut.tsv.gz").write_bytes(packed[: len(packed) // 2])
    refused(mallang(*QUICK, "data.train=cut.tsv.gz", cwd=home), "cut.tsv.gz cannot be unpacked", "copy it again")


def test_a_mended_mistake_goes_on(home: Path) -> None:
    """A run that never began to train does not stand in the way of the right command."""
    (home / "one.tsv").write_text("하나\n둘\n")
    refused(mallang(*QUICK, "data.train=one.tsv", cwd=home), "one.tsv")
    refused(mallang(*QUICK, "data.max_length=2", cwd=home), "no row is left")
    assert mallang(*QUICK, cwd=home).code == 0


@pytest.mark.parametrize(
    ("missing", "override", "install"),
    [
        ("tensorboard", "train.tensorboard=true", "pip install -e '.[track]'"),
        ("pyarrow", "data.train=rows.parquet", "pip install -e '.[data]'"),
    ],
)
def test_an_extra_that_is_not_installed(home: Path, missing: str, override: str, install: str) -> None:
    (home / "rows.parquet").write_bytes(b"PAR1")
    ended = mallang(*QUICK, override, cwd=home, missing=[missing])
    refused(ended, f"optional package {missing}", "not installed", install)


def test_a_corpus_that_cannot_be_had(home: Path) -> None:
    nowhere = {"https_proxy": "http://127.0.0.1:9", "no_proxy": None}
    arguments = ("train", "transformer", "data.corpus=multi30k", "data.source=de")
    refused(mallang(*arguments, cwd=home, env=nowhere), "cannot download https://", "MALLANG_DATA")
    refused(mallang("train", "transformer", "data.corpus=multi30", cwd=home), "no corpus 'multi30'", "multi30k")


def test_a_corpus_with_the_wrong_sum(home: Path) -> None:
    data = home / "data" / "multi30k"
    data.mkdir(parents=True)
    for name in registry.entry("multi30k").home.files:
        (data / name).parent.mkdir(exist_ok=True, parents=True)
        (data / name).write_text("Ein Hund.\n")
    arguments = ("train", "transformer", "data.corpus=multi30k", "data.source=de")
    env = {"MALLANG_DATA": str(home / "data")}
    refused(mallang(*arguments, cwd=home, env=env), "damaged or another version", "sha256", str(data))
    with tarfile.open(home / "data" / "multi30k.tar.xz", "w:xz") as archive:
        archive.add(data, "multi30k")
    shutil.rmtree(data)
    ended = mallang(*arguments, cwd=home, env=env)
    refused(ended, "multi30k.tar.xz is damaged", "sha256", "copy the archive again")


# The disk


@pytest.mark.parametrize("runs", ["train.tsv", "train.tsv/runs", "/proc/runs"])
def test_a_run_folder_that_cannot_be_written(home: Path, runs: str) -> None:
    refused(mallang(*QUICK, "--runs", runs, cwd=home), "cannot write", f"{runs}/transformer", "--runs")


def test_a_folder_that_is_no_run(home: Path) -> None:
    mine = home / "runs" / "transformer"
    mine.mkdir(parents=True)
    (mine / "thesis.txt").write_text("years of work")
    refused(mallang(*QUICK, cwd=home), "no run folder", "thesis.txt", "--name")
    refused(mallang(*QUICK, "--fresh", cwd=home), "no run folder", "thesis.txt", "--name")
    (mine / "thesis.txt").rename(mine / "recipe.toml")
    refused(mallang(*QUICK, "--fresh", cwd=home), "no run folder", "--name")
    assert [path.name for path in mine.iterdir()] == ["recipe.toml"], "not even a lock is left there"
    assert contents(mine) == {"recipe.toml": b"years of work"}


@pytest.mark.parametrize("size", [500, 2_000, 20_000, 60_000])
def test_a_disk_that_fills_up(home: Path, size: int) -> None:
    """A file may not grow beyond the size: the recipe, the tokenizer, the arrays or a checkpoint cannot be written."""
    longer = (*QUICK[:-1], "train.steps=4", "train.save_every=1", "train.workers=0")
    refused(mallang(*longer, cwd=home, file_size=size), "cannot write", "File too large", "space")
    assert mallang(*longer, cwd=home).code == 0


@pytest.mark.slow
def test_a_disk_that_is_full(home: Path) -> None:
    """Every size of a small disk: the message is the same wherever it runs out, and then the run goes on."""
    disk = home / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("mounting a small file system needs rights that this user does not have")
    try:
        longer = (*QUICK[:-1], "train.steps=6", "train.save_every=1", "train.workers=0", "--runs", str(disk))
        filler = disk / "filler"
        for size in (4, 8, 20, 60, 100, 200, 300):
            shutil.rmtree(disk / "transformer", ignore_errors=True)
            filler.write_bytes(bytes((2048 - size) * 1024))
            ended = mallang(*longer, cwd=home)
            refused(ended, "No space left", "free some space")
            filler.unlink()
            ended = mallang(*longer, cwd=home)
            assert ended.code == 0, f"{size} kB: {ended.err}"
    finally:
        subprocess.run(["umount", disk], check=True)


# The run folder


@pytest.mark.parametrize("name", ["../elsewhere", "deep/../../elsewhere", "."])
def test_a_name_that_leads_out_of_the_runs(home: Path, name: str) -> None:
    before = sorted(home.rglob("*"))
    for more in ([], ["--seeds", "1,2"]):
        refused(mallang(*QUICK, "--name", name, *more, cwd=home), f"--name {name} is no folder inside runs", "--runs")
    (home / "a.arpa").touch()
    refused(mallang("import", "a.arpa", "--name", name, cwd=home), f"--name {name} is no folder inside runs")
    (home / "a.arpa").unlink()
    refused(mallang(*QUICK, "--name", home / "whole", cwd=home), f"{home / 'whole'} is no folder inside runs")
    assert sorted(home.rglob("*")) == before


def test_a_name_may_have_a_folder(home: Path) -> None:
    assert mallang(*QUICK, "--name", "some/small", "--seeds", "1,2", "-q", cwd=home).code == 0
    assert sorted(path.name for path in (home / "runs" / "some").iterdir()) == [
        "small-seed1",
        "small-seed2",
        "small-seeds.json",
    ]


def test_no_such_run(home: Path) -> None:
    refused(mallang("translate", "runs/nothing", "물", cwd=home), "no run folder runs/nothing", "train one")
    refused(mallang("translate", home, "물", cwd=home), "is no run folder", "run.json")


@pytest.mark.parametrize(
    ("wrong", "arguments"),
    [
        ("runs/transformr", ["translate", "runs/transformr", "물"]),
        ("transformer", ["translate", "transformer", "물"]),
        ("runs/tranformer", ["translate", "runs/transformer", "물", "--with", "runs/tranformer"]),
        ("runs/transfomer", ["score", "runs/transfomer", "물", "water"]),
        ("runs/transformers", ["evaluate", "runs/transformers"]),
        ("runs/transformr", ["doctor", "runs/transformr"]),
        ("runs/transformr", ["compare", "runs/transformer", "runs/transformr"]),
        ("runs/transformr", ["prompt", "runs/transformr", "--text", "물"]),
        ("runs/transformr", ["novelty", "--run", "runs/transformr", "물"]),
        ("runs/transformr", [*QUICK, "--from", "runs/transformr"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_the_name_of_a_run_is_misspelled(trained: Path, wrong: str, arguments: list[str]) -> None:
    home = trained.parent.parent
    before = sorted(path.name for path in (home / "runs").iterdir())
    refused(mallang(*arguments, cwd=home), f"no run folder {wrong}\n", "did you mean runs/transformer?")
    assert sorted(path.name for path in (home / "runs").iterdir()) == before


def test_the_name_of_a_run_is_misspelled_in_python(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained.parent.parent)
    with pytest.raises(UserError, match=r"no run folder runs/transformr") as refusal:
        load("runs/transformr")
    assert refusal.value.todo == "did you mean runs/transformer?"


def test_no_run_is_like_it(run: Path) -> None:
    shutil.copytree(run, run.with_name("deeper"))
    refused(mallang("translate", "runs/x", "물", cwd=run.parent.parent), "known: runs/deeper, runs/transformer")
    refused(mallang("translate", "none/transformer", "물", cwd=run.parent.parent), "train one, or look into runs/")


def test_a_run_of_another_task(run: Path) -> None:
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, "task": "juggling_balls"}))
    for verb in ("translate", "score", "evaluate"):
        ended = mallang(verb, run, *(["물"] * {"translate": 1, "score": 2}.get(verb, 0)), cwd=run)
        refused(ended, "trained for juggling balls", f"`mallang {verb}`", "give the folder of a")


def test_weights_that_do_not_fit_the_recipe(run: Path) -> None:
    recipe = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(recipe.replace("dim = 32\n", "dim = 64\n", 1))
    refused(mallang("translate", run, "물", cwd=run), "do not fit the recipe", "×32", "×64", "model.safetensors")


def test_a_start_from_another_size(run: Path) -> None:
    before = contents(run)
    ended = mallang(*QUICK, "model.dim=16", "--from", run, "--name", "other", cwd=run.parent.parent)
    refused(ended, "do not fit the recipe", "×32", "×16", "model.safetensors")
    assert contents(run) == before


@pytest.mark.parametrize("name", ["run.json", "recipe.toml", "tokenizer.json", "text.json", "model.safetensors"])
def test_a_damaged_run_folder(run: Path, name: str) -> None:
    whole = (run / name).read_bytes()
    translate = ("translate", run, "민수는 물을 산다.")

    (run / name).unlink()
    refused(mallang(*translate, cwd=run), str(run), name)
    for length in (0, len(whole) // 2):
        (run / name).write_bytes(whole[:length])
        refused(mallang(*translate, cwd=run), str(run), name)
    (run / name).write_bytes(flipped(whole, len(whole) // 2 if name.endswith(".safetensors") else 0))
    refused(mallang(*translate, cwd=run), str(run), name)

    draw = random.Random(name)
    (run / name).write_bytes(whole)
    right = mallang(*translate, cwd=run)
    assert right.code == 0
    for _ in range(4):
        (run / name).write_bytes(flipped(whole, draw.randrange(len(whole))))
        ended = mallang(*translate, cwd=run)
        if name in ("tokenizer.json", "text.json", "model.safetensors") or ended.code:
            refused(ended, str(run))
        else:  # a digit of a value that translating does not use
            assert ended.out == right.out


def flipped(content: bytes, place: int) -> bytes:
    """The content with one bit the other way."""
    return content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :]


def test_a_finished_run_trained_again(run: Path) -> None:
    before = contents(run)
    home = run.parent.parent
    same = ("train", "transformer", *TINY, "train.steps=160", "train.validate_every=80")
    refused(mallang(*same, cwd=home), "is finished", "--name", "--fresh")
    ended = mallang(*same, "train.steps=170", cwd=home)
    refused(ended, "is finished", "train.steps: 160 → 170", "--name", "--fresh")
    assert contents(run) == before


def test_an_unfinished_run(home: Path) -> None:
    """It cannot be used, not be changed, not be trained by two at once; and it loses nothing by trying."""
    long = ("train", "transformer", *TINY, "train.steps=3000", "train.save_every=3", "train.workers=0")
    folder = home / "runs" / "transformer"
    training = start(*long, cwd=home, cold=True)
    try:
        training.until(lambda: list((folder / "checkpoints").glob("step-*")))
        refused(mallang(*long, cwd=home), "another process is training", "runs/transformer", "--name")
        refused(mallang(*long, "--fresh", cwd=home), "another process is training")
        refused(mallang("translate", folder, "물", cwd=home), "is not finished", "train command again")
    finally:
        os.kill(training.pid, 9)
        training.wait()
    before = contents(folder)
    ended = mallang(*long, "optimizer.learning_rate=0.01", "model.dropout=0.2", cwd=home)
    refused(
        ended,
        "another recipe",
        "optimizer.learning_rate: 0.005 → 0.01",
        "model.dropout: 0.1 → 0.2",
        "--name",
        "--fresh",
    )
    assert contents(folder) == before
    (home / "train.tsv").write_text((home / "train.tsv").read_text() + "물\twater\n")
    refused(mallang(*long, cwd=home), "data", "has changed", "--name", "--fresh")


# The texts


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ("beem=3", ["no search option 'beem'", "did you mean beam"]),
        ("beam", ["--search 'beam' has no value", "--search beam=8"]),
        ("beam=many", ["beam", "many", "integer"]),
        ("beam=0", ["beam", "at least 1"]),
        ("method=bean", ["method", "bean", "did you mean beam"]),
        ("method=5", ["method", "5"]),
        ("temperature=2", ["temperature", "no effect", "sampling"]),
    ],
)
def test_a_search_that_cannot_be(trained: Path, search: str, words: list[str]) -> None:
    refused(mallang("translate", trained, "물", "--search", search, cwd=trained), *words)


def test_texts_that_cannot_be_read(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes("물을 산다.\n".encode() + "물\n".encode("cp949"))
    ended = mallang("translate", trained, "--file", tmp_path / "bad.txt", cwd=tmp_path)
    refused(ended, "not UTF-8", "bad.txt, line 2")
    refused(mallang("translate", trained, "--file", tmp_path / "none.txt", cwd=tmp_path), "none.txt", "No such file")
    refused(mallang("translate", trained, "물", "--file", tmp_path / "bad.txt", cwd=tmp_path), "both given")
    refused(mallang("score", trained, "물", cwd=tmp_path), "two texts", "quote each text")
    refused(mallang("score", trained, cwd=tmp_path, text="물\twater\n물 water\n"), "a tab", "line 2")
    refused(mallang("evaluate", trained, "--split", "tset", cwd=trained.parent.parent), "no split 'tset'", "test")


def test_the_cold_command_says_the_same(home: Path) -> None:
    """Once through a new Python, to see that the other tests run what a person runs."""
    (home / "empty.tsv").touch()
    arguments = [*QUICK, "data.train=empty.tsv"]
    ran = subprocess.run(
        [sys.executable, "-m", "mallang", *arguments],
        capture_output=True,
        text=True,
        cwd=home,
        env=environment(home, {}),
    )
    refused(Ended(ran.returncode, ran.stdout, ran.stderr), "empty.tsv is empty")
