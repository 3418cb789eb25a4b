import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.errors import UserError
from mallang.text import hangul

SYLLABLES = [chr(code) for code in range(0xAC00, 0xD7A4)]
OLD = "\u113c\u119e\u11eb\ua960\ud7b0\ud7cb"
MIXED = st.text(
    st.one_of(
        st.sampled_from(SYLLABLES),
        st.characters(min_codepoint=0x1100, max_codepoint=0x11FF),
        st.sampled_from("ㄱㅏㄳ漢a ." + OLD),
    )
)


def test_every_syllable_is_taken_apart_and_put_together_as_unicode_does() -> None:
    for syllable in SYLLABLES:
        assert hangul.decompose(syllable) == unicodedata.normalize("NFD", syllable)
        assert hangul.compose(hangul.decompose(syllable)) == syllable


@settings(deadline=None)
@given(MIXED)
def test_composing_and_decomposing_agree_with_unicode(text: str) -> None:
    assert hangul.decompose(text) == unicodedata.normalize("NFD", text)
    assert hangul.compose(text) == unicodedata.normalize("NFC", text)


def test_a_closed_syllable_takes_no_second_final() -> None:
    assert hangul.compose("각\u11a8") == "각\u11a8"
    assert hangul.compose("가\u11a8") == "각"


@pytest.mark.parametrize(
    ("character", "is_one"), [("가", True), ("힣", True), ("ㄱ", False), ("가나", False), ("", False)]
)
def test_a_syllable_is_one_composed_character(character: str, is_one: bool) -> None:
    assert hangul.is_syllable(character) is is_one


def test_jamo_can_be_shown_as_letters() -> None:
    assert hangul.readable(hangul.decompose("닭 값")) == "ㄷㅏㄺ ㄱㅏㅄ"
    everything = hangul.readable(hangul.decompose("".join(SYLLABLES)))
    assert set(everything) == set(hangul.INITIALS + hangul.VOWELS + hangul.FINALS)


@pytest.mark.parametrize(
    ("word", "forms"),
    [
        ("책", "은 이 을 과 으로 아 이다"),
        ("사과", "는 가 를 와 로 야 다"),
        ("물", "은 이 을 과 로 아 이다"),
        ("서울(Seoul)", "은 이 을 과 로 아 이다"),
        ("'학교'", "는 가 를 와 로 야 다"),
        (unicodedata.normalize("NFD", "책"), "은 이 을 과 으로 아 이다"),
        ("2", "는 가 를 와 로 야 다"),
        ("3", "은 이 을 과 으로 아 이다"),
        ("7", "은 이 을 과 로 아 이다"),
        ("10", "은 이 을 과 으로 아 이다"),
        ("KBS", "는 가 를 와 로 야 다"),
        ("HTML", "은 이 을 과 로 아 이다"),
        ("Python", "은 이 을 과 으로 아 이다"),
        ("test", "는 가 를 와 로 야 다"),
        ("apple", "은 이 을 과 로 아 이다"),
        ("", "는 가 를 와 로 야 다"),
        ("?!", "는 가 를 와 로 야 다"),
    ],
)
def test_particles_follow_the_last_sound(word: str, forms: str) -> None:
    assert [hangul.particle(word, pair) for pair in hangul.PARTICLES] == forms.split()
    assert hangul.has_final(word) is (forms.split()[0] == "은")


def test_particles_may_be_written_with_a_slash_and_unknown_ones_are_refused() -> None:
    assert hangul.particle("책", "은/는") == "은"
    with pytest.raises(UserError, match="은을"):
        hangul.particle("책", "은을")


def test_the_final_decides() -> None:
    for syllable in SYLLABLES[::9]:  # 9 and 28 have no common divisor: every final
        closed = len(unicodedata.normalize("NFD", syllable)) == 3
        assert hangul.has_final(syllable) is closed
        rieul = unicodedata.normalize("NFD", syllable)[-1] == "\u11af"
        assert hangul.particle(syllable, "으로로") == ("으로" if closed and not rieul else "로")
