"""The embedded corpus: frozen, free of leaks, one translation each way, and read back by its own grammar."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data import miniworld
from mallang.data.miniworld_draw import Draw
from mallang.data.miniworld_scene import Clause
from mallang.data.miniworld_verbs import VERBS
from mallang.data.miniworld_words import ADJECTIVES, NOUNS, PLACES, TIMES, Stem
from mallang.errors import UserError

LANGUAGES = ("ko", "en")

PAIRS = (
    # Particles follow the final consonant, word order is turned round, articles come from nothing.
    ("민수는 사과를 먹었다.", "Minsu ate an apple."),
    ("지영은 책을 읽고 있다.", "Jiyeong is reading a book."),
    ("어제 수진은 물 두 잔을 마셨다.", "Yesterday, Sujin drank two glasses of water."),
    ("그 의사는 매일 학교에 간다.", "The doctor goes to school every day."),
    ("그 아이들은 내일 기차로 부산에 갈 것이다.", "The children will go to Busan by train tomorrow."),
    ("민수와 지영은 빵과 케이크를 샀다.", "Minsu and Jiyeong bought bread and cake."),
    ("나는 오래된 자전거가 있다.", "I have an old bicycle."),
    ("고양이 두 마리가 정원에서 자고 있다.", "Two cats are sleeping in the garden."),
    ("방에 고양이 한 마리가 있다.", "There is a cat in the room."),
    ("방에 고양이가 없다.", "There is no cat in the room."),
    # Homonyms.
    ("유나는 배를 먹었다.", "Yuna ate a pear."),
    ("유나는 배를 탔다.", "Yuna took the ship."),
    ("유나는 배가 아프다.", "Yuna's stomach hurts."),
    ("유나는 배가 고프다.", "Yuna is hungry."),
    ("민수는 지영에게 사과를 주었다.", "Minsu gave an apple to Jiyeong."),
    ("민수는 지영에게 사과를 했다.", "Minsu apologized to Jiyeong."),
    ("민수는 지영의 사과를 받아들였다.", "Minsu accepted Jiyeong's apology."),
    ("그 차는 따뜻하다.", "The tea is warm."),
    ("그 차는 빠르다.", "The car is fast."),
    ("나는 모자를 썼다.", "I wore a hat."),
    ("나는 편지를 썼다.", "I wrote a letter."),
    ("은지는 다리를 건넜다.", "Eunji crossed the bridge."),
    ("은지는 다리가 길다.", "Eunji has long legs."),
    ("어제 서울에 눈이 왔다.", "It snowed in Seoul yesterday."),
    ("방에 새 한 마리가 있다.", "There is a bird in the room."),
    ("책상 위에 새 책 한 권이 있다.", "There is a new book on the desk."),
    # Respect for elders, who give and get, and wishes of one's own and of others.
    ("할머니는 빵을 드셨다.", "Grandma ate bread."),
    ("할머니는 우유를 드셨다.", "Grandma drank milk."),
    ("할아버지는 주무시고 계신다.", "Grandpa is sleeping."),
    ("준호는 선생님께 꽃을 드렸다.", "Junho gave a flower to the teacher."),
    ("선생님은 음악을 듣고 싶어 하신다.", "The teacher wants to listen to music."),
    ("나는 음악을 듣고 싶다.", "I want to listen to music."),
    ("지훈은 수영할 수 없다.", "Jihun cannot swim."),
    # Questions.
    ("너는 어제 무엇을 샀니?", "What did you buy yesterday?"),
    ("성민은 언제 서울에 갈 거니?", "When will Seongmin go to Seoul?"),
    ("누가 창문을 열었니?", "Who opened the window?"),
    ("은지는 매일 어디에서 피아노를 치니?", "Where does Eunji play the piano every day?"),
    ("그녀는 가수니?", "Is she a singer?"),
    ("그는 학생이었니?", "Was he a student?"),
    # Two clauses.
    ("민수는 배가 고파서 빵을 먹었다.", "Minsu was hungry, so he ate bread."),
    ("나는 커피를 좋아하지만, 그들은 커피를 좋아하지 않는다.", "I like coffee, but they do not like coffee."),
    ("우리는 축구를 하고 있고, 그 학생들은 걷고 있다.", "We are playing soccer, and the students are walking."),
    # The object shares the number of the subject where each has their own.
    ("그는 의사가 되었다.", "He became a doctor."),
    ("그들은 의사가 되었다.", "They became doctors."),
    ("그들은 하얀 모자를 쓰고 있다.", "They are wearing white hats."),
    ("이 신발은 비싸다.", "These shoes are expensive."),
)

WRONG = {
    "ko": (
        "민수은 사과를 먹었다.",  # particle after a vowel
        "지영는 사과를 먹었다.",  # and after a consonant
        "민수는 사과을 먹었다.",
        "민수를 사과는 먹었다.",  # cases exchanged
        "민수는 먹었다 사과를.",  # order
        "사과를 민수는 먹었다.",
        "민수는 사과를.",  # no verb
        "민수는 사과를 먹었니.",  # a question without its mark
        "민수는 사과를 먹었다?",
        "민수는 어제 사과를 먹을 것이다.",  # time against tense
        "민수는 책을 먹었다.",  # nobody eats books
        "민수는 커피를 먹었다.",
        "민수는 모자를 입었다.",  # hats go with 쓰다
        "할머니는 빵을 먹었다.",  # elders get 드시다
        "할머니는 빵를 드셨다.",
        "민수는 할머니에게 꽃을 주었다.",  # and 께, 드리다
        "나는 사과를 먹고 싶어 한다.",  # one's own wish
        "고양이 두 명이 자고 있다.",  # counter
        "비를 왔다.",
        "은지는 피아노를 친다.",  # a habit names its rhythm
        "그 아이들은 내일 부산에 기차로 갈 것이다.",  # the means come before the place
        "할머니께 꽃을 드렸다.",  # Korean may leave the subject out, miniworld does not
        "민수는 사과를 먹었다",
        "",
        ".",
    ),
    "en": (
        "Minsu eat an apple every day.",  # agreement
        "They eats an apple every day.",
        "They was tired.",
        "Minsu ate a apple.",
        "Minsu ate apple.",
        "Minsu an apple ate.",  # order
        "Ate Minsu an apple.",
        "minsu ate an apple.",  # capital
        "Minsu ate an apple?",
        "Did Minsu ate an apple?",
        "Minsu did not ate an apple.",
        "Minsu goed to school.",
        "Minsu ate a book.",
        "Minsu ate an apple tomorrow.",
        "There is two cats in the room.",
        "Minsu was hungry, so she ate bread.",  # Minsu is he
        "Me ate an apple.",
        "Minsu met I.",
        "Minsu ate an apple",
        "",
        "?",
    ),
}


def heads(clause: Clause) -> set[tuple[str, ...]]:
    """Who does what to what, written down apart from the code that draws."""
    verb, place = clause.verb, clause.place
    needed = place.at if place and (verb.dummy or verb.needs in ("goal", "place")) else ""
    whos = [clause.subject.noun, clause.subject.partner] if clause.subject else []
    whats = [clause.object.noun, clause.object.partner] if clause.object else []
    does = (verb.stem.plain, verb.part, verb.english[0], verb.complement)
    return {
        (who, *does, what)
        for who in [f"{noun.korean}/{noun.english}" for noun in whos if noun] or [needed]
        for what in [f"{noun.korean}/{noun.english}" for noun in whats if noun] or [needed]
    }


def test_frozen() -> None:
    """A change of any sentence needs a new VERSION: models and results name the corpus by it."""
    assert miniworld.VERSION == 1
    assert miniworld.fingerprint() == "5df8ba514c62ec9b780db4ae212ed201510682e3a4234655d73b461a2e2acf57"


def test_generator_is_splitmix64() -> None:
    draw = Draw()
    assert [draw.next() for _ in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@given(st.lists(st.integers(0, 2**64), max_size=3), st.lists(st.integers(1, 300), min_size=1, max_size=40))
@settings(deadline=None)
def test_draws_stay_in_range(numbers: list[int], counts: list[int]) -> None:
    draw, again = Draw(*numbers), Draw(*numbers)
    drawn = [draw.below(count) for count in counts]
    assert all(0 <= value < count for value, count in zip(drawn, counts, strict=True))
    assert drawn == [again.below(count) for count in counts]


def test_draws_are_even() -> None:
    draw = Draw(3)
    counts = Counter(draw.below(7) for _ in range(7000))
    expected = 1000
    assert sum((counts[value] - expected) ** 2 / expected for value in range(7)) < 22.5  # chi-square, p = 0.001


def test_sizes_and_no_sentence_twice() -> None:
    rows = {split: miniworld.rows(split) for split in miniworld.SPLITS}
    assert {split: len(found) for split, found in rows.items()} == miniworld.SPLITS
    everything = [row for found in rows.values() for row in found]
    assert len({korean for korean, _ in everything}) == len(everything)
    assert len({english for _, english in everything}) == len(everything), "English is a function of Korean and back"


def test_held_out_combinations() -> None:
    seen = {
        split: {found for scene in miniworld.scenes(split) for clause in scene.clauses for found in heads(clause)}
        for split in miniworld.SPLITS
    }
    assert not seen["train"] & seen["test"]
    assert not seen["train"] & seen["valid"]
    assert not seen["valid"] & seen["test"]
    assert len(seen["test"]) > 400


def test_generated_pairs_keep_out_of_the_held_out_ones() -> None:
    rows = dict(miniworld.rows("valid") + miniworld.rows("test"))
    back = {english: korean for split in miniworld.SPLITS for korean, english in miniworld.rows(split)}
    known = {korean: english for split in miniworld.SPLITS for korean, english in miniworld.rows(split)}
    for korean, english in miniworld.generate(5, 20_000):
        assert korean not in rows
        assert known.setdefault(korean, english) == english
        assert back.setdefault(english, korean) == korean


def test_generate_depends_on_the_seed_alone() -> None:
    first = list(miniworld.generate(1, 50))
    assert first[:20] == list(miniworld.generate(1, 20))
    assert first == list(islice(miniworld.generate(1, 10**9), 50))
    assert first != list(miniworld.generate(2, 50))


def test_training_shows_every_word_in_every_role() -> None:
    for language in LANGUAGES:
        shown = Counter(
            form for scene in miniworld.scenes("train") for words in scene.words(language) for form in words
        )
        for split in ("valid", "test"):
            used = {form for scene in miniworld.scenes(split) for words in scene.words(language) for form in words}
            assert min(shown[form] for form in used) >= 5


def test_training_shows_the_whole_world() -> None:
    clauses = [clause for scene in miniworld.scenes("train") for clause in scene.clauses]
    phrases = [phrase for c in clauses for phrase in (c.subject, c.object, c.recipient) if phrase]
    assert {phrase.noun for phrase in phrases} >= set(NOUNS.values())
    assert {phrase.adjective for phrase in phrases} >= set(ADJECTIVES)
    assert {clause.verb for clause in clauses} == set(VERBS)
    assert {(clause.verb, clause.tense) for clause in clauses} == {(v, tense) for v in VERBS for tense in v.tenses}
    assert {clause.place for clause in clauses} >= set(PLACES.values())
    assert {clause.time for clause in clauses} >= {time for times in TIMES.values() for time in times}


def test_sentences_are_of_ordinary_length() -> None:
    lengths = [len(sentence.split()) for row in miniworld.rows("train") for sentence in row]
    assert max(lengths) <= 22
    assert sum(3 <= length <= 12 for length in lengths) / len(lengths) > 0.95


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("split", "step"), [("valid", 1), ("test", 1), ("train", 5), pytest.param("train", 1, marks=pytest.mark.slow)]
)
def test_every_sentence_is_read_back(split: str, step: int, language: str) -> None:
    sentences = miniworld.text(split, language)
    for number in range(0, len(sentences), step):
        read = miniworld.parse(sentences[number], language)
        assert read == miniworld.scene(split, number), sentences[number]


@pytest.mark.parametrize(("korean", "english"), PAIRS)
def test_pairs_written_by_hand(korean: str, english: str) -> None:
    read = miniworld.parse(korean, "ko")
    assert read is not None
    assert (read.korean, read.english) == (korean, english)
    assert miniworld.parse(english, "en") == read


@pytest.mark.parametrize(("language", "sentence"), [(k, wrong) for k, found in WRONG.items() for wrong in found])
def test_wrong_sentences_are_refused(language: str, sentence: str) -> None:
    assert not miniworld.is_grammatical(sentence, language)


def test_wrong_particles_are_refused() -> None:
    other = dict(zip("은는이가을를와과", "는은가이를을과와", strict=True))
    refused = []
    for scene in miniworld.scenes("test"):
        words = scene.korean.split(" ")
        labels = [label for clause in scene.words("ko") for _, label in clause]
        for place, (word, label) in enumerate(zip(words, labels, strict=True)):
            bare = word.rstrip(".,?")
            if bare[-1] in other and label.partition(".")[0] in ("subject", "object") and len(bare) > 1:
                changed = bare[:-1] + other[bare[-1]] + word[len(bare) :]
                mutated = " ".join([*words[:place], changed, *words[place + 1 :]])
                refused.append(not miniworld.is_grammatical(mutated, "ko"))
    assert len(refused) > 1500
    assert sum(refused) / len(refused) > 0.99


@pytest.mark.parametrize("language", LANGUAGES)
def test_wrong_order_is_refused(language: str) -> None:
    """Neighbours change places, except times, which may stand first, and twins, which may be named in either order."""
    refused = []
    for scene in miniworld.scenes("test"):
        sentence = scene.korean if language == "ko" else scene.english
        mark = sentence[-1]
        words = sentence[:-1].split(" ")
        labels = [label for clause in scene.words(language) for _, label in clause]
        for place in range(len(words) - 1):
            if "time" in labels[place : place + 2] or words[place] == words[place + 1]:
                continue
            changed = " ".join([*words[:place], words[place + 1], words[place], *words[place + 2 :]]) + mark
            if language == "en":
                changed = changed[0].upper() + changed[1:]
            refused.append(not miniworld.is_grammatical(changed, language))
    assert len(refused) > 3000
    assert sum(refused) / len(refused) > 0.99


def test_wrong_agreement_is_refused() -> None:
    other = {"is": "are", "are": "is", "was": "were", "were": "was", "has": "have", "does": "do", "do": "does"}
    other |= {"a": "an", "an": "a", "Does": "Do", "Do": "Does", "Is": "Are", "Are": "Is", "wants": "want", "his": "him"}
    refused = []
    for _, english in miniworld.rows("test"):
        words = english.split(" ")
        for place, word in enumerate(words):
            if word in other:
                mutated = " ".join([*words[:place], other[word], *words[place + 1 :]])
                refused.append(not miniworld.is_grammatical(mutated, "en"))
    assert len(refused) > 400
    assert all(refused)


@pytest.mark.parametrize(("language", "labels"), [("ko", ("verb", "object.noun")), ("en", ("verb", "subject.noun"))])
def test_missing_words_are_refused(language: str, labels: tuple[str, ...]) -> None:
    refused = []
    for scene in miniworld.scenes("test"):
        found = [pair for clause in scene.words(language) for pair in clause]
        words = (scene.korean if language == "ko" else scene.english)[:-1].split(" ")
        for place, (_, label) in enumerate(found):
            if label in labels:
                left = " ".join([*words[:place], *words[place + 1 :]])
                mutated = (left[:1].upper() + left[1:] if language == "en" else left) + "."
                refused.append(not miniworld.is_grammatical(mutated, language))
    assert len(refused) > 1000
    assert sum(refused) / len(refused) > 0.97


SCRAPS = ["민수는", "사과를", "먹었다.", "배가", "고파서", "Minsu", "ate", "an", "apple,", "apple.", "and", "?"]


@given(st.text(max_size=40) | st.lists(st.sampled_from(SCRAPS)).map(" ".join))
@settings(deadline=None)
def test_any_text_can_be_asked_about(text: str) -> None:
    for language in LANGUAGES:
        read = miniworld.parse(text, language)
        assert read is None or text == (read.korean if language == "ko" else read.english)


def test_alignment_reaches_every_word() -> None:
    for split in ("valid", "test"):
        for scene in miniworld.scenes(split):
            here, there = zip(*scene.alignment, strict=True)
            assert set(here) == set(range(len(scene.korean.split())))
            assert set(there) == set(range(len(scene.english.split())))


@pytest.mark.parametrize(
    ("korean", "links"),
    [
        ("민수는 사과를 먹었다.", "민수는-Minsu 사과를-an 사과를-apple 먹었다-ate"),
        ("민수는 빵을 먹지 않았다.", "민수는-Minsu 빵을-bread 먹지-eat 않았다-did 않았다-not"),
        ("고양이 두 마리가 자고 있다.", "고양이-cats 두-Two 마리가-Two 자고-sleeping 있다-are"),
        (
            "민수는 배가 고파서 따뜻한 빵을 먹었다.",
            "민수는-Minsu 민수는-he 배가-was 배가-hungry 고파서-was 고파서-hungry 고파서-so "
            "따뜻한-warm 빵을-bread 먹었다-ate",
        ),
        ("그들은 학생이다.", "그들은-They 학생이다-are 학생이다-students"),
        (
            "어제 나는 물 두 잔을 마셨다.",
            "어제-Yesterday 나는-I 물-water 두-two 잔을-glasses 잔을-of 마셨다-drank",
        ),
    ],
)
def test_alignment_by_hand(korean: str, links: str) -> None:
    read = miniworld.parse(korean, "ko")
    assert read is not None
    here = [word.strip(".,") for word in read.korean.split()]
    there = [word.strip(".,") for word in read.english.split()]
    assert sorted(f"{here[i]}-{there[k]}" for i, k in read.alignment) == sorted(links.split())


def test_examples_are_of_the_test_set() -> None:
    assert len(miniworld.EXAMPLES) == 5
    assert set(miniworld.EXAMPLES) <= set(miniworld.text("test", "ko"))


def test_stems_inflect() -> None:
    assert Stem("먹", "먹어", "먹으").past == "먹었"
    assert Stem("가", "가", "가").honored == Stem("가시", "가셔", "가시")


def test_unknown_names_are_explained() -> None:
    with pytest.raises(UserError, match="no split 'tset'"):
        miniworld.rows("tset")
    with pytest.raises(UserError, match="does not speak 'kr'"):
        miniworld.text("test", "kr")
    with pytest.raises(UserError, match="does not speak 'kr'"):
        miniworld.is_grammatical("", "kr")


def test_needs_no_torch() -> None:
    code = "import sys, mallang.data.miniworld; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
