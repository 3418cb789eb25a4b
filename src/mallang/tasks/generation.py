"""The verbs of a trained language model: generate text, score text, embed it, compute perplexity."""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from jaxtyping import Float64

from mallang import notebook
from mallang.data.batch import Batch, pad_rows
from mallang.decoding import contract as decoding
from mallang.decoding import scoring
from mallang.decoding.contract import Hypothesis, device_of
from mallang.decoding.ensemble import ensemble_of
from mallang.decoding.matching import Spelling
from mallang.decoding.options import change_search
from mallang.decoding.prompted import Prompted, prompt_batch
from mallang.decoding.ranking import penalty
from mallang.decoding.sampling import WIDTH
from mallang.decoding.search import search
from mallang.decoding.stop_strings import StopStrings, stop_at
from mallang.decoding.streaming import stream
from mallang.decoding.workers import spread, workers
from mallang.errors import UserError, nearest
from mallang.evaluation.minimal_pairs import By, Preference, accuracy
from mallang.evaluation.score import Score
from mallang.models.contract import TokenScorer, longest_of
from mallang.tasks.continuation import Continuation, GenerationOptions, Reader, halved, settled
from mallang.tasks.contract import Compared, Evaluated, Written
from mallang.tasks.embedding import text_vectors, word_vectors
from mallang.tasks.out_of_vocabulary import forget_oov, ids_to_read
from mallang.tasks.surprisal import ContextMode, Lines, Scored, line_log_probs
from mallang.text.tokenizer import Encoding
from mallang.text.vocabulary import BOS, EOS, PAD, UNK

if TYPE_CHECKING:
    from mallang.tasks.language_modeling import Task

CHUNK = 512
"""Prompts or texts per chunk: each chunk is sorted by length and batched, so that long files are streamed."""
BATCH_TOKENS = {"cpu": 4096, "cuda": 65536}
"""Tokens per batch over all outputs, prompts included."""
LONGEST = 64
"""Maximum number of tokens generated for a row of a corpus."""
OWN = ("stop", "lines", "max_tokens")
"""Options of `generate` that are not options of the search."""


@dataclass(frozen=True)
class Generated:
    """A generated text; `str()` gives it with its prompt."""

    input: str
    """The prompt."""
    output: str
    """The generated text after the prompt."""
    text: str
    """Prompt and output together."""
    score: float
    """Log-probability of the output given the prompt, including `</s>` where it was generated."""
    tokens: tuple[str, ...]
    nbest: tuple[tuple[str, float, float], ...] = ()
    """The best outputs, or the samples, each with its log-probability and its ranking score."""
    texts: tuple[str, ...] = ()
    """The outputs of `nbest`, each with the prompt before it."""
    note: str = ""
    """A note for the user: the prompt was truncated, or has unknown words."""
    is_cut: bool = False
    """Whether it ended at the length limit."""
    first: int = 0
    """The index of its first sample, where the samples of a prompt come in several results."""
    token_scores: tuple[float, ...] = ()
    """The log-probability of each token of the output, and of each `</s>`."""

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """In a notebook: the text, the generated tokens with their probabilities, and the n-best outputs."""
        best = notebook.table(("output", "log-probability", "ranking score"), self.nbest) if len(self.nbest) > 1 else ""
        words = notebook.tokens(self.tokens, self.token_scores)
        return notebook.block(self.text, words, best, notebook.note(self.note))


