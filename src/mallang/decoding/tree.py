"""The search tree of one output as data: every candidate that was considered, and why it was pruned.

The searches themselves record nothing. Here they run again for one sentence with a recorder: a subclass of beam search
that records its candidates, or best-first search with a callback for every expanded prefix. Greedy search is recorded
as a beam of 1, which is equivalent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mallang.data.batch import Batch
from mallang.decoding import best_first
from mallang.decoding.beam import Beams
from mallang.decoding.contract import Autoregressive, Config, Hypothesis, Rules, limits
from mallang.decoding.precision import at_precision
from mallang.decoding.ranking import penalty
from mallang.decoding.runner import Plain, drive
from mallang.errors import UserError
from mallang.kernels.top_k import top_k, top_k_sums
from mallang.text.vocabulary import Vocabulary

FORMAT = "mallang-search-tree/1"
Fate = Literal["kept", "ended", "beam", "bound", "complete", "limit", "budget", "seed"]
FATES: Mapping[str, str] = {
    "kept": "it was continued",
    "ended": "it is a whole output",
    "beam": "pruned: too many others scored higher",
    "bound": "pruned: nothing that follows could still win",
    "complete": "not continued: enough outputs were complete",
    "limit": "not continued: it has the longest length allowed",
    "budget": "not continued: the budget of the search was spent",
    "seed": "not weighed: part of an output of the beam that the search began with",
}
"""What happened to a candidate, in words."""


@dataclass(frozen=True)
class Node:
    """One candidate: a token after the tokens of its ancestors."""

    parent: int | None
    """The index of its parent in the list of nodes, which is lower than its own; None for `<s>`."""
    step: int
    """The number of tokens up to this one; 0 for `<s>`."""
    token: str
    id: int
    """The token's id in the vocabulary."""
    log_prob: float
    """Its natural log-probability after its ancestors."""
    total: float
    """The sum of the log-probabilities up to here."""
    normalized: float
    """The sum after the length penalty, as if the output ended here."""
    bound: float
    """An upper bound of the normalized score of every output with this prefix."""
    fate: Fate


@dataclass(frozen=True)
class Tree:
    """The tree of a whole search."""

    method: str
    options: dict[str, Any]
    """Every option of the search."""
    limit: int
    """The maximum output length in tokens, `</s>` counted."""
    nodes: tuple[Node, ...]
    """First `<s>`, then the candidates in the order in which they were considered."""
    outputs: tuple[int, ...]
    """The indices of the last tokens of the outputs, best first."""
    proven: bool | None = None
    """Whether the outputs are proven to be the best; None for methods without a proof."""
    input: str = ""

    def path(self, place: int) -> list[int]:
        """The indices of the nodes from the first token to this node."""
        found = []
        while (parent := self.nodes[place].parent) is not None:
            found.append(place)
            place = parent
        return found[::-1]

    def to_json(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"format": FORMAT, **asdict(self)}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Tree:
        """A tree from the values of `to_json`."""
        if value.get("format") != FORMAT:
            raise UserError(f"this is not a search tree: its format is {value.get('format')!r}, not {FORMAT!r}")
        rest = {key: value[key] for key in ("method", "options", "limit", "proven", "input")}
        nodes = tuple(Node(**node) for node in value["nodes"])
        return Tree(**rest, nodes=nodes, outputs=tuple(value["outputs"]))


def record(
    model: Autoregressive, batch: Batch, config: Config, rules: Rules | None = None, alternatives: int = 5
) -> Tree:
    """The search tree of a batch of one sentence.

    A beam search considers its 2 × beam best candidates at every step; at least `alternatives` of them are recorded.
    """
    if len(batch) != 1:
        raise ValueError(f"a tree is the search for one sentence, not {len(batch)}")
    if config.method not in ("greedy", "beam", "best-first") or config.coverage:
        what = "a search with coverage" if config.coverage else f"the method {config.method}"
        raise UserError(f"{what} has no search tree", todo="choose the method greedy, beam or best-first")
    model = at_precision(model, config)
    (limit,) = limits(batch, config, model)
    notes = Notes(model.vocabulary, config, limit, alternatives)
    outputs = (record_best_first if config.method == "best-first" else record_beam)(model, batch, notes, rules)
    return Tree(
        method=config.method,
        options=asdict(config),
        limit=limit,
        nodes=tuple(notes.nodes),
        outputs=tuple(notes.places[one.labels(model.vocabulary.eos)] for one in outputs),
        proven=outputs[0].proven,
    )


class Notes:
    """The recorder of a search tree."""

    def __init__(self, vocabulary: Vocabulary, config: Config, limit: int, alternatives: int) -> None:
        self.vocabulary, self.config, self.limit, self.alternatives = vocabulary, config, limit, alternatives
        self.nodes = [Node(None, 0, vocabulary.tokens[vocabulary.bos], vocabulary.bos, 0.0, 0.0, 0.0, 0.0, "kept")]
        self.places: dict[tuple[int, ...], int] = {(): 0}
        """The index of the node of each prefix."""
        self.open: list[tuple[int, ...]] = [()]
        """The open hypotheses of a beam."""

    def add(self, before: tuple[int, ...], token: int, log_prob: float, fate: Fate) -> tuple[int, ...]:
        """Record a candidate; returns its prefix, the token included."""
        parent = self.places[before]
        total = self.nodes[parent].total + log_prob
        length = len(before) + 1
        self.places[*before, token] = len(self.nodes)
        self.nodes.append(
            Node(
                parent=parent,
                step=length,
                token=self.vocabulary.tokens[token],
                id=token,
                log_prob=log_prob,
                total=total,
                normalized=total / penalty(length, self.config),
                bound=total / penalty(self.limit, self.config),
                fate=fate,
            )
        )
        return (*before, token)


