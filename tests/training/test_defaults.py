"""Defaults that fit the data: sane, beneath all that is given, and never under a recipe."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path

import pytest

from commands.running import mallang, write_corpus
from mallang import recipe as recipes
from mallang.data.corpus import open_corpus
from mallang.errors import UserError
from mallang.find import find
from mallang.training import defaults
from mallang.training.defaults import (
    FEW,
    SHAPES,
    TIERS,
    Counted,
    fit_recipe,
    fitted,
    messages,
    tier_of,
    with_defaults,
    with_fitted,
)

SIZES = {30: 600, 500: 9000, 5000: 90_000, 30_000: 550_000, 2_000_000: 30_000_000, 9_000_000: 150_000_000}
"""Numbers of pairs, and the tokens of one side."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_corpus(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def own(*overrides: str, model: str = "transformer") -> recipes.Resolved:
    return with_defaults(recipes.read(model, ["data.train=train.tsv", *overrides]))[0]


def counted(examples: int) -> Counted:
    return Counted("mine.tsv", examples, SIZES[examples], "pair")


def test_more_text_never_has_fewer_words_smaller_batches_or_more_dropout() -> None:
    for less, more in itertools.pairwise(TIERS):
        assert less.tokens < more.tokens and less.size <= more.size and less.dropout >= more.dropout
        assert all(getattr(less, key) <= getattr(more, key) for key in ("vocabulary", "batch_tokens"))
        assert less.smoothing >= more.smoothing
    assert all(len(shapes) > max(tier.size for tier in TIERS) for shapes in SHAPES.values())


@pytest.mark.parametrize(("model", "examples"), list(itertools.product(SHAPES, SIZES)))
def test_every_model_gets_values_that_its_config_takes(model: str, examples: int) -> None:
    given = recipes.read(model, ["data.train=mine.tsv"])
    values = fitted(counted(examples), model, given.values)
    layer = recipes.Layer("fitted", {**values, "model": {"name": model, **values.get("model", {})}})
    recipe = recipes.Resolved(model, (layer, *given.layers)).build()
    assert recipe.schedule.warmup * 10 == recipe.train.steps, "a tenth of the training is warm-up"
    assert recipe.train.validate_every is not None and recipe.train.steps is not None
    assert recipe.train.validate_every * 10 <= recipe.train.steps, "often enough to see how it goes"
    if recipe.task_name == "translation":
        assert recipe.train.final == "last" and recipe.train.patience is None
    elif recipe.task_name == "unsupervised_translation":  # round trips get better for a long time
        assert recipe.train.final == "best" and recipe.train.patience is None
    else:
        assert recipe.train.final == "best" and recipe.train.patience is not None
        assert recipe.train.validate_every * 2 * recipe.train.patience <= recipe.train.steps, "often enough to stop"
    assert recipe.text.vocabulary == tier_of(counted(examples)).vocabulary


def test_models_without_gradients_are_left_alone_but_for_the_rows_held_out() -> None:
    for model in ("ngram", "lexicon"):
        given = recipes.read(model, ["data.train=mine.tsv"])
        assert fitted(counted(500), model, given.values) == {"data": {"hold_out": 0.1}}


@pytest.mark.parametrize("name", recipes.names())
def test_a_recipe_is_never_touched(name: str) -> None:
    for overrides in ([], ["data.train=train.tsv", "data.valid=valid.tsv"]):
        resolved = recipes.read(name, overrides)
        assert with_defaults(resolved) == (resolved, [])


def test_a_bare_model_on_miniworld_is_never_touched() -> None:
    resolved = recipes.read("transformer")
    assert with_defaults(resolved) == (resolved, [])


def test_the_origin_is_shown_and_what_is_given_wins(home: Path) -> None:
    resolved = own("model.layers=1", "optimizer.learning_rate=0.5", "text.vocabulary=77")
    lines = {line.split(" = ")[0]: line for line in resolved.show() if " = " in line}
    assert "fitted to 200 pairs" in lines["warmup"] and "fitted to 200 pairs" in lines["hidden_dim"]
    assert "command line" in lines["layers"]
    recipe = resolved.build()
    assert (recipe.model.layers, recipe.optimizer.learning_rate, recipe.text.vocabulary) == (1, 0.5, 77)


