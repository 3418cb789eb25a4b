"""Runs side by side: what is compared, what is refused, and that the numbers are those of the parts they come from."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import statistics
import tempfile
from pathlib import Path

import pytest
from matplotlib.image import imread

import mallang
from mallang import recipe as recipes
from mallang.commands import evaluate
from mallang.errors import UserError
from mallang.evaluation.significance import paired_bootstrap
from mallang.evaluation.translation import bleu, exact_match
from mallang.inspection import comparison, cost, systems
from mallang.inspection.comparison import compare
from mallang.inspection.comparison_tables import plain, scientific, short, width
from mallang.inspection.outputs import Scorable, kept
from mallang.runs.folder import Run
from mallang.training.train import Options, train

TINY = (
    "model.size=tiny", "model.layers=1", "text.vocabulary=120", "data.train=train.tsv", "data.valid=valid.tsv",
    "data.test=test.tsv", "train.batch_tokens=256", "train.steps=4", "train.workers=0", "decoding.max_length=8",
)  # fmt: skip
WORDS = ["하나", "둘", "셋", "넷", "다섯"], ["one", "two", "three", "four", "five"]


def write_pairs(path, rows, shift=0):
    pairs = []
    for row in range(rows):
        picks = [(row * 7 + place * 3 + shift) % 5 for place in range(1 + row % 6)]
        pairs.append("\t".join(" ".join(side[pick] for pick in picks) for side in WORDS))
    path.write_text("".join(f"{pair}\n" for pair in pairs), "utf-8")


def make_run(name, *overrides):
    recipe = recipes.read("transformer", [*TINY, *overrides]).build()
    return train(recipe, Options(folder=Path("runs") / name, quiet=True)).folder


@pytest.fixture(scope="module", autouse=True)
def few_draws():
    """Intervals from 40 draws in place of 1,000, and tests from 100: the numbers are others, what is done is not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mallang.evaluation.score.RESAMPLES", 40)
        patch.setattr(comparison, "paired_bootstrap", quick_test)
        yield


def quick_test(*given):
    return paired_bootstrap(*given, resamples=100)


@pytest.fixture(scope="module")
def home(tmp_path_factory, few_draws):
    """Three seeds of one recipe and one run of another, trained for a moment."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MALLANG_CACHE", str(folder / "cache"))
        for name, rows, shift in (("train", 40, 0), ("valid", 12, 1), ("test", 48, 2)):
            write_pairs(folder / f"{name}.tsv", rows, shift)
        for seed in (1, 2, 3):
            make_run(f"꼬마-seed{seed}", f"seed={seed}")
        make_run("wide", "model.dim=48", "train.steps=6")
    return folder


@pytest.fixture(scope="module")
def found(home):
    """All of them compared, once: their folders now hold outputs and costs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        patch.setenv("MALLANG_CACHE", str(home / "cache"))
        return mallang.compare(ALL, speed=4)


@pytest.fixture
def place(home, found, tmp_path, monkeypatch):
    """A copy of it to do anything with."""
    shutil.copytree(home, tmp_path / "home")
    monkeypatch.chdir(tmp_path / "home")
    monkeypatch.setenv("MALLANG_CACHE", str(home / "cache"))
    return tmp_path / "home"


def edit(run, old, new):
    """Another recipe.toml."""
    written = Path(run, "recipe.toml")
    text = written.read_text("utf-8")
    assert old in text
    written.write_text(text.replace(old, new), "utf-8")


@pytest.fixture
def read_only(home, found, monkeypatch):
    """A copy that may be read but not written to, even by root, without outputs, scores and costs in it."""
    folder = Path(tempfile.mkdtemp())  # not below the folders of pytest, which are for their owner alone
    shutil.copytree(home / "runs", folder / "runs")
    for path in folder.glob("runs/*"):
        shutil.rmtree(path / "outputs", ignore_errors=True)
        shutil.rmtree(path / "scores", ignore_errors=True)
        (path / "cost.json").unlink(missing_ok=True)
    for name in ("train", "valid", "test"):
        shutil.copy(home / f"{name}.tsv", folder)
    (folder / "cache").mkdir()
    (folder / "cache").chmod(0o777)
    shut = [folder, *(path for path in (folder / "runs").rglob("*") if path.is_dir()), folder / "runs"]
    for path in shut:
        path.chmod(0o555)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MALLANG_CACHE", str(folder / "cache"))
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield folder
    os.seteuid(user)
    for path in shut:
        path.chmod(0o755)
    shutil.rmtree(folder)


