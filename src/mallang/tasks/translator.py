"""The verbs of a trained translation model: translate raw text under lexical constraints, score pairs, evaluate."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mallang import notebook
from mallang.data.batch import Batch, pad_rows
from mallang.data.mixture import tag_of
from mallang.data.sampler import by_length
from mallang.decoding import contract as decoding
from mallang.decoding.contract import Hypothesis
from mallang.decoding.ensemble import Ensemble
from mallang.decoding.options import change_search
from mallang.decoding.scoring import score
from mallang.decoding.workers import spread, workers
from mallang.errors import UserError, some_of
from mallang.evaluation.perplexity import perplexities
from mallang.evaluation.quality import quality
from mallang.evaluation.score import Score
from mallang.tasks.contract import Compared, Evaluated, Written
from mallang.tasks.embedding import text_vectors, word_vectors
from mallang.tasks.lexical_constraints import LexicalConstraints, Request, requests
from mallang.tasks.long_texts import split_long
from mallang.tasks.unknown import UnknownWords, read_lexicon
from mallang.text.vocabulary import BOS, EOS

if TYPE_CHECKING:
    from mallang.tasks.translation import Task

CHUNK = 512
"""Lines per chunk: each chunk is sorted by length and batched, so that long files are streamed."""
Text = str | Mapping[str, Any] | Request
"""A text, alone or with constraints on its translation."""
Domain = str | Sequence[str | None] | None
"""The domain of all texts, or of each."""
BATCH_TOKENS = 4096
"""Padded source tokens per batch on a CPU, counted for every hypothesis of the beam."""
GPU_BATCH_TOKENS = 32768
"""Padded source tokens per batch on a GPU, which smaller batches leave idle."""


@dataclass(frozen=True)
class Translation:
    """A translated text; `str()` gives the text alone."""

    input: str
    output: str
    score: float
    """Log-probability of the output, `</s>` included; for a text that was split, the sum over its pieces."""
    tokens: tuple[str, ...]
    nbest: tuple[tuple[str, float, float], ...] = ()
    """The best outputs, each with its log-probability and its ranking score (after the length penalty)."""
    note: str = ""
    """A note for the user: the text was split, or an output was cut off."""
    is_cut: bool = False
    """Whether the output, or that of a piece, ended at the length limit."""
    token_scores: tuple[float, ...] = ()
    """The log-probability of each token, and of each `</s>`."""

    def __str__(self) -> str:
        return self.output

    def _repr_html_(self) -> str:
        """In a notebook: the output with the probability of each token, its input, and the n-best outputs."""
        best = notebook.table(("output", "log-probability", "ranking score"), self.nbest) if len(self.nbest) > 1 else ""
        words = notebook.tokens(self.tokens, self.token_scores)
        return notebook.block(self.output, notebook.note(self.input), words, best, notebook.note(self.note))


@dataclass(frozen=True)
class Scored:
    """The log-probability of a given translation."""

    source: str
    target: str
    score: float
    """Log-probability, `</s>` included."""
    tokens: tuple[str, ...]
    token_scores: tuple[float, ...]

    def __str__(self) -> str:
        return f"{self.score:.4f}"

    def _repr_html_(self) -> str:
        shown = notebook.surprisal(self.tokens, [-score / math.log(2) for score in self.token_scores])
        return notebook.block(self.target, notebook.note(self.source), shown, notebook.note(self))


class Verbs:
    """A trained model that translates and scores raw text."""

    task_name = "translation"
    verbs: tuple[str, ...] = ("translate", "score", "embed", "evaluate")
    compared_by: Compared | None = "outputs"
    evaluated: Evaluated = "texts"

    def __init__(self, task: Task, model: Any, config: decoding.Config, max_length: int) -> None:
        self.task, self.model, self.config, self.max_length = task, model, config, max_length
        self.device = next(model.parameters()).device
        self.constraints = LexicalConstraints(task.target)

    def translate(self, texts: Text | Iterable[Text], **options: Any) -> Any:
        """Translate one text or many; `beam=5` or `method="greedy"` change the search, `domain="bible"` the domain.

        `prefix`, `require` and `forbid` are lexical constraints: what outputs begin with, contain and do not contain. A
        text with its own constraints is `{"text": …, "require": […]}`. `replace_unknown` replaces `<unk>` in outputs by
        source words.
        """
        if isinstance(texts, str | Mapping | Request):
            return next(self.stream([texts], **options))
        return list(self.stream(texts, **options))

    def stream(
        self,
        texts: Iterable[Text],
        *,
        domain: Domain = None,
        prefix: str = "",
        require: str | Sequence[str] = (),
        forbid: str | Sequence[str] = (),
        replace_unknown: bool = False,
        lexicon: Any = None,
        **options: Any,
    ) -> Iterator[Translation]:
        """Translations in the order of the texts, as soon as each chunk is done."""
        config, tags = change_search(self.config, options), self.tags(domain)
        unknown = self.unknown_words(replace_unknown, lexicon)
        source, done = requests(texts, prefix, require, forbid), 0
        while chunk := list(itertools.islice(source, CHUNK)):
            for request in chunk:
                self.constraints.check(request, config)
            pieces = [request.split(split_long(request.text, self.task.source, self.max_length)) for request in chunk]
            flat = [piece for text_pieces in pieces for piece in text_pieces]
            flat_tags = [tag for text_pieces, tag in zip(pieces, tags, strict=False) for _ in text_pieces]
            found = self.search(flat, config, first=done, tags=flat_tags)
            done += len(flat)
            outputs = iter(zip(found, self.spell(flat, found, flat_tags, unknown), strict=True))
            for request, text_pieces in zip(chunk, pieces, strict=True):
                nbest, words = zip(*(next(outputs) for _ in text_pieces), strict=True)
                notes = self.constraints.notes(request, [first for first, *_ in nbest], replaced=replace_unknown)
                yield self.join(request.text, nbest, words, notes)

    def tags(self, domain: Domain) -> Iterator[list[int]]:
        """The ids to put before each text: the tag of its domain, or none; one domain for all texts, or one each."""
        known = self.task.source.domains
        if domain is None or isinstance(domain, str):
            return itertools.repeat([] if domain is None else [tag_of(domain, known)])
        return iter([[] if name is None else [tag_of(name, known)] for name in domain])

    def search(
        self, texts: Sequence[Text], config: decoding.Config, first: int = 0, tags: Sequence[list[int]] | None = None
    ) -> list[list[Hypothesis]]:
        """The n-best outputs of each text; texts of similar length share a batch, `first` is the index of the first."""
        asked = [Request.of(text) for text in texts]
        encoded = self.task.source.encode_batch([request.text for request in asked])
        ids = [[*tag, *words, EOS] for tag, words in zip(tags or [[]] * len(texts), encoded, strict=True)]
        width = config.beam if config.method == "beam" else max(1, config.nbest)
        tokens = GPU_BATCH_TOKENS if self.device.type == "cuda" else BATCH_TOKENS
        count = workers(config, self.device)

        def together(group: list[int]) -> list[list[Hypothesis]]:
            rectangle, lengths = pad_rows([ids[i] for i in group])
            start = torch.full((len(group), 1), BOS)
            batch = Batch(tokens=start, lengths=torch.ones_like(lengths), source=rectangle, source_lengths=lengths)
            numbers = [first + place for place in group]
            demands = [asked[place] for place in group]
            return self.constraints.search(self.model, batch.to(self.device), config, numbers, demands)

        groups = by_length([len(row) for row in ids], tokens // width, count)
        found: list[list[Hypothesis]] = [[] for _ in texts]
        for group, hypotheses in zip(groups, spread(self.model, together, groups, count), strict=True):
            for place, nbest in zip(group, hypotheses, strict=True):
                found[place] = nbest
        return found

    def unknown_words(self, replace_unknown: bool, lexicon: Any) -> UnknownWords | None:
        """The replacement of unknown words; none without `replace_unknown`."""
        if lexicon is not None and not replace_unknown:
            raise UserError("a lexicon has no effect without replace_unknown", todo="add replace_unknown")
        return UnknownWords(self.task, self.model, self.device, read_lexicon(lexicon)) if replace_unknown else None

    def spell(
        self,
        texts: Sequence[Request],
        found: Sequence[Sequence[Hypothesis]],
        tags: Sequence[list[int]],
        unknown: UnknownWords | None,
    ) -> list[list[str]]:
        """The n-best outputs of each text as text."""
        if unknown is None:
            return [[self.task.target.decode(each.tokens) for each in nbest] for nbest in found]
        rows = zip(texts, tags, found, strict=True)
        return [[unknown.spell(piece.text, tag, each) for each in nbest] for piece, tag, nbest in rows]

    def join(
        self, text: str, pieces: Sequence[Sequence[Hypothesis]], outputs: Sequence[Sequence[str]], notes: Sequence[str]
    ) -> Translation:
        """One translation from the outputs of a text's pieces."""
        if not text.strip():
            return Translation(text, "", 0.0, ())
        best = [hypotheses[0] for hypotheses in pieces]
        tokens = tuple(self.task.target.vocabulary.tokens[i] for hypothesis in best for i in hypothesis.tokens)
        about = [f"split into {len(pieces)} pieces, for it is longer than the model"] if len(pieces) > 1 else []
        if unknown := dict.fromkeys(self.task.source.unknown_in(text)):
            about.append(f"unknown to the model, and read as <unk>: {some_of(unknown)}")
        is_cut = not all(hypothesis.finished for hypothesis in best)
        about += ["cut off at the length limit"] if is_cut else []
        if any(hypothesis.proven is False for hypothesis in best):
            about.append("not proven to be the best: max_expansions were not enough")
        whole = zip(pieces[0], outputs[0], strict=True) if len(pieces) == 1 else ()
        return Translation(
            input=text,
            output=" ".join(filter(None, (texts[0] for texts in outputs))),
            score=sum(hypothesis.score for hypothesis in best),
            tokens=tokens,
            nbest=tuple((output, each.score, each.normalized) for each, output in whole),
            note="; ".join([*about, *notes]),
            is_cut=is_cut,
            token_scores=tuple(value for hypothesis in best for value in hypothesis.token_scores),
        )

    def embed(self, texts: str | Iterable[str], *, words: bool = False) -> Any:
        """The vector of a source text, or one row per text; with `words` the embeddings of source words."""
        given = [texts] if isinstance(texts, str) else list(texts)
        found = (word_vectors if words else text_vectors)(self.model, self.task.source, given)
        return found[0] if isinstance(texts, str) else found

    def ensemble(self, others: Sequence[Verbs]) -> Verbs:
        """The ensemble of this model and others, with this one's search options; tokenizers must be equal."""
        for other in others:
            for side, tokenizer in self.task.tokenizers.items():
                if other.task.tokenizers[side].fingerprint != tokenizer.fingerprint:
                    raise UserError(
                        f"these models cannot be one: the tokenizers of their {side} differ",
                        todo="train them on the same text, or one --from the other; seeds of one recipe always fit",
                    )
        limits = [verbs.max_length for verbs in (self, *others) if verbs.max_length]
        model = Ensemble([self.model, *(other.model for other in others)])
        return type(self)(self.task, model, self.config, min(limits, default=0))

    def score(
        self, source: Any = None, target: Any = None, *, pairs: Iterable[tuple[str, str]] | None = None,
        domain: Domain = None,
    ) -> Any:  # fmt: skip
        """The log-probability of a given translation: for one source, for several, or for pairs of both.

        `score("물", "water")` gives one result; `score(["물", "책"], ["water", "book"])` and
        `score([("물", "water"), ("책", "book")])` give a list.
        """
        if pairs is None and isinstance(source, str) and isinstance(target, str):
            return self.score(pairs=[(source, target)], domain=domain)[0]
        given = pairs_of(source, target, pairs)
        return list(itertools.chain.from_iterable(self.score_chunks(given, domain)))

    def score_chunks(self, pairs: Iterable[tuple[str, str]], domain: Domain = None) -> Iterator[list[Scored]]:
        """The scores of a long stream of pairs, chunk by chunk."""
        source, tags = iter(pairs), self.tags(domain)
        while chunk := list(itertools.islice(source, CHUNK)):
            sources = self.task.source.encode_batch([pair[0] for pair in chunk])
            targets = self.task.target.encode_batch([pair[1] for pair in chunk])
            tagged = [[*tag, *words] for words, tag in zip(sources, tags, strict=False)]
            ids = list(zip(tagged, targets, strict=True))
            found: dict[int, list[float]] = {}
            for group in by_length([max(map(len, pair)) + 1 for pair in ids], BATCH_TOKENS):
                batch = self.task.prepare([(ids[i],) for i in group], np.random.default_rng(0))
                found.update(zip(group, score(self.model, batch.to(self.device)), strict=True))
            names = self.task.target.vocabulary.tokens
            yield [
                Scored(*pair, sum(found[i]), tuple(names[t] for t in [*ids[i][1], EOS]), tuple(found[i]))
                for i, pair in enumerate(chunk)
            ]

    def write_rows(self, rows: Sequence[Sequence[str]], domains: Sequence[str | None]) -> Written:
        """The translation of every source."""
        sources, references = ([row[side] for row in rows] for side in (0, 1))
        results = list(self.stream(sources, domain=domains))
        return Written(sources, [str(each) for each in results], references, [each.is_cut for each in results])

    def evaluate(
        self, rows: Sequence[tuple[str, str]], *, domain: Domain = None, **options: Any
    ) -> tuple[list[Score], list[str]]:
        """All scores on pairs of texts, each with its signature, and the outputs that were scored."""
        outputs = [str(result) for result in self.translate([source for source, _ in rows], domain=domain, **options)]
        references = [target for _, target in rows]
        scores = quality(outputs, references)
        scored = self.score(rows, domain=domain)
        by_unit = perplexities(
            [each.score for each in scored],
            tokens=[len(each.tokens) - 1 for each in scored],
            words=[len(text.split()) for text in references],
            bytes=[len(text.encode()) for text in references],
            tokenizer=self.task.target.config.unit,
        )
        return [*scores, *by_unit.values()], outputs


def pairs_of(source: Any, target: Any, pairs: Iterable[tuple[str, str]] | None) -> Iterable[tuple[str, str]]:
    """Pairs of a source and its translation, from any of the forms that `score` accepts."""
    if pairs is not None and (source is not None or target is not None):
        raise UserError("pairs were given, and a source or target besides", todo="give one of them")
    if target is None and not isinstance(source, str) and (pairs is not None or source is not None):
        return pairs if pairs is not None else source
    if isinstance(source, str) != isinstance(target, str) or source is None or target is None:
        raise UserError(
            "a score needs a source and its translation",
            todo="score(source, target), score(sources, targets) or score([(source, target), …]); domain=NAME by name",
        )
    sources, targets = list(source), list(target)
    if len(sources) != len(targets):
        raise UserError(f"there are {len(sources)} sources, but {len(targets)} targets", todo="give one target each")
    return list(zip(sources, targets, strict=True))
