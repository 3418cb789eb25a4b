"""Pretrained vectors in models: which rows they fill, what is frozen, added words, and runs that need them once."""

import json

import numpy as np
import pytest

from mallang import load, schema
from mallang.data.word_vectors import Config
from mallang.errors import UserError
from mallang.find import find, names
from mallang.interop.word_vectors import import_vectors, write_vectors
from mallang.models.contract import takes_vectors
from mallang.recipe import read
from mallang.runs.folder import Run
from mallang.training.pretrained import Source
from mallang.training.train import Options, train

LINES = [
    (
        "seoul is big\tB-LOC O O",
        "Kim likes Seoul\tB-PER O B-LOC",
        "who is Kim\tO O B-PER",
        "Lee is in 1996\tB-PER O O O",
    ),
    ("Kim is big\tB-PER O O", "Lee likes Kim\tB-PER O B-PER"),
]
WORDS = ("seoul", "is", "Kim", "1996", "busan", "is")
VALUES = np.arange(1.0, 25.0, dtype=np.float32).reshape(6, 4)
SMALL = ["model.embedding_dim=4", "model.dim=4", "train.steps=2", "train.workers=0", "train.threads=1"]


@pytest.fixture
def files(tmp_path):
    """Training and validation sentences as column files, and vectors."""
    for name, lines in zip(("train", "valid"), LINES, strict=True):
        pairs = [[half.split(" ") for half in line.split("\t")] for line in lines]
        rows = ["\n".join(" ".join(pair) for pair in zip(*pair, strict=True)) for pair in pairs]
        (tmp_path / f"{name}.conll").write_text("\n\n".join(rows) + "\n")
    write_vectors(tmp_path / "words.txt", WORDS, VALUES)
    return tmp_path


def trained(files, *overrides, model="rnn_tagger", vectors="words.txt", name="run", **options):
    data = [f"data.train={files / 'train.conll'}", f"data.valid={files / 'valid.conll'}"]
    given = [f"model.vectors={files / vectors}", "model.scale_vectors=false"] if vectors else []
    recipe = read(model, [*data, *SMALL, *given, *overrides]).build()
    return train(recipe, Options(folder=files / name, device="cpu", quiet=True, **options))


def table_of(run, model="rnn_tagger"):
    """The words of a trained run, and their vectors."""
    verbs = load(run.folder, "cpu")
    encoder = verbs.model.model if model == "rnn_tagger" else verbs.model
    if model == "rnn_tagger":
        return verbs.task.text.vocabulary.ids, encoder.embedding.weight.detach().numpy()
    return encoder.words.places, encoder.words.embedding.weight.detach().numpy()


def test_frozen_vectors_are_those_of_the_file_after_training(files):
    run = trained(files, "model.freeze_vectors=true")
    ids, table = table_of(run)
    assert np.array_equal(table[[ids["seoul"], ids["Seoul"], ids["is"], ids["Kim"]]], VALUES[[0, 0, 1, 2]])
    assert "busan" not in ids
    assert run.info["vectors"] == {"found": 5, "words": 10}


def test_vectors_are_scaled_to_the_initialization_of_the_model(files):
    run = trained(files, "model.freeze_vectors=true", "model.scale_vectors=true")
    ids, table = table_of(run)
    rows = table[[ids["seoul"], ids["Seoul"], ids["is"], ids["Kim"], ids["1996"]]]
    ratio = rows / VALUES[[0, 0, 1, 2, 3]]
    assert np.allclose(ratio, ratio[0, 0]) and 0.3 < rows.std() < 0.7  # U(±√(3 / 4)) has 0.5


def test_trained_vectors_start_there_and_move(files):
    run = trained(files)
    ids, table = table_of(run)
    moved = np.abs(table[ids["is"]] - VALUES[1]).max()
    assert 0 < moved < 0.1


@pytest.mark.parametrize("fold", ["case", "case-and-digits"])
def test_a_model_whose_words_share_vectors_takes_those_of_their_spellings(files, fold):
    run = trained(files, "model.freeze_vectors=true", f"model.fold_words={fold}", model="lstm_crf")
    places, table = table_of(run, "lstm_crf")
    year = "1996" if fold == "case" else "0000"
    assert np.array_equal(table[[places["seoul"], places["kim"], places[year]]], VALUES[[0, 2, 3]])


def test_words_of_the_vectors_are_added_to_the_vocabulary(files):
    run = trained(files, "model.freeze_vectors=true", "model.extra_words=10")
    ids, table = table_of(run)
    assert np.array_equal(table[ids["busan"]], VALUES[4])
    assert load(run.folder, "cpu").task.text.unknown_in("busan daegu") == ["daegu"]
    fewer = trained(files, "model.extra_words=4", name="fewer")
    assert "busan" not in table_of(fewer)[0]  # the fifth


def test_a_trained_run_needs_its_vectors_no_more(files):
    run = trained(files, "model.freeze_vectors=true", "model.extra_words=10")
    (files / "words.txt").unlink()
    assert load(run.folder, "cpu").tag("Kim is in busan").words == ("Kim", "is", "in", "busan")


def test_an_unfinished_run_resumes_without_its_vectors(files):
    whole = trained(files, "model.freeze_vectors=true", "train.validate_every=1", name="whole")
    again = trained(files, "model.freeze_vectors=true", "train.validate_every=1")
    info = json.loads((again.folder / "run.json").read_text())
    (again.folder / "run.json").write_text(json.dumps({**info, "status": "training"}))
    for path in (again.folder / "checkpoints").glob("step-*2"):
        path.rename(files / "later")
    (again.folder / "model.safetensors").unlink()
    (files / "words.txt").unlink()
    resumed = trained(files, "model.freeze_vectors=true", "train.validate_every=1")
    assert np.array_equal(table_of(resumed)[1], table_of(whole)[1])
    assert resumed.info["weights"] == whole.info["weights"]


