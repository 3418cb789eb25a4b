"""Unsupervised translation: text of two languages in, without pairs of sentences; a translator in both directions out.

    denoising         a sentence with words dropped and shuffled  →  the sentence, in each language
    back_translation  the model's own translation of a sentence   →  the sentence, in each direction
    adversarial       latent states that a discriminator takes for those of the other language
    discriminator     its own loss, with an optimizer of its own

Back-translation is on the fly (arXiv:1710.11041, 1711.00043, 1804.07755): before each update the model translates the
sentences of the batch greedily; no gradient passes through. The first `denoising_updates` have no back-translation, the
next `word_by_word_updates` translate word by word by a lexicon. The best weights are chosen by round trips: held-out
text, translated and back, against itself. No pair of sentences takes part in that either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor, nn

from mallang.data.batch import Batch, Shapes, pad_rows
from mallang.data.corpus import Config as Data
from mallang.data.filters import Filters
from mallang.data.prepared import Prepared
from mallang.data.sampler import Rows, UnpairedBuckets
from mallang.decoding import contract as decoding
from mallang.decoding import greedy
from mallang.errors import UserError
from mallang.evaluation.quality import MEASURES
from mallang.evaluation.score import Score
from mallang.layers.head import cross_entropy_of
from mallang.models.contract import Adversarial, Bilingual
from mallang.tasks.contract import Better, Group, Loss
from mallang.tasks.two_way_translator import Verbs
from mallang.tasks.word_by_word import INDUCED, Lexicon, find_lexicon, load_space
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, EOS, PAD

__all__ = ["DEFAULTS", "SECTIONS", "Config", "Task", "Verbs"]

SECTIONS = ("decoding",)
"""Sections of a recipe that this task reads besides those of every recipe."""
DEFAULTS: dict[str, dict[str, Any]] = {
    "data": {"unpaired": "halves"},
    "train": {"metric": "round_trip"},
    "optimizer": {"max_grad_norm": 1.0},
}
"""Defaults of a recipe of this task."""
SPACE = "▁"
"""The mark of a space before a token: such a token begins a word."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Noise, the course of training, and the weights of the losses."""

    word_drop: float = 0.1
    """Probability that denoising leaves out a word."""
    shuffle: int = 3
    """Denoising moves no word further than this; 0: words keep their order."""
    denoising_updates: int = 0
    """Updates at the start without back-translation: pre-training of the autoencoder."""
    word_by_word_updates: int = 0
    """Updates after those whose translations are made word by word, by the lexicon."""
    lexicon: str | None = None
    """Word translations: induced from the text (identical, adversarial, similarities), or a file or corpus of pairs."""
    denoising: float = 1.0
    """Weight of the loss of denoising."""
    back_translation: float = 1.0
    """Weight of the loss of back-translation."""
    adversarial: float = 1.0
    """Weight of the adversarial loss, for models with a discriminator; 0: none is trained."""
    discriminator_scale: float = 1.67
    """Learning rate of the discriminator, times that of the recipe; its optimizer is RMSProp."""
    discriminator_smoothing: float = 0.1
    """Label smoothing of the discriminator."""
    label_smoothing: float = 0.0
    """Label smoothing of the predicted words."""

    def __post_init__(self) -> None:
        for name in ("word_drop", "discriminator_smoothing", "label_smoothing"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} must lie between 0 and 1, but is {getattr(self, name)}")
        for name in ("shuffle", "denoising_updates", "word_by_word_updates", "denoising", "back_translation",
                     "adversarial"):  # fmt: skip
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        if self.discriminator_scale <= 0:
            raise ValueError(f"discriminator_scale must be above 0, but is {self.discriminator_scale}")
        if self.word_by_word_updates and self.lexicon is None:
            raise ValueError(f"word_by_word_updates = {self.word_by_word_updates} need a lexicon")


