"""RESULTS.md, the tables behind it, and the lists of what to measure again: made from results/*.json alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed
from benchmarks import ages, kinds, measured, report, results_page, results_tables, to_measure, translation  # noqa: E402
from benchmarks.language_models import Experiment  # noqa: E402

from mallang import recipe as recipes  # noqa: E402
from mallang.errors import UserError  # noqa: E402

VALUES = report.read_results()
ROWS = [row for question in results_page.questions() for row in question.rows if results_page.is_there(row, VALUES)]
EMPTY = dict.fromkeys(
    ("recipe", "overrides", "corpus", "direction", "split", "published", "seed", "seconds", "signature")
)


def value(file, number, **about):
    """A result as it is read."""
    return {
        **EMPTY, "system": "ours", "protocol": "by hand", "metric": "BLEU, sacrebleu", "value": number,
        "commit": "0" * 12, "hardware": "NVIDIA H200, torch 2.11.0", "file": file, **about,
    }  # fmt: skip


@pytest.fixture
def history(monkeypatch):
    """A history in which every source was changed by as many commits as the test says."""
    known = {"date": "2026-11-15", "changes": 0}
    monkeypatch.setattr(ages, "date_of", lambda commit: known["date"])
    monkeypatch.setattr(ages, "changes_since", lambda commit, paths: known["changes"])
    monkeypatch.setattr(ages, "differs", lambda commit, paths: True)
    return known


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository of its own: a function that commits src/a.py, b.c and c.toml and returns the commit."""
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    report.git("init", "-q")
    (tmp_path / "src").mkdir()

    def write(**files):
        for name, text in files.items():
            (tmp_path / "src" / name.replace("_", ".")).write_text(text, "utf-8")
        report.git("add", "-A")
        report.git("-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "--allow-empty", "-m", "x")
        ages.differs.cache_clear()
        return report.git("rev-parse", "HEAD")

    return write


def test_every_result_is_of_a_kind_whose_benchmark_exists():
    for one in VALUES:
        kind = kinds.kind_of(one["file"])
        module = kind.command.split()[2 if "benchmarks." in kind.command else 3].removeprefix("benchmarks.")
        assert (ROOT / "benchmarks" / f"{module}.py").exists(), kind.command
    with pytest.raises(UserError, match="no known kind"):
        kinds.kind_of("nothing-like-it")


def test_sources_exist():
    moving = {"kernels"}  # what computes fast is moving there from layers
    for kind in kinds.kinds():
        for path in set(kind.sources) - moving:
            assert (ROOT / "src" / "mallang" / path).exists(), (kind.name, path)
    (one,) = [one for one in VALUES if one["file"] == "transformer-multi30k-de-en-valid-bleu-seed1"]
    assert {"src/mallang/recipes/transformer-multi30k.toml", "src/mallang/models/transformer.py"} <= set(
        kinds.sources_of(one)
    )


def test_every_headline_names_results_and_peers_of_the_same_run():
    for row in ROWS:
        ours = results_page.found(row.ours, VALUES)
        for peer in results_page.found(row.peer, VALUES) if row.peer else ():
            # The load of the machine differs within one run.
            machines = {each["hardware"].partition(", load")[0] for each in (peer, ours[0])}
            assert peer["commit"] == ours[0]["commit"] and len(machines) == 1, row.label
            assert peer["metric"] == ours[0]["metric"] and "mallang" not in peer["system"]
    with pytest.raises(UserError, match="no file in results"):
        results_page.found("missing-*", VALUES)


def test_sweeps_that_headlines_name_hold_dev_scores():
    for path in {row.sweep for row in ROWS} - {"", results_page.NOTHING_CHOSEN}:
        trials = [json.loads(line) for line in (ROOT / path).read_text("utf-8").splitlines()]
        assert len(trials) > 3 and all(trial.get("bleu", trial.get("dev")) is not None for trial in trials)


def test_commands_of_lists_name_their_experiments():
    lists = {"korean-units": translation.Experiment, "multi30k": translation.Experiment, "language-models": Experiment}
    known = {
        f"benchmarks/{name}.toml": {
            (each.name, each.recipe): {*each.overrides}
            for each in translation.read_experiments(ROOT / "benchmarks" / f"{name}.toml", kind)
        }
        for name, kind in lists.items()
    }
    for one in VALUES:
        words = kinds.command_of(one).split()
        for path in set(words) & set(known):
            trained = known[path][words[words.index("--only") + 1], one["recipe"]]
            assert set(results_page.trained_with(one)) <= trained, one["file"]


def test_the_page_is_short_and_holds_every_headline():
    text = report.PAGE.read_text("utf-8")
    assert len(text.splitlines()) < 310 and all(f"| {row.label} |" in text for row in ROWS)


def test_a_row_has_mean_deviation_published_and_command(history):
    history["changes"] = 7
    seeds = [
        value(
            f"transformer-multi30k-en-de-test2016-moses-lc-tok-seed{seed}", number, published=41.02, seed=seed,
            recipe="transformer-multi30k-en-de", overrides=["train.seconds=285", "train.steps=6000"],
            metric="BLEU, moses-lc-tok",
        )
        for seed, number in ((1, 42.0), (2, 43.0), (3, 41.0))
    ]  # fmt: skip
    row = results_page.Row(label="Transformer", ours="transformer-*")
    question = results_page.Question(title="", about="", tables=[], rows=[row], tuned=True)
    assert results_page.cells(row, question, seeds) == [
        "Transformer", "42.00 ± 1.00 (3 seeds) BLEU (moses-lc-tok)", "published 41.02", "+0.98", "H200",
        "`0000000` 2026-11-15 +7", "`mallang train transformer-multi30k-en-de train.seconds=285`",
    ]  # fmt: skip


def test_a_speed_has_its_peer_and_is_stale_once_its_code_has_changed(history):
    cpu = "2 × AMD EPYC, 24 GiB, Linux, load 2.3"
    slow = value("decoding-cpu-greedy-ctranslate2-slow", 10.0, system="slow")
    ours = value("decoding-cpu-greedy-mallang-int8", 150.0, metric="decoding on cpu, sentences/s", hardware=cpu)
    peer = value("decoding-cpu-greedy-ctranslate2", 100.0, system="ctranslate2")
    row = results_page.Row(label="greedy", ours=ours["file"], peer="*ctranslate2*")
    question = results_page.Question(title="", about="", tables=[], rows=[row])
    told = results_page.cells(row, question, [ours, slow, peer])
    assert told[1:6] == ["150 sentences/s", "ctranslate2 100", "1.50×", "2 × EPYC, load 2.3", "`0000000` 2026-11-15"]
    history["changes"] = 2
    assert results_page.cells(row, question, [ours, slow, peer])[5] == "`0000000` 2026-11-15 +2 **stale**"
    listed = "\n".join(to_measure.stale([ours, peer]))
    assert "2 of CPU decoding\n  python -m benchmarks decoding_speed --write" in listed
    assert "2 of 2 results are stale" in listed


def test_a_target_that_is_missed_is_shown(history):
    ours = [value(f"cnn-trec-test-accuracy-seed{seed}", 90.0 + seed, metric="accuracy, %") for seed in (1, 2, 3)]
    row = results_page.Row(label="CNN", ours="cnn-trec-*", target=92.5)
    assert results_page.against(row, ours[0], results_page.spread_of(ours), ours) == ("target 92.50", "-0.50")
    published = [{**each, "published": 91.0} for each in ours]
    spread = results_page.spread_of(ours)
    assert results_page.against(row, published[0], spread, published) == ("published 91.00", "+1.00")


def test_a_peer_counts_in_its_best_form_with_all_its_seeds(history):
    """A form that was lucky with one seed is not the best one, and the best form is not shown at its best seed."""
    ours = [
        value(f"similarity-english-ours-seed{seed}", number, metric="Spearman, %")
        for seed, number in ((1, 54.0), (2, 56.0))
    ]
    forms = {"peer, default": (50.0, 58.0, 51.0), "peer, best settings": (54.0, 55.0, 56.0)}
    peers = [
        value(f"similarity-english-peer-{form[-4:]}-seed{seed}", number, system=form, seed=seed, metric="Spearman, %")
        for form, numbers in forms.items()
        for seed, number in enumerate(numbers, 1)
    ]
    row = results_page.Row(label="similarity", ours="similarity-english-ours-*", peer="similarity-english-peer-*")
    spread = results_page.spread_of(ours)
    told = results_page.against(row, ours[0], spread, [*ours, *peers])
    assert told == ("peer, best settings 55.00 ± 1.00 (3 seeds)", "1.00×")


def test_code_of_no_commit_is_marked(history):
    dirty = ages.age_of(value("alignment-x", 1.0, commit="0" * 12 + "-dirty"))
    assert dirty.stale and str(dirty) == "`0000000` 2026-11-15 **stale** **dirty**"
    history["changes"] = 3
    clean = ages.age_of(value("alignment-x", 1.0))
    assert not clean.stale and str(clean) == "`0000000` 2026-11-15 +3"


SOURCES = {
    "a_py": '"""Old."""\nX = 1\n"""Old too."""\n\n\ndef f(a):\n    """Old."""\n    return a + X  # old\n',
    "b_c": "/* old\n lines */\nint f(int a) {\n  return a; // old\n}\n",
    "c_toml": "# old\nsteps = 5\n",
}
"""Sources with comments, by name with _ for the point."""


def test_comments_and_docstrings_make_nothing_stale(repository):
    first = repository(**SOURCES)
    again = {name: text.replace("old", "new").replace("Old", "New") + "\n\n" for name, text in SOURCES.items()}
    repository(**again)
    assert not ages.differs(first, ("src",))
    assert report.git("rev-list", "--count", f"{first}..HEAD", "--", "src") == "1"


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("a_py", "return a + X", "return a - X"),
        ("a_py", "X = 1", "X = '1'"),
        ("b_c", "return a", "return -a"),
        ("c_toml", "steps = 5", "steps = 6"),
    ],
)
def test_other_code_makes_a_speed_stale(repository, name, old, new):
    first = repository(**SOURCES)
    repository(**{name: SOURCES[name].replace(old, new)})
    assert ages.differs(first, ("src",)) and not ages.differs(first, ("elsewhere",))
    repository(**SOURCES)
    assert not ages.differs(first, ("src",)), "what was changed and changed back is the same code"