def test_weights_of_another_run_take_the_place_of_vectors(files):
    first = trained(files, "model.freeze_vectors=true")
    (files / "words.txt").unlink()
    second = trained(files, "model.freeze_vectors=true", name="second", start=first.folder)
    assert np.array_equal(table_of(second)[1], table_of(first)[1])


def test_vectors_of_a_run_of_ours(files):
    import_vectors(files / "words.txt", files / "vectors")
    run = trained(files, "model.freeze_vectors=true", vectors="vectors")
    ids, table = table_of(run)
    assert np.array_equal(table[[ids["Seoul"], ids["Kim"]]], VALUES[[0, 2]])
    assert Source.open(str(files / "vectors")).words(3) == ["seoul", "is", "Kim"]


def test_a_run_of_fasttext_spells_words_that_it_has_not_seen(files):
    (files / "text.txt").write_text("Kim likes Seoul\n" * 40)
    overrides = [f"data.train={files / 'text.txt'}", f"data.valid={files / 'text.txt'}", "text.min_count=1"]
    small = ["model.dim=4", "model.epochs=1", "model.subsample=0"]
    train(read("fasttext", [*overrides, *small]).build(), Options(folder=files / "fast", device="cpu", quiet=True))
    source = Source.open(str(files / "fast"))
    found = source.of_words(["Kim", "Seouls"])
    assert found.words == ("Kim", "Seouls") and np.abs(found.values).max(axis=1).min() > 0
    verbs = load(files / "fast", "cpu")
    assert np.allclose(found.values[0], verbs.embed("Kim"))
    assert np.allclose(found.values[1], verbs.model.spelled_vectors(["Seouls"]).numpy())


@pytest.mark.parametrize(
    ("vectors", "overrides", "message", "todo"),
    [
        ("words.txt", ["model.embedding_dim=5"], "have 4 numbers, but those of the model 5", "model.embedding_dim=4"),
        ("absent.txt", [], "there are no word vectors", "glove-6b-50d"),
        ("other.txt", [], "none of the 10 words of the vocabulary has a vector in", "text.unit=word"),
        ("run", [], "is a run for tagging, which has no vectors of words alone", "word2vec"),
    ],
)
def test_wrong_vectors_are_refused(files, vectors, overrides, message, todo):
    write_vectors(files / "other.txt", ["zzz"], VALUES[:1])
    if vectors == "run":
        trained(files, vectors=None)
    with pytest.raises(UserError, match=message) as caught:
        trained(files, *overrides, vectors=vectors, name="wrong")
    assert todo in caught.value.todo


def test_extra_words_need_whole_words_and_a_model_that_predicts_none(files):
    with pytest.raises(UserError, match="unit bpe"):
        trained(files, "model.extra_words=3", "text.unit=bpe")
    (files / "text.txt").write_text("Kim likes Seoul\n" * 20)
    data = [f"data.train={files / 'text.txt'}", f"data.valid={files / 'text.txt'}", "text.unit=word"]
    more = [f"model.vectors={files / 'words.txt'}", "model.extra_words=3"]
    with pytest.raises(UserError, match="rnn_lm predicts words"):
        train(read("rnn_lm", [*data, *SMALL, *more]).build(), Options(folder=files / "lm", device="cpu", quiet=True))


def test_a_language_model_trains_above_frozen_vectors(files):
    (files / "text.txt").write_text("Kim likes Seoul\n" * 20)
    data = [f"data.train={files / 'text.txt'}", f"data.valid={files / 'text.txt'}", "text.unit=word"]
    more = [f"model.vectors={files / 'words.txt'}", "model.freeze_vectors=true", "model.scale_vectors=false"]
    run = train(read("rnn_lm", [*data, *SMALL, *more]).build(), Options(folder=files / "lm", device="cpu", quiet=True))
    verbs = load(run.folder, "cpu")
    ids, table = verbs.task.tokenizers["text"].vocabulary.ids, verbs.model.input_embedding().weight.detach().numpy()
    assert np.array_equal(table[[ids["▁Kim"], ids["▁Seoul"]]], VALUES[[2, 0]])


@pytest.mark.parametrize("key", ["freeze_vectors=true", "extra_words=3", "scale_vectors=false"])
def test_keys_about_vectors_have_no_effect_without_them(key):
    with pytest.raises(UserError, match="has no effect without vectors"):
        read("rnn_tagger-miniworld", [f"model.{key}"]).build()
    with pytest.raises(UserError, match="extra_words must not be negative"):
        read("rnn_tagger-miniworld", ["model.extra_words=-1", "model.vectors=a"]).build()


def test_every_trained_model_with_an_embedding_of_words_has_the_keys_and_no_other():
    keys = set(Config.__dataclass_fields__)
    for name in names("models"):
        has = keys & set(schema.part("model", name)["properties"])
        assert has == (keys if takes_vectors(find("models", name)) else set()), name
    assert {"cnn", "han", "lstm_crf", "rnn_lm", "rnn_tagger", "transformer"} <= {
        name for name in names("models") if takes_vectors(find("models", name))
    }


def test_a_recipe_with_vectors_comes_back_from_its_run_folder(files):
    run = trained(files, "model.freeze_vectors=true")
    recipe = Run.open(run.folder).recipe()
    assert recipe.vectors == Config(vectors=str(files / "words.txt"), freeze_vectors=True, scale_vectors=False)
    assert read("ngram-miniworld").build().vectors is None
