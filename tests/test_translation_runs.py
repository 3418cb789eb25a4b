"""Lists of experiments, how they are run, and what is written of them."""

import json
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed
from benchmarks import report, translation, translation_results, translation_runs  # noqa: E402
from benchmarks.protocols import Reference  # noqa: E402
from benchmarks.translation import Experiment, read_experiments  # noqa: E402
from benchmarks.translation_runs import CommandError, Options, Place, run_all  # noqa: E402

from mallang.errors import UserError  # noqa: E402

LIST = """
[defaults]
recipe = "transformer-miniworld"
splits = ["test"]
overrides = ["train.steps=2"]
[[experiments]]
name = "plain"
seeds = [1, 2]
[[experiments]]
name = "wide"
overrides = ["model.dim=256"]
splits = ["valid", "test"]
searches.greedy = ["method=greedy"]
"""
TEXTS = [f"On day {day} the dog ate the {food} of the cat." for food in ("fish", "bread") for day in range(10)]


@pytest.fixture(autouse=True, scope="module")
def _few_lines():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translation_results, "reference_of", lambda *names: Reference(*names, TEXTS))
        yield


def written(folder, text, name="list.toml"):
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_a_list_becomes_a_run_a_seed(tmp_path):
    first, second, wide = read_experiments(written(tmp_path, LIST))
    assert [first.run, second.run, wide.run] == ["plain-seed1", "plain-seed2", "wide-seed1"]
    assert first.overrides == ("train.steps=2",) and first.searches == {"": ()}
    assert wide.overrides == ("train.steps=2", "model.dim=256") and wide.splits == ("valid", "test")
    assert wide.searches == {"": (), "greedy": ("method=greedy",)}
    about = wide.about()
    assert (about["system"], about["corpus"], about["source"], about["target"]) == (
        "transformer",
        "miniworld",
        "ko",
        "en",
    )
    same = {"experiments": [{"name": "a", "recipe": "transformer-miniworld", "splits": ["test"]}]}
    assert [each.run for each in read_experiments(written(tmp_path, json.dumps(same), "list.json"))] == ["a-seed1"]


@pytest.mark.parametrize(
    ("text", "said"),
    {
        "no list": ("[defaults]\n", "holds no experiments"),
        "one name twice": (LIST + '[[experiments]]\nname = "wide"\n', "two of one name"),
        "unknown key": ('[[experiments]]\nnames = "a"\n', "did you mean name"),
        "no recipe": ('[[experiments]]\nname = "a"\n', "no recipe"),
        "not TOML": ("[", "cannot be read"),
    }.values(),
    ids=["no list", "one name twice", "unknown key", "no recipe", "not TOML"],
)
def test_a_wrong_list_is_refused(tmp_path, text, said):
    with pytest.raises(UserError, match=said):
        read_experiments(written(tmp_path, text))


def test_several_corpora_are_told_apart(tmp_path):
    both = """
    [[experiments]]
    name = "both"
    recipe = "transformer-miniworld"
    splits = ["miniworld:test"]
    overrides = ["data.corpora={miniworld = 1, tatoeba-kor-eng = 1}"]
    """
    (joint,) = read_experiments(written(tmp_path, both))
    assert joint.about()["splits"] == ("miniworld:test",)
    for text in (both.replace("miniworld:test", "test"), LIST.replace('["test"]', '["miniworld:test"]')):
        with pytest.raises(UserError, match="does not fit the data"):
            read_experiments(written(tmp_path, text))[0].about()


def test_a_plan_names_what_cannot_be_trained(tmp_path, monkeypatch, capsys):
    path = written(tmp_path, LIST.replace("model.dim=256", "model.dims=256"))
    monkeypatch.setattr(sys, "argv", ["translation", "plan", str(path)])
    with pytest.raises(SystemExit) as left:
        translation.main()
    assert left.value.code == 1
    assert capsys.readouterr().out.startswith("plain-seed1\nplain-seed2\nwide-seed1: model.dims")


