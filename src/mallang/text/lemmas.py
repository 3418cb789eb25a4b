"""Lemmas of English words and of Korean words with particles, by rules, a small table, and the words that are known.

    lakes → lake      running → run      taught → teach      바다에서 → 바다

These are the rules of WordNet's morphy: an ending is replaced, and the result counts only if it is a known word. Which
words are known is for the caller to say; here they are those of the names in a knowledge graph. Irregular forms are in
a table. A word without a known lemma is its own.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator

WORD = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*")
ENDINGS = (
    ("ies", "y"), ("ves", "f"), ("ves", "fe"), ("men", "man"), ("ses", "s"), ("xes", "x"), ("zes", "z"),
    ("ches", "ch"), ("shes", "sh"), ("oes", "o"), ("'s", ""), ("s", ""), ("ied", "y"), ("ed", "e"), ("ed", ""),
    ("ing", "e"), ("ing", ""), ("n't", ""),
)  # fmt: skip
"""Endings of inflected English words, and the endings of their lemmas; the first known lemma counts."""
DOUBLED = re.compile(r"([b-df-hj-np-tv-z])\1$")
IRREGULAR = {
    form: lemma
    for lemma, forms in {
        "be": "am is are was were been being", "have": "has had having", "do": "does did done doing",
        "go": "goes went gone", "get": "got gotten", "make": "made", "take": "took taken", "come": "came",
        "see": "saw seen", "know": "knew known", "give": "gave given", "find": "found", "think": "thought",
        "tell": "told", "become": "became", "leave": "left", "feel": "felt", "bring": "brought",
        "begin": "began begun", "keep": "kept", "hold": "held", "write": "wrote written", "stand": "stood",
        "hear": "heard", "mean": "meant", "meet": "met", "run": "ran", "pay": "paid",
        "sit": "sat",  # words: ok, a verb of English
        "speak": "spoke spoken", "lie": "lay lain lying", "lead": "led", "grow": "grew grown", "lose": "lost",
        "fall": "fell fallen", "send": "sent", "build": "built", "understand": "understood", "draw": "drew drawn",
        "break": "broke broken", "spend": "spent", "rise": "rose risen", "drive": "drove driven", "buy": "bought",
        "wear": "wore worn", "choose": "chose chosen", "eat": "ate eaten", "drink": "drank drunk",
        "sleep": "slept", "teach": "taught", "catch": "caught", "fight": "fought", "sing": "sang sung",
        "swim": "swam swum", "fly": "flew flown", "throw": "threw thrown", "ride": "rode ridden",
        "steal": "stole stolen", "forget": "forgot forgotten", "hide": "hid hidden", "bite": "bit bitten",
        "sell": "sold", "win": "won", "shoot": "shot", "hang": "hung", "dig": "dug", "feed": "fed", "bend": "bent",
        "wake": "woke woken", "freeze": "froze frozen", "blow": "blew blown", "shake": "shook shaken",
        "man": "men", "woman": "women", "child": "children", "person": "people", "foot": "feet", "tooth": "teeth",
        "mouse": "mice", "goose": "geese", "wolf": "wolves", "leaf": "leaves", "good": "better best",
        "bad": "worse worst", "die": "dying", "tie": "tying", "news": "news", "glasses": "glasses",
    }.items()
    for form in forms.split()
}  # fmt: skip
"""Irregular forms of frequent English words, and words that only look inflected."""
_PARTICLES = (
    "에서는 에게 에서 에는 께서 한테 으로 이랑 부터 까지 이나 하고 처럼 은 는 이 가 을 를 의 에 께 로 와 과 랑 도 만 나"
)
PARTICLES = tuple(_PARTICLES.split())
"""Korean particles that may end a word, the longest first."""
_STOP_WORDS = (
    "a an the this that these those some any every each all both no none not what which who whom whose when where why "
    "how it its he she they them him her his their our your my we you i me us one be am is are was were been being do "
    "does did done have has had having can could will would shall should may might must of in on at to for from with "
    "by about as into onto over under up down out off than then there here and or but if while because so too very "
    "just only also more most much many such own same other another else likely usually often always never something "
    "someone anything anyone everything thing things get gets got like want wants "
    "무엇 무엇을 무엇이 누가 누구 어디 어디에 어디에서 어떻게 왜 언제 것 그 이 저 한 때"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words that by themselves are no concept, in English and Korean."""


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation."""
    return WORD.findall(unicodedata.normalize("NFC", text).replace("’", "'").lower())


def lemma(word: str, known: Collection[str]) -> str:
    """The lemma of a word in lower case: the first candidate that is a known word, or else the word."""
    return next((each for each in candidates(word) if each in known), word)


def candidates(word: str) -> Iterator[str]:
    """What may be the lemma of a word, the likeliest first; not the word itself unless a table says so."""
    if word in IRREGULAR:
        yield IRREGULAR[word]
    for ending, other in ENDINGS:
        if word.endswith(ending) and len(word) > len(ending) + 1 and not word.endswith("ss"):
            stem = word.removesuffix(ending)
            yield stem + other
            if not other and ending in ("ed", "ing") and DOUBLED.search(stem):
                yield stem[:-1]
    for particle in PARTICLES:
        if word.endswith(particle) and len(word) > len(particle):
            yield word.removesuffix(particle)