def test_runs_that_are_read_only_are_compared(read_only, found):
    said = []
    again = mallang.compare(ALL, speed=0, say=said.append)
    for system, before in zip(again.systems, found.systems, strict=True):
        assert (system.name, system.scores, system.flops) == (before.name, before.scores, before.flops)
    assert [text for text in said if "read-only" in text] == [
        f"note: {run} is read-only: its outputs and scores were not kept" for run in ALL
    ]
    assert not list(read_only.glob("runs/*/outputs")) and not list(read_only.glob("runs/*/cost.json"))


def test_a_run_that_is_read_only_is_evaluated(read_only, capsys):
    evaluate.command(run=Path("runs/wide"), device="cpu")
    written = capsys.readouterr()
    assert "BLEU" in written.out
    assert "note: runs/wide is read-only: outputs and scores of test were not kept" in written.err
    assert not list(read_only.glob("runs/*/outputs"))


def test_what_was_unequal_is_reported(found):
    told = "\n".join(found.notes)
    assert "4 to 6 updates" in told and " tokens read in training, " in told and " seconds of training" in told
    assert "the models differ in size: " in told


def test_one_budget_of_translations_is_reported(place):
    for run in ALL:
        info = json.loads((place / run / "run.json").read_text("utf-8"))
        info |= {"tokens": 1000, "parameters": 5000, "steps": 4}
        (place / run / "run.json").write_text(json.dumps(info), "utf-8")
    told = "\n".join(compare(ALL, speed=0).notes)
    assert "one budget: about 1 k tokens" in told and "differ in size" not in told


ALL = ["runs/꼬마-seed1", "runs/꼬마-seed2", "runs/꼬마-seed3", "runs/wide"]


def test_seeds_are_one_system_and_numbers_are_those_of_their_runs(place, found):
    by_name = {system.name: system for system in found.systems}
    assert set(by_name) == {"꼬마 (3 seeds)", "wide"}
    rows = [line.split("\t") for line in (place / "test.tsv").read_text("utf-8").splitlines()]
    references = [target for _, target in rows]
    outputs = {run: (place / run / "outputs" / "test.txt").read_text("utf-8").splitlines() for run in ALL}
    values = [bleu(outputs[run], references).value for run in ALL[:3]]
    group, wide = by_name["꼬마 (3 seeds)"], by_name["wide"]
    assert group.scores["BLEU"].mean == pytest.approx(statistics.mean(values))
    assert group.scores["BLEU"].deviation == pytest.approx(statistics.stdev(values))
    alone = bleu(outputs["runs/wide"], references)
    assert (wide.scores["BLEU"].mean, wide.scores["BLEU"].low) == (alone.value, alone.low)
    assert wide.scores["exact match"].mean == exact_match(outputs["runs/wide"], references).value
    assert group.runs == tuple(ALL[:3])
    middle = ALL[values.index(statistics.median(values))]
    other = group if wide.difference is None else wide
    assert found.baseline == min(by_name.values(), key=lambda system: system.scores["BLEU"].mean).name
    pair = (outputs["runs/wide"], outputs[middle]) if other is wide else (outputs[middle], outputs["runs/wide"])
    assert other.difference == quick_test(*pair, references, "bleu")
    base = next(system for system in found.systems if system.name == found.baseline).scores["BLEU"].mean
    assert other.error_reduction == pytest.approx(100 * (other.scores["BLEU"].mean - base) / (100 - base))


