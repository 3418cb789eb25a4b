"""The roles of a run: as the data writes them, and as the model learns them, with the rules that they keep.

Tags of spans are learned in IOB2 and written in the scheme of the data again. Roles on head words stay as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from mallang.data.columns import LabelSet
from mallang.data.role_files import NONE, without_verbs
from mallang.data.roles import Sentence
from mallang.decoding.role_search import RoleRules, best_roles
from mallang.errors import UserError, nearest
from mallang.evaluation.spans import convert_tags
from mallang.tasks.tag_set import TagSet
from mallang.text.tag_scheme import OUTSIDE

UNSEEN = -1
"""The number of a role that training did not see: it can be missed, but not predicted."""


@dataclass(frozen=True)
class RoleSet:
    """The roles that the model learns; encodes the column of roles, beside those of words and predicates."""

    labels: LabelSet
    unique: tuple[str, ...] | None = None
    """Roles that occur at most once per predicate; None: the core roles of PropBank."""

    def __post_init__(self) -> None:
        begun = set(self.rules.begun)
        for role in self.unique or ():
            if role not in begun:
                raise UserError(
                    f"task.unique_roles names {role!r}, which is no role of the training data",
                    todo=nearest(role, begun - {""}),
                )

    @property
    def are_spans(self) -> bool:
        """Whether roles are tags of spans."""
        return self.labels.scheme is not None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The roles, or tags, that the model learns, in the order of their numbers."""
        every = TagSet(self.labels, "iob2").names if self.are_spans else self.labels.names
        return tuple(name for name in every if without_verbs(name) == name)

    @cached_property
    def ids(self) -> dict[str, int]:
        """The number of every role."""
        return {name: number for number, name in enumerate(self.names)}

    @cached_property
    def rules(self) -> RoleRules:
        """What the roles of a predicate must keep."""
        return RoleRules(self.names, "iob2" if self.are_spans else None, self.unique)

    @property
    def nothing(self) -> str:
        """What stands where a word has no role."""
        return OUTSIDE if self.are_spans else NONE

    def __len__(self) -> int:
        return len(self.names)

    @property
    def fingerprint(self) -> str:
        """A sum over the roles."""
        return hashlib.sha256(json.dumps(["roles", self.labels.fingerprint, self.names]).encode()).hexdigest()

    def encode(self, roles: Sequence[str]) -> list[int]:
        """The numbers of the roles of a predicate; UNSEEN for one that training did not see."""
        written = convert_tags(roles, "iob2") if self.are_spans else roles
        return [self.ids.get(role, UNSEEN) for role in written]

    def encode_rows(self, rows: Sequence[tuple[str, ...]]) -> list[list[int]]:
        """The numbers of all roles of every row, given as roles, words and predicates."""
        sentences = (Sentence.of((words, predicates, roles)) for roles, words, predicates in rows)
        return [[number for own in each.roles for number in self.encode(own)] for each in sentences]

    def decode(self, scores: Float[np.ndarray, "words roles"], *, constrained: bool) -> list[str]:
        """The best roles of the words of a sentence for a predicate, in the scheme of the data."""
        best = best_roles(scores, self.rules) if constrained else scores.argmax(axis=1).tolist()
        roles = [self.names[number] for number in best]
        scheme = self.labels.scheme
        return roles if scheme in (None, "iob2") else convert_tags(roles, scheme)
