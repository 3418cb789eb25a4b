"""Names of an earlier version are read as those of today: keys and values of recipes, parameters of weights."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

import mallang
from commands.running import TINY, write_corpus
from mallang import find, recipe, renamed, schema
from mallang.errors import UserError
from mallang.recipe import difference, read
from mallang.runs.files import sha256
from mallang.runs.folder import Run
from mallang.runs.own_files import RECIPE, WEIGHTS
from mallang.runs.weights import own_weights, set_weights
from mallang.training import checkpoint
from mallang.training.checkpoint import Checkpoint, mean_weights
from mallang.training.optimizer import Average, optimizer_tensors, restore_optimizer
from mallang.training.train import Options, train

OLD_KEYS = {"train.log_interval": "log_every", "model.depth": "layers", "task.smoothing": "label_smoothing"}
OLD_VALUES = {"train.final": {"newest": "last"}}
OLD_PARAMETERS = {r"\bsight\b": "self_attention"}


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables as if the keys, a value and a parameter above had been renamed."""
    monkeypatch.setattr(renamed, "KEYS", OLD_KEYS)
    monkeypatch.setattr(renamed, "VALUES", OLD_VALUES)
    monkeypatch.setattr(renamed, "PARAMETERS", OLD_PARAMETERS)


OLD = """[model]
name = 'transformer'
depth = 3
[train]
log-interval = 7
final = 'newest'
[task]
smoothing = 0.2
"""


def test_old_keys_and_values_of_a_file(old: None, tmp_path: Path) -> None:
    path = tmp_path / "old.toml"
    path.write_text(OLD)
    resolved = read(str(path))
    built = resolved.build()
    assert (built.model.layers, built.train.log_every, built.train.final) == (3, 7, "last")
    assert built.task.label_smoothing == 0.2 and resolved.origins["model.layers"] == f"recipe {path}"
    assert resolved.notes == [
        f"{path}: task.smoothing is now task.label_smoothing, model.depth is now model.layers, "
        "train.log_interval is now train.log_every, train.final = newest is now train.final = last"
    ]
    assert "log_every = 7" in resolved.to_toml() and "log_interval" not in resolved.to_toml()


def test_old_keys_of_the_command_line(old: None) -> None:
    resolved = read("transformer-miniworld", ["model.depth=2", "train.log-interval=9"])
    assert (resolved.build().model.layers, resolved.build().train.log_every) == (2, 9)
    assert resolved.notes == ["model.depth is now model.layers, train.log_interval is now train.log_every"]
    assert resolved.with_overrides(["model.layers=4"]).build().model.layers == 4, "later layers win"
    assert read("transformer-miniworld", ["model.layers=2"]).notes == []


