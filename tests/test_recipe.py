"""Recipes: which value wins, where it came from, what is refused and how it says so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang import find, recipe, toml
from mallang.errors import UserError
from mallang.recipe import Recipe, Resolved, difference, read
from mallang.training import optimizer, schedule


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of recipes of its own: a base, one on it, and one on that."""
    (tmp_path / "small-toy.toml").write_text(
        'paper = "Someone 2020"\n[model]\nname = "transformer"\nsize = "tiny"\ndim = 64\n[train]\nlog-every = 7\n'
    )
    (tmp_path / "wide-toy.toml").write_text('base = "small_toy"\nseed = 2\n[model]\nhidden_dim = 128\n')
    (tmp_path / "deep-toy.toml").write_text('base = "wide-toy"\n')
    monkeypatch.setattr(recipe, "FOLDER", tmp_path)
    return tmp_path


def test_later_layers_win_and_say_so(folder: Path) -> None:
    resolved = read("wide-toy", ["model.heads=2", "train.steps=10"])
    model = resolved.resolved()["model"]
    assert (model["layers"], model["dim"], model["hidden_dim"], model["heads"]) == (2, 64, 128, 2)
    origins = resolved.origins
    assert origins["model.layers"] == "size tiny"
    assert origins["model.dim"] == "base small-toy"
    assert origins["model.hidden_dim"] == "recipe wide-toy"
    assert origins["model.heads"] == "command line"
    assert origins["model.norm"] == "default"
    assert origins["train.log_every"] == "base small-toy"
    assert (origins["seed"], origins["paper"], origins["reach"]) == ("recipe wide-toy", "base small-toy", "default")
    assert set(resolved.values) == {"paper", "seed", "model", "task", "train"}


def test_the_task_is_that_of_the_model(folder: Path) -> None:
    resolved = read("small-toy")
    assert resolved.resolved()["task"]["name"] == "translation"
    assert resolved.origins["task.name"] == "default"


def test_a_size_named_later_undoes_the_shape_before_it(folder: Path) -> None:
    base = read("wide-toy", ["model.size=base"]).build().model
    assert (base.layers, base.dim, base.hidden_dim, base.heads) == (6, 512, 2048, 8)
    mixed = read("wide-toy", ["model.size=big", "model.layers=3"])
    assert mixed.build().model.layers == 3
    assert mixed.origins["model.dim"] == "size big"


def test_another_model_starts_from_its_own_defaults(folder: Path, plugin: str) -> None:
    resolved = read("wide-toy", [f"model.name={plugin}"])
    assert resolved.resolved()["model"] == {"name": plugin, "depth": 3}
    assert resolved.origins["model.depth"] == "default"


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model of one's own, known while a test runs."""
    monkeypatch.setattr(find, "PLUGINS", {})
    path = tmp_path / "my-own.py"
    path.write_text(
        '"""A model of my own."""\nfrom dataclasses import dataclass\n\n\n'
        '@dataclass(frozen=True, kw_only=True)\nclass Config:\n    """Mine."""\n\n'
        '    depth: int = 3\n    """How deep."""\n'
        "\n\nclass Model:\n    reads_source = False\n"
    )
    return find.add_plugin(path)


def test_a_plugin_is_checked_like_any_model(plugin: str) -> None:
    assert read("my-own", ["model.depth=5"]).build().model.depth == 5
    with pytest.raises(UserError, match="did you mean depth"):
        read("my-own", ["model.deepth=5"])
    config = find.find("models", plugin).Config(depth=4)
    assert Recipe.make(model=config).model == config


def test_a_bare_model_is_a_recipe_on_miniworld(folder: Path) -> None:
    built = read("transformer", ["data.train=my.tsv"]).build()
    assert (built.name, built.model_name, built.task_name) == ("transformer", "transformer", "translation")
    assert (built.data.corpus, built.data.train) == ("miniworld", "my.tsv")


@pytest.mark.parametrize("name", ["small-toy", "small_toy", "Small-Toy"])
def test_dashes_and_underscores_are_alike(folder: Path, name: str) -> None:
    resolved = read(name, ["train.log-every=9"])
    assert resolved.name == "small-toy"
    assert resolved.resolved()["train"]["log_every"] == 9