def record_beam(model: Autoregressive, batch: Batch, notes: Notes, rules: Rules | None) -> list[Hypothesis]:
    """The outputs of a beam search whose steps are recorded."""
    config = notes.config
    if config.method == "greedy":
        config = notes.config = replace(config.with_method("beam"), beam=1)
    start = Beams.start([notes.limit], model.vocabulary, config, batch.tokens.device)
    values = {field.name: getattr(start, field.name) for field in fields(start)}
    (found,) = drive(Plain(model, config), batch, Noted(**values, notes=notes), rules)
    return found


@dataclass(frozen=True)
class Noted(Beams):
    """A beam search that records the candidates of every step."""

    notes: Notes

    def grow(
        self, log_probs: Float[Tensor, "rows vocabulary"], said: Int[Tensor, ""], vocabulary: Vocabulary, config: Config
    ) -> tuple[Beams, Int[Tensor, " rows"], Int[Tensor, " rows"]]:
        """Extend by one token, as in `Beams`; then compute the candidates again and record them."""
        grown, tokens, rows = super().grow(log_probs, said, vocabulary, config)
        if not bool(self.stopped[0]):
            follow = list(zip(rows.tolist(), tokens.tolist(), grown.totals[0].tolist(), strict=True))
            going = [(row, token) for row, token, total in follow if total > -torch.inf]
            fate = why_stopped(int(said) + 1, self.notes) if bool(grown.stopped[0]) else "kept"
            self.note(log_probs, going, fate)
        return grown, tokens, rows

    def note(self, log_probs: Float[Tensor, "rows vocabulary"], going: list[tuple[int, int]], fate: Fate) -> None:
        """Record the candidates of a step; `fate` is the fate of those in `going`, which stay open after it."""
        notes, words = self.notes, log_probs.shape[1]
        count = min(max(2 * self.width, notes.alternatives), self.width * words)
        totals, cells = top_k_sums(self.totals, log_probs, count)
        for rank, (total, cell) in enumerate(zip(totals[0].tolist(), cells[0].tolist(), strict=True)):
            if total == -torch.inf:
                continue
            row, token = divmod(cell, words)
            ends = token == notes.vocabulary.eos and rank < notes.config.beam
            own: Fate = "ended" if ends else fate if (row, token) in going else "beam"
            notes.add(notes.open[row], token, float(log_probs[row, token]), own)
        notes.open = [(*notes.open[row], token) for row, token in going]


def why_stopped(said: int, notes: Notes) -> Fate:
    """Why the open hypotheses of a beam are not continued when its search is over."""
    if said >= notes.limit:
        return "limit"
    return "bound" if notes.config.stop == "optimal" and notes.config.beam > 1 else "complete"


def record_best_first(model: Autoregressive, batch: Batch, notes: Notes, rules: Rules | None) -> list[Hypothesis]:
    """The outputs of a best-first search; records the prefixes that it expanded, with their best continuations."""
    read: dict[tuple[int, ...], Float[Tensor, " vocabulary"]] = {}
    (solution,) = best_first.solve(
        model, batch, notes.config, rules, watch=lambda said, row: read.__setitem__(said, row.cpu())
    )
    eos = model.vocabulary.eos
    lowest = best_first.lowest_sum(solution.nbest, notes.limit, notes.config)
    given = {
        labels[:end] for one in solution.nbest for labels in [one.labels(eos)] for end in range(1, len(labels) + 1)
    }
    followed: dict[tuple[int, ...], set[int]] = {}
    for said in {*read, *given} - {()}:
        followed.setdefault(said[:-1], set()).add(said[-1])
    for said, log_probs in sorted(read.items(), key=lambda item: len(item[0])):
        first = top_k(log_probs[None], min(notes.alternatives, len(log_probs)))[1][0].tolist()
        for token in dict.fromkeys([*first, *sorted(followed.get(said, ())), eos]):
            if (log_prob := float(log_probs[token])) > -torch.inf:
                could_win = notes.nodes[notes.places[said]].total + log_prob >= lowest
                notes.add(said, token, log_prob, fate_of((*said, token), could_win, read.keys(), given, notes))
    for one in solution.nbest:  # outputs of the initial beam search that best-first search did not reach
        labels = one.labels(eos)
        for place, (token, log_prob) in enumerate(zip(labels, one.token_scores, strict=True)):
            if labels[: place + 1] not in notes.places:
                notes.add(labels[:place], token, log_prob, "ended" if token == eos else "seed")
    return solution.nbest


def fate_of(said: tuple[int, ...], could_win: bool, read: Any, given: Any, notes: Notes) -> Fate:
    """The fate of a prefix in a best-first search; `given` are the prefixes of its outputs."""
    if said[-1] == notes.vocabulary.eos:
        return "ended"
    if said in read:
        return "kept"
    if len(said) == notes.limit:
        return "limit"
    return "seed" if said in given else "budget" if could_win else "bound"