def test_a_file_that_came_or_went_makes_a_speed_stale(repository):
    first = repository(**SOURCES)
    second = repository(d_py="")
    assert ages.differs(first, ("src",)) and not ages.differs(second, ("src",))


def test_an_age_is_stale_by_what_the_code_does(history, monkeypatch):
    history["changes"] = 4
    monkeypatch.setattr(ages, "differs", lambda commit, paths: False)
    one = value("decoding-cpu-x", 1.0)
    assert not ages.age_of(one).stale and str(ages.age_of(one)) == "`0000000` 2026-11-15 +4"
    older = value("decoding-cpu-y", 1.0, commit="1" * 12)
    monkeypatch.setattr(ages, "differs", lambda commit, paths: commit[0] == "1")
    assert ages.oldest([one, older]) == ages.age_of(older) and ages.age_of(older).stale


def trained(label, files, **about):
    """A row and its results of a trained system, one per seed."""
    values = [
        value(f"{label}-ptb-test-word-seed{seed}", number, recipe="elman-ptb", seed=seed, metric="perplexity per word")
        for seed, number in files.items()
    ]
    return results_page.Row(label=label, ours=f"{label}-ptb-*", **about), values


def test_headlines_have_three_seeds_or_need_none(history):
    systems = [
        trained("three", {1: 90.0, 2: 91.0, 3: 92.0}),
        trained("single", {1: 93.0}),
        trained("pair", {1: 94.0, 2: 95.0}),
        trained("counted", {1: 96.0}, deterministic=True),
        trained("long", {1: 97.0}, one_seed=True),
    ]
    speed = value("decoding-cpu-greedy-mallang-int8", 150.0, metric="decoding on cpu, sentences/s")
    rows = [*(row for row, _ in systems), results_page.Row(label="speed", ours=speed["file"])]
    values = [*(each for _, mine in systems for each in mine), speed]
    question = results_page.Question(title="T", about="A.", tables=[], rows=rows)
    above, below = results_page.section(question, values).split(f"\n{results_page.FEW_SEEDS}\n")
    shown = [[line.split(" | ")[0] for line in part.splitlines() if line.startswith("| ")] for part in (above, below)]
    assert shown == [["| ", "| three", "| counted", "| long", "| speed"], ["| ", "| single", "| pair"]]
    assert "93.00 (1 seed)" in below and "94.50 ± 0.71 (2 seeds)" in below
    whole = results_page.Question(title="T", about="A.", tables=[], rows=rows[:1])
    assert results_page.FEW_SEEDS not in results_page.section(whole, values)


