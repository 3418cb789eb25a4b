"""The metrics file survives kills and repeats no step."""

import io
import json
import math

import pytest
from rich.console import Console

from mallang.errors import UserError
from mallang.training.record import FILE, Recorder, read, without_clock


def make(folder, **options):
    return Recorder(folder, console=Console(file=io.StringIO(), force_terminal=False), **options)


def test_lines_are_cut_back_to_a_step(tmp_path):
    recorder = make(tmp_path)
    for step in (1, 2, 3):
        recorder.write(kind="train", step=step, loss=step / 3)
    with (tmp_path / FILE).open("a") as stream:
        stream.write('{"kind": "train", "st')  # killed while writing
    recorder.cut_back(2)
    assert [(entry["step"], entry["loss"]) for entry in read(tmp_path / FILE)] == [(1, 1 / 3), (2, 2 / 3)]


@pytest.mark.parametrize("tell", [lambda recorder, text: recorder.show(7, text), Recorder.say])
def test_a_long_line_is_not_broken_where_a_screen_would_end(tmp_path, tell):
    """What is written to a file is searched line by line."""
    stream, text = io.StringIO(), "loss 1.2345  " * 12
    tell(Recorder(tmp_path, console=Console(file=stream, width=40)), text)
    assert text.rstrip() in stream.getvalue()


def test_what_json_has_no_number_for_is_told_by_its_name(tmp_path):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    recorder = make(tmp_path)
    recorder.write(kind="valid", step=1, loss=math.inf, nll=-math.inf, norm=math.nan, note="Infinity and beyond")
    recorder.cut_back(1)
    line = json.loads((tmp_path / FILE).read_text(), parse_constant=refuse)
    assert line["loss"] == "Infinity"
    (entry,) = read(tmp_path / FILE)
    assert (entry["loss"], entry["nll"], entry["note"]) == (math.inf, -math.inf, "Infinity and beyond")
    assert math.isnan(entry["norm"])
    (tmp_path / FILE).write_text('{"step": 1, "loss": Infinity}\n')  # as it was written before
    assert read(tmp_path / FILE) == [{"step": 1, "loss": math.inf}]


@pytest.mark.parametrize(
    "line", ["[3]", "3", "{}", '{"loss": 1}', '{"step": "x"}', '{"step": 1, "loss": "y"}', "[" * 100_000]
)
def test_a_line_of_another_kind_is_told(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{line}\n{{"step": 2, "loss": "NaN"}}\n', "utf-8")
    with pytest.raises(UserError, match="damaged"):
        read(path)


def test_a_line_damaged_in_the_middle_is_told(tmp_path):
    (tmp_path / FILE).write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(UserError, match="damaged"):
        read(tmp_path / FILE)


def test_plain_lines_are_printed_where_there_is_no_terminal(tmp_path):
    recorder = make(tmp_path)
    with recorder.live(10, 0):
        recorder.show(5, "loss 1.5")
    assert recorder.console.file.getvalue() == "step 5  loss 1.5\n"
    quiet = make(tmp_path, quiet=True)
    quiet.show(5, "loss")
    quiet.say("hello")
    assert quiet.console.file.getvalue() == ""


def test_tensorboard_gets_the_same_numbers(tmp_path):
    recorder = make(tmp_path, tensorboard=True)
    recorder.write(kind="train", step=1, loss=0.5)
    recorder.close()
    assert list((tmp_path / "tensorboard").glob("events*"))
    assert json.loads((tmp_path / FILE).read_text()) == {"kind": "train", "step": 1, "loss": 0.5}


def test_only_the_clock_may_differ():
    assert without_clock({"step": 1, "seconds": 2.0, "tokens_per_second": 5, "loss": 3}) == {"step": 1, "loss": 3}
