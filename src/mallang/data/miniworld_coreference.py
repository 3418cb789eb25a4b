"""Short stories of miniworld, and who or what each of their phrases means: names, pronouns, repeated nouns.

    Yuna met the doctor. She gave him a book. The doctor read the book.      {Yuna, She}  {the doctor, him, The doctor}
                                                                            {a book, the book}

Every phrase for someone or something is a mention: subjects, objects, receivers, and owners inside another phrase
(Yuna in Yuna 's hat). A name means the same all through a story, and so does I. A noun means what it meant before if
it comes with `the`; without, it comes only once. He and she mean the last one of this gender that was mentioned, before
the sentence; 그 and 그녀 do in Korean. A mention that nothing else means the same as is a cluster by itself.

Both languages tell the same story, a sentence for a sentence and a mention for a mention. A Korean mention ends with
its particle, since words are what spaces part: 유나는.
"""

from __future__ import annotations

import json
from functools import cache
from typing import NamedTuple

from mallang.data import miniworld
from mallang.data.miniworld_draw import POOLS, Draw, belongs, draw_clause
from mallang.data.miniworld_grammar import Scene
from mallang.data.miniworld_scene import SPEAKERS, Clause, Phrase, makes_sense, named_once
from mallang.data.miniworld_tags import MARKS
from mallang.data.miniworld_words import NOUNS, Noun, no_type_check

VERSION = 1
"""Changes whenever any story does."""
SHORTEST, LONGEST = 3, 6
"""Sentences of a story."""
TRIES = 60
"""Clauses that are drawn for a sentence before a story is given up."""
ROLES = ("subject", "object", "recipient")
"""The phrases of a clause that are mentions."""
PRONOUNS = {"he": NOUNS["he"], "she": NOUNS["she"]}
KNOWN_BY_NAME = ("name", "elder")
Place = tuple[int, int, Noun]
"""The first and the last word of a mention in its sentence, and the noun that it is about."""


class Spoken(NamedTuple):
    """A sentence of a story: its words and its mentions in a language."""

    words: list[str]
    mentions: list[Place]


@cache
def rows(split: str, count: int) -> tuple[tuple[str, ...], ...]:
    """Stories of a split: sentences and clusters in Korean, then in English, as JSON."""
    known = miniworld.familiar()
    found: dict[str, tuple[str, ...]] = {}
    number = Draw(VERSION, list(miniworld.SPLITS).index(split), SHORTEST, LONGEST).next()
    while len(found) < count:
        draw, number = Draw(number), number + 1
        story = draw_story(draw, split)
        if story is None or any(not known.issuperset(miniworld.forms(Scene((clause,)))) for clause, _ in story):
            continue
        row = (*written(story, "ko"), *written(story, "en"))
        found.setdefault(row[0], row)
    return tuple(found.values())


@no_type_check
class Cast:
    """Who and what a story has mentioned so far."""

    def __init__(self) -> None:
        self.entities: dict[Noun, int] = {}
        """The entity that each noun means; a pronoun means others in turn, and is not here."""
        self.last: dict[str, int] = {}
        """The entity that he, and she, would mean in the next sentence."""
        self.count = 0

    def meant(self, clause: Clause) -> dict[Noun, int] | None:
        """The entity of every noun of the next sentence; nothing where its reader could not tell."""
        found, count = dict[Noun, int](), self.count
        for role in ROLES:
            phrase = getattr(clause, role)
            if phrase is None:
                continue
            if phrase.number or phrase.partner or phrase.plural or phrase.determiner in ("this", "that"):
                return None
            for noun in (phrase.owner, phrase.noun):
                if noun is None:
                    continue
                if noun in found:
                    return None
                if noun in PRONOUNS.values():
                    if noun.english not in self.last or self.last[noun.english] in found.values():
                        return None
                    found[noun] = self.last[noun.english]
                elif noun.group == "pronoun" and noun not in SPEAKERS:
                    return None
                elif noun in self.entities:
                    is_same = noun is phrase.owner or noun in SPEAKERS or noun.group in KNOWN_BY_NAME
                    if not is_same and (phrase.determiner != "the" or phrase.adjective or phrase.owner):
                        return None
                    if self.entities[noun] in found.values():
                        return None
                    found[noun] = self.entities[noun]
                else:
                    found[noun], count = count, count + 1
        return found

    def add(self, found: dict[Noun, int]) -> None:
        """Remember the nouns of a sentence."""
        for noun, entity in found.items():
            if noun not in PRONOUNS.values():
                self.entities.setdefault(noun, entity)
                self.count = max(self.count, entity + 1)
            if noun.again in PRONOUNS:
                self.last[noun.again] = entity


