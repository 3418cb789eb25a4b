"""Augmentation: candidates against gaps that are filled one by one, copies against the definition, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mallang.data.sampler import generator
from mallang.errors import UserError
from mallang.find import find
from mallang.tasks import augmentation, masked_lm, word_vectors
from mallang.tasks.augmentation import Augmenter, Options
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer

TEXTS = ["the dog runs .", "my dog is hairy , and 3 cats sleep .", "the store was open .", "the man bought milk ."]


def tokenizer(unit: Any = "word", vocabulary: int = 60, texts: list[str] = TEXTS) -> Tokenizer:
    return Tokenizer.train(texts, Text(unit=unit, vocabulary=vocabulary), special=("cls", "sep", "mask"))


def masked(text: Tokenizer, longest: int = 24) -> masked_lm.Verbs:
    torch.manual_seed(3)
    task = masked_lm.Task(masked_lm.Config(length=16), {"text": text})
    module = find("models", "bert")
    config = module.Config(layers=1, dim=16, heads=2, max_length=longest, pretraining_heads="masked-lm")
    return masked_lm.Verbs(task, task.build(module, config).eval(), None, longest)


def vectors(text: Tokenizer) -> word_vectors.Verbs:
    torch.manual_seed(4)
    module = find("models", "word2vec")
    task = word_vectors.Task(word_vectors.Config(), {"text": text})
    model = task.build(module, module.Config(dim=8))
    torch.nn.init.normal_(next(model.parameters()))
    return word_vectors.Verbs(task, model.eval(), None, 0)


def made(unit: Any = "word", near: word_vectors.Verbs | None = None, **options: Any) -> Augmenter:
    return Augmenter(masked(tokenizer(unit)), near, Options(**options))


def test_candidates_are_the_most_probable_words_in_the_gap() -> None:
    augmenter = made(candidates=4)
    text = "the dog runs , and 3 cats sleep ."
    found = augmenter.candidates(text)
    assert [word.text for word, _ in found] == ["the", "dog", "runs", "and", "cats", "sleep"]
    for word, names in found:
        gap = f"{text[: word.start]}[MASK]{text[word.end :]}"
        [probable] = augmenter.model.fill(gap, count=50).gaps
        words = [each.token.removeprefix("▁") for each in probable if each.token.startswith("▁")]
        assert list(names) == [each for each in words if each.isalpha() and each != word.text][:4]


def test_words_of_several_tokens_have_their_neighbors() -> None:
    near = vectors(tokenizer())
    pieces = Tokenizer.train(TEXTS, Text(unit="wordpiece", vocabulary=58), special=("cls", "sep", "mask"))
    augmenter = Augmenter(masked(pieces), near, Options(candidates=3))
    found = dict(augmenter.candidates("the dog runs ."))
    several = [word for word in found if len(pieces.encode(word.text).ids) > 1]
    assert several
    for word in several:
        expected = [name for name, _ in near.neighbors(word.text, 3).neighbors if name.isalpha()]
        assert list(found[word]) == expected
    without = dict(Augmenter(masked(pieces), None, Options()).candidates("the dog runs ."))
    assert not set(several) & set(without)


def test_a_copy_replaces_words_by_candidates_and_keeps_all_else() -> None:
    augmenter = made(candidates=1, share=1.0, copies=5)
    text = "my dog is  hairy , and 3 cats sleep ."
    expected, end = "", 0
    for word, (name,) in augmenter.candidates(text):
        expected, end = expected + text[end : word.start] + name, word.end
    assert augmenter.copies([text], 1) == [(expected + text[end:],)]  # equal copies come once


def test_copies_are_the_definition_in_a_loop() -> None:
    augmenter, pair = made(copies=6), ("the dog runs .", "the man bought milk .")
    random, expected = generator(1, 7, augmentation.AUGMENTED), []
    for _ in range(6):
        copy = []
        for text in pair:
            words = text.split()
            for word, names in augmenter.candidates(text):
                if random.random() < 0.4:
                    words[text[: word.start].count(" ")] = names[int(random.integers(len(names)))]
            copy.append(" ".join(words))
        expected.append(tuple(copy))
    assert augmenter.copies(pair, 7) == [each for each in dict.fromkeys(expected) if each != pair]
    assert augmenter.copies(pair, 7) != augmenter.copies(pair, 8)


def test_the_share_of_replaced_words() -> None:
    augmenter = made(copies=800, candidates=15)
    text = "the dog runs and the store was open " * 2
    text = text.strip()  # so many words that hardly any copies are equal
    words = len(augmenter.candidates(text))
    replaced = [
        sum(a != b for a, b in zip(text.split(), copy.split(), strict=True)) for (copy,) in augmenter.copies([text], 1)
    ]
    assert words == 16 and len(replaced) >= 799
    assert abs(np.mean(replaced) / words - 0.4) <= 3 * np.sqrt(0.4 * 0.6 / (words * len(replaced)))


def test_numbers_and_punctuation_have_no_candidates() -> None:
    assert made().candidates("3 , 4 .") == [] and made().copies(["3 , 4 ."], 1) == []


def test_what_cannot_be_augmented_is_refused() -> None:
    with pytest.raises(UserError, match="tokens of the unit char are no words"):
        made(unit="char")
    with pytest.raises(UserError, match="the model reads 24"):
        made().copies(["the dog " * 20], 1)
    for wrong in ({"copies": 0}, {"share": 0.0}, {"share": 1.5}, {"candidates": 0}):
        with pytest.raises(UserError, match="must be"):
            Options(**wrong)  # type: ignore[arg-type]