def test_a_path_and_a_run_folder_are_recipes(folder: Path, tmp_path: Path) -> None:
    first = read("wide-toy", ["data.corpus=none", "train.steps=5"])
    run = tmp_path / "runs" / "mine"
    run.mkdir(parents=True)
    (run / "recipe.toml").write_text(first.to_toml(), encoding="utf-8")
    again = read(str(run))
    assert again.name == "mine"
    assert again.resolved() == first.resolved()
    assert again.resolved()["data"]["corpus"] is None
    assert again.origins["model.dim"] == f"run {run}"
    assert read(str(run / "recipe.toml")).resolved() == first.resolved()
    assert difference(first, again) == []


def test_show_is_toml_with_origins(folder: Path) -> None:
    resolved = read("wide-toy", ['data.train=["가.txt", "b # c.txt"]', "data.corpus=none"])
    shown = resolved.show()
    (folder / "shown.toml").write_text("\n".join(shown), encoding="utf-8")
    assert read(str(folder / "shown.toml")).resolved() == resolved.resolved()
    (line,) = [line for line in shown if line.startswith("dim =")]
    assert line.split() == ["dim", "=", "64", "#", "base", "small-toy"]
    assert any(line.startswith("# columns not set") for line in shown)


def test_overrides_can_be_added_later(folder: Path) -> None:
    resolved = read("small-toy")
    assert resolved.with_overrides([]) is resolved
    assert resolved.with_overrides(["seed=3"]).build().seed == 3
    assert resolved.build().seed == 1


def test_the_difference_of_two_recipes(folder: Path) -> None:
    old = read("small-toy", ["train.steps=1000", "reach=much"])
    new = old.with_overrides(["train.steps=2000", "train.patience=3", "reach=more"])
    assert difference(old, new) == ["train.steps: 1000 → 2000", "train.patience: not set → 3"]


def test_python_is_equal() -> None:
    from mallang.models import transformer

    model = transformer.Config(layers=2, dim=32, heads=4)
    made = Recipe.make(model=model, optimizer=optimizer.Config(betas=(0.8, 0.9)), seed=3, name="mine")
    typed = read(
        "transformer", ["model.layers=2", "model.dim=32", "model.heads=4", "optimizer.betas=[0.8, 0.9]", "seed=3"]
    )
    assert (made.name, made.seed, made.model, made.schedule) == ("mine", 3, model, schedule.Config())
    assert difference(typed, made.resolved) == []
    assert made.resolved.origins["model.layers"] == "python"
    assert typed.build().optimizer == made.optimizer


def test_python_is_checked_too() -> None:
    from mallang.models import transformer

    with pytest.raises(UserError, match="did you mean optimizer"):
        Recipe.make(model=transformer.Config(), optimiser=optimizer.Config())
    with pytest.raises(UserError, match="give the Config of a schedule"):
        Recipe.make(model=transformer.Config(), schedule=optimizer.Config())
    with pytest.raises(UserError, match="names no model"):
        Recipe.make(optimizer=optimizer.Config())
    wrong = schedule.Config()
    object.__setattr__(wrong, "warmup", "many")
    with pytest.raises(UserError, match=r'schedule.warmup = "many": should be a valid integer\n  where: python'):
        Recipe.make(model=transformer.Config(), schedule=wrong)


