"""The best roles of all words for a predicate under rules that no single word can keep: A* over partial sequences.

    scores   a log-probability per word and role, each word by itself
    rules    spans     I-ARG0 follows B-ARG0 or I-ARG0 alone (tags of spans; roles on head words have no such rule)
             unique    a core role, ARG0 to ARG5 and ARGA, occurs at most once
             C-X       a part that continues X comes after an X
             R-X       a word that refers to X needs an X anywhere in the sentence

The rules and the search are those of Deep Semantic Role Labeling: What Works and What's Next (He, Lee, Lewis,
Zettlemoyer 2017). What is left of a sentence is estimated by the best sequence that keeps the rule of spans alone
(Viterbi from the end): never too low, so that the first complete sequence is the best one, and nearly always the
sequence that Viterbi finds anyway. After MOST steps the search goes depth first: it still keeps all rules, but may no
longer find the best.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float

from mallang.layers.crf import allowed_transitions
from mallang.text.tag_scheme import OUTSIDE, Scheme, split_tag

CORE = re.compile(r"(ARG|A)[0-5A]")
"""The core roles of PropBank: ARG0 or A0 to ARG5 or A5, and ARGA or AA."""
MOST = 20_000
"""Steps after which the search goes depth first."""


@dataclass(frozen=True)
class RoleRules:
    """What sequences of these roles must keep."""

    names: tuple[str, ...]
    """The roles, or their tags, by number."""
    scheme: Scheme | None = None
    """How tags spell spans; none: roles stand on head words."""
    unique: tuple[str, ...] | None = None
    """Roles that occur at most once; None: the core roles of PropBank."""

    @cached_property
    def begun(self) -> tuple[str, ...]:
        """The role that begins at a word with each label; empty where none does."""
        if self.scheme is None:
            return tuple("" if name in ("_", OUTSIDE) else name for name in self.names)
        parts = map(split_tag, self.names)
        return tuple(kind if prefix in ("B", "S") else "" for prefix, kind in parts)

    @cached_property
    def bits(self) -> dict[str, int]:
        """A bit for every role whose occurrence matters."""
        found = dict.fromkeys(role for role in self.begun if role and self.is_unique(role))
        found |= dict.fromkeys(base for role in self.begun if (base := base_of(role)))
        return {role: 1 << number for number, role in enumerate(found)}

    def is_unique(self, role: str) -> bool:
        """Whether a role occurs at most once."""
        return bool(CORE.fullmatch(role)) if self.unique is None else role in self.unique

    @cached_property
    def effects(self) -> tuple[tuple[int, int, int, int], ...]:
        """For each label the bits that it sets, that must not be set, that must be set, and that must be at the end."""
        found = []
        for role in self.begun:
            own, base = self.bits.get(role, 0), self.bits.get(base_of(role), 0)
            once = own if role and self.is_unique(role) else 0
            found.append((own, once, base if role.startswith("C-") else 0, base if role.startswith("R-") else 0))
        return tuple(found)

    @cached_property
    def moves(
        self,
    ) -> tuple[Bool[np.ndarray, "labels labels"], Bool[np.ndarray, " labels"], Bool[np.ndarray, " labels"]]:
        """Which label may follow which, which may be first, and which last."""
        if self.scheme is None:
            anywhere = np.ones(len(self.names), dtype=bool)
            return anywhere[:, None] & anywhere, anywhere, anywhere
        allowed = allowed_transitions(self.names, self.scheme)
        return allowed.transitions.numpy(), allowed.starts.numpy(), allowed.ends.numpy()

    def are_kept(self, labels: Sequence[int]) -> bool:
        """Whether a whole sequence keeps all rules."""
        transitions, starts, ends = self.moves
        if labels and not (starts[labels[0]] and ends[labels[-1]]):
            return False
        if not all(transitions[one, two] for one, two in pairwise(labels)):
            return False
        done = needed = 0
        for label in labels:
            own, once, before, anywhere = self.effects[label]
            if done & once or before & ~done:
                return False
            done, needed = done | own, needed | anywhere
        return not needed & ~done


def base_of(role: str) -> str:
    """The role that a continuation or a reference belongs to: that of C-ARG1 and R-ARG1 is ARG1."""
    return role[2:] if role.startswith(("C-", "R-")) else ""


def best_roles(scores: Float[np.ndarray, "words labels"], rules: RoleRules, most: int = MOST) -> list[int]:
    """The labels of all words with the highest sum of scores that keeps the rules."""
    words = len(scores)
    rest = best_rest(scores, rules)
    transitions, starts, _ = rules.moves
    found = viterbi_path(scores, rest, rules)
    if rules.are_kept(found):
        return found
    # An entry: the rank, how often one was made, the score so far, the labels so far, and what has occurred.
    queue: list[tuple[tuple[float, float], int, float, tuple[int, ...], int, int]] = [((0.0, 0.0), 0, 0.0, (), 0, 0)]
    seen: set[tuple[int, int, int, int]] = set()
    made = taken = 0
    while queue:
        _, _, score, labels, done, needed = heappop(queue)
        place = len(labels)
        if place == words:
            if not needed & ~done:
                return list(labels)
            continue
        state = place, labels[-1] if labels else -1, done, needed & ~done
        if state in seen:
            continue
        seen.add(state)
        taken += 1
        allowed = transitions[labels[-1]] if labels else starts
        ranks = np.where(allowed, score + scores[place] + rest[place + 1], -np.inf)
        for label in np.flatnonzero(ranks > -np.inf).tolist():
            own, once, before, anywhere = rules.effects[label]
            # Depth first there is no way back: what is needed must be there.
            if done & once or before & ~done or (taken > most and anywhere & ~done):
                continue
            made += 1
            rank = (0.0, -ranks[label]) if taken <= most else (-place - 1.0, -ranks[label])
            now = score + float(scores[place, label])
            heappush(queue, (rank, made, now, (*labels, label), done | own, needed | anywhere))
    raise ValueError("no sequence keeps the rules: a label without a role must be among them")


def best_rest(scores: Float[np.ndarray, "words labels"], rules: RoleRules) -> Float[np.ndarray, "bounds labels"]:
    """The best sum of what follows a label at each place, by the rule of spans alone; row i + 1 follows word i."""
    transitions, _, ends = rules.moves
    rest = np.zeros((len(scores) + 1, scores.shape[1]))
    rest[len(scores)] = np.where(ends, 0.0, -np.inf)
    for place in range(len(scores) - 1, 0, -1):
        after = scores[place] + rest[place + 1]
        rest[place] = after.max() if rules.scheme is None else np.where(transitions, after, -np.inf).max(axis=1)
    return rest


def viterbi_path(
    scores: Float[np.ndarray, "words labels"], rest: Float[np.ndarray, "bounds labels"], rules: RoleRules
) -> list[int]:
    """The best sequence by the rule of spans alone."""
    transitions, starts, _ = rules.moves
    labels: list[int] = []
    for place, row in enumerate(scores):
        allowed = transitions[labels[-1]] if labels else starts
        labels.append(int(np.where(allowed, row + rest[place + 1], -np.inf).argmax()))
    return labels
