"""A given run is found, checked and frozen, and is no part of the run that uses it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor

import mallang
from mallang.errors import UserError
from mallang.recipe import Recipe, read
from mallang.runs.folder import Run
from mallang.runs.given import open_given
from mallang.runs.weights import own_weights
from mallang.training import checkpoint
from mallang.training.train import Options, train
from runs.small_runs import run_of, write_lines, write_names, write_reviews


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a language model, and a classifier and a tagger that were given it."""
    folder = tmp_path_factory.mktemp("given")
    lm = run_of(folder / "runs/lm", "rnn_lm", write_lines(folder), "text.unit=char", "model.dropout=0.5")
    given = (f"given.features={lm.folder}", "train.steps=4", "train.validate_every=2")
    run_of(folder / "runs/classifier", "rnn_classifier", write_reviews(folder), *given)
    run_of(folder / "runs/tagger", "lstm_crf", write_names(folder), *given)
    return folder


USERS = ("classifier", "tagger")
TEXTS = ["the good film", "mr Kim ran in Seoul", "한국 영화 .", "x"]


def outputs(run: Path) -> list[Tensor]:
    """What a run computes for a few texts."""
    model = mallang.load(run)
    if "classify" in model.verbs:
        return [torch.tensor(list(each.probabilities.values())) for each in model.classify(TEXTS)]
    return [torch.tensor(each.probabilities) for each in model.tag(TEXTS)]


