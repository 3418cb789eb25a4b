"""Contextual neighbors: the vectors of words beside loops over their tokens, whatever the unit and the encoder are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.find import find
from mallang.inspection.contextual_neighbors import contextual_neighbors, occurrence_map, same
from mallang.models.rnn_lm import RNNLM, SIZES, Config
from mallang.tasks import backward_language_modeling, encoding
from mallang.tasks.occurrences import Contexts
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import EOS

TEXTS = ["the actors read the play .", "they won by one play .", "유나는 배를 탔다.", "민수는 배가 고팠다."]
ENCODERS = ("elmo", "bert", "transformer_encoder", "rnn_lm", "rnn_classifier")


def verbs(name: str = "elmo", unit: Any = "bpe", **options: Any) -> encoding.Verbs:
    """An encoder that was trained on nothing."""
    module = find("models", name)
    marks = module.Model.marks if name == "bert" else ()
    tokenizer = Tokenizer.train(TEXTS, Text(unit=unit, vocabulary=300), special=marks)
    task = encoding.Task(encoding.Config(), {"text": tokenizer})
    torch.manual_seed(1)
    model = module.Model(module.Config(**{**module.SIZES["tiny"], **options}), tokenizer.vocabulary)
    return encoding.Verbs(task, model.eval(), None, 100)


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("unit", ["bpe", "char", "word", "space", "byte"])
@torch.no_grad()
def test_a_word_has_the_mean_vector_of_its_tokens_in_every_layer(name: str, unit: str) -> None:
    model = verbs(name, unit)
    contexts = Contexts(model)
    for text, words in zip(TEXTS, contexts.occurrences(TEXTS), strict=True):
        encoded = contexts.tokenizer.encode(text)
        begin, end = contexts.tokenizer.vocabulary.frame

        ids = [*([] if begin is None else [begin]), *encoded.ids, end]
        layers = model.model.encode(Batch(tokens=torch.tensor([ids]), lengths=torch.tensor([len(ids)]))).layers
        assert [each.word.text for each in words][-1] == "."
        for each in words:
            assert text[each.word.start : each.word.end] == each.word.text
            at = [
                place + (begin is not None)
                for place, (start, stop) in enumerate(encoded.offsets)
                if any(start <= letter < stop for letter in range(each.word.start, each.word.end))
            ]
            for ours, layer in zip(each.layers, layers, strict=True):
                np.testing.assert_allclose(ours, layer[0, at].mean(dim=0).numpy(), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_backward_language_model_reads_from_the_end() -> None:
    tokenizer = Tokenizer.train(TEXTS, Text(unit="bpe", vocabulary=120))
    torch.manual_seed(1)
    model = RNNLM(Config(**SIZES["tiny"]), tokenizer.vocabulary).eval()
    task = backward_language_modeling.Task(backward_language_modeling.Config(), {"text": tokenizer})
    (words,) = Contexts(backward_language_modeling.Verbs(task, model, None, 100)).occurrences(TEXTS[:1])
    ids = tokenizer.encode(TEXTS[0]).ids
    read = Batch(tokens=torch.tensor([[*ids[::-1], EOS]]), lengths=torch.tensor([len(ids) + 1]))
    layer = model.encode(read).layers[-1][0]
    np.testing.assert_allclose(words[-1].layers[-1], layer[0].numpy(), rtol=1e-5, atol=1e-6)


def test_neighbors_are_sorted_by_the_cosine_of_their_vectors() -> None:
    model = verbs()
    (found,) = contextual_neighbors(model, TEXTS[0], "play", TEXTS, layer=1, any_word=True)
    everything = Contexts(model).occurrences(TEXTS)
    own = everything[0][4]
    assert found.input.word.text == own.word.text == "play" and found.layer == 1
    expected = {
        (each.text, each.word.start): float(
            each.layers[1] @ own.layers[1] / np.linalg.norm(each.layers[1]) / np.linalg.norm(own.layers[1])
        )
        for words in everything[1:]
        for each in words
    }
    assert {(each.text, each.word.start): cosine for each, cosine in found.neighbors} == pytest.approx(expected)
    cosines = [cosine for _, cosine in found.neighbors]
    assert cosines == sorted(cosines, reverse=True)
    (alone,) = contextual_neighbors(model, TEXTS[0], "play", TEXTS)
    assert [str(each) for each, _ in alone.neighbors] == ["they won by one [play] ."] and alone.layer == 2
    assert alone.to_json()["neighbors"][0]["start"] == 16 and str(alone).endswith("[play] .")


def test_a_korean_word_counts_with_any_ending() -> None:
    model = verbs()
    (found,) = contextual_neighbors(model, TEXTS[2], "배", TEXTS)
    assert [str(each) for each, _ in found.neighbors] == ["민수는 [배가] 고팠다."]
    first = Contexts(model).occurrences(["plays"])[0][0]
    assert not same(first, "play") and same(first, "Plays")


def test_without_context_the_same_word_is_the_same_and_with_it_it_is_not() -> None:
    """Layer 0 of ELMo is the word alone."""
    (found,) = contextual_neighbors(verbs(unit="space"), TEXTS[0], "play", TEXTS, layer=0)
    assert found.neighbors[0][1] == pytest.approx(1.0)
    (found,) = contextual_neighbors(verbs(unit="space"), TEXTS[0], "play", TEXTS)
    assert found.neighbors[0][1] < 0.9999


def test_what_the_encoder_cannot_read_at_once_is_left_out() -> None:
    model = verbs("transformer_encoder", "char", positions="learned", max_length=8)
    words = Contexts(model).occurrences([TEXTS[0], ""])
    assert [[each.word.text for each in row] for row in words] == [["the", "actors"], []]


def test_a_map_shows_every_occurrence(tmp_path: Path) -> None:
    made = occurrence_map(verbs(), "the", [*TEXTS, "the end"], layer=1)
    assert made.labels == (
        "[the] actors read the play .",
        "the actors read [the] play .",
        "[the] end",
    )


@pytest.mark.parametrize(
    ("word", "texts", "options", "says"),
    [
        ("bank", TEXTS, {}, "the word 'bank' is not in the sentence"),
        ("play", ["nothing"], {}, "no other text has the word 'play'"),
        ("play", TEXTS, {"layer": 3}, "there is no layer 3: the encoder gives 3"),
    ],
)
def test_what_cannot_be_found_is_said(word: str, texts: list[str], options: Any, says: str) -> None:
    with pytest.raises(UserError, match=says):
        contextual_neighbors(verbs(), TEXTS[0], word, texts, **options)


@pytest.mark.parametrize(
    ("name", "says"), [("modern_gpt", "has no vectors of words"), ("han", "reads documents in sentences")]
)
def test_what_gives_no_such_vectors_is_refused(name: str, says: str) -> None:
    module = find("models", name)
    tokenizer = Tokenizer.train(TEXTS, Text(unit="word", vocabulary=60))
    task = encoding.Task(encoding.Config(), {"text": tokenizer})
    model = module.Model(module.Config(**module.SIZES["tiny"]), tokenizer.vocabulary)
    with pytest.raises(UserError, match=says):
        Contexts(encoding.Verbs(task, model, None, 100))
