"""Captioning from a table of images to captions: training, resuming, evaluation, region features, bad input."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch

from mallang import load, recipe
from mallang.data import miniworld_pictures
from mallang.data.images import read_image
from mallang.errors import UserError
from mallang.inspection.image_attention import draw_looked, looked_at
from mallang.training.loop import Loop
from mallang.training.train import Options, train

PIL = pytest.importorskip("PIL.Image")
SMALL = ("model.size=tiny", "model.conv_dims=[12,24]", "model.embedding_dim=24", "model.dim=32", "model.score_dim=16")
FEW = (*SMALL, "train.epochs=none", "train.validate_every=none", "train.batch_tokens=64", "train.log_every=1")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A folder of PNG and JPEG files with their captions: some pictures of miniworld."""
    folder = tmp_path_factory.mktemp("pictures")
    lines = ["image\tcaption"]
    for number, row in enumerate(miniworld_pictures.rows("train", 24)):
        name = f"{number}.{'png' if number % 2 else 'jpg'}"
        PIL.fromarray(read_image(row[0])).save(folder / name)
        lines.append(f"{name}\t{row[2]}")
    lines.append(f"1.png\t{row[2]}")  # an image may have several captions
    (folder / "captions.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    return folder / "captions.tsv"


def run_of(folder, table, *changes, steps=6):
    data = f"data.train={table}", f"data.valid={table}", f"data.test={table}"
    built = recipe.read("show-attend-tell-miniworld", [*FEW, *data, f"train.steps={steps}", *changes]).build()
    return train(built, Options(folder=folder, device="cpu", quiet=True))


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("runs") / "a", table)


def test_it_writes_captions_of_files_and_pixels(run, table):
    model = load(run.folder, device="cpu")
    path = str(table.with_name("1.png"))
    one, several = model.caption(path, nbest=2, beam=3), model.caption([path, Path(path)])
    assert one.input == path and len(one.nbest) == 2 and one.score == pytest.approx(sum(one.token_scores), abs=1e-4)
    assert [str(each) for each in several] == [str(model.caption(read_image(path)))] * 2
    ((scored,), given) = model.score([(path, one.output)]), one.output
    assert scored.source == path and scored.target == given and len(scored.tokens) == len(given.split()) + 1


def test_all_captions_of_an_image_are_its_references(run, table):
    model = load(run.folder, device="cpu")
    path = str(table.with_name("1.png"))
    said = str(model.caption(path))
    scores, outputs = model.evaluate(
        [(path, "nothing alike"), (path, said or "x"), (str(table.with_name("3.png")), "x")]
    )
    named = {score.name: score for score in scores}
    assert outputs[0] == outputs[1] == said and len(outputs) == 3
    assert {"BLEU-1", "BLEU-4", "CIDEr-D", "CIDEr", "exact match"} < set(named) and named["exact match"].count == 2
    if said:
        assert named["exact match"].value >= 50


@pytest.mark.parametrize("attention", ["soft", "hard"])
def test_it_resumes_exactly(attention, table, tmp_path, monkeypatch):
    """Stopped inside an epoch and resumed: weights and baseline are as if nothing had happened."""
    changes = f"model.attention={attention}", "train.save_every=3", "model.dropout=0.1", "task.penalty=0.1"
    whole = run_of(tmp_path / "whole", table, *changes)

    def killed(*given, **options):
        save(*given, **options)
        raise KeyboardInterrupt

    save = Loop.save
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Loop, "save", killed)
        run_of(tmp_path / "parts", table, *changes)
    parts = run_of(tmp_path / "parts", table, *changes)
    one, other = (safetensors.torch.load_file(each.folder / "model.safetensors") for each in (whole, parts))
    assert one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)


def test_region_features_are_read_in_place_of_images(table, tmp_path):
    random = np.random.default_rng(0)
    np.save(tmp_path / "regions.npy", random.normal(size=(24, 5, 7)).astype(np.float32))
    rows = table.read_text("utf-8").splitlines()[1:25]
    lines = [f"regions.npy#{number}\t{row.split(chr(9))[1]}" for number, row in enumerate(rows)]
    (tmp_path / "features.tsv").write_text("\n".join(["image\tcaption", *lines]) + "\n", "utf-8")
    changes = "task.picture=regions", "model.encoder=given", "model.region_dim=7"
    with pytest.raises(UserError, match="reads images"):
        run_of(tmp_path / "no", tmp_path / "features.tsv", changes[0])
    run = run_of(tmp_path / "run", tmp_path / "features.tsv", *changes, steps=2)
    model = load(run.folder, device="cpu")
    assert isinstance(str(model.caption(f"{tmp_path}/regions.npy#3")), str)
    with pytest.raises(UserError, match="no file of region features"):
        model.caption("dog.png")
    with pytest.raises(UserError, match="no place in an image"):
        looked_at(model, f"{tmp_path}/regions.npy#3")


