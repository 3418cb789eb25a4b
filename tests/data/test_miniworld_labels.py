"""The labels of miniworld's sentences: they follow from the words, no class is rare, and words alone predict them."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from functools import cache

import pytest

from mallang.data import miniworld, miniworld_prompts
from mallang.data import miniworld_labels as made
from mallang.data.corpus import Config, open_corpus
from mallang.data.miniworld_verbs import VERBS
from mallang.data.miniworld_views import LABELS, VIEWS
from mallang.data.miniworld_words import ADJECTIVES, NOUNS, third_person
from mallang.errors import UserError

BY_HAND = {
    # sentence: sentiment, rating, topic, topics
    "Minsu likes coffee.": "positive 5 food food",
    "Minsu does not like coffee.": "negative 1 food food",
    "Does Minsu like coffee?": "neutral 3 food food",
    "Minsu ate an apple.": "neutral 3 food food",
    "Minsu did not eat an apple.": "negative 2 food food",
    "Minsu ate a delicious apple.": "positive 4 food food",
    "Minsu did not eat a delicious apple.": "neutral 3 food food",
    "Sujin lost a red umbrella.": "negative 1 house house",
    "Sujin lost a new umbrella.": "negative 2 house house",
    "Sujin did not lose an umbrella.": "positive 5 house house",
    "The cat is not sick.": None,  # only people are
    "Grandma is not sick.": "positive 5 body body",
    "Jihun cannot swim.": "negative 2 sport sport",
    "I like coffee, but they do not like coffee.": "neutral 3 food food",
    "Minsu was hungry, so he ate bread.": "negative 2 food food",
    "Minsu was tired, so he went home.": "negative 2 body body/place",
    "We are playing soccer, and the students are walking.": "positive 4 sport sport",
    "Eunji has pretty eyes.": "positive 4 body body",
    "It snowed in Seoul yesterday.": "positive 4 nature nature/place",
    "There is no cat in the room.": "negative 2 animal animal/place",
    "Two cats are sleeping in the garden.": "neutral 3 body animal/body/place",
    "Minsu gave an apple to Jiyeong.": "positive 4 food food/people",
    "Minsu apologized to Jiyeong.": "negative 2 people people",
    "The children will go to Busan by train tomorrow.": "neutral 3 place vehicle/place",
    "The doctor is kind.": "positive 4 people people",
    "The car is fast.": "neutral 3 vehicle vehicle",
    "Yuna took the ship.": "neutral 3 vehicle vehicle",
    "Yuna ate a pear.": "neutral 3 food food",
    "Minsu accepted Jiyeong's apology.": "positive 4 people people",
    "Minsu wore glasses.": "neutral 3 clothes clothes",
    "Sujin drank two glasses of water.": "neutral 3 food food",
    "What did you buy yesterday?": "neutral 3 house house",
    "Who opened the window?": "neutral 3 house house",
}


@pytest.mark.parametrize("text", BY_HAND)
def test_labels_by_hand(text: str) -> None:
    scene, wanted = miniworld.parse(text, "en"), BY_HAND[text]
    if wanted is None:
        assert scene is None
        return
    assert scene is not None
    labels = (made.sentiment(scene), made.rating(scene), made.topic(scene), "/".join(made.topics(scene)))
    assert " ".join(labels) == wanted


def test_words_of_the_tables_exist() -> None:
    predicates, adjectives = {made.key(verb) for verb in VERBS}, {adjective.english for adjective in ADJECTIVES}
    assert set(made.VALUES) <= predicates | adjectives
    assert set(made.VERB_TOPICS) <= predicates
    assert set(made.NOUN_TOPICS) <= {noun.group for noun in NOUNS.values()} | set(NOUNS)
    assert {made.about(noun) for noun in NOUNS.values()} <= set(made.TOPICS)


@cache
def verb_forms() -> dict[str, int]:
    """What the forms of verbs are worth."""
    forms = {}
    for verb in VERBS:
        base, past, ing = (form.split()[0] for form in verb.english)
        if not verb.complement:
            worth = made.VALUES.get(verb.english[0].replace(" ", "_"), 0)
            forms |= dict.fromkeys((base, third_person(base), past, ing), worth)
    return forms


def word_oracle(english: str) -> int:
    """The score of an English sentence, from its words alone."""
    if english.endswith("?"):
        return 0
    forms, total = verb_forms(), 0
    words = english.rstrip(".").replace(", and ", " | ").replace(", but ", " | ").replace(", so ", " | ").split(" | ")
    for clause in words:
        told = [word.strip(",") for word in clause.split()]
        predicate = attributes = 0
        for before, word, after in zip(["", *told], told, [*told[1:], ""], strict=False):
            if word in forms:
                predicate += forms[word]
            elif before in ("am", "is", "are", "was", "were", "not") or after in ("eyes", "legs"):
                predicate += made.VALUES.get(word, 0)
            else:
                attributes += made.VALUES.get(word, 0)
        if {"not", "cannot", "no"} & set(told):
            predicate = -predicate or -1
        total += predicate + attributes
    return total


@pytest.mark.parametrize("split", miniworld.SPLITS)
def test_a_rule_over_words_finds_every_sentiment(split: str) -> None:
    rows = open_corpus(Config(columns=["en", "sentiment", "rating"]), ("text", "label", "number")).split(split)
    for english, sentiment, rating in rows:
        worth = word_oracle(english)
        wanted = "positive" if worth > 0 else "negative" if worth < 0 else "neutral"
        assert (sentiment, rating) == (wanted, str(3 + max(-2, min(2, worth)))), english


@pytest.mark.parametrize("language", ["ko", "en"])
def test_labels_follow_from_the_text_in_either_language(language: str) -> None:
    """A sentence that is read back has the labels of the scene that it was written from."""
    rows = list(open_corpus(Config(columns=[language, *LABELS]), ("text", *LABELS)).split("test"))
    for text, sentiment, rating, topic, topics in rows[::3]:
        scene = miniworld.parse(text, language)
        assert scene is not None
        assert (made.sentiment(scene), made.rating(scene), made.topic(scene)) == (sentiment, rating, topic)
        assert "\t".join(made.topics(scene)) == topics
        assert topic in topics.split("\t")


def test_topics_are_those_of_the_short_sentences() -> None:
    for split in miniworld.SPLITS:
        for korean, _, _, name in list(miniworld_prompts.topics(split))[::3]:
            scene = miniworld.parse(korean, "ko")
            assert scene is not None and made.topic(scene) == name


@pytest.mark.parametrize("split", miniworld.SPLITS)
def test_no_label_is_rare_and_none_is_almost_all(split: str) -> None:
    count = miniworld.SPLITS[split]
    bounds = {"sentiment": (0.2, 0.55), "rating": (0.04, 0.55), "topic": (0.015, 0.2), "topics": (0.02, 0.4)}
    values = {"sentiment": made.SENTIMENTS, "rating": made.RATINGS, "topic": made.TOPICS, "topics": made.TOPICS}
    for column, (least, most) in bounds.items():
        rows = open_corpus(Config(columns=[column]), ("label",)).split(split)
        shares = {name: number / count for name, number in Counter(n for (s,) in rows for n in s.split("\t")).items()}
        assert set(shares) == set(values[column])
        assert least < min(shares.values()) and max(shares.values()) < most, (column, shares)


@pytest.mark.parametrize("language", ["ko", "en"])
@pytest.mark.parametrize(("column", "gain"), [("sentiment", 0.2), ("rating", 0.15), ("topic", 0.5)])
def test_words_beat_the_majority(language: str, column: str, gain: float) -> None:
    corpus = open_corpus(Config(columns=[language, column]), ("text", "label"))
    train, test = list(corpus.split("train"))[:5000], list(corpus.split("test"))
    majority = Counter(label for _, label in test).most_common(1)[0][1] / len(test)
    assert naive_bayes(train, test) > majority + gain


def naive_bayes(train: list[tuple[str, ...]], test: list[tuple[str, ...]]) -> float:
    """The accuracy of naive Bayes over words, a classifier that knows nothing of miniworld."""
    words = {label: Counter[str]() for _, label in train}
    for text, label in train:
        words[label].update(text.split())
    prior = Counter(label for _, label in train)
    totals = {label: sum(found.values()) + 500 for label, found in words.items()}

    def guess(text: str) -> str:
        told = {
            label: math.log(prior[label]) + sum(math.log((found[word] + 1) / totals[label]) for word in text.split())
            for label, found in words.items()
        }
        return max(told, key=lambda label: told[label])

    return sum(guess(text) == label for text, label in test) / len(test)


def test_labels_are_frozen() -> None:
    """Whoever changes a label changes VERSION, by which prepared data is told apart, and then this sum."""
    rows = open_corpus(Config(columns=list(LABELS)), LABELS).split("test")
    told = hashlib.sha256("\n".join(" ".join(row) for row in rows).encode()).hexdigest()[:16]
    assert (made.VERSION, told) == (1, "dd5e7f8ac97fd903")


def test_labels_are_columns_of_the_corpus() -> None:
    rows = open_corpus(Config(columns=["ko", "sentiment"]), ("text", "label")).split("valid")
    assert rows.columns == ("text", "label")
    assert [text for text, _ in rows] == miniworld.text("valid", "ko")
    plain = open_corpus(Config(), ("text",)).split("valid")
    other = open_corpus(Config(columns=["ko", "topic"]), ("text", "label")).split("valid")
    assert len({rows.fingerprint, plain.fingerprint, other.fingerprint}) == 3
    assert open_corpus(Config(), ()).split("valid").columns == ("ko", "en")
    assert open_corpus(Config(columns=["en", "topics"]), ()).split("valid").columns == ("en", "topics")
    with pytest.raises(UserError, match="no column 'sentiments'"):
        open_corpus(Config(columns=["ko", "sentiments"]), ("text", "label"))


@pytest.mark.parametrize("name", VIEWS)
def test_every_generated_corpus_has_the_columns_and_rows_it_names(name: str) -> None:
    corpus = open_corpus(Config(corpus=name, columns=list(VIEWS[name].columns)), ())
    for split, count in VIEWS[name].rows.items():
        if split != "train":
            rows = list(corpus.split(split))
            assert len(rows) == count and all(len(row) == len(VIEWS[name].columns) for row in rows)
            assert all(cell for row in rows for cell in row)