def test_mistakes_beside_old_keys_are_found_in_their_line(old: None, tmp_path: Path) -> None:
    path = tmp_path / "old.toml"
    path.write_text(OLD.replace("= 7", "= 'seven'"))
    with pytest.raises(UserError, match="train.log_every") as error:
        read(str(path)).build()
    assert "old.toml, line 5" in str(error.value)
    path.write_text(OLD.replace("log-interval = 7", "log-interval = 7\nlog_every = 8"))
    with pytest.raises(UserError, match=r"train.log_interval and train.log_every are the same key") as error:
        read(str(path))
    assert "give train.log_every alone" in str(error.value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("train.log_intervall=5", "did you mean log_every?"),
        ("decoding.log_interval=5", "did you mean train.log_every=5?"),
        ("log_interval=5", "did you mean train.log_every?"),
    ],
)
def test_suggestions_know_the_old_names(old: None, override: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        read("transformer-miniworld", [override])
    assert said in str(error.value)


PLUGIN = '''"""A model with keys of its own."""
from dataclasses import dataclass
from torch import nn

@dataclass(frozen=True, kw_only=True)
class Config:
    depth: int = 5
    """Its own."""
    layers: int = 1
    """Its own, too."""

class Model(nn.Module):
    reads_source = False
'''


def test_a_plugin_may_have_a_key_with_an_old_name(old: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "PLUGINS", {})
    (tmp_path / "deep.py").write_text(PLUGIN)
    find.add_plugin(tmp_path / "deep.py")
    resolved = read("deep", ["model.depth=4"])
    assert resolved.resolved()["model"]["depth"] == 4 and resolved.notes == []


def test_the_tables_name_what_there_is() -> None:
    for dotted, today in renamed.KEYS.items():
        section, _, key = dotted.partition(".")
        assert f"{section}.{today}" in schema.homes(today), dotted
        assert key != today and not any(f"{section}.{today}" == other for other in renamed.KEYS), "one step, no chain"
    for dotted in renamed.VALUES:
        assert dotted in schema.homes(dotted.partition(".")[2]), dotted
    for pattern in renamed.PARAMETERS:
        re.compile(pattern)


def as_old(name: str) -> str:
    return re.sub(r"\bself_attention\b", "sight", name)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus and a finished run of eight updates, `run`."""
    home = tmp_path_factory.mktemp("home")
    write_corpus(home, rows=60)
    files = [
        text.replace("=train.tsv", f"={home}/train.tsv").replace("=valid.tsv", f"={home}/valid.tsv") for text in TINY
    ]
    options = ["train.steps=8", "train.validate_every=4", "train.keep=2", "train.final=average", "train.workers=0"]
    built = read("transformer", [*files, *options]).build()
    train(built, Options(folder=home / "run", device="cpu", quiet=True))
    return home


@pytest.fixture
def old_run(home: Path, tmp_path: Path) -> Path:
    """A copy of the run as an earlier version would have written it."""
    folder = Path(shutil.copytree(home / "run", tmp_path / "run"))
    text = (folder / RECIPE).read_text("utf-8")
    changed = text.replace("\nlog_every =", "\nlog_interval =").replace("\nlayers =", "\ndepth =")
    changed = changed.replace("\nlabel_smoothing =", "\nsmoothing =")
    assert len(changed) != len(text)
    (folder / RECIPE).write_text(changed, "utf-8")
    tensors = safetensors.torch.load_file(folder / WEIGHTS)
    safetensors.torch.save_file({as_old(name): value for name, value in tensors.items()}, folder / WEIGHTS)
    for path in checkpoint.found(folder / "checkpoints"):
        saved = checkpoint.read(path)
        shutil.rmtree(path)
        renamed_tensors = {
            file: {as_old(name): value for name, value in tensors.items()} for file, tensors in saved.tensors.items()
        }
        checkpoint.write(folder / "checkpoints", Checkpoint(saved.step, saved.state, renamed_tensors))
    Run.open(folder).update(weights=sha256(folder / WEIGHTS))
    return folder


def test_an_old_run_folder_loads(old: None, home: Path, old_run: Path) -> None:
    before, after = mallang.load(home / "run"), mallang.load(old_run)
    texts = ["민수는 사과를 먹는다.", "소라는 책을 본다."]
    assert [str(one) for one in before.translate(texts)] == [str(one) for one in after.translate(texts)]
    assert difference(read(str(home / "run")), read(str(old_run))) == []


def test_an_old_run_is_refused_without_the_tables(old_run: Path) -> None:
    with pytest.raises(UserError, match="smoothing"):
        mallang.load(old_run)


def test_an_old_run_resumes_to_the_same_weights(old: None, home: Path, old_run: Path) -> None:
    built = Run.open(home / "run").recipe()
    (old_run / WEIGHTS).unlink()
    shutil.rmtree(checkpoint.found(old_run / "checkpoints")[-1])
    info = json.loads((old_run / "run.json").read_text())
    (old_run / "run.json").write_text(json.dumps({**info, "status": "training", "weights": None}))
    train(built, Options(folder=old_run, device="cpu", quiet=True))
    ours, theirs = Run.open(home / "run").read_weights(), Run.open(old_run).read_weights()
    assert set(ours) == set(theirs), "the mean is kept under the names of today"
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self_attention = nn.Linear(2, 2)


def test_weights_averages_and_optimizers_take_old_names(old: None, tmp_path: Path) -> None:
    first, second = Tiny(), Tiny()
    set_weights(second, {as_old(name): value for name, value in own_weights(first).items()}, "here")
    assert torch.equal(second.self_attention.weight, first.self_attention.weight)
    average = Average(second, 0.9)
    average.restore({"sight.bias": torch.ones(2)}, 1)
    assert average.weights["self_attention.bias"].tolist() == [1, 1]
    optimizer = torch.optim.Adam(first.parameters())
    first.self_attention(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    names = {parameter: name for name, parameter in first.named_parameters()}
    saved = {as_old(name): value for name, value in optimizer_tensors(optimizer, names).items()}
    again = torch.optim.Adam(first.parameters())
    restore_optimizer(again, names, saved)
    assert all(len(again.state[parameter]) == 3 for parameter in names)


def test_a_mean_over_checkpoints_of_two_versions(old: None, tmp_path: Path) -> None:
    named = {1: "sight.weight", 2: "self_attention.weight"}
    paths = [
        checkpoint.write(
            tmp_path,
            Checkpoint(step, {"validated": True}, {"model": {name: torch.full((2,), step * 1.0)}, "optimizer": {}}),
        )
        for step, name in named.items()
    ]
    mean = mean_weights(paths)
    assert list(mean) == ["self_attention.weight"] and mean["self_attention.weight"].tolist() == [1.5, 1.5]


def test_a_name_that_the_model_has_stays(old: None) -> None:
    assert renamed.fit_names({"sight.bias": 1, "other": 2}, ["sight.bias", "self_attention.bias"]) == {
        "sight.bias": 1, "other": 2,
    }  # fmt: skip


def test_notes_reach_the_person(old: None, capsys: pytest.CaptureFixture[str]) -> None:
    from mallang.commands.options import note_renamed

    resolved = recipe.read("transformer-miniworld", ["model.depth=2"])
    note_renamed(resolved, quiet=True)
    assert capsys.readouterr().err == ""
    note_renamed(resolved)
    assert capsys.readouterr().err == "note: model.depth is now model.layers\n"
