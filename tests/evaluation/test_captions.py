"""CIDEr against cases worked by hand and an independent loop over all n-grams; BLEU-n against its definition."""

import math
import random

import pytest

from mallang.evaluation.captions import (
    MEASURES,
    bleu_n_statistics,
    caption_scores,
    cider_statistics,
    cider_values,
    words_of,
)

WORDS = ["a", "an", "the", "cat", "dog", "bird", "sees", "eats", "on", "grass", "red", "big"]


def explicit(outputs, references, penalized):
    """The definition, n-gram by n-gram, with lists in place of dictionaries."""

    def grams(text, order):
        words = text.split()
        return [" ".join(words[i : i + order]) for i in range(len(words) - order + 1)]

    def weight(gram, order, text):
        images = sum(any(gram in grams(one, order) for one in options) for options in references)
        return grams(text, order).count(gram) * math.log(len(references) / max(1, images))

    values = []
    for output, options in zip(outputs, references, strict=True):
        value = 0.0
        for reference in options:
            for order in (1, 2, 3, 4):
                every = sorted({*grams(output, order), *grams(reference, order)})
                ours = [weight(gram, order, output) for gram in every]
                theirs = [weight(gram, order, reference) for gram in every]
                top = sum((min(a, b) if penalized else a) * b for a, b in zip(ours, theirs, strict=True))
                norms = math.sqrt(sum(a * a for a in ours)) * math.sqrt(sum(b * b for b in theirs))
                gap = len(output.split()) - len(reference.split())
                value += (top / norms if norms else 0.0) * (math.exp(-(gap**2) / 72) if penalized else 1.0)
        values.append(10 * value / 4 / len(options))
    return values


@pytest.mark.parametrize("penalized", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_definition(seed, penalized):
    draw = random.Random(seed)

    def text():
        return " ".join(draw.choices(WORDS, k=draw.randint(1, 9)))

    references = [[text() for _ in range(draw.randint(1, 4))] for _ in range(12)]
    outputs = [draw.choice([text(), draw.choice(options)]) for options in references]
    assert cider_values(outputs, references, penalized) == pytest.approx(explicit(outputs, references, penalized))


def test_cases_worked_by_hand():
    """Two images, so that a word in one of them weighs log 2, and `a`, which is in both, nothing."""
    references = [["a cat sits"], ["a dog runs"]]
    # Unigrams cat and sits: cosine 1. Bigrams, trigram: 1. No 4-gram: 0. Ten times the mean of 1, 1, 1, 0.
    assert cider_values(["a cat sits", "a dog runs"], references) == pytest.approx([7.5, 7.5])
    # `cat` of cat, sits: 1/√2. Bigram `a cat` of two: 1/√2. Nothing longer. One word less: e^(−1/72).
    short = 10 / 4 * 2 * (1 / math.sqrt(2))
    assert cider_values(["a cat", ""], references) == pytest.approx([short * math.exp(-1 / 72), 0.0])
    assert cider_values(["a cat", ""], references, penalized=False) == pytest.approx([short, 0.0])
    # Repetition: `cat cat cat` has (3, 0) against (1, 1) log 2. Clipped: 1·1 / (3·√2); the bigrams are of no reference.
    clipped = 10 / 4 * (1 / (3 * math.sqrt(2)))
    assert cider_values(["cat cat cat", ""], references) == pytest.approx([clipped, 0.0])
    assert cider_values(["cat cat cat", ""], references, penalized=False) == pytest.approx([10 / 4 / math.sqrt(2), 0.0])


def test_only_what_a_caption_shares_counts():
    references = [["a red bird"], ["the big dog"], ["the cat sees"]]
    perfect = [options[0] for options in references]
    assert cider_statistics(perfect, references).value > cider_statistics(perfect[::-1], references).value
    assert cider_statistics(["the", "the", "the"], references).value < 1
    value = cider_statistics(["A red bird!", "The big dog.", "the cat, sees"], references).value
    assert value == pytest.approx(cider_statistics(perfect, references).value)


def test_bleu_of_an_order_is_the_product_of_its_precisions():
    outputs, references = ["the the cat sees", "a dog"], [["the cat sees", "a cat sees it"], ["a big dog"]]
    # Clipped unigrams: the once, cat, sees, a, dog = 5 of 6. Bigrams: the cat, cat sees = 2 of 4.
    # Lengths: 4 and 2 words, the nearest references 4 and 3: brevity e^(1 − 7/6).
    brevity = math.exp(1 - 7 / 6)
    assert bleu_n_statistics(outputs, references, 1).value == pytest.approx(100 * brevity * 5 / 6)
    assert bleu_n_statistics(outputs, references, 2).value == pytest.approx(100 * brevity * math.sqrt(5 / 6 * 2 / 4))


def test_all_scores_of_captions():
    outputs, references = ["A cat sees a bird.", "a dog"], [["a cat sees a bird"], ["a dog", "the dog"]]
    scores = {score.name: score for score in caption_scores(outputs, references)}
    assert list(scores) == ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr-D", "CIDEr", "exact match"]
    assert scores["BLEU-4"].value == pytest.approx(100) and scores["exact match"].value == 50
    assert all(score.low <= score.value <= score.high and score.count == 2 for score in scores.values())
    assert set(MEASURES) == {"bleu1", "bleu2", "bleu3", "bleu4", "cider", "exact"}
    assert words_of("Don't — 나는 A-B") == ["don't", "나는", "a", "b"]