@pytest.mark.parametrize(
    ("name", "overrides", "said"),
    [
        ("small-toi", [], "there is no recipe 'small-toi'\n  try:   did you mean small-toy"),
        ("small", [], "did you mean small-toy?"),
        ("deep-toy", [], "the base wide-toy has a base itself"),
        ("nowhere/x.toml", [], "nowhere/x.toml does not exist"),
        (".", [], ". is not a run folder: it holds no recipe.toml"),
        ("small-toy", ["model.layer=6"], "model.layer: the model transformer has no layer\n  where: command line"),
        ("small-toy", ["model.layer=6"], "did you mean layers"),
        (
            "small-toy",
            ["modle.layers=6"],
            "a recipe has no section [modle]\n  where: command line\n  try:   did you mean model",
        ),
        ("small-toy", ["train.step=6"], "train.step: [train] has no step"),
        ("small-toy", ["layers=6"], "did you mean model.layers?"),
        (
            "small-toy",
            ["train.seed=1"],
            "train.seed: [train] has no seed\n  where: command line\n  try:   did you mean seed=1?",
        ),
        ("small-toy", ["train.beam=8"], "did you mean decoding.beam=8?"),
        ("small-toy", ["optimizer.warmup=10"], "did you mean schedule.warmup=10?"),
        ("small-toy", ["model.smoothing=katz"], "the model transformer has no smoothing"),
        ("small-toy", ["sede=6"], "did you mean seed"),
        ("small-toy", ["model=6"], "model is a section, not a value"),
        ("small-toy", ["base=x"], "a base can only be named inside a recipe"),
        ("small-toy", ["model.layers"], "'model.layers' changes nothing in a recipe"),
        ("small-toy", ["=6"], "'=6' changes nothing in a recipe"),
        ("small-toy", ["a.b.c=6"], "'a.b.c=6' changes nothing in a recipe"),
        ("small-toy", ["model.name=transfomer"], "there is no model 'transfomer'\n  where: command line"),
        ("small-toy", ["task.name=translating"], "did you mean translation"),
        ("small-toy", ["model.size=tinny"], "the model transformer has no size 'tinny'"),
    ],
)
def test_unknown_names_get_the_nearest(folder: Path, name: str, overrides: list[str], said: str) -> None:
    with pytest.raises(UserError) as caught:
        read(name, overrides)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[model]\nname = "transformer"\n\n# shape\nlayer = 6\n', "my.toml, line 5"),
        ('[model]\nname = "transfomer"\n', "my.toml, line 2"),
        ('[model]\nname = "transformer"\nsize = "huge"\n', "my.toml, line 3"),
        ('[model]\nname = "transformer"\n[trian]\nsteps = 1\n', "my.toml, line 3"),
        ('seeds = 1\n[model]\nname = "transformer"\n', "my.toml, line 1"),
        ('base = "nothing"\n', "my.toml, line 1"),
        ("[model\n", "my.toml is not TOML: Expected ']'"),
        ("seed = 1\n", "the recipe my names no model"),
        ('model = "transformer"\n', "model is a section, not a value"),
    ],
)
def test_mistakes_in_a_file_are_shown_with_their_line(folder: Path, tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "my.toml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read(str(path))
    assert said in str(caught.value)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="is not TOML"):
        read(str(tmp_path / "my.toml"))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model.layers=six", 'model.layers = "six": should be a valid integer'),
        ('model.layers="6"', 'model.layers = "6": should be a valid integer'),
        ("model.layers=6.0", "model.layers = 6.0: should be a valid integer"),
        ("model.layers=true", "model.layers = true: should be a valid integer"),
        ("model.norm=middle", "model.norm = \"middle\": should be 'post', 'pre' or 'none'"),
        ("model.heads=5", "model: "),
        ("data.train=3", "data.train = 3: should be a valid string or should be a valid list"),
        ("optimizer.betas=[0.9]", "optimizer.betas = [0.9]: "),
        ("train.tensorboard=yes", 'train.tensorboard = "yes": should be a valid boolean'),
        ("seed=one", 'seed = "one": should be a valid integer'),
        ("text.normalization=None", "should be 'NFC', 'NFKC' or 'none'"),
    ],
)
def test_wrong_values_are_refused_with_what_is_expected(folder: Path, override: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        read("small-toy", [override]).build()
    assert said in str(caught.value)
    assert "where: command line" in str(caught.value)


@pytest.mark.parametrize(
    ("override", "todo"),
    [
        ("data.columns=a,b", """data.columns='["a", "b"]'"""),
        ("data.columns=2, 1", "data.columns='[2, 1]'"),
        ("data.train=3", None),
    ],
)
def test_a_list_that_was_typed_as_a_text_is_shown_as_one(folder: Path, override: str, todo: str | None) -> None:
    with pytest.raises(UserError) as caught:
        read("small-toy", [override]).build()
    assert caught.value.todo == todo
    if todo is not None:
        name, _, value = todo.partition("=")
        assert read("small-toy", [f"{name}={value.strip(chr(39))}"]).build()


def test_all_wrong_values_are_named_at_once(folder: Path) -> None:
    (folder / "bad-toy.toml").write_text('[model]\nname = "transformer"\nlayers = "x"\n[train]\nlog_every = 0.5\n')
    with pytest.raises(UserError) as caught:
        read("bad-toy", ["seed=a"]).build()
    assert caught.value.what.split("\n") == [
        'seed = "a": should be a valid integer',
        'model.layers = "x": should be a valid integer',
        "train.log_every = 0.5: should be a valid integer",
    ]
    path = folder / "bad-toy.toml"
    assert caught.value.where == f"command line; {path}, line 3; {path}, line 5"


def test_whole_numbers_may_stand_for_fractions(folder: Path) -> None:
    assert read("small-toy", ["model.dropout=0"]).build().model.dropout == 0.0


def test_none_takes_a_value_away(folder: Path) -> None:
    (folder / "timed-toy.toml").write_text('base = "small-toy"\n[train]\nepochs = 3\n')
    built = read("timed-toy", ["train.epochs=none", "train.steps=7"]).build()
    assert (built.train.epochs, built.train.steps) == (None, 7)


names = st.sampled_from(["data.source", "data.target", "paper", "reach"])


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(names, st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_any_text_survives_an_override_and_a_run_folder(texts: dict[str, str]) -> None:
    resolved = read("transformer", [f"{key}={toml.write_value(text)}" for key, text in texts.items()])
    again = reread(resolved)
    assert again == resolved.resolved()
    for dotted, text in texts.items():
        section, _, key = dotted.rpartition(".")
        assert (again[section] if section else again)[key] == text


def reread(resolved: Resolved) -> dict[str, object]:
    import tomllib

    layer = recipe.Layer("again", tomllib.loads(resolved.to_toml()))
    return Resolved("again", (layer,)).resolved()


def test_reading_needs_no_torch() -> None:
    code = (
        "import sys; from mallang.recipe import read; read('transformer-miniworld', ['model.layers=6']).show();"
        "assert 'torch' not in sys.modules and 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_steps_and_epochs_replace_each_other():
    assert read("transformer-miniworld").resolved()["train"]["epochs"] == 4
    shorter = read("transformer-miniworld", ["train.steps=7"])
    assert shorter.resolved()["train"]["steps"] == 7 and shorter.resolved()["train"]["epochs"] is None
    assert shorter.build().train.steps == 7
    again = shorter.with_overrides(["train.epochs=2"]).build().train
    assert (again.steps, again.epochs) == (None, 2)
    with pytest.raises(UserError, match="cannot both decide"):
        read("transformer-miniworld", ["train.steps=7", "train.epochs=2"]).build()


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("seed=-3", "seed = -3: should not be negative"),
        ("optimizer.learning_rate=nan", "optimizer.learning_rate = nan: should be a number that ends"),
        ("optimizer.max_grad_norm=inf", "optimizer.max_grad_norm = inf"),
        ("optimizer.betas=[0.9, nan]", "optimizer.betas"),
        ("schedule.factor=0.3", "have no effect on linear"),
        ("train.ema_decay=0.9 & train.final=last", "has no effect on final"),
    ],
)
def test_numbers_without_end_and_options_without_effect_are_refused(override, said):
    with pytest.raises(UserError, match=re.escape(said)):
        read("transformer-miniworld", override.split(" & ")).build()


def test_a_task_may_have_defaults_of_its_own():
    told = recipe.read("gpt")
    assert told.resolved()["decoding"]["method"] == "sampling"
    assert told.origins["decoding.method"] == "task language_modeling"
    chosen = recipe.read("gpt", ["decoding.method=beam"])
    assert (chosen.resolved()["decoding"]["method"], chosen.origins["decoding.method"]) == ("beam", "command line")
    assert recipe.read("transformer").resolved()["decoding"]["method"] == "beam"
    assert told.build().decoding.method == "sampling"


def test_an_entry_of_a_table_is_not_changed_alone() -> None:
    with pytest.raises(UserError, match="changes one entry of a table") as caught:
        recipe.read("gpt-miniworld", ['task.chat.user="hello"'])
    assert caught.value.todo == """give the table whole: 'task.chat={user="hello"}'"""