def test_every_headline_of_the_page_has_its_seeds():
    parts = report.PAGE.read_text("utf-8").split("\n## ")
    for part in parts:
        above, _, below = part.partition(results_page.FEW_SEEDS)
        few = [line for line in above.splitlines() if "(1 seed)" in line or "(2 seeds)" in line]
        assert all(line.startswith("| AWD-LSTM") for line in few)
        assert all("seed" in line for line in below.splitlines() if line.startswith("| ") and "| ours |" not in line)


def test_runs_that_ended_early_are_named(history):
    row, values = trained("system", {1: 90.0, 2: 91.0})
    values[1]["protocol"] = "whole text; ended by train.seconds after 40 of 50 updates"
    assert results_page.notes([row], values[:1]) == []
    listed = results_page.notes([row], values)
    assert listed[1] == results_page.EARLY
    assert listed[3:] == ["- system: seed 2 by train.seconds after 40 of 50 updates"]
    assert len(results_tables.table(values)) == len(results_tables.table(values[:1])), "seeds share a row"


def test_what_recipes_show_names_the_search():
    greedy = value("x", 1.0, protocol="moses-lc-tok, greedy; ended by train.seconds after 4 of 5 updates")
    assert measured.is_greedy(greedy) and not measured.is_greedy(value("x", 1.0, protocol="moses-lc-tok, beam 5"))
    assert measured.measured(VALUES)["luong-multi30k"]["metric"] == "greedy BLEU (moses-lc-tok)"