@no_type_check
def draw_story(draw: Draw, split: str) -> list[tuple[Clause, dict[Noun, int]]] | None:
    """Clauses with the entity of each of their nouns; nothing where no next sentence was found."""
    cast, story = Cast(), list[tuple[Clause, dict[Noun, int]]]()
    for _ in range(SHORTEST + draw.below(LONGEST - SHORTEST + 1)):
        for _ in range(TRIES):
            clause = draw_sentence(draw, split, cast)
            found = None if clause is None else cast.meant(clause)
            if clause is not None and found is not None and all(clause != earlier for earlier, _ in story):
                break
        else:
            return None
        story.append((clause, found))
        cast.add(found)
    repeated = sum(len(found) for _, found in story) - cast.count
    return story if repeated > 1 else None


@no_type_check
def draw_sentence(draw: Draw, split: str, cast: Cast) -> Clause | None:
    """A statement about someone or something known, or new, that makes sense and belongs to the split."""
    clause = draw_clause(draw, split, POOLS["action"])
    if clause is None or clause.subject is None:
        return None
    if cast.entities and draw.below(4):
        clause = clause._replace(subject=again(draw, cast))
    thing = clause.object
    if thing is not None and thing.noun in cast.entities:
        by_name = thing.noun.group in (*KNOWN_BY_NAME, "pronoun")
        clause = clause._replace(object=Phrase(thing.noun, determiner="" if by_name else "the"))
    fits = makes_sense(clause) and named_once(clause) and belongs(clause, split)
    return clause if fits and not clause.question else None


@no_type_check
def again(draw: Draw, cast: Cast) -> Phrase:
    """Someone or something known, by pronoun or by noun."""
    pronouns = [PRONOUNS[each] for each in cast.last]
    if pronouns and draw.below(2):
        return Phrase(draw.choose(pronouns))
    noun = draw.choose(list(cast.entities))
    by_name = noun.group in (*KNOWN_BY_NAME, "pronoun")
    return Phrase(noun, determiner="" if by_name else "the")


@no_type_check
def written(story: list[tuple[Clause, dict[Noun, int]]], language: str) -> tuple[str, str]:
    """The sentences of a story in a language, and its clusters."""
    sentences, clusters, first = list[list[str]](), dict[int, list[tuple[int, int]]](), 0
    for clause, found in story:
        words, mentions = spoken(clause, language)
        for begin, end, noun in sorted(mentions, key=lambda each: each[:2]):
            clusters.setdefault(found[noun], []).append((first + begin, first + end))
        sentences.append(words)
        first += len(words)
    return json.dumps(sentences, ensure_ascii=False), json.dumps([*clusters.values()])


@no_type_check
def spoken(clause: Clause, language: str) -> Spoken:
    """The words of a clause as a sentence, punctuation and 's apart, and its mentions."""
    scene = Scene((clause,))
    text = scene.korean if language == "ko" else scene.english
    words, labels = list[str](), list[str]()
    for word, (_, label) in zip(text.split(" "), scene.words(language)[0], strict=True):
        bare = word.rstrip(MARKS)
        name = bare.removesuffix("'s")
        # "to" before a receiver belongs to the verb.
        words.append(name)
        labels.append("" if label == "recipient.noun" and name == "to" else label)
        for rest, own in ((bare[len(name) :], f"{label.partition('.')[0]}.possessive"), (word[len(bare) :], "")):
            if rest:
                words.append(rest)
                labels.append(own)
    mentions = []
    for role in ROLES:
        phrase = getattr(clause, role)
        if phrase is not None:
            mentions.append(span_of(labels, role, phrase.noun))
            if phrase.owner is not None:
                mentions.append(span_of(labels, f"{role}.owner", phrase.owner))
    return Spoken(words, mentions)


@no_type_check
def span_of(labels: list[str], prefix: str, noun: Noun) -> Place:
    """The words whose labels begin like this."""
    places = [place for place, label in enumerate(labels) if label.startswith(prefix)]
    assert places == list(range(places[0], places[-1] + 1)), (labels, prefix)
    return places[0], places[-1], noun
