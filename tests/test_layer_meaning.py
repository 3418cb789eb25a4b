"""Meaning by layer: retrieval against a loop, sentences by their mean vectors, and the script to its values."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # the benchmarks are not installed
from benchmarks import layer_meaning
from benchmarks.kinds import kind_of

from mallang.errors import UserError
from runs.small_runs import run_of, write_lines


def test_the_words_are_marked_and_every_sense_has_sentences_of_one_form_or_more() -> None:
    words = layer_meaning.read_homonyms()
    assert {each.name for each in words} >= {"play", "bank", "배", "사과"} and {each.language for each in words} == {
        "en",
        "ko",
    }
    for word in words:
        assert min(word.senses.count(sense) for sense in set(word.senses)) >= 4 and len(set(word.senses)) >= 2
        for text, place in zip(word.sentences, word.places, strict=True):
            assert text[place.start : place.end] == place.text and place.text.startswith(word.name)
        assert len(set(word.sentences)) == len(word.sentences)


def test_a_sentence_without_a_mark_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text(
        '[[words]]\nname = "x"\nlanguage = "en"\nsenses = { a = ["no x here"] }\n', "utf-8"
    )
    with pytest.raises(UserError, match="marks no word"):
        layer_meaning.read_homonyms(tmp_path / "w.toml")


def test_retrieval_is_that_of_a_loop() -> None:
    random = np.random.default_rng(1)
    vectors, senses = random.normal(size=(12, 4)), ["a", "b", "c"] * 4
    expected = []
    for place, vector in enumerate(vectors):
        cosines = [
            -2.0 if other == place else float(vector @ each / np.linalg.norm(vector) / np.linalg.norm(each))
            for other, each in enumerate(vectors)
        ]
        expected.append(senses[int(np.argmax(cosines))] == senses[place])
    assert layer_meaning.retrieval(vectors, senses) == expected
    assert layer_meaning.chance(["a", "a", "b", "b"]) == pytest.approx(1 / 3)


class Given:
    """An encoder whose vectors are known: layer 0 tells nothing, layer 1 the sense, or the number in a sentence."""

    def occurrences(self, texts: Any, words: Any = None) -> Any:
        senses = {
            text: sense
            for each in layer_meaning.read_homonyms()
            for text, sense in zip(each.sentences, each.senses, strict=True)
        }
        if words is not None:
            names = sorted(set(senses.values()))
            return [
                [SimpleNamespace(layers=(np.ones(3), np.eye(len(names))[names.index(senses[text])]))] for text in texts
            ]
        return [
            [SimpleNamespace(layers=(np.ones(2), np.array([1.0, float(word)]))) for word in text.split()]
            for text in texts
        ]


def test_a_layer_that_knows_the_sense_is_always_right() -> None:
    found = layer_meaning.senses_by_layer(Given(), layer_meaning.read_homonyms())  # type: ignore[arg-type]
    assert list(found) == ["layer 0", "layer 1", "chance"] and found["layer 1"] == 100.0
    assert found["chance"] < 50 and found["layer 0"] < 70


def test_similarity_is_the_correlation_of_cosines_with_golds() -> None:
    rows = [("0 0", "0", "5"), ("0", "1", "4"), ("0 0", "4 4", "2"), ("0", "30", "1")]
    found = layer_meaning.similarity_by_layer(Given(), rows)  # type: ignore[arg-type]
    assert found["layer 1"] == pytest.approx(100.0)


def test_the_script_measures_every_layer_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of(tmp_path / "elmo", "elmo", write_lines(tmp_path), "text.unit=space", "text.vocabulary=60")
    written: dict[str, Any] = {}
    monkeypatch.setattr(layer_meaning.report, "write_result", lambda name, value: written.update({name: value}))
    monkeypatch.setattr(sys, "argv", ["layer_meaning", str(tmp_path / "elmo"), "--language", "ko", "--write", "elmo"])
    layer_meaning.main()
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["senses"] and {"layer 0", "chance"} <= set(found["senses"])
    assert {f"layers-elmo-senses-{layer.replace(' ', '')}" for layer in found["senses"]} == set(written)
    assert {kind_of(name).table for name in written} == {"understanding"}
