"""A text as a model reads it once more, outside any search: what its layers are recorded on.

    reading = pass_of(mallang.load("runs/x"), "유나는 배를 탔다.")
    reading.tokens["read"]; reading.forward()

Some runs read more than one text at once: the parts then stand in one text with a tab between them.

    pairs, similarity      first text, second text
    question answering     question, context
    multiple choice        question, every choice; the row of the chosen one is shown
    link prediction        entity, relation: no tokens attend, so there is no reading
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from mallang.data.batch import Batch, pad_rows, pad_texts
from mallang.decoding.contract import device_of, inference
from mallang.errors import UserError
from mallang.inspection.attention import AttentionMap, Side, sides_of, spell
from mallang.inspection.attention_steps import AttentionSteps, steps_of
from mallang.inspection.gates import GateTrace, record_gates
from mallang.inspection.text_with_output import TextWithOutput, Words, padded, words_in
from mallang.layers.attention import record_attention
from mallang.models.contract import encode_text
from mallang.tasks import answerer, chooser, classifier, filler, mention_classification, question_reading, similarity
from mallang.tasks.contract import ReadsPairs
from mallang.tasks.filler import framed, marked_ids
from mallang.tasks.occurrences import Contexts
from mallang.text.vocabulary import Vocabulary

CLASS_TOKEN = "[CLS]"


@dataclass(frozen=True)
class ForwardPass:
    """The forward pass that reads a text, and the tokens of every side."""

    model: Any
    """The module whose layers are recorded."""
    forward: Callable[[], object]
    tokens: Mapping[Side, tuple[str, ...]]
    words: Mapping[Side, Words]
    row: int = 0
    """The row of the batch that the tokens are of."""

    def names(self, side: Side, count: int) -> tuple[str, ...] | None:
        """The tokens of a side as a layer sees them, if it sees so many: some models read a class token first."""
        own = self.tokens.get(side, ())
        if count == len(own):
            return own
        return (CLASS_TOKEN, *own) if "source" not in self.tokens and count == len(own) + 1 else None

    def sides(self, name: str, queries: int, keys: int) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """The tokens of the queries and the keys of a layer; none if they are not tokens of the text."""
        first, second = (self.names(side, count) for side, count in zip(self.which(name), (queries, keys), strict=True))
        return None if first is None or second is None else (first, second)

    def which(self, name: str) -> tuple[Side, Side]:
        """The sides of a layer."""
        return sides_of(name, has_source="source" in self.tokens)

    def maps(self) -> dict[str, AttentionMap]:
        """The attention of every layer between tokens."""
        with inference(self.model), record_attention(self.model) as recorded:
            self.forward()
        found = {}
        for name, weights in recorded.items():
            names = self.sides(name, *weights.shape[2:]) if len(weights) > self.row else None
            if names is not None:
                found[name] = AttentionMap(name, weights[self.row].float().cpu(), *names)
        return found

    def steps(self) -> dict[str, AttentionSteps]:
        """Every multi-head attention layer with its numbers."""
        return steps_of(self.model, self.forward, self.sides, self.row)

    def gates(self) -> list[tuple[GateTrace, tuple[str, ...]]]:
        """The gates of every recurrent layer, each with the tokens that it read; without any, their places."""
        with inference(self.model), record_gates(self.model, self.row) as traces:
            self.forward()
        found = []
        for name, trace in traces.items():
            count = len(trace.gates["h"])
            side: Side = "source" if "source" in self.tokens and not name.startswith("decoder") else "read"
            names = self.names(side, count) or self.names("read", count) or tuple(map(str, range(1, count + 1)))
            found.append((trace, names))
        return found

    def words_of(self, maps: Mapping[str, AttentionMap]) -> dict[Side, Words]:
        """The words of every side, with a class token before them where the maps have one."""
        first = any(len(each.keys) == len(self.tokens["read"]) + 1 for each in maps.values()) and (
            "source" not in self.tokens
        )
        return {side: padded(words, int(first), 0) for side, words in self.words.items()}


def pass_of_output(model: Any, both: TextWithOutput) -> ForwardPass:
    """A text and the output that was found for it."""
    batch = both.batch
    tokens: dict[Side, tuple[str, ...]] = {"read": spell(model.vocabulary, batch.tokens, batch.lengths, 0)}
    labels = batch.tokens if batch.labels is None else batch.labels
    tokens["said"] = spell(model.vocabulary, labels, batch.lengths, 0)
    if batch.source is not None and batch.source_lengths is not None:
        tokens["source"] = spell(model.source_vocabulary, batch.source, batch.source_lengths, 0)
    return ForwardPass(model, lambda: model(batch), tokens, both.words)


def pass_of(verbs: Any, text: str) -> ForwardPass | None:
    """A text as a model reads it that searches for no output; none if it reads no tokens."""
    if isinstance(verbs, classifier.Verbs):
        return pass_of_classifier(verbs, text)
    if isinstance(verbs, answerer.Verbs):
        return pass_of_question(verbs, text)
    if isinstance(verbs, chooser.Verbs):
        return pass_of_choices(verbs, text)
    if isinstance(verbs, ReadsPairs):
        return pass_of_pair(verbs, text)
    if isinstance(verbs, filler.Verbs):
        ids = framed(verbs.tokenizer, marked_ids(verbs.tokenizer, text))
        tokens, lengths = pad_rows([ids], verbs.tokenizer.vocabulary.pad)
        types = None if verbs.task.pair_part is None else torch.zeros_like(tokens)
        batch = Batch(tokens=tokens, lengths=lengths, token_types=types)
        return of_tokens(verbs.model, batch, verbs.tokenizer.vocabulary, verbs.model)
    return pass_of_encoder(verbs, text)


def pass_of_classifier(verbs: classifier.Verbs, text: str) -> ForwardPass | None:
    """A text, or a pair of texts, as a classifier reads it; none of what it reads in several rows, as documents."""
    is_pair = isinstance(verbs, ReadsPairs)
    ((_, batch),) = verbs.task.batches(verbs.examples([parts_of(text, 2) if is_pair else text]), 1)
    if len(batch.tokens) > 1:
        return None
    vocabulary, offsets = verbs.task.text.vocabulary, verbs.task.text.encode(text).offsets
    is_marked = isinstance(verbs, mention_classification.Verbs)  # tokens are not only those of the text
    ready = batch.to(device_of(verbs.model))
    count = int(batch.lengths[0])
    before = vocabulary.frame_length - 1
    words = padded(words_in(text, offsets), before, count, most=count) if not (is_pair or is_marked) else blank(count)
    return of_tokens(verbs.encoder, batch, vocabulary, lambda _: verbs.task.logits(verbs.model, ready), words)


def pass_of_question(verbs: answerer.Verbs, text: str) -> ForwardPass:
    """A question and the first window of its context."""
    question, context = parts_of(text, 2)
    read = question_reading.read(verbs.task, question, context, {})
    batch = verbs.task.collate([question_reading.cut(verbs.task, read, None)[0][1:]])
    ready = batch.to(device_of(verbs.model))
    return of_tokens(verbs.model, batch, verbs.task.text.vocabulary, lambda _: verbs.task.logits(verbs.model, ready))


def pass_of_choices(verbs: chooser.Verbs, text: str) -> ForwardPass:
    """A question and the choice that the model takes."""
    question, *choices = parts_of(text, None)
    chosen = verbs.choose(question, choices)
    batch = verbs.task.collate(verbs.examples([question], [chooser.as_choices(choices)]))
    ready = batch.to(device_of(verbs.model))
    vocabulary = verbs.task.text.vocabulary
    return of_tokens(verbs.model, batch, vocabulary, lambda _: verbs.task.scores(verbs.model, ready), row=chosen.number)


def pass_of_pair(verbs: Any, text: str) -> ForwardPass | None:
    """The two texts of a pair in one row, if the model reads them so; else the first one."""
    first, second = parts_of(text, 2)
    if isinstance(verbs, similarity.Verbs) and verbs.task.config.kind == "bi":
        return pass_of_encoder(verbs, first)
    batch = verbs.task.collate(verbs.examples([(first, second)]))
    ready = batch.to(device_of(verbs.model))
    vocabulary = verbs.task.text.vocabulary
    return of_tokens(verbs.model, batch, vocabulary, lambda _: verbs.task.logits(verbs.model, ready))


def pass_of_encoder(verbs: Any, text: str) -> ForwardPass | None:
    """A text as an encoder reads it; none if the model is no encoder of plain texts."""
    try:
        contexts = Contexts(verbs)
    except UserError:
        return None
    encoded, vocabulary = contexts.tokenizer.encode(text), contexts.tokenizer.vocabulary
    ids = encoded.ids[::-1] if contexts.backward else encoded.ids
    tokens, lengths = pad_texts([ids], vocabulary)
    batch = Batch(tokens=tokens, lengths=lengths)
    count, before = int(lengths[0]), vocabulary.frame_length - 1
    words = blank(count) if contexts.backward else padded(words_in(text, encoded.offsets), before, count, most=count)
    return of_tokens(contexts.model, batch, vocabulary, lambda ready: encode_text(contexts.model, ready), words)


def of_tokens(
    model: Any,
    batch: Batch,
    vocabulary: Vocabulary,
    forward: Callable[[Batch], object],
    words: Words | None = None,
    row: int = 0,
) -> ForwardPass:
    """One row of a batch of tokens, read by a model."""
    ready = batch.to(device_of(model))
    names = spell(vocabulary, batch.tokens, batch.lengths, row)
    own = words or blank(len(names))
    return ForwardPass(model, lambda: forward(ready), {"said": names, "read": names}, {"said": own, "read": own}, row)


def blank(count: int) -> Words:
    """Tokens that are part of no word."""
    return Words((), (None,) * count)


def parts_of(text: str, count: int | None) -> tuple[str, ...]:
    """The parts of a text, which a run that reads several texts at once has with tabs between them."""
    parts = tuple(text.split("\t"))
    if len(parts) < 2 or (count is not None and len(parts) != count):
        wanted = "several" if count is None else str(count)
        raise UserError(
            f"this run reads {wanted} texts at once, but {text[:60]!r} is {len(parts)}",
            todo="give them with a tab between, or as arguments: mallang inspect RUN TEXT TEXT",
        )
    return parts
