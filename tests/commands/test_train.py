"""`mallang train` when all is well: what it shows, writes, names and starts from."""

from __future__ import annotations

import json
import shutil
import statistics
import tomllib
from pathlib import Path

import pytest
from safetensors.torch import load_file

from commands.running import TINY, mallang, metrics, write_corpus

QUICK = ("train", "transformer", *TINY, "train.steps=6", "train.workers=0")
PLUGIN = '''
"""A tiny encoder and decoder of one GRU each, which stands in no folder of mallang."""

from dataclasses import dataclass

import torch
from torch import nn

from mallang.layers.cache import State


@dataclass(frozen=True, kw_only=True)
class Config:
    dim: int = 16
    """Size of everything."""


class Model(nn.Module):
    reads_source = True

    def __init__(self, config, vocabulary, source_vocabulary):
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.source_embedding = nn.Embedding(len(source_vocabulary), config.dim)
        self.embedding = nn.Embedding(len(vocabulary), config.dim)
        self.encoder = nn.GRU(config.dim, config.dim, batch_first=True)
        self.decoder = nn.GRU(2 * config.dim, config.dim, batch_first=True)
        self.head = nn.Linear(config.dim, len(vocabulary))

    def forward(self, batch):
        hidden, _ = self.forward_stateful(batch.tokens, self.start(batch))
        return hidden

    def output(self, hidden):
        return self.head(hidden)

    def start(self, batch):
        read, _ = self.encoder(self.source_embedding(batch.source))
        last = (batch.source_lengths - 1)[:, None, None].expand(-1, 1, read.shape[-1])
        memory = read.gather(1, last)[:, 0]
        return State(fixed=memory, moving=memory)

    def step(self, tokens, state):
        hidden, state = self.forward_stateful(tokens, state)
        return self.output(hidden), state

    def forward_stateful(self, tokens, state):
        width = len(tokens) // len(state.fixed)
        memory = state.fixed.repeat_interleave(width, dim=0)[:, None].expand(-1, tokens.shape[1], -1)
        words = torch.cat([self.embedding(tokens), memory], dim=-1)
        hidden, last = self.decoder(words, state.moving[None].contiguous())
        return hidden, State(state.fixed, last[0])
'''


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a small corpus."""
    write_corpus(tmp_path, rows=60)
    return tmp_path


def test_show_tells_every_value_and_trains_nothing(home: Path) -> None:
    shown = mallang("train", "transformer-miniworld", "model.size=tiny", "train.steps=7", "--show", cwd=home)
    assert shown.code == 0
    lines = [" ".join(line.split()) for line in shown.out.splitlines()]
    assert "steps = 7 # command line" in lines
    assert 'name = "transformer" # recipe transformer-miniworld' in lines
    assert "dim = 32 # size tiny" in lines
    assert "weight_decay = 0.0 # default" in lines
    assert tomllib.loads(shown.out)["train"]["steps"] == 7
    assert not (home / "runs").exists()


def test_show_says_what_is_wrong(home: Path) -> None:
    shown = mallang("train", "transformer-miniworld", "model.heads=7", "--show", cwd=home)
    assert shown.code == 2 and "heads = 7" in shown.out and "cannot be divided among 7 heads" in shown.err


def test_a_run_folder_is_complete(home: Path) -> None:
    ended = mallang(*QUICK, cwd=home)
    assert ended.code == 0, ended.err
    run = home / "runs" / "transformer"
    assert ended.out == ""
    assert "the run is in runs/transformer" in ended.err
    assert "60 read, 60 kept" in ended.err
    names = {path.name for path in run.iterdir() if not path.name.startswith(".")}
    assert names == {
        "recipe.toml", "run.json", "model.safetensors", "tokenizer.json", "text.json", "metrics.jsonl", "card.md",
        "checkpoints",
    }  # fmt: skip
    info = json.loads((run / "run.json").read_text("utf-8"))
    assert (info["status"], info["task"], info["seed"], info["steps"]) == ("finished", "translation", 1, 6)
    assert {entry["kind"] for entry in metrics(run)} == {"train", "valid"}
    card = (run / "card.md").read_text("utf-8")
    assert "own data" in card
    assert "train.tsv" in card
    assert all(name.startswith("model.") for name in load_file(run / "model.safetensors"))
    assert not list(run.rglob(".draft*"))


def test_the_same_command_gives_the_same_model(home: Path) -> None:
    """Another folder, another number of workers, quiet or not: the weights are the same."""
    assert mallang(*QUICK, cwd=home).code == 0
    quiet = mallang(*QUICK, "train.workers=1", "--name", "again", "--runs", "elsewhere", "-q", cwd=home)
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    first, second = home / "runs" / "transformer", home / "elsewhere" / "again"
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()
    assert metrics(first) == metrics(second)


def test_fresh_starts_over(home: Path) -> None:
    assert mallang(*QUICK, "--fresh", cwd=home).code == 0  # also where there is nothing yet
    run = home / "runs" / "transformer"
    (run / "outputs").mkdir()
    (run / "notes.txt").write_text("mine")
    ended = mallang(*QUICK, "seed=2", "--fresh", cwd=home)
    assert ended.code == 0 and "not of mallang, and stay: notes.txt" in ended.err
    assert (run / "notes.txt").read_text() == "mine"
    assert json.loads((run / "run.json").read_text("utf-8"))["seed"] == 2
    assert not (run / "outputs").exists()
    assert [entry["step"] for entry in metrics(run)].count(6) == 2  # one of training, one of validation


def test_a_run_that_failed_before_its_first_checkpoint_starts_over(home: Path) -> None:
    """Nothing is learned, so there is nothing to resume: any recipe and data will do, and foreign files stay."""
    folder = home / "runs" / "transformer"
    short = ("train", "transformer", *TINY, "train.steps=4", "train.workers=0")
    failed = mallang(*short, "train.metric=accuracy", cwd=home)
    assert failed.code == 2 and "not a metric of translation" in failed.err and folder.is_dir()
    refused = mallang("translate", folder, "물", cwd=home)
    assert refused.code == 2 and "is not finished" in refused.err and "it starts over" in refused.err
    assert "resumes" not in refused.err and "resumes" not in mallang("compare", folder, folder, cwd=home).err
    assert "starts it over" in mallang("doctor", folder, cwd=home).out
    (folder / "notes.txt").write_text("mine", "utf-8")
    info = json.loads((folder / "run.json").read_text("utf-8"))
    (folder / "run.json").write_text(json.dumps({**info, "data": {"corpus": "x", "train": "a", "valid": "b"}}), "utf-8")
    write_corpus(home, 100)
    done = mallang(*short, cwd=home)
    assert done.code == 0, done.err
    assert "ended before its first checkpoint" in done.err and "notes.txt" in done.err
    assert (folder / "notes.txt").read_text("utf-8") == "mine"


def test_a_model_without_data_says_what_it_is_trained_on(home: Path) -> None:
    asked = ("train", "cnn", "train.steps=1", "model.size=tiny", "train.workers=0")
    done = mallang(*asked, "--name", "a", cwd=home)
    assert done.code == 0, done.err
    assert "no data is given: cnn is trained on miniworld" in done.err and "data.train=FILE" in done.err
    for given in (("data.corpus=miniworld",), ("-q",)):
        assert "no data is given" not in mallang(*asked, *given, "--fresh", "--name", "a", cwd=home).err
    assert "no data is given" not in mallang(*QUICK, "train.steps=1", "--fresh", cwd=home).err


def test_seeds_write_mean_and_spread(home: Path) -> None:
    ended = mallang(*QUICK, "--seeds", "1,2", "--name", "both", cwd=home)
    assert ended.code == 0, ended.err
    spread = json.loads((home / "runs" / "both-seeds.json").read_text("utf-8"))
    losses = []
    for seed in (1, 2):
        info = json.loads((home / "runs" / f"both-seed{seed}" / "run.json").read_text("utf-8"))
        assert info["seed"] == seed
        losses.append(info["best"]["loss"])
    assert losses[0] != losses[1]
    assert list(spread["runs"].values()) == losses
    assert spread["mean"] == pytest.approx(statistics.mean(losses))
    assert spread["standard_deviation"] == pytest.approx(statistics.stdev(losses))
    assert f"over 2 seeds: {spread['mean']:.4f} ± {spread['standard_deviation']:.4f}" in ended.err
    # Finished seeds are taken as they are, and a third one joins them.
    before = (home / "runs" / "both-seed1" / "run.json").stat().st_mtime_ns
    assert mallang(*QUICK, "--seeds", "1,2,3", "--name", "both", cwd=home).code == 0
    assert (home / "runs" / "both-seed1" / "run.json").stat().st_mtime_ns == before
    assert len(json.loads((home / "runs" / "both-seeds.json").read_text("utf-8"))["runs"]) == 3


def test_from_starts_with_the_weights_of_another_run(run: Path) -> None:
    home = run.parent.parent
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    shutil.copy(home / "valid.tsv", home / "new.tsv")
    ended = mallang(
        *QUICK,
        "data.train=new.tsv",
        "optimizer.learning_rate=1e-9",
        "model.dropout=0",
        "--from",
        "runs/transformer",
        cwd=home,
    )
    assert ended.code == 0, ended.err
    new = home / "runs" / "transformer-from-transformer"
    assert (new / "tokenizer.json").read_bytes() == (run / "tokenizer.json").read_bytes()
    old_weights, new_weights = load_file(run / "model.safetensors"), load_file(new / "model.safetensors")
    for name, weight in old_weights.items():
        assert (new_weights[name] - weight).abs().max() < 1e-6, name  # at this rate it has hardly moved
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


def test_from_refuses_another_tokenizer(run: Path) -> None:
    home = run.parent.parent
    ended = mallang(*QUICK, "text.vocabulary=100", "--from", "runs/transformer", cwd=home)
    assert ended.code == 2 and "text.vocabulary: 160 → 100" in ended.err, ended.err
    assert "mallang train runs/transformer --from runs/transformer" in ended.err


def test_the_models_own_initialization_can_be_switched_off(home: Path) -> None:
    still = (
        *QUICK,
        "optimizer.learning_rate=1e-9",
        "train.initialization=default",
        "--name",
        "plain",
    )  # it hardly moves
    assert (ended := mallang(*still, cwd=home)).code == 0, ended.err
    weights = load_file(home / "runs" / "plain" / "model.safetensors")
    assert weights["model.source_embedding.own.weight"].std().item() == pytest.approx(1, rel=0.1)  # the paper: dim^-0.5
    linear = weights["model.decoder.0.feedforward.up_proj.weight"]
    assert linear.abs().max() <= linear.shape[1] ** -0.5
    ended = mallang(*QUICK, "train.initialization=default", "--from", "runs/plain", "--name", "other", cwd=home)
    assert ended.code == 2 and "--from gives the initial weights" in ended.err, ended.err
    assert "train.initialization=paper" in ended.err and not (home / "runs" / "other").exists()


def test_a_model_of_ones_own(home: Path) -> None:
    (home / "little_gru.py").write_text(PLUGIN)
    own = ("--plugin", "little_gru.py")
    recipe = [override for override in TINY if not override.startswith("model.")]
    ended = mallang("train", "little-gru", *recipe, "model.dim=8", "train.steps=10", *own, cwd=home)
    assert ended.code == 0, ended.err
    assert "little_gru: " in ended.err
    run = home / "runs" / "little-gru"
    translated = mallang("translate", run, "민수는 물을 산다.", "--json", *own, cwd=home)
    assert translated.code == 0, translated.err
    assert json.loads(translated.out)["input"] == "민수는 물을 산다."
    without = mallang("translate", run, "물", cwd=home)
    assert without.code == 2
    assert "no model 'little_gru'" in without.err
    assert "--plugin" in without.err


def test_a_run_folder_called_like_a_recipe(home: Path) -> None:
    """Inside runs/, the folder is meant and not the recipe of that name."""
    assert mallang(*QUICK, "--name", "transformer-miniworld", cwd=home).code == 0
    used = mallang("translate", "transformer-miniworld", "물", cwd=home / "runs")
    assert used.code == 0, used.err