def test_without_history_the_age_is_unknown(history):
    history["date"] = None
    one = value("decoding-cpu-x", 1.0)
    assert str(ages.age_of(one)) == "`0000000` age unknown" and not ages.age_of(one).stale
    assert "the age of the code is unknown" in "\n".join(to_measure.stale([one]))
    text = results_page.page(VALUES)
    assert "age unknown" in text and results_page.without_ages(text) == results_page.without_ages(
        report.PAGE.read_text("utf-8")
    )


def test_seeds_that_are_missing_come_with_their_command():
    one = value(
        "elman-ptb-test-word-seed1", 113.1, recipe="elman-ptb", corpus="ptb", split="test", seed=1, seconds=60.0
    )
    assert to_measure.seeds_command([one]) == (
        "python -m benchmarks.language_models run benchmarks/language-models.toml --only elman-ptb "
        "--out out/elman-ptb --seeds 2,3 && python -m benchmarks.language_models collect out/elman-ptb/runs.json"
    )
    cnn = value("cnn-trec-test-accuracy-seed1", 90.2, recipe="cnn-trec", corpus="trec", split="test", seed=1)
    assert to_measure.seeds_command([cnn]) == (
        "python -m benchmarks.understanding run benchmarks/understanding.toml --only cnn-trec --out out/cnn-trec.jsonl "
        "&& python -m benchmarks.understanding collect out/cnn-trec.jsonl"
    )
    demo = value("miniworld-exact", 98.6, recipe="transformer-miniworld", corpus="miniworld", split="test", seed=1)
    assert to_measure.seeds_command([demo]) == (
        "python -m benchmarks miniworld --write --seed 2 && python -m benchmarks miniworld --write --seed 3"
    )
    listed = "\n".join(to_measure.seeds(VALUES))
    assert "Katz" not in listed and "AWD-LSTM, PTB" not in listed and listed.endswith("fewer than 3 seeds")


def test_a_list_can_be_run_with_other_seeds(tmp_path, capsys, monkeypatch):
    words = ["plan", str(ROOT / "benchmarks" / "language-models.toml"), "--only", "gpt-ptb", "--seeds", "2,3"]
    monkeypatch.setattr(sys, "argv", ["benchmarks.language_models", *words])
    from benchmarks import language_models

    with pytest.raises(SystemExit) as ended:
        language_models.main()
    assert ended.value.code == 0 and capsys.readouterr().out.split() == ["gpt-ptb-seed2", "gpt-ptb-seed3"]


def test_a_mean_that_a_protocol_tells_is_taken_from_it():
    one = value("few-shot-x", 98.6, protocol="mean over 3 training seeds and 3 draws; ± 1.47 over all of them")
    assert results_page.spread_of([one]) == results_page.Spread(98.6, 1.47, 3)


def test_tables_hold_every_value_and_metrics_share_rows(history):
    text = "\n".join(results_tables.all_tables(VALUES).values())
    measured_kinds = [kind for kind in kinds.kinds() if any(kinds.kind_of(each["file"]) == kind for each in VALUES)]
    assert set(results_tables.all_tables(VALUES)) == {f"{kind.table}.md" for kind in measured_kinds}
    assert text.count("\n|") > 200
    common = {"corpus": "multi30k", "direction": "en-de", "split": "test2016", "recipe": "transformer-multi30k-en-de"}
    two = [
        value("a-multi30k-b-seed1", 41.5, **common, seed=1, protocol="sacrebleu, beam 5"),
        value("a-multi30k-b-seed2", 42.5, **common, seed=2, protocol="sacrebleu, beam 5"),
        value("a-multi30k-c", 40.0, **common, seed=1, metric="BLEU, moses-lc-tok", protocol="moses-lc-tok, beam 5"),
    ]
    lines = results_tables.table(two)
    assert "- protocol: beam 5" in lines
    assert lines[-1] == "| 42 ± 0.71 (2) | 40.0 | `0000000` 2026-11-15 |"


def test_what_recipes_show_is_their_first_headline():
    known = measured.measured(VALUES)
    assert set(known) <= set(recipes.names())
    best = known["transformer-multi30k-en-de"]
    assert (best["split"], best["seeds"]) == ("test2016", 3) and best["deviation"] > 0
    assert known["katz5-ptb"]["seeds"] is None


@pytest.mark.parametrize("option", ["--stale", "--seeds"])
def test_the_lists_are_printed(option):
    command = [sys.executable, "-m", "benchmarks.report", option]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout and shown.stderr == ""
