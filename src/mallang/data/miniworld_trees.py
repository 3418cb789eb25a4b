"""The parse trees of miniworld's sentences, built from the same phrases that the grammar writes.

    tree = tree_of(miniworld.scene("test", 0), "en")
    str(tree)     # (S (NP Minsu) (VP ate (NP an apple.)))
    tree.linear   # (S (NP XX )NP (VP XX (NP XX XX )NP )VP )S
    tree.linear_with_words  # (S (NP Minsu )NP (VP ate (NP an apple. )NP )VP )S

`linear` is the form of Vinyals et al. 2015 (Grammar as a Foreign Language, arXiv:1412.7449): brackets with their label
on both sides, and XX for every word, since the words are known from the sentence. In `linear_with_words` the words are
written again between their brackets. A word is what spaces part; its punctuation mark, or in Korean its particle, is no
leaf of its own.

English trees are like those of the Penn Treebank: auxiliaries hold the rest of the verb phrase, a question is an SQ,
in an SBARQ where it begins with a question word. Korean trees are like those of the Korean Treebank: the subject beside
the verb phrase, everything else inside it, and every auxiliary word around the verb phrase before it. Where nobody
acts (방에 고양이가 있다, 비가 왔다) all phrases stand beside the verb.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mallang.data.miniworld_grammar import Piece, Scene, Slots, aches
from mallang.data.miniworld_scene import Clause
from mallang.data.miniworld_words import WHO, no_type_check

VERSION = 1
"""Changes whenever any tree does."""
LEAF = "XX"
Word = tuple[str, str]
"""A word and the label of what it stands for."""


@no_type_check
class Tree(NamedTuple):
    """A phrase: its label, and the words and phrases in it."""

    label: str
    children: tuple[str | Tree, ...]

    def __str__(self) -> str:
        return f"({self.label} {' '.join(map(str, self.children))})"

    @property
    def linear(self) -> str:
        """The tree on one line, with XX for every word."""
        inside = [child.linear if isinstance(child, Tree) else LEAF for child in self.children]
        return " ".join([f"({self.label}", *inside, f"){self.label}"])

    @property
    def linear_with_words(self) -> str:
        """The tree on one line, with its words."""
        inside = [child.linear_with_words if isinstance(child, Tree) else child for child in self.children]
        return " ".join([f"({self.label}", *inside, f"){self.label}"])

    @property
    def leaves(self) -> list[str]:
        """Its words, in order."""
        return [leaf for child in self.children for leaf in (child.leaves if isinstance(child, Tree) else [child])]


@no_type_check
def tree_of(scene: Scene, language: str) -> Tree:
    """The parse tree of a scene's sentence in Korean (`ko`) or English (`en`)."""
    if language == "ko":
        clauses = [korean(*both) for both in zip(scene.korean_slots(), scene.clauses, strict=True)]
        text, between = scene.korean, []
    else:
        clauses = [english(*both) for both in zip(scene.english_slots(), scene.clauses, strict=True)]
        text, between = scene.english, [scene.joined]
    whole = clauses[0] if len(clauses) == 1 else tree("S", clauses[0], *between, clauses[1])
    # The words as the sentence has them, with capitals and punctuation.
    return with_words(whole, iter(text.split(" ")))


@no_type_check
def with_words(whole: Tree, words: Iterator[str]) -> Tree:
    """The same tree with these words as its leaves."""
    children = [with_words(child, words) if isinstance(child, Tree) else next(words) for child in whole.children]
    return Tree(whole.label, tuple(children))


@no_type_check
def tree(label: str, *children: str | Tree | None) -> Tree:
    """A phrase of what there is."""
    return Tree(label, tuple(child for child in children if child))


@no_type_check
def words_of(piece: Piece) -> list[Word]:
    """The words of a phrase with their labels."""
    return list(zip(piece.text.split(" "), piece.labels, strict=True)) if piece.text else []


@no_type_check
def english(slots: Slots, clause: Clause) -> Tree:
    """An English clause."""
    subject = noun_phrase(words_of(slots["subject"]), is_part=aches(clause.verb))
    early = tree("NP", *slots["early"].text.split(" ")) if "early" in slots else None
    often = tree("ADVP", slots["frequency"].text) if "frequency" in slots else None
    helper = slots["helper"].text if "helper" in slots else ""
    said = predicate(slots, clause)
    if not clause.question:
        if "auxiliary" in slots:
            return tree("S", early, subject, verb_phrase(slots, said, often))
        return tree("S", early, subject, often, *said)
    if clause.subject is not None and clause.subject.noun is WHO:
        group = verb_phrase(slots, said, often) if "auxiliary" in slots else said[0]
        return tree("SBARQ", tree("WHNP", "who"), tree("SQ", group))
    question = tree("SQ", helper, subject, often, *said)
    if "asked" not in slots:
        return question
    asked = slots["asked"]
    kind = "WHNP" if asked.labels[0] == "object.noun" else "WHADVP"
    return tree("SBARQ", tree(kind, asked.text), question)