@pytest.mark.parametrize(
    ("row", "said", "where"),
    [
        ("missing.png\ta dog", "cannot read the image .*missing.png", "row 2"),
        ("broken.png\ta dog", "broken.png cannot be read", "row 2"),
    ],
)
def test_an_image_that_cannot_be_read_is_named_with_its_row(row, said, where, table, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no image")
    good = f"{table.with_name('1.png')}\ta cat"
    (tmp_path / "mine.tsv").write_text(f"image\tcaption\n{good}\n{row}\n", "utf-8")
    with pytest.raises(UserError, match=said) as found:
        run_of(tmp_path / "run", tmp_path / "mine.tsv")
    assert where in found.value.where and found.value.todo


def test_a_caption_without_a_picture_is_left_out_of_training_and_counted(table, tmp_path):
    good = f"{table.with_name('1.png')}\ta cat"
    (tmp_path / "mine.tsv").write_text(f"image\tcaption\n{good}\n\ta dog\n", "utf-8")
    with pytest.raises(UserError, match="no image"):  # validation drops nothing
        run_of(tmp_path / "run", tmp_path / "mine.tsv")
    run = run_of(tmp_path / "other", tmp_path / "mine.tsv", f"data.valid={table}", steps=1)
    with pytest.raises(UserError, match="no image"):
        load(run.folder, device="cpu").caption("")
    with pytest.raises(UserError, match="a pair is an image and its caption"):
        load(run.folder, device="cpu").score([("a dog",)])


def test_tables_without_images_and_models_without_eyes_are_refused(table, tmp_path):
    (tmp_path / "one.tsv").write_text("caption\na dog\n", "utf-8")
    with pytest.raises(UserError, match="image"):
        run_of(tmp_path / "run", tmp_path / "one.tsv")
    changes = "task.name=captioning", f"data.train={table}", f"data.valid={table}"
    with pytest.raises(UserError, match="reads no image"):
        train(
            recipe.read("rnn-lm-miniworld", changes).build(), Options(folder=tmp_path / "c", device="cpu", quiet=True)
        )
    with pytest.raises(UserError, match="no image"):
        load(run_of(tmp_path / "b", table, steps=1).folder, device="cpu").caption(3)


def test_the_attended_places_are_drawn(run, table, tmp_path):
    model, path = load(run.folder, device="cpu"), str(table.with_name("1.png"))
    looked = looked_at(model, path, max_length=5)
    assert looked.weights.shape == (len(looked.words), 8, 8)
    assert looked.weights.sum(axis=(1, 2)) == pytest.approx(1.0, abs=1e-4)
    given = looked_at(model, path, target="Minsu is eating.")
    assert given.words == ("Minsu", "is", "eating.", "</s>")
    brightest = given.weights[0].argmax()
    y, x = divmod(int(brightest), 8)
    cell = slice(4 * y, 4 * y + 4), slice(4 * x, 4 * x + 4)
    assert np.array_equal(given.shaded(0)[cell], given.pixels[cell])
    assert len(given.hits(["0,0,32,32", "-", "0,0,0,0"])) == 2 and given.hits(["0,0,32,32", "-", "0,0,0,0"])[0]
    assert draw_looked(tmp_path / "a.png", [looked]).stat().st_size > 1000
    page = draw_looked(tmp_path / "a.html", [looked, given]).read_text("utf-8")
    assert page.count("<section>") == 2 and page.count("<img") == len(looked.words) + len(given.words) + 2


def test_boxes_are_those_of_the_caption(run, table):
    looked = looked_at(load(run.folder, device="cpu"), str(table.with_name("1.png")), target="Minsu is eating.")
    with pytest.raises(UserError, match="boxes"):
        looked.hits(["-"])


def test_metrics_of_captions_choose_checkpoints(table, tmp_path):
    run = run_of(tmp_path / "a", table, "train.metric=cider", "train.validate_every=3", steps=3)
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert any("cider" in line for line in lines)