def test_a_size_wins_over_the_fitted_shape(home: Path) -> None:
    recipe = own("model.size=small").build()
    assert (recipe.model.hidden_dim, recipe.optimizer.learning_rate) == (1024, 1e-3), (
        "the fitted rate is that of the fitted shape"
    )
    assert own().build().optimizer.learning_rate == TIERS[0].rate


def test_warm_up_and_validations_follow_the_length_that_is_given(home: Path) -> None:
    by_steps = own("train.steps=400").build()
    assert (by_steps.schedule.warmup, by_steps.train.validate_every) == (40, 40)
    by_epochs = own("train.epochs=100", "train.batch_tokens=256").build()
    assert by_epochs.train.steps is None and by_epochs.train.epochs == 100
    assert 20 <= by_epochs.schedule.warmup <= 500


GIVEN = [
    ["train.final=best"], ["train.keep=2", "train.final=average"], ["train.ema_decay=0.99"], ["schedule.name=noam"],
    ["optimizer.name=sgd"], ["text.unit=char"], ["data.valid=valid.tsv"], ["data.hold_out=0.2"], ["data.hold_out=0"],
    ["model.dim=96"], ["model.dim=300"], ["model.embedding_dim=100"], ["model.blocks=0"], ["model.heads=12"],
    ["model.blocks=0", "model.dim=128"], ["model.size=tiny"], ["text.shared=false", "text.source_unit=word"],
    ["text.shared=false", "model.tie_weights=target"],
]  # fmt: skip


@pytest.mark.parametrize("model", SHAPES)
def test_fitted_values_never_contradict_what_is_given(home: Path, model: str) -> None:
    tried = 0
    for given in GIVEN:
        try:
            recipes.read(model, ["data.train=train.tsv", "data.columns=[1, 2]", *given]).build()
        except UserError:
            continue  # not for this model, with or without fitted values
        tried += 1
        needed = len(find("tasks", recipes.read(model).build().task_name).Task.columns)
        columns = f"data.columns={[1, 2][:needed]}"
        resolved = own(columns, *given, model=model)
        resolved.build()
        assert {resolved.origins[text.partition("=")[0]] for text in given} == {"command line"}
    assert tried > 8


@pytest.mark.parametrize(
    ("given", "context"),
    [
        (["model.size=tiny"], 64), (["model.max_length=64"], 64), (["train.batch_tokens=100"], 100), ([], 128),
        (["data.max_length=512"], None), (["data.min_length=2"], None),
    ],
)  # fmt: skip
def test_a_stream_has_windows_that_the_model_and_the_batch_have_room_for(
    home: Path, given: list[str], context: int | None
) -> None:
    (home / "book.txt").write_text("".join(f"{n} " + "word " * 80 + "\n" for n in range(30)), "utf-8")
    recipe = with_defaults(recipes.read("gpt", ["data.train=book.txt", *given]))[0].build()
    assert (recipe.task.layout, recipe.task.context) == ("stream" if context else "sentences", context)
    if given == ["data.max_length=512"]:
        assert recipe.model.max_length > 512, "a line of so many tokens and its end have room"


def test_what_is_left_out_is_only_what_contradicts(home: Path) -> None:
    model = own("data.columns=[1]", "model.dim=300", model="nplm").build().model
    assert (model.dim, model.embedding_dim, model.tie_weights, model.dropout) == (300, 128, False, TIERS[0].dropout)
    units = own("text.shared=false", "text.source_unit=word")
    assert units.origins["text.vocabulary"] == "default" and units.origins["train.steps"].startswith("fitted")


def test_no_share_is_told_where_none_is_held_out(home: Path) -> None:
    _, told = with_defaults(recipes.read("ngram", ["data.train=train.tsv", "data.columns=[1]", "data.hold_out=0"]))
    assert not told


