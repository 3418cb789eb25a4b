"""Miniworld's prompts: every episode has one rule, no rule is known before it, and nothing of the test set leaks."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from mallang.data import miniworld
from mallang.data import miniworld_prompts as made
from mallang.data.corpus import Config, open_corpus
from mallang.data.miniworld_views import VIEWS
from mallang.errors import UserError


def read(line: str) -> list[tuple[str, str, str]]:
    """The sentences of an episode, each with its label and its topic."""
    found = []
    for example in line.split(made.SEPARATOR):
        sentence, _, answer = example.partition(made.ARROW)
        label, _, topic = answer.partition(" ")
        found.append((sentence, label, topic))
    return found


@pytest.mark.parametrize("language", made.LANGUAGES)
def test_an_episode_calls_a_topic_always_the_same(language: str) -> None:
    topics = {row[language == "en"]: row[2 + (language == "en")] for row in made.topics("valid")}
    own = 0
    for line in made.episodes("valid", language):
        examples = read(line)
        assert len(examples) == made.EXAMPLES
        labels = {topic: label for _, label, topic in examples}
        assert all(labels[topic] == label and topics[sentence] == topic for sentence, label, topic in examples)
        assert len(set(labels.values())) == len(labels)
        is_own = all(topic == label for topic, label in labels.items())
        assert is_own or set(labels.values()) <= set(made.NONSENSE[language])
        own += is_own
    assert 0.18 < own / made.EPISODES["valid"] < 0.32


def test_labels_say_nothing_about_topics_before_the_first_example() -> None:
    counts = Counter((label, topic) for line in made.episodes("test", "ko") for _, label, topic in read(line)[:1])
    fresh = {pair: count for pair, count in counts.items() if pair[0] in made.NONSENSE["ko"]}
    assert len(fresh) == len(made.NONSENSE["ko"]) * len(made.GROUPS)  # every label stands for every topic
    assert max(fresh.values()) < 4 * sum(fresh.values()) / len(fresh)


def test_sentences_are_those_of_miniworld_and_of_their_split() -> None:
    splits = {split: made.sentences(split) for split in made.EPISODES}
    for split, found in splits.items():
        counts = Counter(one.topic for one in found)
        assert set(counts.values()) == {made.SENTENCES[split]} and len(counts) == len(made.GROUPS)
        assert len(found) == VIEWS["miniworld-topics"].rows[split]
        for one in found[::7]:
            assert miniworld.is_grammatical(one.korean, "ko") and miniworld.is_grammatical(one.english, "en")
    korean = {split: {one.korean for one in found} for split, found in splits.items()}
    assert korean["train"].isdisjoint(korean["test"] | korean["valid"]) and korean["test"].isdisjoint(korean["valid"])
    known = {word for one in splits["train"] for word in made.words(one)}
    assert all(word in known for split in ("valid", "test") for one in splits[split] for word in made.words(one))


def test_both_languages_tell_the_same_episodes() -> None:
    english = {one.korean: one.english for one in made.sentences("test")}
    for korean, other in zip(made.episodes("test", "ko"), made.episodes("test", "en"), strict=True):
        assert [english[sentence] for sentence, _, _ in read(korean)] == [sentence for sentence, _, _ in read(other)]


def test_prompts_are_frozen() -> None:
    """Whoever changes a line changes VERSION, by which prepared text is told apart, and then this sum."""
    lines = "\n".join(line for language in made.LANGUAGES for line in made.episodes("test", language))
    assert (made.VERSION, hashlib.sha256(lines.encode()).hexdigest()[:16]) == (1, "4aed865aff1218e5")


def test_they_are_corpora_by_name() -> None:
    prompts = open_corpus(Config(corpus="miniworld-prompts"), ("text",)).split("test")
    assert [text for (text,) in prompts] == list(made.episodes("test", "ko"))
    english = open_corpus(Config(corpus="miniworld-prompts", source="en"), ("text",)).split("test")
    assert next(iter(english)) == (next(made.episodes("test", "en")),)
    assert english.fingerprint != prompts.fingerprint
    topics = open_corpus(Config(corpus="miniworld-topics", columns=["en", "en-topic"]), ("text", "label")).split(
        "valid"
    )
    assert list(topics) == [(row[1], row[3]) for row in made.topics("valid")]
    assert open_corpus(Config(corpus="miniworld-topics"), ()).split("test").columns == (
        "ko",
        "en",
        "ko-topic",
        "en-topic",
    )


def test_what_is_not_there() -> None:
    with pytest.raises(UserError, match="does not speak 'de'"):
        next(made.episodes("test", "de"))
    with pytest.raises(UserError, match="no split 'dev'"):
        next(made.topics("dev"))
    with pytest.raises(UserError, match="no column 'topic'"):
        open_corpus(Config(corpus="miniworld-topics", columns=["ko", "topic"]), ("text", "label"))
