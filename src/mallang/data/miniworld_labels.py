"""Labels of miniworld's sentences: their sentiment, a rating, and what they are about.

    score(miniworld.scene("test", 0))       # -2 … 2 and beyond: the sum of what each clause says
    sentiment(scene), rating(scene)         # "negative", "2"
    topic(scene), topics(scene)             # "food", ("food", "animal")

The sentiment follows from few rules, so that a reader of either language can tell it from the words alone:

- A predicate has a value from -2 to 2: 좋아하다 is 2, 피곤하다 is -1, most are 0.
- `not` turns the value of a predicate around; what is neither good nor bad is -1 if it does not happen.
- An adjective before a noun adds its own value, whatever the predicate is.
- A question says nothing: 0.
- A sentence has the sum of its clauses: positive above 0, negative below. The rating is 3 plus the sum, from 1 to 5.

A clause is about its object; without one, about what its verb is about; in a few cases about its subject. `topic` is
that of the first clause, `topics` are those of everything that is mentioned.
"""

from __future__ import annotations

from functools import cache

from mallang.data.miniworld_grammar import Scene
from mallang.data.miniworld_scene import Clause, Phrase
from mallang.data.miniworld_words import Noun, Verb, no_type_check

VERSION = 1
"""Changes whenever any label does."""
SENTIMENTS = ("negative", "neutral", "positive")
RATINGS = ("1", "2", "3", "4", "5")
TOPICS = ("food", "clothes", "vehicle", "animal", "culture", "sport", "nature", "house", "body", "people", "place")
"""The first four are those of miniworld-topics."""
WORTH = {
    2: "like laugh happy",
    1: "help give lend receive accept rest draw make teach meet snow sing play swim ride watch listen_to "
    "pretty delicious interesting kind warm new",
    -1: "tired busy hungry thirsty work wait_for apologize rain sad expensive cold old",
    -2: "hate cry lose sick hurt",
}
VALUES = {word: value for value, words in WORTH.items() for word in words.split()}
"""What predicates and adjectives are worth, by their English word; all others are worth 0."""
WORDS = {
    "food": "eat drink hungry thirsty",
    "clothes": "wear",
    "vehicle": "take ride drive",
    "culture": "read write watch listen_to sing teach",
    "sport": "play swim run walk",
    "nature": "rain snow",
    "house": "buy make open close lose give send show lend receive draw have",
    "body": "tired happy busy sick hurt sleep rest cry laugh",
    "people": "meet help wait_for call accept apologize become work kind",
    "place": "go come live cross see",
}
"""The topic of a verb that has no object, or asks for it."""
NOUNS = {
    "food": "food drink",
    "clothes": "wear",
    "vehicle": "vehicle",
    "animal": "animal",
    "culture": "book letter movie song picture piano Korean English music",
    "sport": "soccer basketball",
    "nature": "flower tree",
    "house": "door window bag umbrella present",
    "people": "pronoun listener name elder role apology",
    "place": "bridge street",
}
"""The topic of a noun, by its group or its English word."""
NOUN_TOPICS = {word: name for name, words in NOUNS.items() for word in words.split()}
VERB_TOPICS = {word: name for name, words in WORDS.items() for word in words.split()}


@no_type_check
def score(scene: Scene) -> int:
    """What a sentence is worth: below 0 it is negative, above 0 positive."""
    return sum(clause_score(clause) for clause in scene.clauses)


@no_type_check
def clause_score(clause: Clause) -> int:
    """What a clause is worth: its predicate, turned around by `not`, and its adjectives."""
    if clause.question:
        return 0
    said = predicate_value(clause.verb)
    if clause.negated:
        said = -said or -1
    return said + sum(VALUES.get(phrase.adjective.english, 0) for phrase in phrases(clause) if phrase.adjective)


@cache
def predicate_value(verb: Verb) -> int:
    """What a predicate is worth."""
    return VALUES.get(key(verb), 0)


@no_type_check
def key(verb: Verb) -> str:
    """The English word of a predicate: eat, listen_to, tired, pretty."""
    return verb.complement or verb.english[0].replace(" ", "_")


@no_type_check
def sentiment(scene: Scene) -> str:
    """`negative`, `neutral` or `positive`."""
    found = score(scene)
    return SENTIMENTS[(found > 0) - (found < 0) + 1]


@no_type_check
def rating(scene: Scene) -> str:
    """A number from 1 to 5."""
    return RATINGS[max(0, min(4, score(scene) + 2))]


@no_type_check
def phrases(clause: Clause) -> tuple[Phrase, ...]:
    """The phrases of a clause that can have adjectives."""
    return tuple(phrase for phrase in (clause.subject, clause.object) if phrase)


@no_type_check
def topic(scene: Scene) -> str:
    """What the first clause is about."""
    return main_topic(scene.clauses[0])


@no_type_check
def topics(scene: Scene) -> tuple[str, ...]:
    """Everything that is mentioned, in the order of TOPICS: who acts counts only if it is no person."""
    found = set()
    for clause in scene.clauses:
        found.add(main_topic(clause))
        named = [noun for phrase in phrases(clause) for noun in (phrase.noun, phrase.partner)]
        named += [clause.recipient.noun if clause.recipient else None, clause.means]
        people = () if clause.recipient or (clause.object and about(clause.object.noun) == "people") else ("people",)
        found |= {about(noun) for noun in named if noun} - {*people, ""}
        found |= {"place"} if clause.place else set()
    return tuple(name for name in TOPICS if name in found)


@no_type_check
def main_topic(clause: Clause) -> str:
    """What a clause is about."""
    named = about(clause.object.noun) if clause.object else ""
    if not named and key(clause.verb) not in VERB_TOPICS and clause.subject:
        # has long legs; the bag is pretty
        named = "body" if clause.verb.part_english else about(clause.subject.noun)
    return named or VERB_TOPICS[key(clause.verb)]


@cache
def about(noun: Noun) -> str:
    """The topic of a noun; none for question words."""
    return NOUN_TOPICS.get(noun.english) or NOUN_TOPICS.get(noun.group, "")