def test_of_few_rows_two_or_more_are_held_out_and_most_are_trained_on(home: Path) -> None:
    shares = set()
    for number in range(30):
        (home / "few.tsv").write_text("".join(f"s{number} {n}\tt {n}\n" for n in range(20)), "utf-8")
        recipe = own("data.train=few.tsv").build()
        corpus = open_corpus(recipe.data, ("source", "target"))
        assert len(list(corpus.split("valid"))) >= 2 and len(list(corpus.split("train"))) >= 10
        shares.add(recipe.data.hold_out)
    assert {0.1, 0.2} <= shares
    (home / "equal.tsv").write_text("a\tb\n" * 50, "utf-8")
    with pytest.raises(UserError, match="50 pairs, too many of them equal"):
        own("data.train=equal.tsv")


def test_files_longer_than_what_is_counted_are_not_said_to_be_shorter(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(defaults, "MOST_ROWS", 150)
    assert "fitted to 150 pairs or more" in own().origins.values()


def test_one_file_is_enough_and_too_little_is_said_before_training(home: Path) -> None:
    _, told = with_defaults(recipes.read("transformer", ["data.train=train.tsv"]))
    assert any("10.00% of the rows are held out" in line for line in told)
    assert any("warning: 200 pairs are few" in line for line in told)
    (home / "few.tsv").write_text("a\tb\n" * 5, "utf-8")
    with pytest.raises(UserError, match="5 pairs, too few to keep some"):
        with_defaults(recipes.read("transformer", ["data.train=few.tsv"]))
    recipe = with_defaults(recipes.read("transformer", ["data.train=few.tsv", "data.valid=few.tsv"]))[0].build()
    assert recipe.data.hold_out == 0.0


def test_a_run_that_starts_from_another_keeps_its_shape_and_tokenizer(home: Path) -> None:
    resolved, _ = with_fitted(recipes.read("transformer", ["data.train=train.tsv"]), is_started=True)
    fits = [key for key, origin in resolved.origins.items() if origin.startswith("fitted")]
    assert fits and not any(key.startswith(("model.", "text.")) for key in fits)


def test_a_run_says_them_writes_them_and_is_the_same_when_the_command_is_repeated(home: Path) -> None:
    quick = ("train", "transformer", "data.train=train.tsv", "model.size=tiny", "train.steps=4", "train.workers=0")
    ended = mallang(*quick, cwd=home)
    assert ended.code == 0, ended.err
    assert "fitted to 200 pairs: " in ended.err and "text.vocabulary=2000" in ended.err
    written = tomllib.loads((home / "runs/transformer/recipe.toml").read_text("utf-8"))
    assert written["data"]["hold_out"] == 0.1 and written["train"]["final"] == "last"
    again = mallang(*quick, cwd=home)
    assert again.code == 2 and "is finished" in again.err and "changed" not in again.err
    scored = mallang("evaluate", "runs/transformer", "--split", "valid", "--search", "max_length=5", cwd=home)
    assert scored.code == 0, scored.err


@pytest.mark.parametrize("model", ["gpt", "nplm", "char_aware", "convs2s"])
def test_other_models_train_on_one_file_of_their_own(home: Path, model: str) -> None:
    text = "".join(f"{line}\n" for line in (home / "train.tsv").read_text("utf-8").split("\n")[:60])
    (home / "mine.txt").write_text(text, "utf-8")
    file = "train.tsv" if model == "convs2s" else "mine.txt"
    ended = mallang("train", model, f"data.train={file}", "train.steps=1", "train.workers=0", cwd=home)
    assert ended.code == 0, ended.err


def test_a_text_of_long_lines_is_read_as_a_stream_and_none_is_left_out(home: Path) -> None:
    sentences = (home / "train.tsv").read_text("utf-8").split("\n")
    (home / "book.txt").write_text("".join(" ".join(sentences[n : n + 60]) + "\n" for n in range(40)), "utf-8")
    ended = mallang("train", "gpt", "data.train=book.txt", "train.steps=1", "train.workers=0", cwd=home)
    assert ended.code == 0, ended.err
    assert "task.layout=stream" in ended.err and "(100.0%)" in ended.err
    short = with_defaults(recipes.read("gpt", ["data.train=train.tsv", "data.columns=[1]"]))[0].build()
    assert short.task.layout == "sentences"


def test_a_recipe_that_is_built_already_is_fitted_too(home: Path) -> None:
    said: list[str] = []
    bare = recipes.read("transformer", ["data.train=train.tsv"]).build()
    assert fit_recipe(bare, said.append) == own().build() != bare and said
    whole = recipes.read("transformer-miniworld").build()
    said.clear()
    assert fit_recipe(whole, said.append) is whole and not said


@pytest.mark.parametrize("examples", [FEW - 1, FEW, FEW + 1])
def test_every_row_of_few_has_its_place(examples: int, tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").write_text("".join(f"ko{number}\ten{number}\n" for number in range(examples)), "utf-8")
    rows = open_corpus(
        recipes.read("transformer-miniworld", [f"data.train={tmp_path / 'mine.tsv'}"]).build().data,
        ("source", "target"),
    )
    counted = defaults.count(rows.split("train"))
    assert counted.examples == examples and len(counted.places) == (examples if examples <= FEW else 0)


@pytest.mark.parametrize(("examples", "warned"), [(FEW - 1, True), (FEW, False)])
def test_few_examples_are_warned_about(examples: int, warned: bool) -> None:
    counted = Counted("mine.tsv", examples, 5000, "pair")
    lines = messages(counted, {"model": {"name": "transformer", "dim": 64}, "train": {"steps": 7}})
    assert lines[0] == f"fitted to {counted}: model.dim=64 train.steps=7"
    assert [line.startswith("warning: ") for line in lines[1:]] == [True] * warned


def test_a_model_alone_is_no_fit() -> None:
    assert messages(Counted("mine.tsv", 5000, 5000, "pair"), {"model": {"name": "transformer"}}) == []


@pytest.mark.parametrize(("rows", "epochs", "batch"), [(300, 30, 1024), (3000, 15, 2048)])
def test_small_files_of_labels_are_read_more_often(tmp_path, rows, epochs, batch):
    path = tmp_path / "labels.tsv"
    path.write_text("text\tlabel\n" + "".join(f"text {n}\t{n % 2}\n" for n in range(rows)), "utf-8")
    found, said = with_defaults(recipes.read("bag_of_means", [f"data.train={path}"]))
    train = found.resolved()["train"]
    assert (train["epochs"], train["batch_tokens"], train["patience"]) == (epochs, batch, 5)
    assert f"fitted to {rows:,} labeled texts" in " ".join(said)
    kept, _ = with_defaults(recipes.read("bag_of_means", [f"data.train={path}", "train.steps=7", "text.unit=char"]))
    assert kept.resolved()["train"]["steps"] == 7 and kept.resolved()["train"]["epochs"] is None
    assert kept.origins["text.vocabulary"] == "default"


def test_an_encoder_for_few_labels_is_small_unless_its_size_is_given(tmp_path):
    path = tmp_path / "labels.tsv"
    path.write_text("text\tlabel\n" + "".join(f"text {n}\t{n % 2}\n" for n in range(300)), "utf-8")
    assert with_defaults(recipes.read("bert", [f"data.train={path}"]))[0].resolved()["model"]["layers"] == 4
    given, _ = with_defaults(recipes.read("bert", [f"data.train={path}", "model.size=base"]))
    assert given.resolved()["model"]["layers"] == 12
    found = with_defaults(recipes.read("self_attentive", [f"data.train={path}", "model.views=5"]))[0].resolved()[
        "model"
    ]
    assert (found["hidden_dim"], found["views"], found["penalty"]) == (200, 5, 0.1)
    given, _ = with_defaults(recipes.read("self_attentive", [f"data.train={path}", "model.size=base"]))
    assert given.resolved()["model"]["hidden_dim"] == 3000 and given.resolved()["model"]["penalty"] == 1.0