def fake(module, words, name, place):
    """Does what the command would, at once: every output is the reference, less some words with seed 2."""
    if module == "mallang":
        folder = place.folder / words[words.index("--name") + 1]
        (folder / "outputs").mkdir(parents=True, exist_ok=True)
        info = {"status": "finished", "steps": 2, "parameters": 7, "tokens": 9, "seconds": 1.5, "best": {"loss": 1.0}}
        (folder / "run.json").write_text(json.dumps(info), "utf-8")
        entries = [{"kind": "train", "step": 1}, {"kind": "valid", "step": 2, "nll": 2.5}]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries), "utf-8")
        if "model.dim=256" in words:
            raise CommandError("failed", "the memory is full")
        return ""
    outputs = [text.replace("the ", "") for text in TEXTS] if words[0].endswith("seed2") else TEXTS
    (split,) = json.loads(words[1])["splits"]
    shared = {"corpus": "", "split": split, "search": "", "options": [], "scores": [{"name": "BLEU", "value": 12.5}]}
    return json.dumps([{**shared, "hypotheses": outputs}])


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The file of a list whose third run fails."""
    folder = tmp_path_factory.mktemp("ran")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translation_runs, "run", fake)
        patch.setattr(translation_runs, "ask_gpu", lambda *_: "")
        options = Options(out=folder / "out", work=folder / "work", at_once=2, commit="0123456789ab")
        return run_all(read_experiments(written(folder, LIST)), options)


def test_one_file_holds_every_run_and_a_failed_one_stops_no_other(ran):
    file = json.loads(ran.read_text("utf-8"))
    runs = {f"{run['name']}-{run['seed']}": run for run in file["runs"]}
    assert {name: run["status"] for name, run in runs.items()} == {
        "plain-1": "finished", "plain-2": "finished", "wide-1": "failed",
    }  # fmt: skip
    assert runs["wide-1"]["said"] == "the memory is full" and runs["wide-1"]["outputs"] == []
    assert runs["wide-1"]["validations"] == runs["plain-1"]["validations"] == [{"kind": "valid", "step": 2, "nll": 2.5}]
    (output,) = runs["plain-1"]["outputs"]
    assert output["hypotheses"] == TEXTS
    assert (runs["plain-1"]["seconds"], runs["plain-1"]["steps"]) == (1.5, 2)
    assert file["commit"] == "0123456789ab" and file["hardware"] and file["peak_device_memory_mib"] is None


def test_a_finished_run_is_not_trained_again_unless_it_changed(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(translation_runs, "run", lambda *all: asked.append(all[1]) or fake(*all))
    place = Place(tmp_path, "cpu", float("inf"))
    one = {"name": "a", "recipe": "transformer-miniworld", "seed": 1, "splits": (), "searches": {"": ()}}
    for overrides in ((), (), ("model.dim=64",)):
        record = {}
        translation_runs.train(Experiment(**one, overrides=overrides), place, record)
        assert record["steps"] == 2
    assert [("--fresh" in words, "model.dim=64" in words) for words in asked] == [(True, False), (True, True)]


def test_nothing_is_begun_when_the_time_is_over(tmp_path, monkeypatch):
    monkeypatch.setattr(translation_runs, "run", fake)
    path = run_all(read_experiments(written(tmp_path, LIST)), Options(out=tmp_path / "out", seconds=0))
    assert {run["status"] for run in json.loads(path.read_text("utf-8"))["runs"]} == {"no time"}


def test_the_real_command_is_run_and_heard(tmp_path):
    forever = Place(tmp_path, "cpu", float("inf"))
    assert translation_runs.run("mallang", ["--version"], "version", forever).startswith("mallang ")
    with pytest.raises(CommandError, match="there is no run folder nowhere") as failed:
        translation_runs.run("mallang", ["evaluate", "nowhere"], "evaluate", forever)
    assert failed.value.status == "failed"
    with pytest.raises(CommandError) as late:
        translation_runs.run("mallang", ["demo"], "demo", Place(tmp_path, "cpu", time.monotonic() - 1))
    assert late.value.status == "no time"


def test_a_sweep_shows_every_seed_and_the_mean(ran, capsys):
    translation_results.sweep([ran])
    shown = capsys.readouterr().out
    lines = {line.split("  ")[1]: line.split() for line in shown.splitlines() if line.startswith("  plain")}
    assert lines["plain seed 1"][3:] == ["100.00", "100.00", "2.500", "2", "2", "7"]
    low = float(lines["plain seed 2"][3])
    assert low < 90 and float(lines["plain mean of 2"][4]) == pytest.approx((100 + low) / 2, abs=0.011)
    assert "wide seed 1: failed" in shown and "the memory is full" in shown


def test_values_are_written_with_their_hypotheses_and_can_be_checked(ran, tmp_path, capsys):
    folder = tmp_path / "results"
    translation_results.collect([ran], folder)
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")}
    assert set(found) == {f"plain-test-{label}-seed{seed}" for label in ("bleu", "chrf") for seed in (1, 2)}
    one = found["plain-test-bleu-seed1"]
    assert one == {
        **one, "value": 100.0, "seed": 1, "metric": "BLEU, sacrebleu", "protocol": "sacrebleu, beam 5",
        "recipe": "transformer-miniworld", "overrides": ["train.steps=2"], "direction": "ko-en", "split": "test",
        "seconds": 1.5, "commit": "0123456789ab",
    }  # fmt: skip
    assert report.read_results(folder)  # the page can be written from them

    capsys.readouterr()
    translation_results.check(folder)
    assert capsys.readouterr().out.startswith("4 values are those")
    wrong = {**one, "value": 99.98}
    (folder / "plain-test-bleu-seed1.json").write_text(json.dumps(wrong), "utf-8")
    with pytest.raises(UserError, match="99.98, but 100.00 now"):
        translation_results.check(folder)


def test_values_of_no_commit_are_not_written(ran, tmp_path):
    file = json.loads(ran.read_text("utf-8"))
    for commit in (None, "0123456789ab-dirty"):
        path = written(tmp_path, json.dumps({**file, "commit": commit}), "runs.json")
        with pytest.raises(UserError, match="code of no commit"):
            translation_results.collect([path], tmp_path / "results")
    with pytest.raises(UserError, match="was not written by"):
        translation_results.sweep([written(tmp_path, "{}", "other.json")])


def test_published_numbers_stand_beside_those_of_their_protocol():
    run = {
        "name": "a", "system": "transformer", "recipe": "transformer-multi30k", "overrides": [], "corpus": "multi30k",
        "source": "en", "target": "de", "seed": 1, "seconds": 1.0, "decoding": {"method": "beam", "beam": 5},
        "steps": 100_000,
    }  # fmt: skip
    output = {"corpus": "", "split": "test2016", "search": "wide", "options": ["beam=10", "length_penalty=none"]}
    score = translation_results.Score("BLEU", 41.234, "signature")
    scored = translation_results.Scored(
        {"commit": "c", "hardware": "h", "at_once": 1}, run, output, {"moses-lc-tok": score, "bleu": score}
    )
    assert scored.base == "a-test2016-wide"
    result = scored.result("moses-lc-tok")
    assert (result.published, result.value, result.metric) == (41.02, 41.23, "BLEU, moses-lc-tok")
    assert result.protocol == "moses-lc-tok, beam 10, length_penalty none"
    assert result.overrides == ["decoding.beam=10", "decoding.length_penalty=none"]
    assert scored.result("bleu").published is None


@pytest.mark.slow
def test_what_a_run_writes_comes_with_the_scores_of_the_command(tmp_path):
    """The real command trains for a step; then every split and search is translated in one process."""
    place = Place(tmp_path, "cpu", float("inf"))
    small = (
        "model.layers=1",
        "model.dim=16",
        "model.heads=2",
        "model.hidden_dim=16",
        "train.steps=1",
        "train.workers=0",
    )
    searches = {"": ("method=greedy", "max_length=4"), "pair": ("beam=2", "max_length=4")}
    one = Experiment(
        name="a", recipe="transformer-miniworld", overrides=small, seed=1, splits=("valid",), searches=searches
    )
    translation_runs.train(one, place, {})
    first, second = translation_runs.translate(one, place)
    assert [first["search"], second["search"]] == ["", "pair"] and second["options"] == ["beam=2", "max_length=4"]
    assert all(len(each["hypotheses"]) == 1000 and each["scores"][0]["name"] == "BLEU" for each in (first, second))


@pytest.mark.parametrize(
    ("steps", "best", "protocol"),
    [
        (5000, 4900, ""),
        (4402, 4260, "; ended by train.seconds after 4,402 of 5,000 updates, 6 runs at once on one device"),
        (4118, 2698, "; ended by early stopping after 4,118 of 5,000 updates"),
    ],
)
def test_a_protocol_says_what_ended_a_run_before_its_last_update(steps, best, protocol):
    every = [{"kind": "valid", "step": step, "loss": 3.0} for step in range(142, steps + 1, 142)]
    run = {
        "recipe": "luong-multi30k", "overrides": ["train.seconds=300"], "steps": steps, "best": {"step": best},
        "validations": every,
    }  # fmt: skip
    assert translation_results.ended_early(run, 6) == protocol


def test_a_recipe_of_epochs_says_nothing_of_updates():
    run = {"recipe": "elman-ptb", "overrides": [], "steps": 3, "best": {"step": 1}, "validations": []}
    assert translation_results.ended_early(run, 2) == ""