class Task:
    """Learn to translate in both directions from text of two languages."""

    columns = ("source", "target")
    unread: tuple[str, ...] = ()
    open_ended = False
    can_compile = True
    parts = ("denoising", "back_translation", "adversarial", "discriminator")
    metrics: Mapping[str, Better] = {"loss": "lower", "round_trip": "higher"}
    carries = False
    width = None
    one_shape = False

    def __init__(self, config: Config, tokenizers: Mapping[str, Tokenizer]) -> None:
        self.config, self.tokenizers = config, tokenizers
        self.source, self.target = tokenizers["source"], tokenizers["target"]
        self.sides = self.source, self.target
        self.begins_word = [word_starts(tokenizer) for tokenizer in self.sides]
        self.step, self.lexicon = 1, None if config.lexicon is None else PENDING
        self.text: tuple[Prepared, int] | None = None
        """The training text and the seed, which the lexicon is induced from when it is needed."""

    @classmethod
    def reads_unpaired(cls) -> bool:
        """Rows may have one side each."""
        return True

    def filters(self, data: Data) -> tuple[Filters, Filters]:
        """The filters of training rows and of evaluation rows, each with one side."""
        if data.min_length > 1:
            raise UserError(f"data.min_length = {data.min_length} has no effect on unpaired text", todo="leave it out")
        some = Filters(
            min_length=0, max_length=data.max_length, max_ratio=0.0, drop_empty=False,
            drop_duplicates=data.drop_duplicates,
        )  # fmt: skip
        return some, replace(some, drop_duplicates=False)

    def shapes(self, tokens: int, sentences: int | None) -> Shapes | None:
        """The shapes that batches are padded to where an engine needs few shapes."""
        return Shapes(tokens, sentences)

    def build(self, model: ModuleType, config: Any) -> nn.Module:
        """The model for these two languages."""
        if not issubclass(model.Model, Bilingual):
            raise UserError(
                f"{model.__name__.rsplit('.', 1)[-1]} translates in one direction only",
                todo="model.name=lample, artetxe or unsupervised-transformer",
            )
        built: nn.Module = model.Model(config, self.target.vocabulary, self.source.vocabulary)
        return built

    def begin(self, model: Any, corpus: Prepared, seed: int, say: Callable[[str], None]) -> None:
        """Find the lexicon, and initialize the embeddings of words whose vectors it was found with."""
        self.text = corpus, seed
        lexicon = self.known_words(model)
        if lexicon is None:
            return
        say(f"lexicon: {lexicon.how}; {len(lexicon.tables[0]):,} source words, {len(lexicon.tables[1]):,} target words")
        if lexicon.space is not None:
            for side, tokenizer in enumerate(self.sides):
                for table in model.word_tables(side):
                    say(f"language {side}: {load_space(table, tokenizer.vocabulary, lexicon.space, side)}")

    def known_words(self, model: Any) -> Lexicon | None:
        """The lexicon, which is induced or read once; a run that resumes finds the same."""
        if self.lexicon is PENDING:
            assert self.text is not None and self.config.lexicon is not None
            corpus, seed = self.text
            texts: list[list[str]] = [[], []]
            tables = [model.word_tables(side) for side in (0, 1)]
            if any(tables) or self.config.lexicon in INDUCED:
                for row in (corpus[place] for place in range(len(corpus))):
                    for side, ids in enumerate(row):
                        texts[side] += [self.sides[side].decode(ids.tolist())] if len(ids) else []
            dim = tables[0][0].embedding_dim if tables[0] else model.input_embedding(0).embedding_dim
            self.lexicon = find_lexicon(self.config.lexicon, texts, dim, seed)
        return self.lexicon

    def examples(self, corpus: Prepared, seed: int, epoch: int) -> Any:
        """The sentences of an epoch."""
        return corpus.epoch(seed, epoch)

    def plan(
        self, corpus: Prepared, *, tokens: int, sentences: int | None = None, multiple: int = 1, seed: int, epoch: int
    ) -> Sequence[Rows]:
        """Batches of sentences of similar length, as many in each language; each has one more token than its words."""
        self.text = (corpus, seed) if self.text is None else self.text
        lengths = corpus.epoch(seed, epoch).lengths
        return UnpairedBuckets(lengths, tokens=tokens, sentences=sentences, multiple=multiple, seed=seed, epoch=epoch)

    def prepare(self, rows: list[tuple[Any, ...]], random: np.random.Generator) -> Batch:
        """The sentences of both languages side by side, as they are and noisy; all end with `</s>`."""
        pairs = [(one[0], other[1]) for one, other in rows]
        noisy = [[self.noise(ids, side, random) for side, ids in enumerate(pair)] for pair in pairs]
        texts, text_lengths = side_by_side(pairs)
        changed, changed_lengths = side_by_side(noisy)
        changed = F.pad(changed, (0, texts.shape[2] - changed.shape[2]), value=PAD)
        return Batch(
            tokens=texts[:, 0].contiguous(), lengths=text_lengths[:, 0].contiguous(),
            texts=texts, text_lengths=text_lengths, noisy=changed, noisy_lengths=changed_lengths,
        )  # fmt: skip

    def noise(self, ids: Int[np.ndarray, " tokens"], side: int, random: np.random.Generator) -> np.ndarray:
        """A sentence with words dropped and shuffled; the tokens of a word stay together, and one word stays."""
        begins = self.begins_word[side][ids]
        words = np.split(ids, np.flatnonzero(begins[1:]) + 1) if len(ids) else []
        kept = random.random(len(words)) >= self.config.word_drop
        if len(words) and not kept.any():
            kept[random.integers(len(words))] = True
        places = np.arange(len(words)) + (self.config.shuffle + 1) * random.random(len(words))
        order = [place for place in np.argsort(places, kind="stable") if kept[place]]
        return np.concatenate([words[place] for place in order]) if order else ids

    def at_step(self, step: int) -> None:
        """Set the number of the update, counted from 1."""
        self.step = step

    def complete(self, model: Any, batch: Batch) -> Batch:
        """The batch with a translation of each sentence: none at first, then word by word, then the model's own."""
        first = self.config.denoising_updates
        if self.step <= first or self.config.back_translation == 0:
            return batch
        is_static = decoding.device_of(model).type == "cuda"
        if self.step <= first + self.config.word_by_word_updates:
            return with_translations(batch, [self.by_words(model, batch, side) for side in (0, 1)], is_static)
        with decoding.without_dropout(model):
            return with_translations(batch, [self.by_model(model, batch, side) for side in (0, 1)], is_static)

    def by_words(self, model: Any, batch: Batch, side: int) -> list[list[int]]:
        """The translations of the sentences of a language, word by word."""
        assert batch.texts is not None
        lexicon, tokenizer, other = self.known_words(model), self.sides[side], self.sides[1 - side]
        assert lexicon is not None
        rows = [[token for token in row if token not in (PAD, EOS)] for row in batch.texts[:, side].tolist()]
        found = other.encode_batch([lexicon.translate(tokenizer.decode(row), side) for row in rows])
        most = length_limit(batch)
        return [ids[: most - 1] for ids in found]

    def by_model(self, model: Any, batch: Batch, side: int) -> list[list[int]]:
        """The translations of the sentences of a language by the model, greedily."""
        assert batch.texts is not None and batch.text_lengths is not None
        source, lengths = batch.texts[:, side].contiguous(), batch.text_lengths[:, side].contiguous()
        start = torch.full((len(batch), 1), BOS)
        given = Batch(tokens=start, lengths=torch.ones_like(lengths), source=source, source_lengths=lengths)
        config = decoding.Config(method="greedy", max_length=length_limit(batch) - 1)
        found = greedy.search(model.between(side, 1 - side), given.to(decoding.device_of(model)), config)
        return [list(nbest[0].tokens) for nbest in found]

    def counts(self, batch: Batch) -> dict[str, int]:
        """The number of predicted tokens, and of latent states."""
        assert batch.texts is not None and batch.noisy is not None
        tokens, states = int((batch.texts != PAD).sum()), int((batch.noisy != PAD).sum())
        predicted = tokens if batch.translated is not None else 0
        states += 0 if batch.translated is None else int((batch.translated != PAD).sum())
        return {
            "denoising": tokens, "back_translation": predicted, "adversarial": states, "discriminator": states,
            "discriminator_accuracy": states, "tokens": tokens,
        }  # fmt: skip

    def loss(self, model: Any, batch: Batch, carry: Any) -> Loss:
        """All losses, each a sum, times their weights."""
        config = self.config
        restored, states = self.restore(model, batch, batch.noisy, batch.noisy_lengths, is_translated=False)
        sums = {"denoising": config.denoising * restored, "back_translation": torch.zeros_like(restored)}
        if batch.translated is not None:
            back, others = self.restore(model, batch, batch.translated, batch.translated_lengths, is_translated=True)
            sums["back_translation"], states = config.back_translation * back, [*states, *others]
        report: dict[str, Tensor] = {}
        deceived = learned = torch.zeros_like(restored)
        if states:
            deceived, learned, right = self.judge(model, states)
            report["discriminator_accuracy"] = right
        return Loss(
            sums={**sums, "adversarial": config.adversarial * deceived, "discriminator": learned}, report=report
        )

    def restore(
        self, model: Any, batch: Batch, given: Tensor | None, lengths: Tensor | None, *, is_translated: bool
    ) -> tuple[Tensor, list[tuple[Tensor, Bool[Tensor, "batch source"], int]]]:
        """The summed loss of the sentences of both languages from what is given for each.

        With a discriminator also the latent states of what was given, where they are real, and their language.
        """
        assert batch.texts is not None and batch.text_lengths is not None and given is not None and lengths is not None
        total, states = torch.zeros((), device=given.device), []
        is_judged = isinstance(model, Adversarial) and self.config.adversarial > 0
        for side in (0, 1):
            labels, source = batch.texts[:, side], given[:, side]
            tokens = torch.cat((torch.full_like(labels[:, :1], BOS), labels[:, :-1]), dim=1)
            each = Batch(
                tokens=tokens, lengths=batch.text_lengths[:, side], source=source, source_lengths=lengths[:, side]
            )
            language = 1 - side if is_translated else side
            way = model.between(language, side)
            if is_judged:
                hidden, memory = model.states(each, language, side)
                states.append((memory, source != PAD, language))
            else:
                hidden = way(each)
            hidden, labels = hidden.flatten(0, 1), labels.flatten()
            if not hidden.is_cuda:  # on a GPU, selecting the labels would synchronize with the host
                hidden, labels = hidden[labels != PAD], labels[labels != PAD]
            total = total + cross_entropy_of(way, hidden, labels, self.config.label_smoothing)[0]
        return total, states

    def judge(
        self, model: Any, states: Sequence[tuple[Tensor, Bool[Tensor, "batch source"], int]]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of the encoder, which deceives the discriminator; that of the discriminator; how often it is right.

        Each is a sum over latent states. No gradient of one reaches the weights of the other.
        """
        deceived = learned = right = torch.zeros((), device=states[0][0].device)
        smoothing = self.config.discriminator_smoothing
        for memory, real, language in states:
            fooled = model.judge(memory, frozen=True).float()
            deceived = deceived + summed_bce(fooled, float(1 - language), real)
            logits = model.judge(memory.detach(), frozen=False).float()
            learned = learned + summed_bce(logits, abs(language - smoothing), real)
            right = right + (real & ((logits > 0) == bool(language))).sum()
        return deceived, learned, right.detach()

    def updates(self, model: Any) -> list[Group]:
        """The parameters of the translator, and those of the discriminator with their own optimizer."""
        named = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
        if not isinstance(model, Adversarial):
            return [Group(named)]
        judging = set(model.discriminator.parameters())
        mine = Group([pair for pair in named if pair[1] not in judging])
        if not self.config.adversarial:
            return [mine]
        its = [pair for pair in named if pair[1] in judging]
        return [mine, Group(its, scale=self.config.discriminator_scale, optimizer="rmsprop")]

    def validate(self, model: Any, corpus: Prepared, rows: Sequence[tuple[str, ...]], metric: str) -> list[Score]:
        """The loss of denoising held-out text; for round_trip the BLEU of that text after two translations."""
        total, count = 0.0, 0
        device, random = decoding.device_of(model), np.random.default_rng(0)
        tokens = max(4096, int(corpus.lengths.max()) + 1)
        for batch_rows in UnpairedBuckets(corpus.lengths, tokens=tokens, seed=0, epoch=0):
            batch = self.prepare([tuple(corpus[i] for i in row) for row in batch_rows], random)
            on_device = batch.to(device)
            loss, _ = self.restore(model, on_device, on_device.noisy, on_device.noisy_lengths, is_translated=False)
            total, count = total + float(loss), count + self.counts(batch)["denoising"]
        noise = f"word_drop:{self.config.word_drop}|shuffle:{self.config.shuffle}"
        scores = [Score("loss", total / count, f"nats per token|denoising|{noise}", count=count)]
        if metric == "round_trip":
            longest = int(corpus.lengths.max()) + 1
            verbs = Verbs(self, model, decoding.Config(method="greedy"), max_length=longest)
            bleu = [round_trip(verbs, [row[side] for row in rows if row[side]], is_back=bool(side)) for side in (0, 1)]
            value = sum(score.value for score in bleu) / 2
            said = f"{bleu[0].signature}|greedy|mean of both languages"
            scores.append(Score("round_trip", value, said, count=len(rows)))
        return scores


PENDING = Lexicon(({}, {}), "not yet induced")
"""Stands for a lexicon that has not been needed yet."""


def round_trip(verbs: Verbs, texts: Sequence[str], *, is_back: bool) -> Score:
    """BLEU of texts that were translated into the other language and back, against themselves."""
    there = [str(each) for each in verbs.translate(list(texts), reverse=is_back)]
    again = [str(each) for each in verbs.translate(there, reverse=not is_back)]
    return MEASURES["bleu"](again, list(texts)).score()


def side_by_side(pairs: Sequence[Sequence[Any]]) -> tuple[Int[Tensor, "rows 2 time"], Int[Tensor, "rows 2"]]:
    """Pairs of rows of ids as one tensor, each ended by `</s>`, and their lengths."""
    rectangle, lengths = pad_rows([ids for pair in pairs for ids in pair], end=EOS)
    return rectangle.view(len(pairs), 2, -1), lengths.view(-1, 2)


def with_translations(batch: Batch, found: Sequence[Sequence[Sequence[int]]], is_static: bool) -> Batch:
    """The batch with these translations; `is_static`: their width depends on that of the batch alone."""
    translated, lengths = side_by_side(list(zip(*found, strict=True)))
    missing = length_limit(batch) - translated.shape[2] if is_static else 0
    return replace(batch, translated=F.pad(translated, (0, missing), value=PAD), translated_lengths=lengths)


def length_limit(batch: Batch) -> int:
    """The maximum length of a translation of the sentences of a batch: it depends on the width of the batch alone."""
    assert batch.texts is not None
    width = batch.texts.shape[2]
    return -(-(width + width // 2 + 8) // 8) * 8


def summed_bce(logits: Tensor, label: float, real: Bool[Tensor, "batch source"]) -> Tensor:
    """The summed binary cross-entropy of one label at the real positions."""
    losses = F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label), reduction="none")
    return torch.where(real, losses, 0.0).sum()


def word_starts(tokenizer: Tokenizer) -> Bool[np.ndarray, " words"]:
    """Which tokens begin a word: those with a space before them, or all where the unit marks none."""
    marked = np.array([token.startswith(SPACE) for token in tokenizer.vocabulary.tokens])
    return marked if marked.any() else np.ones_like(marked)
