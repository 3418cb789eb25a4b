"""The benchmark of word similarity: what it reads, chooses and scores, with vectors that are made up."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are not installed
from benchmarks import word_vectors, word_vectors_entrants
from benchmarks.kinds import kind_of
from benchmarks.word_vectors_entrants import Job

from mallang.find import find
from mallang.tasks import word_lists

WORDS = ["<pad>", "king", "queen", "man", "woman", "dog"]
PAIRS = [("King", "queen", 9.0), ("man", "woman", 8.0), ("king", "dog", 1.0), ("kingly", "king", 7.0)]


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small lists in place of those of the machine."""
    names = ("ws-353-all", "mturk-771", "rw-stanford", "ws353-korean")
    men = [(one, other, float(at)) for at, one in enumerate(WORDS[1:]) for other in WORDS[1:] if one != other]
    found = [*((name, PAIRS) for name in names), ("men-tr-3k", men)]
    questions = [("king", "queen", "man", "woman"), ("king", "queen", "man", "unseen")]
    monkeypatch.setattr(word_lists, "similarity_lists", lambda: iter(found))
    monkeypatch.setattr(
        word_lists, "analogy_lists", lambda: iter([("analogies en", questions), ("analogies ko", questions)])
    )


def save(path: Path, seed: int, **more: np.ndarray) -> None:
    vectors = np.random.default_rng(seed).standard_normal((len(WORDS), 4)).astype(np.float32)
    np.savez(path, words=np.array(WORDS), vectors=vectors, **more)


def test_every_option_is_one_of_its_model() -> None:
    for name, system in word_vectors.systems().items():
        for options in (system.english, system.korean) if not system.needs else ():
            find("models", name).Config(**options, epochs=5)


def test_halves_of_men_are_disjoint(lists: None) -> None:
    found = word_vectors.pair_lists()
    assert len(found["men-dev"]) + len(found["men-test"]) == 20 and not set(found["men-dev"]) & set(found["men-test"])
    assert found["ws-353-all"][0] == ("king", "queen", 9.0)  # in lower case


def test_unknown_words_are_left_out_or_spelled(tmp_path: Path, lists: None) -> None:
    row = np.array([[0.0, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0]], np.float32)
    save(tmp_path / "v.npz", 1, unseen=row)
    scorer = word_vectors.Scorer(tmp_path / "v.npz", ["kingly", "zzz"])
    pairs = word_vectors.pair_lists()["rw-stanford"]
    assert scorer.similarity("rw", pairs).count == 3 and scorer.similarity("rw", pairs, spell=True).count == 4
    assert scorer.cosine("kingly", "king", spell=True) == pytest.approx(float(scorer.vectors[1, 3]), abs=1e-6)
    assert scorer.cosine("zzz", "king", spell=True) is None  # no n-gram of it is known
    score = scorer.analogies("en", [("King", "queen", "man", "woman"), ("king", "queen", "man", "unseen")])
    assert score.count == 1


def test_epochs_are_chosen_on_the_dev_half(tmp_path: Path, lists: None) -> None:
    place = word_vectors.Place(tmp_path, "cpu")
    for epochs, seed in zip(word_vectors.OTHERS, (1, 2), strict=True):
        save(tmp_path / f"english-word2vec-{epochs}-1.npz", seed)
    best, tried = word_vectors.chosen_epochs(place, "word2vec")
    pairs = word_vectors.pair_lists()["men-dev"]
    values = {
        epochs: word_vectors.Scorer(tmp_path / f"english-word2vec-{epochs}-1.npz", []).similarity("dev", pairs).value
        for epochs in word_vectors.OTHERS
    }
    assert best == max(values, key=lambda epochs: values[epochs])
    assert all(f"{epochs} epochs {value:.1f}" in tried for epochs, value in values.items())


