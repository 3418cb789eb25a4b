"""Hangul by arithmetic: a syllable is (initial × 21 + vowel) × 28 + final, counted from 가."""

from __future__ import annotations

import re

from mallang.errors import UserError, nearest

SYLLABLE, INITIAL, VOWEL, FINAL = 0xAC00, 0x1100, 0x1161, 0x11A7
INITIALS = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
FINALS = "ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"
LETTERS = (
    {chr(INITIAL + i): letter for i, letter in enumerate(INITIALS)}
    | {chr(VOWEL + i): letter for i, letter in enumerate(VOWELS)}
    | {chr(FINAL + 1 + i): letter for i, letter in enumerate(FINALS)}
)
PARTICLES = {
    "은는": ("은", "는"),
    "이가": ("이", "가"),
    "을를": ("을", "를"),
    "과와": ("과", "와"),
    "으로로": ("으로", "로"),
    "아야": ("아", "야"),
    "이다다": ("이다", "다"),
}
"""After a final consonant the first form, otherwise the second."""

SEQUENCE = re.compile("[\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?|[가-힣][\u11a8-\u11c2]")
BRACKETED = re.compile(r"\([^()]*\)\s*\Z")
DIGIT_FINALS = dict(zip("0123456789", ("ㅇ", "ㄹ", "", "ㅁ", "", "", "ㄱ", "ㄹ", "ㄹ", ""), strict=True))
"""영 일 이 삼 사 오 육 칠 팔 구; the round numbers 십 백 천 만 end in a consonant other than ㄹ, as 영 does."""

LATIN_FINALS: dict[str, str] = dict(zip(("l", "m", "n", "ng", *"kptcb"), "ㄹㅁㄴㅇㄱㅂㅅㄱㅂ", strict=True))


def is_syllable(character: str) -> bool:
    """Whether this is one composed syllable, 가 to 힣."""
    return len(character) == 1 and "가" <= character <= "힣"


def decompose(text: str) -> str:
    """Every syllable as its two or three conjoining jamo; the rest stays as it is."""
    return "".join(jamo(character) if is_syllable(character) else character for character in text)


def jamo(syllable: str) -> str:
    """The conjoining jamo of one syllable."""
    rest, final = divmod(ord(syllable) - SYLLABLE, 28)
    initial, vowel = divmod(rest, 21)
    return chr(INITIAL + initial) + chr(VOWEL + vowel) + (chr(FINAL + final) if final else "")


def compose(text: str) -> str:
    """Conjoining jamo that make a modern syllable become that syllable; the rest stays as it is."""
    return SEQUENCE.sub(lambda match: syllable(match[0]), text)


def syllable(sequence: str) -> str:
    """The syllable of an initial, a vowel and perhaps a final, or of an open syllable and a final."""
    if is_syllable(sequence[0]):
        # 각 takes no second final, so 각 and ᆨ stay two.
        closed = (ord(sequence[0]) - SYLLABLE) % 28 > 0
        return sequence if closed else chr(ord(sequence[0]) + ord(sequence[1]) - FINAL)
    final = ord(sequence[2]) - FINAL if len(sequence) == 3 else 0
    return chr(SYLLABLE + ((ord(sequence[0]) - INITIAL) * 21 + ord(sequence[1]) - VOWEL) * 28 + final)


def readable(text: str) -> str:
    """Conjoining jamo as the letters that fonts show alone: ᄒ ᅡ ᆫ become ㅎ ㅏ ㄴ."""
    return "".join(LETTERS.get(character, character) for character in text)


def has_final(word: str) -> bool:
    """Whether the pronounced word ends in a consonant (받침)."""
    return bool(final(word))


def particle(word: str, pair: str) -> str:
    """The form of a particle that follows the word: particle("책", "은/는") is 은."""
    forms = PARTICLES.get(pair.replace("/", ""))
    if forms is None:
        raise UserError(f"{pair!r} is no pair of particles", todo=nearest(pair.replace("/", ""), PARTICLES))
    ending = final(word)
    if forms[0] == "으로" and ending == "ㄹ":
        return "로"
    return forms[0] if ending else forms[1]


def final(word: str) -> str:
    """The letter of the consonant a word ends in when it is read aloud, or nothing: 책 ㄱ, 사과 nothing, 7 ㄹ."""
    spoken = compose(BRACKETED.sub("", word) or word).rstrip()
    while spoken and not spoken[-1].isalnum():
        spoken = spoken[:-1]
    if not spoken:
        return ""
    last = spoken[-1]
    if is_syllable(last):
        return readable(jamo(last)[2:])
    return DIGIT_FINALS.get(last) or latin_final(re.split(r"[^A-Za-z]", spoken)[-1])


def latin_final(word: str) -> str:
    """The final consonant of a word in Latin letters, as Korean usually borrows it: a heuristic, there is no rule."""
    if word.isupper():  # read letter by letter: 엘 엠 엔 알 close, 에이 비 씨 do not
        return {"L": "ㄹ", "M": "ㅁ", "N": "ㄴ", "R": "ㄹ"}.get(word[-1], "")
    closing = re.search(r"(l|m|n)e?\Z|(ng)\Z|(?<=[aeiou])([kptcb])\Z", word.lower())
    if closing is None:
        return ""
    return LATIN_FINALS[closing[closing.lastindex or 0]]