class Verbs:
    """A trained model that generates and scores raw text."""

    task_name = "language_modeling"
    verbs = ("generate", "score", "embed", "prefer", "evaluate")
    compared_by: Compared | None = "perplexity"
    evaluated: Evaluated = "log-probabilities"

    def __init__(self, task: Task, model: Any, config: decoding.Config, max_length: int) -> None:
        self.task, self.model, self.config, self.max_length = task, model, config, max_length
        self.device = device_of(model)
        self.tokenizer = task.text
        self.prompted = Prompted(model)
        limits = [limit for limit in (longest_of(model), task.context_mode(model).context) if limit]
        self.reader = Reader(task.text, min(limits, default=None), task.config.layout == "stream", model)

    @cached_property
    def spelling(self) -> Spelling:
        """The characters of each token."""
        return Spelling.of(self.tokenizer)

    def generate(self, prompts: str | Iterable[str] = "", **options: Any) -> Any:
        """Continue one prompt or many; without a prompt, generate a text from `<s>`.

        `max_tokens` is the maximum length of a line, `lines` the number of lines, `stop` one or several stop strings;
        all options of the search apply too: `method="beam"`, `temperature=0.8`, `top_k=40`, `nbest=3`, `seed=2` …
        """
        if isinstance(prompts, str):
            return next(self.stream([prompts], **options))
        return list(self.stream(prompts, **options))

    def stream(self, prompts: Iterable[str], *, parts: bool = False, **options: Any) -> Iterator[Generated]:
        """The continuation of each prompt, in order, as soon as its chunk is done.

        With `parts` many samples of one prompt are split over several consecutive results.
        """
        generation, source, done = self.generation_options(options), iter(prompts), 0
        rule, count = self.rule(generation), generation.config.nbest
        each = min(count, CHUNK) if parts and generation.config.method == "sampling" else count
        while chunk := list(itertools.islice(source, max(1, CHUNK // count))):
            forget_oov(self.model)
            read = self.reader.prompts(chunk)
            for first in range(0, count, each):
                begun = [Continuation(prompt, done + place, sample=first) for place, prompt in enumerate(read)]
                config = replace(generation.config, nbest=min(each, count - first))
                for several in self.texts(begun, replace(generation, config=config), rule):
                    yield self.result(several, config)
            done += len(chunk)

    def texts(
        self, begun: Sequence[Continuation], generation: GenerationOptions, rule: StopStrings | None
    ) -> list[list[Continuation]]:
        """The finished outputs of every started continuation."""
        texts = [[continuation] for continuation in begun]
        for several, found in zip(texts, self.ask(begun, generation.config, rule), strict=True):
            one = several[0]
            several += [replace(one, sample=one.sample + k, lines=[[]], scores=[]) for k in range(1, len(found))]
            for continuation, hypothesis in zip(several, found, strict=True):
                continuation.take(hypothesis, generation, self.tokenizer)
        single = generation.config if generation.config.nbest == 1 else replace(generation.config, nbest=1)
        while going := [continuation for several in texts for continuation in several if not continuation.is_done]:
            for continuation, nbest in zip(going, self.ask(going, single, rule), strict=True):
                continuation.take(nbest[0], generation, self.tokenizer)
        return texts

    def write(self, prompt: str = "", *, echo: bool = True, **options: Any) -> Generator[str, None, Generated]:
        """Stream one text while it is generated, with `echo` the prompt first; text once yielded never changes.

        The yielded parts add up to the result of `generate`, which is also the return value of the generator.
        """
        generation = self.generation_options(options)
        forget_oov(self.model)
        rule, continuation, told = self.rule(generation), Continuation(self.reader.prompt(prompt), 0), 0
        while not continuation.is_done:
            ids, config = self.piece(continuation, generation.config)
            token = None
            for token, score in stream(
                self.prompted, prompt_batch([ids]).to(self.device), config, continuation.key, rule
            ):
                continuation.scores.append(score)
                if token != EOS:
                    continuation.lines[-1].append(token)
                if continuation.stop(generation.stop, self.tokenizer, growing=True):
                    break
                text = continuation.text(self.tokenizer) if echo else continuation.output(self.tokenizer)
                if (sure := settled(text, self.tokenizer, generation.stop)) > told:
                    yield text[told:sure]
                    told = sure
            if not continuation.is_done:
                continuation.close(token == EOS, generation, self.tokenizer)
        result = self.result([continuation], generation.config)
        if rest := (result.text if echo else result.output)[told:]:
            yield rest
        return result

    def generation_options(self, options: Mapping[str, Any]) -> GenerationOptions:
        """The checked options of `generate`."""
        changes = {name: value for name, value in options.items() if name not in OWN}
        if "max_tokens" in options:
            if "max_length" in options:
                raise UserError("max_tokens and max_length mean the same", todo="give one of them")
            changes["max_length"] = options["max_tokens"]
        config = change_search(self.config, changes)
        for name in self.task.unread:
            if options.get(name, decoding.DEFAULTS[name]) != decoding.DEFAULTS[name]:
                raise UserError(
                    f"decoding.{name} has no effect: a language model has no source", todo=f"leave {name} out"
                )
        lines, stop = options.get("lines", 1), options.get("stop", ())
        stops = tuple(dict.fromkeys([stop] if isinstance(stop, str) else stop))
        if not isinstance(lines, int) or lines < 1:
            raise UserError(f"lines must be a number from 1, but is {lines!r}")
        if lines > 1 and not self.reader.is_stream:
            raise UserError(
                f"lines = {lines} has no effect: this model was trained on single lines, not on a stream of lines",
                todo="ask for several outputs by nbest, or train with task.layout=stream",
            )
        if lines > 1 and config.nbest > 1 and config.method != "sampling":
            raise UserError(
                f"{lines} lines of {config.nbest} outputs at once can be sampled, but not found by {config.method}",
                todo="leave out lines or nbest, or choose method=sampling",
            )
        return GenerationOptions(config, lines, stops)

    def rule(self, generation: GenerationOptions) -> StopStrings | None:
        """The search rule for stop strings; those that span several lines are found in the text afterwards."""
        within = [stop for stop in generation.stop if generation.lines == 1 or "\n" not in stop]
        return stop_at(within, self.spelling, self.device) if within else None

    def piece(self, continuation: Continuation, config: decoding.Config) -> tuple[list[int], decoding.Config]:
        """The input ids for the next piece of a text, and the search options for it."""
        said = len(continuation.lines[-1])
        ids, room = self.reader.window(continuation.ids, config.max_length - said, again=continuation.pieces > 0)
        least = min(room, max(1, config.min_length - said))
        return ids, replace(config, max_length=room, min_length=least)

    def ask(
        self, continuations: Sequence[Continuation], config: decoding.Config, rule: StopStrings | None
    ) -> list[list[Hypothesis]]:
        """The next piece of every text; texts with equal input lengths and length limits are searched in one batch.

        Many samples of one text are drawn as if the text had been given several times.
        """
        pieces = [self.piece(continuation, config) for continuation in continuations]
        most = WIDTH if config.method == "sampling" else config.nbest
        budget, count = BATCH_TOKENS.get(self.device.type, 4096), workers(config, self.device)
        alike: dict[tuple[int, int, int, int], list[tuple[int, int]]] = {}
        for place, (ids, own) in enumerate(pieces):
            for first in range(0, config.nbest, most):
                kind = (len(ids), own.max_length, own.min_length, min(most, config.nbest - first))
                alike.setdefault(kind, []).append((place, first))
        groups = []
        for (length, room, _, samples), shares in alike.items():
            width = config.beam if config.method in ("beam", "best-first") else samples
            size = max(1, min(budget // (width * (length + room)), math.ceil(len(shares) / count)))
            groups += [shares[first : first + size] for first in range(0, len(shares), size)]

        def together(group: list[tuple[int, int]]) -> list[list[Hypothesis]]:
            batch = prompt_batch([pieces[place][0] for place, _ in group]).to(self.device)
            some = replace(pieces[group[0][0]][1], nbest=min(most, config.nbest - group[0][1]))
            numbers = [(continuations[place].key, continuations[place].first_sample + first) for place, first in group]
            return search(self.prompted, batch, some, numbers, rule)

        found: list[list[Hypothesis]] = [[] for _ in continuations]
        for group, outputs in zip(groups, spread(self.prompted, together, groups, count), strict=True):
            for (place, _), nbest in zip(group, outputs, strict=True):
                found[place] += nbest
        return found

    def result(self, continuations: Sequence[Continuation], config: decoding.Config) -> Generated:
        """The result object for the outputs of one prompt."""
        best, prompt = continuations[0], continuations[0].prompt
        notes = prompt.notes(self.reader)
        unknown = sum(line.count(UNK) for line in best.lines)
        if unknown and self.tokenizer.config.unit != "space":  # with unit space `<unk>` is a word like others
            notes.append(f"unknown tokens left out: {unknown}")
        if best.proven is False:
            notes.append("not proven to be the best: max_expansions were not enough")
        outputs = [continuation.output(self.tokenizer) for continuation in continuations]
        if isinstance(self.model, TokenScorer):
            self.score_again(continuations)
        sums = [sum(continuation.scores) for continuation in continuations]
        ranks = [
            total / penalty(max(1, len(continuation.scores)), config)
            for total, continuation in zip(sums, continuations, strict=True)
        ]
        return Generated(
            input=prompt.text,
            output=outputs[0],
            text=best.text(self.tokenizer),
            score=sums[0],
            tokens=best.tokens(self.tokenizer),
            nbest=tuple(zip(outputs, sums, map(float, ranks), strict=True)),
            texts=tuple(continuation.text(self.tokenizer) for continuation in continuations),
            note="; ".join(notes),
            is_cut=best.is_cut,
            first=best.sample,
            token_scores=tuple(best.scores),
        )

    def score_again(self, continuations: Sequence[Continuation]) -> None:
        """Replace the scores of outputs by those of `score`, where a model scores whole texts differently.

        A search needs a next token even after words that an n-gram model has never seen. `score` gives such outputs
        the probability 0.
        """
        rows = []
        for continuation in continuations:
            first, *others = continuation.lines
            said = [*first, *(token for line in others for token in (EOS, *line)), EOS][: len(continuation.scores)]
            rows.append((continuation.prompt.ids, said))
        read = [[*prompt, *(BOS if token == EOS else token for token in said)][:-1] for prompt, said in rows if said]
        asked = [[*[PAD] * (len(prompt) - 1), *said] for prompt, said in rows if said]
        if not read:
            return
        tokens, lengths = pad_rows(read)
        batch = Batch(tokens=tokens, lengths=lengths, labels=pad_rows(asked)[0])
        going = [continuation for continuation, (_, said) in zip(continuations, rows, strict=True) if said]
        for continuation, numbers in zip(going, scoring.score(self.model, batch.to(self.device)), strict=True):
            continuation.scores = numbers

    def score(self, texts: str | Iterable[str]) -> Any:
        """The log-probability of one text, or of each of many, token by token."""
        if isinstance(texts, str):
            return self.score([texts])[0]
        return list(itertools.chain.from_iterable(self.score_chunks(texts)))

    def score_chunks(self, texts: Iterable[str]) -> Iterator[list[Scored]]:
        """The scores of a long stream of texts, chunk by chunk; each text by itself, after `<s>`."""
        source, context = iter(texts), self.reader.context
        context_mode = ContextMode("lines", context, max(1, context // 2) if context else None)
        while chunk := list(itertools.islice(source, CHUNK)):
            encoded = [self.tokenizer.encode(text) for text in chunk]
            forget_oov(self.model)
            read = ids_to_read(self.model, self.tokenizer, chunk, [line.ids for line in encoded])
            found = line_log_probs(self.model, Lines(read), context_mode)
            yield [self.scored(*each) for each in zip(chunk, encoded, found, strict=True)]

    def scored(self, text: str, line: Encoding, numbers: Float64[np.ndarray, " labels"]) -> Scored:
        """The scores of one text."""
        return Scored(
            text=text,
            score=float(numbers.sum()),
            tokens=(*line.tokens, self.tokenizer.vocabulary.tokens[EOS]),
            token_scores=tuple(numbers.tolist()),
            places=(*line.offsets, (len(text), len(text))),
            unknown=tuple(line.unknown_in(text)),
        )

    def embed(self, texts: str | Iterable[str], *, words: bool = False) -> Any:
        """The vector of a text, or one row per text; with `words` the input embeddings of words."""
        given = [texts] if isinstance(texts, str) else list(texts)
        found = (word_vectors if words else text_vectors)(self.model, self.tokenizer, given)
        return found[0] if isinstance(texts, str) else found

    def prefer(self, pairs: Iterable[tuple[str, str]], by: By = "total") -> list[Preference]:
        """The text of each pair that the model prefers, by total log-probability or by the mean per token."""
        given = list(pairs)
        if by not in get_args(By):
            raise UserError(f"pairs cannot be compared by {by!r}", todo=nearest(by, get_args(By)))
        if any(isinstance(pair, str) or len(pair) != 2 for pair in given):
            raise UserError("a minimal pair is two texts, the better one first", todo="prefer([(better, worse), …])")
        scored = self.score([text for pair in given for text in pair])
        values = [each.mean if by == "token" else each.score for each in scored]
        return [Preference(*pair, *values[2 * place : 2 * place + 2]) for place, pair in enumerate(given)]

    def accuracy(self, pairs: Iterable[tuple[str, str]], by: By = "total") -> Score:
        """The share of pairs in which the model prefers the first text."""
        return accuracy(self.prefer(pairs, by), by)

    def write_rows(self, rows: Sequence[Sequence[str]], domains: Sequence[str | None]) -> Written:
        """Continuations of the first half of every text; the references are the second halves."""
        halves = [halved(text) for (text,) in rows]
        prompts, rests = ([half[side] for half in halves] for side in (0, 1))
        written = self.generate(prompts, max_tokens=min(LONGEST, self.config.max_length))
        return Written(prompts, [each.output for each in written], rests)

    def perplexity(self, texts: str | Iterable[str]) -> dict[str, Score]:
        """Perplexity per token and word, and bits per byte, of a text given line by line."""
        scores, _ = self.task.perplexity(self.model, [texts] if isinstance(texts, str) else list(texts))
        return dict(zip(("token", "word", "byte"), scores, strict=True))

    def evaluate(
        self,
        rows: Sequence[tuple[str, ...]],
        *,
        domain: str | None = None,
        parallel: int = 1,
        stride: int | None = None,
        **options: Any,
    ) -> tuple[list[Score], list[str]]:
        """Perplexity per token, word and byte of the whole text; and the log-probability of every line.

        A text with carried state is read in `parallel` rows; `stride` is the stride of sliding windows.
        """
        unread = [*options, *(["domain"] if domain is not None else [])]
        if unread:
            raise UserError(f"{unread[0]} has no effect on the perplexity of a given text", todo="leave it out")
        scores, sums = self.task.perplexity(self.model, [text for (text,) in rows], rows=parallel, stride=stride)
        return scores, [f"{number:.6f}" for number in sums]

    def ensemble(self, others: Sequence[Verbs]) -> Verbs:
        """The ensemble of this model and others, with this one's search options; tokenizers must be equal."""
        if any(other.tokenizer.fingerprint != self.tokenizer.fingerprint for other in others):
            raise UserError(
                "these models cannot be one: their tokenizers differ",
                todo="train them on the same text, or one --from the other; seeds of one recipe always fit",
            )
        model = ensemble_of([self.model, *(other.model for other in others)])
        return type(self)(self.task, model, self.config, self.max_length)
