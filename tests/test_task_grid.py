"""What is told of the seconds of the grid's cells; the cells themselves are trained by contracts/."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are not installed
from benchmarks import task_grid
from benchmarks.kinds import kind_of

CELLS = {"cnn": 1.5, "bert": 4.25, "rnn_lm": 2.0}


def test_the_slowest_cell_and_those_that_take_too_long_are_told():
    assert task_grid.sides(CELLS) == (3, "2.0", "4.2", "bert", "bert")
    assert task_grid.sides({"cnn": 1.5, "rnn_lm": 4.0}) == (2, "4.0", "4.0", "rnn_lm", "")
    result = task_grid.result_of("rating", CELLS)
    assert (result.system, result.value) == ("bert", 4.25)
    assert result.protocol == "rating: processor seconds on one core; bert 4.2, rnn_lm 2.0, cnn 1.5"


def test_a_cell_is_the_check_of_the_grid_and_its_job_is_of_a_known_kind(monkeypatch):
    asked = []

    class Grid:
        JOBS = ("rating", "second sentiment")
        CELLS = (("rating", "cnn"), ("second sentiment", "cnn"), ("second sentiment", "han"))

        @staticmethod
        def check(job, model, data, place, device):
            assert data.is_dir() and place.is_dir() and place != data
            asked.append((job, model, device))

    import contracts

    monkeypatch.setattr(contracts, "test_understanding_grid", Grid, raising=False)
    monkeypatch.setitem(sys.modules, "contracts.test_understanding_grid", Grid)
    found = task_grid.measure(jobs="second sentiment")
    assert asked == [("second sentiment", "cnn", "cpu"), *[("second sentiment", m, "cpu") for m in ("cnn", "han")]]
    assert list(found) == ["grid-second-sentiment"]
    assert kind_of("grid-second-sentiment").command == "python -m benchmarks task_grid --write"