@no_type_check
def verb_phrase(slots: Slots, said: Sequence[Tree], often: Tree | None) -> Tree:
    """An auxiliary, or the verb be, with what follows."""
    refusal = slots["not"].text if "not" in slots else ""
    return tree("VP", slots["auxiliary"].text, "" if refusal == "no" else refusal, often, *said)


@no_type_check
def predicate(slots: Slots, clause: Clause) -> list[Tree]:
    """What is said of the subject: a verb phrase, or after the verb be all that follows it."""
    head = words_of(slots["head"]) if "head" in slots else []
    rest = [adjunct(slots[slot]) for slot in ("recipient", "place", "means", "time") if slot in slots]
    no = ["no"] if "not" in slots and slots["not"].text == "no" else []
    thing = noun_phrase([*((word, "") for word in no), *words_of(slots["object"])]) if "object" in slots else None
    if clause.verb.english[0] == "be":
        quality = tree("ADJP", *(word for word, _ in head)) if head else None
        return [each for each in (quality, thing, *rest) if each]
    wish = [word for word, label in head if label == "want"]
    verb, *more = [word for word, label in head if label != "want"]
    if clause.verb.complement:  # has big eyes
        thing = tree("NP", *more)
    elif more:  # listens to music
        thing = tree("PP", *more, thing)
    found = tree("VP", verb, thing, *rest)
    return [tree("VP", wish[0], tree("S", tree("VP", wish[1], found))) if wish else found]


@no_type_check
def adjunct(piece: Piece) -> Tree:
    """To whom, where, by what or when."""
    words = words_of(piece)
    first, label = words[0]
    if label == "time":
        return tree("ADVP" if piece.text == "now" else "NP", *piece.text.split(" "))
    if len(words) == 1:  # home
        return tree("ADVP", first)
    return tree("PP", first, noun_phrase(words[1:]))


@no_type_check
def noun_phrase(words: Sequence[Word], is_part: bool = False) -> Tree:
    """An English noun with what belongs to it; `is_part` where it is a part of someone: Minsu's stomach."""
    texts = [word for word, _ in words]
    if "and" in texts:
        place = texts.index("and")
        return tree("NP", noun_phrase(words[:place]), "and", noun_phrase(words[place + 1 :]))
    if "of" in texts:
        place = texts.index("of")
        return tree("NP", tree("NP", *texts[:place]), tree("PP", "of", noun_phrase(words[place + 1 :])))
    owner = [word for word, label in words if label.endswith(".owner")] or (texts[:-1] if is_part else [])
    if owner and owner[-1].endswith("'s"):
        return tree("NP", tree("NP", *owner), *texts[len(owner) :])
    return tree("NP", *texts)


@no_type_check
def korean(slots: Slots, clause: Clause) -> Tree:
    """A Korean clause."""
    label = "ADVP" if clause.time and clause.time.frequency else "NP"
    time = {slot: tree(label, *slots[slot].text.split(" ")) for slot in ("early", "time") if slot in slots}
    subject = korean_phrase(words_of(slots["subject"])) if "subject" in slots else None
    phrases = [
        korean_phrase(words_of(slots[slot])) for slot in ("recipient", "means", "place", "object") if slot in slots
    ]
    verbs = slots["predicate"].text.split(" ")
    if clause.verb.part:
        phrases.append(tree("NP", verbs.pop(0)))
    phrases = [*([time["time"]] if "time" in time else []), *phrases]
    if clause.subject is None:
        return tree("S", time.get("early"), *phrases, auxiliaries(tree("VP", verbs[0]), verbs[1:]))
    return tree("S", time.get("early"), subject, auxiliaries(tree("VP", *phrases, verbs[0]), verbs[1:]))


@no_type_check
def auxiliaries(inner: Tree, words: Sequence[str]) -> Tree:
    """A verb phrase in the auxiliaries that follow; 수, the way to do something, is a noun."""
    for word in words:
        inner = tree("NP" if word == "수" else "VP", inner, word)
    return inner


@no_type_check
def korean_phrase(words: Sequence[Word]) -> Tree:
    """A Korean noun with what belongs to it and its particle."""
    texts = [word for word, _ in words]
    kinds = [label.partition(".")[2] for _, label in words]
    if "partner" in kinds:
        place = kinds.index("partner")
        return tree("NP", tree("NP", *texts[:place]), tree("NP", *texts[place:]))
    if "number" in kinds:
        place = kinds.index("number")
        return tree("NP", tree("NP", *texts[:place]), tree("QP", *texts[place:]))
    if ("owner" in kinds and texts[0].endswith("의")) or (words[0][1] == "place" and len(texts) > 1):
        return tree("NP", tree("NP", texts[0]), *texts[1:])
    return tree("NP", *texts)