def test_costs_are_those_of_the_runs(place, found, monkeypatch):
    wide = next(system for system in found.systems if system.name == "wide")
    info = Run.open("runs/wide").info
    assert (wide.parameters, wide.tokens, wide.seconds) == (info["parameters"], info["tokens"], info["seconds"])
    each = json.loads((place / "runs/wide/cost.json").read_text("utf-8"))["flops_per_token"]
    assert wide.flops == pytest.approx(each * info["tokens"])
    # Six products for each weight that a token meets, once in the encoder and once in the decoder: roughly.
    assert 2 * info["parameters"] < each < 12 * info["parameters"]
    group = next(system for system in found.systems if system is not wide)
    assert group.flops < wide.flops
    # Counted once: the number in the folder is used, and counted again once it belongs to another recipe.
    monkeypatch.setattr(cost, "count", lambda run: 1.0)
    assert cost.training_flops(Run.open("runs/wide")) == wide.flops
    edit("runs/wide", "[data]", "# changed\n[data]")
    assert cost.training_flops(Run.open("runs/wide")) == info["tokens"]


def test_flops_are_believed_or_left_out(place, monkeypatch):
    Run.open("runs/wide").update(flops=123.0)
    Path("runs/꼬마-seed3/cost.json").unlink()

    def gone(recipe, folder):
        raise UserError("the text is gone")

    monkeypatch.setattr(cost, "prepare_data", gone)
    found = compare(ALL[2:], speed=0)
    by_name = {system.name: system for system in found.systems}
    assert by_name["wide"].flops == 123.0
    assert by_name["꼬마-seed3"].flops is None
    assert any("FLOPs of training were not counted" in note for note in found.notes)
    assert "–" in str(found)
    found.draw("without.png")


def test_speed_is_measured_on_the_same_sentences(place, monkeypatch):
    seen = []

    def measure(model, texts, domains, **search):
        seen.append((tuple(texts), tuple(domains), search))
        return cost.decoding_speed(model, texts, domains, **search)

    monkeypatch.setattr("mallang.inspection.entrants.decoding_speed", measure)
    found = compare(ALL[2:], speed=5, search={"beam": 2})
    assert len(seen) == 2 and seen[0] == seen[1]
    assert len(seen[0][0]) == 5 and seen[0][2] == {"beam": 2}
    assert all(system.sentences_per_second > 0 and system.tokens_per_second > 0 for system in found.systems)


def test_outputs_are_used_again_only_while_they_are_the_runs_own(place, monkeypatch):
    loads = []
    monkeypatch.setattr(
        "mallang.inspection.entrants.load",
        lambda path, device: loads.append(str(path)) or mallang.load(path, device),
    )
    first = compare(ALL[2:], speed=0)
    assert loads == []
    assert first.systems[0].speed is None
    compare(ALL[2:], speed=0, search={"method": "greedy"})
    assert loads == ALL[2:]  # another search
    loads.clear()
    outputs = place / "runs/wide/outputs/test.txt"
    outputs.write_text(outputs.read_text("utf-8").replace("one", "uno") + "more\n", "utf-8")
    compare(ALL[2:], speed=0, search={"method": "greedy"})
    assert loads == ["runs/wide"]  # someone has changed the file
    loads.clear()
    Run.open("runs/wide").update(weights=None)
    compare(ALL[2:], speed=0, search={"method": "greedy"})
    assert loads == ["runs/wide"]  # other weights
    loads.clear()
    write_pairs(place / "test.tsv", 20, shift=3)
    compare(ALL[2:], speed=0, search={"method": "greedy"})
    assert loads == ALL[2:]  # other rows
    (place / "runs/wide/scores/test.json").write_text("{", "utf-8")
    assert kept(place / "runs/wide", "test", {}, 20) is None


def test_quality_by_source_length(place):
    found = compare(ALL[2:], speed=0, lengths=[2, 4])
    rows = [line.split("\t") for line in (place / "test.tsv").read_text("utf-8").splitlines()]
    outputs = (place / "runs/wide/outputs/test.txt").read_text("utf-8").splitlines()
    wide = next(system for system in found.systems if system.name == "wide")
    assert [bucket.name for bucket in found.buckets] == ["1-2", "3-4", "5+"]
    for bucket, value in zip(found.buckets, wide.by_length, strict=True):
        mine = [
            (output, target)
            for (source, target), output in zip(rows, outputs, strict=True)
            if bucket.low <= len(source.split()) <= (bucket.high or 99)
        ]
        assert len(mine) == len(bucket) > 0
        assert value.mean == pytest.approx(bleu(*zip(*mine, strict=True)).value)


