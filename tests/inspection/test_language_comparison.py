"""Language models side by side: the numbers are those of their parts, and what cannot be compared is refused."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
import statistics
from pathlib import Path

import pytest
from matplotlib.image import imread

import mallang
from mallang import recipe as recipes
from mallang.errors import UserError
from mallang.evaluation.significance import paired_bootstrap
from mallang.inspection import language_comparison
from mallang.inspection.cost import state_bytes
from mallang.inspection.language_tables import size
from mallang.inspection.loss_by_position import Range, loss_by_position
from mallang.training.train import Options, train

WORDS = ["나는", "그는", "책을", "물을", "읽는다.", "마신다."]
TINY = (
    "model.size=tiny", "task.name=language_modeling", "text.unit=space", "text.vocabulary=40", "data.train=train.txt",
    "data.valid=valid.txt", "data.test=test.txt", "train.batch_tokens=128", "train.steps=4", "train.workers=0",
    "decoding.max_length=8",
)  # fmt: skip
ALL = ["runs/nplm-seed1", "runs/nplm-seed2", "runs/conv", "runs/gpt"]


def write_lines(path, rows, shift=0):
    lines = [" ".join(WORDS[(row * 5 + place * 3 + shift) % 6] for place in range(1 + row % 5)) for row in range(rows)]
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def make_run(name, model, *overrides):
    recipe = recipes.read(model, [*TINY, *overrides]).build()
    return train(recipe, Options(folder=Path("runs") / name, quiet=True)).folder


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Two seeds of one model, and one each of two others; one is trained on a stream, one can read no more than 24."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mallang.evaluation.score.RESAMPLES", 40)
        patch.setattr(language_comparison, "paired_bootstrap", lambda *given: paired_bootstrap(*given, resamples=100))
        patch.chdir(folder)
        patch.setenv("MALLANG_CACHE", str(folder / "cache"))
        for name, rows, shift in (("train", 60, 0), ("valid", 12, 1), ("test", 30, 2)):
            write_lines(folder / f"{name}.txt", rows, shift)
        for seed in (1, 2):
            make_run(f"nplm-seed{seed}", "nplm", f"seed={seed}")
        stream = ("task.layout=stream", "task.context=16")
        make_run("conv", "conv_lm", *stream, "train.steps=12", "text.unit=char")
        make_run("gpt", "gpt", "model.max_length=24")
        yield folder


@pytest.fixture
def place(home, monkeypatch):
    monkeypatch.chdir(home)
    monkeypatch.setenv("MALLANG_CACHE", str(home / "cache"))
    return home


@pytest.fixture(scope="module")
def found(home):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setenv("MALLANG_CACHE", str(home / "cache"))
        return mallang.compare(ALL, speed=2, samples=2, prompts=("나는", "그는 책을"), context=16)


def test_systems_are_told_from_the_worst_to_the_best(place, found):
    assert found.metric == "perplexity per word" and found.task == "language_modeling"
    values = [system.scores[found.metric].mean for system in found.systems]
    assert values == sorted(values, reverse=True)
    assert sorted(system.name for system in found.systems) == ["conv", "gpt", "nplm (2 seeds)"]
    assert found.baseline == found.systems[0].name
    for system in found.systems:
        assert (system.difference is None) == (system.name == found.baseline)
        run = mallang.load(system.runs[0])
        if len(system.runs) == 1:
            scores, _ = run.evaluate([(line,) for line in Path("test.txt").read_text("utf-8").splitlines()])
            assert {score.name: score.value for score in scores} == {
                name: pytest.approx(value.mean) for name, value in system.scores.items()
            }
            assert all(system.signatures[score.name] == score.signature for score in scores)
        else:
            assert system.scores[found.metric].deviation > 0


def test_differences_are_those_of_nats_per_word(found):
    base = math.log(found.systems[0].scores["perplexity per word"].mean)
    for system in found.systems[1:]:
        if len(system.runs) == 1 and len(found.systems[0].runs) == 1:
            nats = math.log(system.scores["perplexity per word"].mean)
            assert system.difference.difference == pytest.approx(nats - base, abs=1e-4)
            assert 0 < system.difference.p_value <= 1


def test_what_each_costs(place, found):
    for system in found.systems:
        infos = [json.loads(Path(run, "run.json").read_text("utf-8")) for run in system.runs]
        assert system.tokens == statistics.mean(info["tokens"] for info in infos)
        assert system.parameters == infos[0]["parameters"]
        assert system.flops_per_token * system.tokens == pytest.approx(system.flops) and system.flops > 0
        model = mallang.load(system.runs[0]).model
        assert system.weights == 4 * sum(weight.numel() for weight in model.state_dict().values())
        assert system.state == state_bytes(model, 16)
        assert system.texts_per_second > 0 and system.tokens_per_second > 0


def test_what_a_text_leaves_in_memory(place):
    nplm, conv, gpt = (mallang.load(f"runs/{name}").model for name in ("nplm-seed1", "conv", "gpt"))
    assert state_bytes(nplm, 8) == state_bytes(nplm, 50) == 2 * 8  # order 4: two tokens besides the current one
    assert state_bytes(conv, 8) == state_bytes(conv, 50) == 4 * 2 * (32 + 32 + 32)
    assert state_bytes(gpt, 20) == 2 * state_bytes(gpt, 10) > 0
    assert state_bytes(gpt, 25) is None


def test_loss_by_position_is_that_of_the_part(place, found):
    lines = Path("test.txt").read_text("utf-8").splitlines()
    assert found.layout == "lines"  # for one of them has learned from nothing else
    assert [some.name for some in found.ranges] == ["0", "1", "2-3", "4-5"]
    assert sum(len(some) for some in found.ranges) == sum(len(line.split()) + 1 for line in lines)
    conv = next(system for system in found.systems if system.name == "conv")
    curve = loss_by_position(mallang.load("runs/conv"), lines, layout="lines")
    assert conv.by_position[2].mean == pytest.approx(curve.of(Range(2, 3)).value)


def test_what_they_write_stands_side_by_side(found):
    for system in found.systems:
        assert [len(texts) for texts in system.samples] == [2, 2]
        assert all(text.startswith("나는") for text in system.samples[0] if system.name != "conv")
    titles = [table.title for table in found.tables()]
    assert titles[-4:] == ["sample 1 after “나는”", "sample 2 after “나는”", "sample 1 after “그는 책을”",
                           "sample 2 after “그는 책을”"]  # fmt: skip


def test_what_a_reader_must_know_is_noted(found):
    told = "\n".join(found.notes)
    assert "the baseline is " in told and "no common budget: " in told
    assert "the tokenizers differ" in told and "mean ± standard deviation" in told
    assert "perplexity per word of conv: unit:word|ends:counted|log:e|tok:char|layout:stream|context:carried" in told


def test_one_budget_is_told(place):
    same = mallang.compare(["runs/nplm-seed1", "runs/gpt"], speed=0, samples=0)
    assert any(note.startswith("one budget: about ") for note in same.notes)
    assert all(system.samples == [] and system.speed is None for system in same.systems)
    assert not any("tokenizers differ" in note for note in same.notes)
    assert [table.title for table in same.tables()][-1].startswith("nats per word")


def test_another_metric_baseline_and_positions(place):
    options = {"speed": 0, "samples": 0, "metric": "byte", "baseline": "runs/conv", "lengths": [2]}
    told = mallang.compare(["runs/gpt"], **options)
    assert told.metric == "bits per byte" and told.baseline == "conv"
    assert [some.name for some in told.ranges] == ["0-2", "3-5"]


def test_two_streams_are_read_in_windows(place):
    if not Path("runs/conv2").exists():
        make_run("conv2", "conv_lm", "task.layout=stream", "task.context=8", "model.dim=16", "model.embedding_dim=16")
    told = mallang.compare(["runs/conv", "runs/conv2"], speed=0, samples=0, context=12)
    assert told.layout == "stream"
    assert [some.name for some in told.ranges] == ["0", "1", "2-3", "4-7", "8-11"]
    assert "in a window of 12" in str(told)


def test_the_same_numbers_in_every_form(found):
    told = json.loads(json.dumps(found.to_json()))
    lines = list(csv.DictReader(io.StringIO(found.to_csv())))
    for system, line, each in zip(told["systems"], lines, found.systems, strict=True):
        value = each.scores["perplexity per word"]
        assert system["scores"]["perplexity per word"]["mean"] == float(line["perplexity per word"]) == value.mean
        assert f"| {each.name} | {value.mean:.2f}" in found.to_markdown()
        assert line["perplexity per word signature"] == system["scores"]["perplexity per word"]["signature"]
        assert len(system["by_position"]) == len(told["positions"]) == 4
    plain = str(found).splitlines()
    assert plain[0] == "30 lines of test.txt"
    assert plain[1].startswith("system  ")


def test_the_figure_is_drawn(found, tmp_path):
    path = found.draw(tmp_path / "models.png")
    assert imread(path).std() > 0.05


def test_runs_are_read_once(place, monkeypatch):
    said = []
    mallang.compare(["runs/nplm-seed1", "runs/gpt"], speed=0, samples=0, say=said.append)
    assert not any("reading" in text for text in said)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "bleu"}, "language models have no bleu"),
        ({"metric": "words"}, "language models have no words"),
        ({"metric": "wordy"}, "no metric 'wordy'"),
        ({"samples": -1}, "-1 samples"),
        ({"context": 0}, "context = 0"),
        ({"lengths": [5, 2]}, "do not rise"),
    ],
)
def test_bad_options(place, options, message):
    with pytest.raises(UserError, match=message):
        mallang.compare(["runs/nplm-seed1", "runs/gpt"], **{"speed": 0, **options})


def test_a_translation_and_a_language_model_do_not_stand_in_one_table(place, tmp_path):
    shutil.copytree("runs/gpt", tmp_path / "other")
    about = tmp_path / "other/run.json"
    about.write_text(about.read_text("utf-8").replace('"language_modeling"', '"translation"'), "utf-8")
    with pytest.raises(UserError, match="different tasks"):
        mallang.compare(["runs/gpt", tmp_path / "other"])


def test_bytes_as_people_say_them():
    assert [size(number) for number in (None, 32, 4610, 2_010_000)] == ["–", "32 B", "4.61 kB", "2.01 MB"]