def same(found: list[Tensor], expected: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def copied(trained: Path, folder: Path) -> Path:
    """All of the runs in another place."""
    shutil.copytree(trained, folder / "moved")
    return folder / "moved"


@pytest.mark.parametrize("name", USERS)
def test_it_is_absent_from_weights_optimizer_and_checkpoints(trained: Path, name: str) -> None:
    run = Run.open(trained / "runs" / name)
    names = set(run.read_weights())
    assert {each.split(".")[0] for each in names} == {"model", "head"}
    model = mallang.load(run.folder).model
    assert names == set(own_weights(model)) and model.features is not None
    held = {each.data_ptr() for each in model.features.module.parameters()}
    assert held and held.isdisjoint(each.data_ptr() for each in model.parameters())
    saved = checkpoint.read(checkpoint.found(run.folder / "checkpoints")[-1]).tensors
    assert set(saved["model"]) == names
    moments = {each.split("/", 1)[-1] for each in saved["optimizer"]}
    assert moments and moments <= names
    sizes = {tuple(each.shape) for each in own_weights(model.features.module).values() if each.dim() == 2}
    assert sizes.isdisjoint(tuple(each.shape) for each in saved["model"].values())


@pytest.mark.parametrize("name", USERS)
def test_it_is_frozen_in_eval_mode_and_bit_equal(trained: Path, name: str) -> None:
    model = mallang.load(trained / "runs" / name).model.train()
    module, weights = model.features.module, Run.open(trained / "runs/lm").read_weights()
    assert not any(part.training for part in module.modules()) and model.head.training
    assert not any(each.requires_grad for each in module.parameters())
    assert own_weights(module).keys() == weights.keys()
    assert all(tensor.equal(weights[key]) for key, tensor in own_weights(module).items())


@pytest.mark.parametrize("name", USERS)
def test_it_moves_with_the_model(trained: Path, name: str) -> None:
    model = mallang.load(trained / "runs" / name).model
    assert {each.device.type for each in model.features.module.parameters()} == {"cpu"}
    model.to("meta")
    assert {each.device.type for each in model.features.module.parameters()} == {"meta"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", USERS)
def test_it_computes_on_the_gpu(trained: Path, name: str) -> None:
    expected = outputs(trained / "runs" / name)
    model = mallang.load(trained / "runs" / name, device="cuda")
    assert {each.device.type for each in model.model.features.module.parameters()} == {"cuda"}
    found = model.classify(TEXTS) if "classify" in model.verbs else model.tag(TEXTS)
    for each, before in zip(found, expected, strict=True):
        numbers = list(each.probabilities.values()) if "classify" in model.verbs else each.probabilities
        torch.testing.assert_close(torch.tensor(numbers), before, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", USERS)
def test_the_features_have_a_say(trained: Path, tmp_path: Path, name: str) -> None:
    """Another given model, with other weights, gives other outputs: nothing of it is kept in the run itself."""
    home = copied(trained, tmp_path)
    run, lm = Run.open(home / "runs" / name), Run.open(home / "runs/lm")
    before = outputs(run.folder)
    lm.write_weights({key: tensor + 1.0 for key, tensor in lm.read_weights().items()})
    lm = lm.update(weights=None)
    [features] = open_given({"features": str(lm.folder)}).values()
    run.update(given={"features": features.fingerprint})
    shutil.rmtree(trained / "elsewhere", ignore_errors=True)
    (trained / "runs/lm").rename(trained / "elsewhere")  # the path of the recipe leads nowhere now
    try:
        assert not same(outputs(run.folder), before)
    finally:
        (trained / "elsewhere").rename(trained / "runs/lm")


@pytest.mark.parametrize("name", USERS)
def test_a_run_resumes_exactly_with_it(trained: Path, tmp_path: Path, name: str) -> None:
    run = Run.open(copied(trained, tmp_path) / "runs" / name)
    wanted = resumed(run)
    found = Run.open(run.folder).read_weights()
    assert found.keys() == wanted.keys() and all(found[key].equal(wanted[key]) for key in wanted)


def resumed(run: Run) -> dict[str, Tensor]:
    """Train a finished run again from its checkpoint before the last; returns the weights that it had."""
    wanted = run.read_weights()
    (run.folder / "model.safetensors").unlink()
    [first, last] = checkpoint.found(run.folder / "checkpoints")
    assert (checkpoint.step_of(first), checkpoint.step_of(last)) == (2, 4)
    shutil.rmtree(last)
    run.update(status="training", weights=None)
    train(read(str(run.folder)).build(), Options(folder=run.folder, quiet=True))
    return wanted


def test_it_is_found_again_beside_the_run_wherever_both_are(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained)
    steps = ("train.steps=4", "train.validate_every=2")
    run = run_of(trained / "runs/relative", "rnn_classifier", trained / "reviews.tsv", "given.features=runs/lm", *steps)
    before = outputs(run.folder)
    home = copied(trained, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert same(outputs(home / "runs/relative"), before)
    resumed(Run.open(home / "runs/relative"))
    assert same(outputs(home / "runs/relative"), before)
    (home / "runs").rename(tmp_path / "models")  # not runs/NAME any more, but still beside each other
    Run.open(tmp_path / "models/relative").update(trained_in={})
    assert same(outputs(tmp_path / "models/relative"), before)
    shutil.rmtree(run.folder)


@pytest.mark.parametrize("name", USERS)
def test_one_that_is_missing_or_has_changed_is_refused(
    trained: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = copied(trained, tmp_path)
    run = Run.open(home / "runs" / name)
    recipe = (run.folder / "recipe.toml").read_text().replace(str(trained), str(home))
    (run.folder / "recipe.toml").write_text(recipe)
    assert str(home) in recipe
    lm = Run.open(home / "runs/lm")
    lm.update(weights="0" * 64)
    with pytest.raises(UserError, match=r"given.features: .*lm is not the run that .* was trained with"):
        mallang.load(run.folder)
    shutil.rmtree(lm.folder)
    with pytest.raises(UserError, match=r"given.features: there is no run folder .*lm") as error:
        mallang.load(run.folder)
    assert "put it back" in str(error.value) and str(run.folder) in str(error.value)


def test_nothing_is_written_when_it_is_not_there_or_not_finished(trained: Path, tmp_path: Path) -> None:
    data = trained / "reviews.tsv"
    with pytest.raises(UserError, match=r"given.features: there is no run folder .*lmm") as error:
        run_of(tmp_path / "run", "rnn_classifier", data, f"given.features={trained / 'runs/lmm'}")
    assert "did you mean" in str(error.value)
    shutil.copytree(trained / "runs/lm", tmp_path / "half")
    Run.open(tmp_path / "half").update(status="training")
    with pytest.raises(UserError, match=r"given.features = .*half: .* is not finished"):
        run_of(tmp_path / "run", "rnn_classifier", data, f"given.features={tmp_path / 'half'}")
    assert not (tmp_path / "run").exists()


def test_damage_of_the_given_run_is_named(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "runs/lm", tmp_path / "lm")
    weights = tmp_path / "lm/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match=r"given.features = .*lm: .*model.safetensors is damaged"):
        open_given({"features": str(tmp_path / "lm")})
    (tmp_path / "lm/recipe.toml").unlink()
    with pytest.raises(UserError, match=r"given.features = .*lm: .*recipe.toml cannot be read: No such file"):
        open_given({"features": str(tmp_path / "lm")})


@pytest.mark.parametrize(
    ("recipe", "change", "says"),
    [
        ("rnn_classifier", "given.teacher=runs/x", "given.teacher: .* of the task classification has no teacher"),
        ("rnn_classifier", "given.feature=runs/x", "given.feature: (.|\n)*did you mean features"),
        ("lstm_crf", "given.encoder=runs/x", "given.encoder: .* of the task tagging has no encoder"),
        ("transformer", "given.features=runs/x", r"given.features has no effect: .* translation has no \[given\]"),
        ("rnn_lm", "given.features=runs/x", r"given.features has no effect: .* language_modeling has no \[given\]"),
    ],
)
def test_names_that_the_task_does_not_take_are_refused(recipe: str, change: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read(recipe, [change])


def test_a_folder_must_be_a_text() -> None:
    with pytest.raises(UserError, match="given.features = 3: should be a valid string"):
        read("rnn_classifier", ["given.features=3"]).build()


def test_a_recipe_keeps_what_it_is_given_and_none_takes_it_back() -> None:
    resolved = read("rnn_classifier", ["given.features=runs/x"])
    assert resolved.build().given == {"features": "runs/x"} and '[given]\nfeatures = "runs/x"' in resolved.to_toml()
    assert resolved.with_overrides(["given.features=none"]).build().given == {}
    assert read("rnn_classifier").build().given == {} == read("transformer").build().given
    assert "given.features" in resolved.origins and "[given]" not in read("transformer").to_toml()
    made = Recipe.make(model=read("rnn_classifier").build().model, given={"features": "runs/x"})
    assert made.given == {"features": "runs/x"}


def test_an_old_run_without_given_still_opens(trained: Path, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "rnn_classifier", trained / "reviews.tsv")
    before = outputs(run.folder)
    text = (run.folder / "recipe.toml").read_text()
    assert "[given]\n\n" in text
    (run.folder / "recipe.toml").write_text(text.replace("[given]\n\n", ""))
    info = {key: value for key, value in run.info.items() if key not in ("given", "vocabularies")}
    (run.folder / "run.json").write_text(json.dumps(info))
    assert same(outputs(run.folder), before)
