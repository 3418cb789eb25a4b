"""Attention inside the boxes of a whole split, and the score of the recipe on miniworld."""

from dataclasses import replace

import numpy as np
import pytest

from mallang import load, recipe
from mallang.commands.evaluate import pointed
from mallang.commands.judged import Asked
from mallang.commands.main import main
from mallang.data import miniworld_pictures
from mallang.data.corpus import Config, open_corpus
from mallang.errors import UserError
from mallang.inspection.image_attention import looked_at
from mallang.inspection.pointing import ROLES, pointing, pointing_of, rows_with_boxes
from mallang.runs.folder import Run
from mallang.tasks.captioning import Task
from mallang.training.train import Options, train

SMALL = ("model.conv_dims=[12,24]", "model.embedding_dim=24", "model.dim=32", "model.score_dim=16")
FEW = (*SMALL, "train.epochs=none", "train.steps=2", "train.validate_every=none", "train.batch_tokens=64")


@pytest.fixture(scope="module")
def rows():
    return [(row[0], row[2], row[4]) for row in miniworld_pictures.rows("train", 8)]


@pytest.fixture(scope="module")
def run(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    lines = ["image\tcaption\tboxes", *("\t".join((*row[:2], row[2].replace("\t", " "))) for row in rows)]
    (folder / "a.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    data = [f"data.{split}={folder / 'a.tsv'}" for split in ("train", "valid", "test")]
    built = recipe.read("show-attend-tell-miniworld", [*FEW, *data]).build()
    return train(built, Options(folder=folder / "run", device="cpu", quiet=True))


def test_all_words_with_a_box_count(run, rows):
    model = load(run.folder, device="cpu")
    whole = [(image, caption, "\t".join("0,0,32,32" for _ in caption.split())) for image, caption, _ in rows]
    nowhere = [(image, caption, boxes.replace("0,0,32,32", "0,0,0,0")) for image, caption, boxes in whole]
    assert (pointing(model, whole).value, pointing(model, nowhere).value) == (100, 0)
    image, caption, boxes = rows[0]
    by_hand = looked_at(model, image, target=caption).hits(boxes.split("\t"))
    score = pointing(model, rows[:1])
    assert score.value == pytest.approx(100 * np.mean(by_hand)) and 0 < len(by_hand) < len(caption.split()) + 1


def test_evaluate_reports_it_where_there_are_boxes(run, rows, tmp_path, capsys, monkeypatch):
    model = load(run.folder, device="cpu")
    (found,) = pointing_of(run.folder, model, "test", None)
    assert found == pointing(model, rows)
    (tmp_path / "plain.tsv").write_text(f"image\tcaption\n{rows[0][0]}\t{rows[0][1]}\n", "utf-8")
    (tmp_path / "notes.tsv").write_text(f"image\tcaption\tnotes\n{rows[0][0]}\t{rows[0][1]}\tnice\n", "utf-8")
    for name in ("plain.tsv", "notes.tsv"):
        assert pointing_of(run.folder, model, "test", str(tmp_path / name)) == []
    monkeypatch.setattr("sys.argv", ["mallang", "evaluate", str(run.folder), "--device", "cpu"])
    with pytest.raises(SystemExit):
        main()
    assert str(found) in capsys.readouterr().out


def test_a_file_is_read_alone_whatever_the_run_was_trained_on(run, monkeypatch):
    several = Config(corpora={"miniworld-pictures": 2.0, "miniworld": 1.0}, domains={"miniworld": "told"})
    monkeypatch.setattr(Run, "data", lambda self: several)
    found = rows_with_boxes(run.folder, "test", str(run.folder.parent / "a.tsv"))
    assert found is not None and len(list(found)) == 8


@pytest.mark.slow
def test_miniworld_is_captioned_and_looked_at(tmp_path):
    run = train(
        recipe.read("show-attend-tell-miniworld").build(), Options(folder=tmp_path / "run", device="cpu", quiet=True)
    )
    model, data = load(run.folder, device="cpu"), run.data()
    scores, _ = model.evaluate(list(open_corpus(data, Task.columns).split("test")))
    assert next(score.value for score in scores if score.name == "exact match") >= 95
    assert pointing(model, open_corpus(replace(data, columns=None), ROLES).split("test")).value >= 85


def test_boxes_that_cannot_be_read_cost_no_other_score(monkeypatch, capsys, tmp_path):
    def fail(*_):
        raise UserError("the caption has 3 words, but there are 4 boxes")

    monkeypatch.setattr("mallang.inspection.pointing.pointing_of", fail)
    asked = Asked(
        split=None, data=None, corpus=None, domain=None, search=None, others=None, replace_unknown=False, lexicon=None,
        device="cpu", int8=False, reading={},
    )  # fmt: skip
    assert pointed(tmp_path, None, "test", asked) == []
    assert "note: attention is not compared" in capsys.readouterr().err
