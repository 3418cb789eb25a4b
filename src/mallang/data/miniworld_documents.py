"""Documents of miniworld: several sentences, of which one or two decide the label.

    민수는 커피를 싫어한다.
    나는 어제 예쁜 꽃을 그렸다.          only this one counts: who writes says 나 or 우리
    그 고양이는 방에서 자고 있니?

The writer's own sentences are those whose subject is I or we. Their sum, as in `miniworld_labels`, gives the rating
from 1 to 5 and the label; what others do, feel and like is as good or bad, and does not count. So a model must find the
sentences that matter before it adds anything up, as the attention of HAN can (Yang et al. 2016, Hierarchical Attention
Networks for Document Classification). `evidence` says which they are.
"""

from __future__ import annotations

from functools import cache

from mallang.data import miniworld
from mallang.data.miniworld_draw import Draw
from mallang.data.miniworld_grammar import Scene
from mallang.data.miniworld_labels import RATINGS, SENTIMENTS, score
from mallang.data.miniworld_scene import SPEAKERS
from mallang.data.miniworld_words import no_type_check

VERSION = 1
"""Changes whenever any document does."""
SENTENCE_END = "\n"
"""What stands between the sentences of a document."""
SHORTEST, LONGEST = 3, 8
"""Sentences of a document."""


@cache
def rows(split: str, count: int) -> tuple[tuple[str, ...], ...]:
    """Documents of a split: Korean, English, label, rating, and the positions, from 0, of the sentences that count."""
    scenes = miniworld.scenes(split)
    own, others = pools(scenes)
    found: dict[str, tuple[str, ...]] = {}
    number = Draw(VERSION, list(miniworld.SPLITS).index(split), len(scenes)).next()
    while len(found) < count:
        draw = Draw(number)
        wanted, number = draw.below(len(RATINGS)), number + 1
        counted = draw_counted(draw, own, wanted)
        chosen = list(counted)
        for _ in range(max(len(counted), SHORTEST + draw.below(LONGEST - SHORTEST + 1)) - len(counted)):
            chosen.insert(draw.below(len(chosen) + 1), draw.choose(others))
        if len(set(chosen)) < len(chosen):
            continue
        korean = SENTENCE_END.join(scenes[place].korean for place in chosen)
        english = SENTENCE_END.join(scenes[place].english for place in chosen)
        label = SENTIMENTS[(wanted > 2) - (wanted < 2) + 1]
        evidence = "\t".join(str(at) for at, place in enumerate(chosen) if place in counted)
        found.setdefault(korean, (korean, english, label, RATINGS[wanted], evidence))
    return tuple(found.values())


@no_type_check
def pools(scenes: tuple[Scene, ...]) -> tuple[list[tuple[int, int]], list[int]]:
    """The writer's own statements with their score, and the sentences about others, by their number."""
    own, others = [], []
    for place, scene in enumerate(scenes):
        is_own = [clause.subject is not None and clause.subject.noun in SPEAKERS for clause in scene.clauses]
        if not any(is_own):
            others.append(place)
        elif all(is_own):
            own.append((place, score(scene)))
    return own, others


@no_type_check
def draw_counted(draw: Draw, own: list[tuple[int, int]], rating: int) -> list[int]:
    """One or two of the writer's own sentences that together give the rating, which is counted from 0 here."""
    while True:
        drawn = [draw.choose(own) for _ in range(1 + draw.below(2))]
        if max(0, min(4, sum(value for _, value in drawn) + 2)) == rating:
            return [place for place, _ in drawn]