def test_several_corpora_are_scored_together(place, monkeypatch):
    rows = [tuple(line.split("\t")) for line in (place / "test.tsv").read_text("utf-8").splitlines()]
    parts = [Scorable("a-test", rows[:20], "a"), Scorable("b-test", rows[20:], "b")]
    monkeypatch.setattr("mallang.inspection.entrants.read_parts", lambda run, split, data, corpus: parts)
    found = compare(ALL[2:], speed=0)
    outputs = [
        output
        for name in ("a-test", "b-test")
        for output in (place / f"runs/wide/outputs/{name}.txt").read_text("utf-8").splitlines()
    ]
    wide = next(system for system in found.systems if system.name == "wide")
    assert found.rows == len(outputs) == len(rows)
    assert wide.scores["BLEU"].mean == bleu(outputs, [target for _, target in rows]).value


def test_another_metric_split_and_baseline(place):
    found = compare(ALL[1:], speed=0, metric="chrf", split="valid", baseline="runs/꼬마-seed2")
    assert found.metric == "chrF2" and found.rows == 12 and found.baseline == "꼬마 (2 seeds)"
    assert found.notes[0] == "the baseline is 꼬마 (2 seeds)"
    assert compare(ALL[:1], speed=0, baseline="runs/wide").baseline == "wide"
    own = place / "own.tsv"
    own.write_text("하나 둘\tone two\n셋\tthree\n", "utf-8")
    assert compare(ALL[2:], speed=0, data="own.tsv").rows == 2


def test_every_measure_can_decide_and_trees_are_compared_by_brackets(place):
    assert compare(ALL[2:], speed=0, metric="words").metric == "word F"
    with pytest.raises(UserError, match="not a parse tree"):
        compare(ALL[2:], speed=0, metric="brackets")
    trees = [("하나", "(S (NP XX )NP )S"), ("둘 셋", "(S XX XX )S"), ("넷", "(S XX )S")]
    (place / "trees.tsv").write_text("".join(f"{source}\t{tree}\n" for source, tree in trees), "utf-8")
    found = compare(ALL[2:], speed=0, data="trees.tsv")
    assert found.metric == "bracket F1" and found.systems[1].difference.metric == "bracket F1"
    assert not {"BLEU", "chrF2"} & set(found.systems[0].scores)
    assert compare(ALL[2:], speed=0, data="trees.tsv", metric="bleu").metric == "BLEU"


def test_what_a_reader_must_know_is_noted(place):
    shutil.copytree("runs/wide", "runs/narrow")
    edit("runs/narrow", "beam = 5", "beam = 2")
    run = Run.open("runs/narrow")
    run.update(data={**run.info["data"], "corpus": "another"}, **{"from": "runs/wide"})
    notes = compare(["runs/wide", "runs/narrow"], speed=0).notes
    assert any("searches differ" in note and "(wide: beam 5; narrow: beam 2)" in note for note in notes)
    assert any("trained on different text" in note for note in notes)
    assert any("started from is not counted: narrow" in note for note in notes)


def test_two_runs_of_one_seed_stay_apart(place):
    shutil.copytree("runs/wide", "elsewhere/wide")
    found = compare(["runs/wide", "elsewhere/wide", "runs/wide/"], speed=0)
    assert sorted(system.name for system in found.systems) == ["elsewhere/wide", "runs/wide"]


def test_what_is_no_finished_run_is_left_out(place):
    (place / "runs" / "꼬마-seeds.json").write_text("{}", "utf-8")
    Run.open("runs/꼬마-seed3").update(status="training")
    found = compare([*sorted((place / "runs").iterdir())], speed=0)
    assert len(found.systems) == 2
    assert any("seeds.json was left out: it is no run folder" in note for note in found.notes)
    assert any("seed3 was left out: it is not finished" in note for note in found.notes)
    with pytest.raises(UserError, match="1 run to compare\n.*not finished"):
        compare(["runs/wide", "runs/꼬마-seed3"])