@pytest.mark.parametrize("language", ["english", "korean"])
def test_a_value_per_list_and_seed(language: str, tmp_path: Path, lists: None) -> None:
    for epochs in word_vectors.OTHERS:
        for seed in word_vectors.SEEDS:
            for each in ("english", "korean"):
                save(tmp_path / f"{each}-word2vec-{epochs}-{seed}.npz", seed)
    found = word_vectors.measured(word_vectors.Place(tmp_path, "cpu"), "word2vec", language)
    assert len(found) == len(word_vectors.LISTS[language]) * len(word_vectors.SEEDS)
    assert {kind_of(name).name for name in found} == {"word similarity and analogies"}
    head, row = word_vectors.table(found, language)
    assert head[1:] == list(word_vectors.LISTS[language]) and row[0] == "word2vec"
    values = [one.value for one in found.values() if one.metric == head[1]]
    assert row[1] == pytest.approx(sum(values) / 3, abs=0.051)


def test_korean_is_cut_at_spaces_and_lines_come_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mallang.data import corpus

    class Opened:
        def split(self, name: str) -> list[tuple[str, ...]]:
            return [("안녕, 세상!",), ("안녕 세상",), ("",)]

    monkeypatch.setattr(corpus, "open_corpus", lambda *_: Opened())
    word_vectors.write_text("korean", tmp_path / "ko.txt")
    assert (tmp_path / "ko.txt").read_text("utf-8") == "안녕 세상\n"


def test_korean_is_scored_on_a_few_lines(
    tmp_path: Path, lists: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command from the text to the table, with the training in this process."""

    def train(command: list[str], **options: object) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", command[2:])
            word_vectors_entrants.main()

    monkeypatch.setattr(word_vectors, "text_lines", lambda language: itertools.cycle([WORDS[1:], WORDS[:0:-1]]))
    monkeypatch.setattr(word_vectors, "write_text", write_every_line)
    monkeypatch.setattr(word_vectors.subprocess, "run", train)
    small = {"dim": 6, "buckets": 50, "max_jamo": 5}
    monkeypatch.setattr(word_vectors, "systems", lambda: {"fasttext": word_vectors.System("FastText", {}, small)})
    common = ["", "korean", "--out", str(tmp_path), "--lines", "40", "--epochs", "2"]
    monkeypatch.setattr(sys, "argv", common)
    word_vectors.main()
    shown = capsys.readouterr().out
    assert "korean fasttext, 2 epochs, seed 3" in shown and "FastText" in shown and "ws353-korean" in shown
    assert len((tmp_path / "40-lines/korean.txt").read_text("utf-8").splitlines()) == 40
    monkeypatch.setattr(sys, "argv", [*common, "--write"])
    with pytest.raises(SystemExit):
        word_vectors.main()
    assert "not written into results/" in capsys.readouterr().err


def write_every_line(language: str, path: Path, most: int | None = None) -> None:
    """Equal lines too, so that every word is frequent enough."""
    lines = itertools.islice(word_vectors.text_lines(language), most)
    path.write_text("".join(f"{' '.join(line)}\n" for line in lines), "utf-8")


@pytest.mark.parametrize("system", ["word2vec", "fasttext", "gensim-fasttext"])
def test_a_job_writes_words_and_vectors(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, object] = {"dim": 6}
    if system.startswith("gensim"):
        pytest.importorskip("gensim")
        options = {"vector_size": 6, "bucket": 50}
    elif system == "fasttext":
        options["buckets"] = 50
    (tmp_path / "text.txt").write_text("the king and the queen\n" * 30, "utf-8")
    (tmp_path / "unseen").write_text("kingly\nqueens\n", "utf-8")
    out = tmp_path / "v.npz"
    job = Job(system, str(tmp_path / "text.txt"), str(out), 1, 2, options, str(tmp_path / "unseen"))
    monkeypatch.setattr(sys, "argv", ["", json.dumps(asdict(job))])
    word_vectors_entrants.main()
    with np.load(out) as found:
        assert {"the", "king", "and", "queen"} <= set(found["words"].tolist())
        assert found["vectors"].shape == (len(found["words"]), 6)
        assert ("unseen" in found) == system.endswith("fasttext")
        assert system == "word2vec" or found["unseen"].shape == (2, 6)
    assert not list(tmp_path.glob("*.draft*"))
