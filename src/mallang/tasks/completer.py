"""The verbs of a trained model of a graph: the missing end of a triple, and filtered ranks of right answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped

from mallang import notebook
from mallang.data.knowledge import Known, Names, as_name, as_token, unseen
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError, nearest
from mallang.evaluation.link_ranks import link_scores
from mallang.evaluation.score import Score
from mallang.tasks.contract import Evaluated

if TYPE_CHECKING:
    from mallang.tasks.link_prediction import Task

CHUNK = 256
"""Questions that are scored at once."""
NEAREST = 10
"""Answers that are shown."""


@dataclass(frozen=True)
class Completion:
    """The answers to a question about the graph."""

    entity: str
    relation: str
    heads: bool
    """Whether it asks for heads, or else for tails."""
    nbest: tuple[tuple[str, float], ...]
    """The entities with the highest scores, each with its score."""
    known: tuple[bool, ...] = ()
    """Which of these answers are triples of the data already; empty where the data is not there."""

    def __str__(self) -> str:
        return self.nbest[0][0]

    def _repr_html_(self) -> str:
        """In a notebook: the best answer, the question, and all answers with their scores."""
        asked = f"? · {self.relation} · {self.entity}" if self.heads else f"{self.entity} · {self.relation} · ?"
        return notebook.block(str(self), notebook.note(asked), notebook.table(("answer", "score"), self.nbest))


@dataclass(frozen=True)
class Ranks:
    """The filtered ranks of the right answers."""

    tails: Float[np.ndarray, " triples"]
    heads: Float[np.ndarray, " triples"]
    unseen: int
    """Triples with an entity that the model does not know."""
    known: int
    """Triples that are known to be true."""

    def scores(self, of: str) -> list[Score]:
        """MRR, hits and the mean rank over heads and tails."""
        signature = (
            f"link prediction|both ends|filtered:{of}:{self.known}|ties:mean rank|unseen:{self.unseen} counted last"
        )
        return link_scores(np.concatenate((self.tails, self.heads)), signature)


def ranks_of(task: Task, model: Any, triples: Int64[np.ndarray, "triples 3"], known: Known) -> Ranks:
    """The ranks of the tail and the head of every triple, among all entities but other right answers.

    An answer that the model does not know comes last; where it does not know the entity that is asked about, all
    answers are equally good.
    """
    unknown = task.names.vocabulary.unk
    found = [one_side(task, model, triples, known, heads=heads) for heads in (False, True)]
    return Ranks(found[0], found[1], int(unseen(triples, unknown).sum()), len(known))


def one_side(
    task: Task, model: Any, triples: Int64[np.ndarray, "triples 3"], known: Known, *, heads: bool
) -> Float[np.ndarray, " triples"]:
    """The ranks of the tails, or of the heads."""
    unknown, specials = task.names.vocabulary.unk, sorted(task.names.vocabulary.specials)
    asked, answers = (triples[:, 2], triples[:, 0]) if heads else (triples[:, 0], triples[:, 2])
    device, ranks = device_of(model), np.zeros(len(triples))
    with inference(model):
        for start in range(0, len(triples), CHUNK):
            entities, relations, wanted = (each[start : start + CHUNK] for each in (asked, triples[:, 1], answers))
            numbers = [torch.from_numpy(np.ascontiguousarray(each)).to(device) for each in (entities, relations)]
            scores = model.answer_scores(*numbers, heads=heads).float()
            scores[torch.from_numpy(entities == unknown).to(device)] = 0.0
            right = torch.from_numpy(np.ascontiguousarray(wanted)).to(device)
            own = scores.gather(1, right[:, None])
            left_out = [known.answers(int(e), int(r), heads=heads) for e, r in zip(entities, relations, strict=True)]
            rows = np.repeat(np.arange(len(left_out)), [len(each) for each in left_out])
            columns = np.concatenate(left_out)
            scores[torch.from_numpy(rows).to(device), torch.from_numpy(columns).to(device)] = -torch.inf
            scores[:, specials] = -torch.inf
            scores.scatter_(1, right[:, None], own)  # it is a known answer itself
            better = (scores > own).sum(dim=1)
            equal = (scores == own).sum(dim=1) - 1
            found = (1 + better + equal / 2).double().cpu().numpy()
            is_new = wanted == unknown
            found[is_new] = (scores > -torch.inf).sum(dim=1).cpu().numpy()[is_new]  # all others, and the answer
            ranks[start : start + CHUNK] = found
    return ranks


class Verbs:
    """A trained model of a graph."""

    task_name = "link_prediction"
    verbs = ("complete", "evaluate")
    compared_by = ("MRR",)
    facts: Callable[[], Iterable[tuple[str, ...]]] | None = None
    """Reads all triples that are known to be true: those of all splits of the run's data."""

    def __init__(self, task: Task, model: Any, config: None, max_length: int) -> None:
        self.task, self.model, self.config, self.max_length = task, model, config, max_length

    def complete(self, entity: str, relation: str, *, heads: bool = False, count: int = NEAREST) -> Completion:
        """The entities that complete a triple best: its tails, or with `heads` its heads."""
        number = torch.tensor([self.id(entity)], device=device_of(self.model))
        asked = torch.tensor([self.relation(relation)], device=number.device)
        with inference(self.model):
            scores = self.model.answer_scores(number, asked, heads=heads).float()[0]
            scores[sorted(self.task.names.vocabulary.specials)] = -torch.inf
            values, places = scores.topk(min(count, len(self.model.candidate_ids())))
        tokens = self.task.names.vocabulary.tokens
        names = [as_name(tokens[place]) for place in places.tolist()]
        found = Completion(entity, relation, heads, tuple(zip(names, values.tolist(), strict=True)))
        if self.facts is None:
            return found
        true = {self.answer_of(row, heads) for row in self.facts() if self.asks(row, entity, relation, heads)}
        return Completion(entity, relation, heads, found.nbest, tuple(name in true for name in names))

    def asks(self, row: tuple[str, ...], entity: str, relation: str, heads: bool) -> bool:
        """Whether a triple answers a question."""
        return as_token(row[2 if heads else 0]) == as_token(entity) and row[1] == relation

    def answer_of(self, row: tuple[str, ...], heads: bool) -> str:
        """The answer that a triple gives."""
        return as_name(as_token(row[0 if heads else 2]))

    def id(self, entity: str) -> int:
        """The id of an entity; one that is not in the graph is refused."""
        (found,) = Names(self.task.names, "entity").encode_batch([entity])
        if found == [self.task.names.vocabulary.unk]:
            known = [as_name(token) for token in self.task.names.vocabulary.tokens]
            raise UserError(f"{entity!r} is no entity of the graph", todo=nearest(entity, known))
        return found[0]

    def relation(self, name: str) -> int:
        """The number of a relation; one that is not in the graph is refused."""
        if name not in self.task.relations.ids:
            raise UserError(f"{name!r} is no relation of the graph", todo=nearest(name, self.task.relations.names))
        return self.task.relations.ids[name]

    @property
    def evaluated(self) -> Evaluated:
        """What `evaluate` gives for each row."""
        return "ranks"

    def evaluate(self, rows: Sequence[tuple[str, ...]], **options: Any) -> tuple[list[Score], list[str]]:
        """Filtered MRR and hits; the rank of the tail and of the head of every triple."""
        if options := {name: value for name, value in options.items() if value is not None}:
            raise UserError(f"{next(iter(options))} has no effect on link prediction", todo="leave it out")
        triples = self.triples(rows)
        facts = [] if self.facts is None else [self.triples(list(self.facts()))]
        found = ranks_of(self.task, self.model, triples, Known(np.concatenate([*facts, triples])))
        told = [f"{tail:g}\t{head:g}" for tail, head in zip(found.tails, found.heads, strict=True)]
        return found.scores("all splits" if facts else "these rows"), told

    def triples(self, rows: Sequence[tuple[str, ...]]) -> Shaped[np.ndarray, "triples 3"]:
        """The numbers of head, relation and tail of every row; `<unk>` for entities outside the graph."""
        if not rows:
            raise UserError("there are no triples to score", todo="give rows of head, relation and tail")
        heads, relations, tails = zip(*rows, strict=True)
        columns = [column.encoder.encode_batch(list(cells)) for column, cells in  # type: ignore[union-attr]
                   zip(self.task.arrays(), (heads, relations, tails), strict=True)]  # fmt: skip
        return np.array(columns, dtype=np.int64)[:, :, 0].T