def test_runs_that_cannot_stand_in_one_table(place):
    shutil.copytree("runs/wide", "runs/backwards")
    edit("runs/backwards", "[data]", "[data]\ncolumns = [2, 1]")
    with pytest.raises(UserError, match=r"same rows.*\n  text 1, 48 rows of test.tsv.*: runs/wide\n.*: runs/backwards"):
        compare(["runs/wide", "runs/backwards"])
    shutil.copytree("runs/wide", "runs/dialogue")
    Run.open("runs/dialogue").update(task="dialogue")
    with pytest.raises(UserError, match=r"different tasks.*\n  translation: runs/wide\n  dialogue: runs/dialogue"):
        compare(["runs/wide", "runs/dialogue"])


@pytest.mark.parametrize(
    ("runs", "options", "message"),
    [
        (["runs/wide", "runs/nowhere"], {}, "there is no run folder runs/nowhere"),
        (["runs/wide"], {}, "1 run to compare"),
        ([], {}, "no runs to compare"),
        ("runs/wide", {}, "1 run to compare"),
        (ALL, {"metric": "blue"}, "no metric 'blue'"),
        (ALL, {"lengths": [5, 3]}, "do not rise"),
        (ALL, {"speed": -1}, "-1 sentences"),
        (ALL, {"split": "test2016"}, "no split 'test2016'"),
        (ALL, {"search": {"bean": 2}}, "no search option 'bean'"),
        (ALL, {"splits": "test"}, "compare has no option 'splits'"),
        (ALL, {"baseline": "runs"}, "the baseline runs is no finished run"),
    ],
)
def test_bad_input(home, monkeypatch, runs, options, message):
    monkeypatch.chdir(home)
    with pytest.raises(UserError, match=message):
        compare(runs, **options)


def test_the_same_numbers_in_every_form(found):
    plain_values = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert plain_values["baseline"] == found.baseline and plain_values["rows"] == 48
    lines = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [line["system"] for line in lines] == [system["name"] for system in plain_values["systems"]]
    for line, system, real in zip(lines, plain_values["systems"], found.systems, strict=True):
        assert float(line["BLEU"]) == system["scores"]["BLEU"]["mean"] == real.scores["BLEU"].mean
        assert float(line["FLOPs"]) == system["flops"] and "version:" in system["scores"]["BLEU"]["signature"]
        assert f"{real.scores['BLEU'].mean:.2f}" in str(found) and real.name in found.to_markdown()
        assert line["p"] == ("" if real.difference is None else str(real.difference.p_value))
    assert sum(each["rows"] for each in plain_values["lengths"]) == 48
    columns = [line.count("|") for line in found.to_markdown().splitlines() if line.startswith("|")]
    assert len(columns) == 3 * (2 + len(found.systems)) and len(set(columns)) <= 3


def test_text_stands_in_columns(found):
    quality = str(found).split("\n\n")[0].splitlines()[1:]
    assert len({width(line) for line in quality}) == 1  # Hangul is two columns wide


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_figure_is_drawn(found, tmp_path, ending):
    path = found.draw(tmp_path / f"figure.{ending}")
    if ending == "png":
        assert imread(path).shape[1] > 1000
    else:
        assert path.read_text("utf-8").count("<path") > 50


def test_a_figure_of_another_kind_is_refused(found, tmp_path):
    with pytest.raises(UserError, match="cannot be written as"):
        found.draw(tmp_path / "figure.jpeg")


def test_numbers_as_people_say_them():
    assert [short(number) for number in (None, 12.0, 1_234.0, 12_345_678.0, 2e9)] == [
        "–",
        "12",
        "1.23 k",
        "12.3 M",
        "2 G",
    ]
    assert [scientific(number) for number in (None, 3.3e18, 1.0, 9.96e8)] == ["–", "3.3e18", "1.0e0", "1.0e9"]
    assert [plain(number) for number in (None, 0.1234, 12.34, 1234.5)] == ["–", "0.123", "12.3", "1,234"]
    assert systems.Value(1.0).deviation is None
