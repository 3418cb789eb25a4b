"""The tokens and tags of miniworld: one tag per token, tokens that make up the sentence, and tags as the tables say."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict

import pytest

from mallang.data import miniworld
from mallang.data import miniworld_tags as made
from mallang.data.corpus import Config, Rows, open_corpus
from mallang.data.miniworld_verbs import VERBS
from mallang.data.miniworld_words import ADJECTIVES, DETERMINERS, NOUNS, NUMBERS, TIMES, nouns

LANGUAGES = ("ko", "en")
BY_HAND = {
    "Minsu ate an apple.": "Minsu/PROPN/B-PER ate/VERB/O an/DET/O apple/NOUN/O ./PUNCT/O",
    "Yesterday, Sujin drank two glasses of water.": (
        "Yesterday/NOUN/B-DATE ,/PUNCT/O Sujin/PROPN/B-PER drank/VERB/O two/NUM/B-QUANTITY glasses/NOUN/I-QUANTITY "
        "of/ADP/O water/NOUN/O ./PUNCT/O"
    ),
    "I wore these glasses.": "I/PRON/O wore/VERB/O these/DET/O glasses/NOUN/O ./PUNCT/O",
    "Two cats are sleeping in the garden.": (
        "Two/NUM/B-QUANTITY cats/NOUN/O are/AUX/O sleeping/VERB/O in/ADP/O the/DET/O garden/NOUN/O ./PUNCT/O"
    ),
    "A cat is sleeping in the garden.": (
        "A/DET/O cat/NOUN/O is/AUX/O sleeping/VERB/O in/ADP/O the/DET/O garden/NOUN/O ./PUNCT/O"
    ),
    "There is a new book on the desk.": (
        "There/PRON/O is/VERB/O a/DET/O new/ADJ/O book/NOUN/O on/ADP/O the/DET/O desk/NOUN/O ./PUNCT/O"
    ),
    "The teacher wants to listen to music.": (
        "The/DET/O teacher/NOUN/O wants/VERB/O to/PART/O listen/VERB/O to/ADP/O music/NOUN/O ./PUNCT/O"
    ),
    "Minsu accepted Jiyeong's apology.": (
        "Minsu/PROPN/B-PER accepted/VERB/O Jiyeong/PROPN/B-PER 's/PART/O apology/NOUN/O ./PUNCT/O"
    ),
    "Minsu and Jiyeong will go home next week.": (
        "Minsu/PROPN/B-PER and/CCONJ/O Jiyeong/PROPN/B-PER will/AUX/O go/VERB/O home/ADV/O next/ADJ/B-DATE "
        "week/NOUN/I-DATE ./PUNCT/O"
    ),
    "Grandma is resting at home now.": (
        "Grandma/PROPN/O is/AUX/O resting/VERB/O at/ADP/O home/NOUN/O now/ADV/O ./PUNCT/O"
    ),
    "Minsu was hungry, so he ate bread.": (
        "Minsu/PROPN/B-PER was/AUX/O hungry/ADJ/O ,/PUNCT/O so/CCONJ/O he/PRON/O ate/VERB/O bread/NOUN/O ./PUNCT/O"
    ),
    "When will Seongmin go to Seoul?": (
        "When/ADV/O will/AUX/O Seongmin/PROPN/B-PER go/VERB/O to/ADP/O Seoul/PROPN/B-LOC ?/PUNCT/O"
    ),
    "민수는 사과를 먹었다.": "민수는/PROPN/B-PER 사과를/NOUN/O 먹었다/VERB/O ./PUNCT/O",
    "어제 수진은 물 두 잔을 마셨다.": (
        "어제/NOUN/B-DATE 수진은/PROPN/B-PER 물/NOUN/O 두/NUM/B-QUANTITY 잔을/NOUN/I-QUANTITY 마셨다/VERB/O ./PUNCT/O"
    ),
    "책상 위에 새 책 한 권이 있다.": (
        "책상/NOUN/O 위에/NOUN/O 새/ADJ/O 책/NOUN/O 한/NUM/B-QUANTITY 권이/NOUN/I-QUANTITY 있다/ADJ/O ./PUNCT/O"
    ),
    "방에 새 한 마리가 있다.": "방에/NOUN/O 새/NOUN/O 한/NUM/B-QUANTITY 마리가/NOUN/I-QUANTITY 있다/ADJ/O ./PUNCT/O",
    "민수와 지영은 빵과 케이크를 샀다.": (
        "민수와/PROPN/B-PER 지영은/PROPN/B-PER 빵과/NOUN/O 케이크를/NOUN/O 샀다/VERB/O ./PUNCT/O"
    ),
    "그 아이들은 내일 기차로 부산에 갈 것이다.": (
        "그/DET/O 아이들은/NOUN/O 내일/NOUN/B-DATE 기차로/NOUN/O 부산에/PROPN/B-LOC 갈/VERB/O 것이다/NOUN/O ./PUNCT/O"
    ),
    "그는 지금 자고 있다.": "그는/PRON/O 지금/ADV/O 자고/VERB/O 있다/AUX/O ./PUNCT/O",
    "지훈은 수영할 수 없다.": "지훈은/PROPN/B-PER 수영할/VERB/O 수/NOUN/O 없다/AUX/O ./PUNCT/O",
    "그들은 학생이다.": "그들은/PRON/O 학생이다/NOUN/O ./PUNCT/O",
    "나는 지영의 사과를 받아들였다.": "나는/PRON/O 지영의/PROPN/B-PER 사과를/NOUN/O 받아들였다/VERB/O ./PUNCT/O",
    "유나는 배가 고파서 빵을 먹었다.": (
        "유나는/PROPN/B-PER 배가/NOUN/O 고파서/ADJ/O 빵을/NOUN/O 먹었다/VERB/O ./PUNCT/O"
    ),
    "나는 커피를 좋아하지만, 그들은 커피를 좋아하지 않는다.": (
        "나는/PRON/O 커피를/NOUN/O 좋아하지만/VERB/O ,/PUNCT/O 그들은/PRON/O 커피를/NOUN/O 좋아하지/VERB/O "
        "않는다/AUX/O ./PUNCT/O"
    ),
    "민수는 지영에게 사진을 보여 주었다.": (
        "민수는/PROPN/B-PER 지영에게/PROPN/B-PER 사진을/NOUN/O 보여/VERB/O 주었다/AUX/O ./PUNCT/O"
    ),
}


def tagged(split: str, language: str) -> Rows:
    columns = [language, f"{language}-tokens", f"{language}-pos", f"{language}-ner"]
    return open_corpus(Config(columns=columns), ("text", "tokens", "pos", "ner")).split(split)


@pytest.mark.parametrize("text", BY_HAND)
def test_tags_by_hand(text: str) -> None:
    language = "en" if text.isascii() else "ko"
    scene = miniworld.parse(text, language)
    assert scene is not None
    assert " ".join("/".join(token) for token in made.tagged(scene, language)) == BY_HAND[text]


@pytest.mark.parametrize("language", LANGUAGES)
def test_tokens_make_up_the_sentence_and_have_a_tag_each(language: str) -> None:
    for text, *columns in tagged("valid", language):
        tokens, parts, entities = (column.split("\t") for column in columns)
        assert len(tokens) == len(parts) == len(entities)
        assert re.sub(r" (?=[.,?]|'s)", "", " ".join(tokens)) == text
        assert re.findall(r"'s|[^\s.,?']+|[.,?]", text) == tokens  # what any tokenizer that splits punctuation finds
        for before, tag in zip(["O", *entities], entities, strict=False):
            assert not tag.startswith("I-") or before[2:] == tag[2:], entities


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_sentence_read_back_has_the_same_tags(language: str) -> None:
    for text, *columns in list(tagged("test", language))[::3]:
        scene = miniworld.parse(text, language)
        assert scene is not None
        assert ["\t".join(column) for column in zip(*made.tagged(scene, language), strict=True)] == columns


def test_english_tags_are_those_of_the_word_tables() -> None:
    """Whatever a table lists has one part of speech, and only words that have two uses are found with two tags."""
    found = defaultdict[str, Counter[str]](Counter)
    for _, tokens, parts, _ in tagged("train", "en"):
        for token, part in zip(tokens.split("\t"), parts.split("\t"), strict=True):
            found[token.lower()][part] += 1
    assert {word for word, parts in found.items() if len(parts) > 1} == {"to", "home", "is", "are", "was", "were"}
    wanted = {form: "VERB" for verb in VERBS for form in verb.english if verb.english[0] != "be" and " " not in form}
    wanted |= {adjective.english: "ADJ" for adjective in ADJECTIVES}
    wanted |= {noun.english.lower(): "PROPN" for noun in nouns("name Korean English Grandma Grandpa")}
    wanted |= {form: "NOUN" for noun in NOUNS.values() if noun.plural for form in (noun.english, noun.plural)}
    wanted |= {form: "NOUN" for noun in nouns("drink meat soccer basketball music") for form in [noun.english]}
    wanted |= {form.lower(): "PRON" for noun in nouns("pronoun listener") for form in (noun.english, noun.object)}
    wanted |= {form: "DET" for _, *forms in DETERMINERS.values() for form in forms}
    wanted |= {number: "NUM" for count, (_, number) in NUMBERS.items() if count > 1}
    seen = {word: part for word, part in wanted.items() if word in found}
    assert len(seen) > 200
    for word, part in seen.items():
        assert set(found[word]) == {part}, (word, part, found[word])


def test_korean_tags_are_those_of_the_word_tables() -> None:
    found = defaultdict[str, Counter[str]](Counter)
    for _, tokens, parts, _ in tagged("train", "ko"):
        for token, part in zip(tokens.split("\t"), parts.split("\t"), strict=True):
            found[token][part] += 1
    for word, parts in found.items():
        if len(parts) > 1:  # auxiliaries that are verbs too; 새 is new and a bird
            assert set(parts) in ({"AUX", "VERB"}, {"AUX", "ADJ"}) or word == "새", (word, parts)
    wanted = {adjective.attribute: "ADJ" for adjective in ADJECTIVES if adjective.attribute != "새"}
    wanted |= {noun.korean + end: "PROPN" for noun in nouns("name") for end in ("의", "에게")}
    wanted |= {noun.korean + end: "NOUN" for noun in NOUNS.values() if noun.plural for end in ("을", "를")}
    wanted |= {verb.stem.past + "다": "ADJ" if verb.stem.adjectival else "VERB" for verb in VERBS}
    wanted |= {korean: "NUM" for korean, _ in NUMBERS.values()}
    wanted |= {time.korean: "ADV" for time in TIMES["habit"] if time.frequency}
    seen = {word: part for word, part in wanted.items() if word in found}
    assert len(seen) > 120
    for word, part in seen.items():
        assert part in found[word] and set(found[word]) <= {part, "AUX"}, (word, part, found[word])


@pytest.mark.parametrize("language", LANGUAGES)
def test_entities_are_found_by_patterns(language: str) -> None:
    """Regular expressions over the sentence find the same entities as the scene gave."""
    names = "|".join(noun.korean if language == "ko" else noun.english for noun in nouns("name"))
    dates = "|".join(
        (time.korean if language == "ko" else time.english)
        for times in TIMES.values()
        for time in times
        if not time.frequency and time.english != "now"
    )
    units = {
        "ko": r"(?<!\S)(한|두|세|네|다섯) [^\s.,]+",
        "en": r"\b(a|two|three|four|five) (piece|pair|cup|glass)(e?s)?\b",
    }
    patterns = {
        "PER": rf"(?<!\S)({names})" if language == "ko" else rf"\b({names})\b",
        "LOC": r"(?<!\S)(서울|부산)" if language == "ko" else r"\b(Seoul|Busan)\b",
        "DATE": rf"(?<!\S)({dates})" if language == "ko" else rf"\b({dates})\b",
        "QUANTITY": units[language] if language == "ko" else units["en"] + r"|\b(two|three|four|five)\b",
    }
    for text, _, _, entities in tagged("test", language):
        counts = Counter(tag[2:] for tag in entities.split("\t") if tag.startswith("B-"))
        assert counts == Counter(
            {kind: n for kind, pattern in patterns.items() if (n := len(re.findall(pattern, text, re.I)))}
        ), (text, entities)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("split", miniworld.SPLITS)
def test_no_tag_is_too_rare_to_learn(language: str, split: str) -> None:
    rows = list(tagged(split, language))
    parts = Counter(tag for row in rows for tag in row[2].split("\t"))
    entities = Counter(tag for row in rows for tag in row[3].split("\t"))
    kinds = {"PER", "LOC", "DATE", "QUANTITY"}
    assert set(entities) == {"O", *(f"B-{kind}" for kind in kinds), "I-DATE", "I-QUANTITY"}
    assert min(entities.values()) > 0.0008 * sum(entities.values()), entities
    assert 0.75 < entities["O"] / sum(entities.values()) < 0.9
    assert min(parts.values()) > 0.008 * sum(parts.values()) and max(parts.values()) < 0.35 * sum(parts.values())


def test_tags_are_frozen() -> None:
    """Whoever changes a tag changes VERSION, by which prepared data is told apart, and then this sum."""
    lines = "\n".join(cell for language in LANGUAGES for row in tagged("test", language) for cell in row)
    assert (made.VERSION, hashlib.sha256(lines.encode()).hexdigest()[:16]) == (1, "d87bc0ca1e746415")
