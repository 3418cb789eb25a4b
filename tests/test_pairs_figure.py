"""What a system without pairs is worth in pairs."""

import math

import pytest
from benchmarks import pairs_figure
from benchmarks.translation import read_experiments
from benchmarks.translation_results import Scored, round_trip_results

from mallang.evaluation.score import Score

CURVE = [(500, 5.0), (2000, 15.0), (8000, 25.0)]


@pytest.mark.parametrize(
    ("value", "pairs"), [(4.0, 0.0), (15.0, 2000.0), (20.0, 4000.0), (10.0, 1000.0), (26.0, math.inf)]
)
def test_a_line_crosses_the_curve(value, pairs):
    assert pairs_figure.worth(value, CURVE) == pytest.approx(pairs)


def test_curves_are_means_over_seeds_of_one_search(tmp_path):
    files = {
        "pairs-500-multi30k-en-de-test2016-moses-lc-tok-seed1": 4.0,
        "pairs-500-multi30k-en-de-test2016-moses-lc-tok-seed2": 6.0,
        "pairs-2000-multi30k-en-de-test2016-moses-lc-tok-seed1": 15.0,
        "pairs-500-multi30k-en-de-test2016-greedy-moses-lc-tok-seed1": 99.0,
        "lample-multi30k-en-de-test2016-moses-lc-tok-seed1": 10.0,
        "word-by-word-multi30k-en-de-test2016-moses-lc-tok-seed1": 3.0,
        "lample-no-noise-multi30k-en-de-test2016-moses-lc-tok-seed1": 1.0,
    }
    values = [{"file": name, "value": value} for name, value in files.items()]
    curves, systems = pairs_figure.read(values, "beam")
    assert curves == {"en-de": [(500, 5.0), (2000, 15.0)]}
    assert systems == {"en-de": {"lample": 10.0, "word-by-word": 3.0}}
    pytest.importorskip("matplotlib")
    pairs_figure.draw(tmp_path / "a.svg", "en-de", curves["en-de"], systems["en-de"])
    assert "<svg" in (tmp_path / "a.svg").read_text("utf-8")


def test_a_run_of_two_directions_is_scored_in_both(tmp_path):
    (tmp_path / "list.toml").write_text(
        '[[experiments]]\nname = "lample-multi30k-en-fr"\nrecipe = "lample-multi30k-en-fr"\nsplits = ["test2016"]\n'
        "both_ways = true\n",
        "utf-8",
    )
    (experiment,) = read_experiments(tmp_path / "list.toml")
    run = experiment.about() | {"best": {"step": 3000, "round_trip": 31.456}, "status": "finished", "seconds": 9.0}
    file = {"commit": "0" * 12, "hardware": "m", "at_once": 1, "runs": [run]}
    score = Score("BLEU", 25.0, "x")
    names = []
    for is_reversed in (False, True):
        output = {"split": "test2016", "search": "", "corpus": "", "options": [], "reversed": is_reversed}
        scored = Scored(file, run | {"steps": 40_000, "validations": []}, output, {"moses-lc-tok": score})
        names.append((scored.base, scored.direction, scored.result("moses-lc-tok").published))
    assert names == [
        ("lample-multi30k-en-fr-test2016", "en-fr", 32.76), ("lample-multi30k-fr-en-test2016", "fr-en", 32.07),
    ]  # fmt: skip
    ((name, result),) = round_trip_results(file)
    assert name == "lample-multi30k-en-fr-valid-round-trip-seed1" and (result.value, result.split) == (31.46, "valid")
