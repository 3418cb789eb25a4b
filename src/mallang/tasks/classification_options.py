"""The options of classification, a recipe's section [task]."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from mallang.data.symbols import SymbolUnit
from mallang.kernels.ngram_rows import NgramIndex
from mallang.layers.hashed_bag import BagLoss
from mallang.tasks.features import check_mix
from mallang.tasks.finetuning import FineTuning
from mallang.tasks.text_windows import LongTexts


@dataclass(frozen=True, kw_only=True)
class LabelOptions(FineTuning):
    """What all that learns labels has: the kind of labels, the loss, and the head."""

    kind: Literal["single", "multi", "ordinal"] = "single"
    """One class per text, any number of classes, or classes in order."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: rare classes weigh more in the loss, so that all classes weigh the same together."""
    label_smoothing: float = 0.0
    """Share of the probability that is spread evenly over the classes."""
    head_dropout: float = 0.0
    """Dropout on the vector of a text before the head."""
    word_dropout: float = 0.0
    """Probability that a token is read as `<unk>` in training."""

    def __post_init__(self) -> None:
        for name in ("label_smoothing", "head_dropout", "word_dropout"):
            check_share(name, getattr(self, name))
        if self.label_smoothing and self.kind != "single":
            raise ValueError(f"label_smoothing has no effect on kind = {self.kind!r}")
        if self.class_weights != "none" and self.kind == "ordinal":
            raise ValueError("class_weights has no effect on kind = 'ordinal', whose thresholds order the classes")
        self.check_tuning()


def check_share(name: str, share: float) -> None:
    """Refuse what is no share below 1."""
    if not 0.0 <= share < 1.0:
        raise ValueError(f"{name} must be at least 0 and less than 1, but is {share}")


@dataclass(frozen=True, kw_only=True)
class Options(LabelOptions):
    """The kind of labels, the loss, the head, and how a text is read."""

    bpe_dropout: float = 0.0
    """Probability that a merge of BPE is skipped in training, so that a word is read in other pieces each time."""
    features_mix: bool = False
    """given.features: mix all layers of the other encoder in learned shares; otherwise its last layer is read."""
    features_l2: float = 0.0
    """Weight of an L2 penalty on that mix, which pulls it towards the mean of the layers."""
    lm_weight: float = 0.0
    """Weight of an auxiliary language model's loss on the same texts, as in GPT-1, such as 0.5; 0: none."""
    max_tokens: int = 0
    """Maximum number of tokens of a text that are read, from its start; 0: all."""
    long_texts: LongTexts = "windows"
    """A text longer than the model reads: the mean over overlapping windows, or its beginning alone (cut)."""
    documents: bool = False
    """Read a text as a document of sentences, for models with a level of sentences."""
    max_sentences: int = 64
    """Maximum number of sentences of a document, parts of long ones counted; the rest is not read."""
    max_words: int = 64
    """Maximum number of tokens of a sentence; a longer one is split into parts of nearly equal length."""
    bag_buckets: int = 0
    """Number of buckets, a power of two, of a hashed bag of n-grams whose logits are added to the head's; 0: no bag."""
    bag_orders: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Lengths of the n-grams of the bag."""
    bag_unit: SymbolUnit = "char"
    """The unit of these n-grams: characters, whatever the tokens of the encoder are, or words."""
    bag_dropout: float = 0.0
    """Probability that an n-gram is left out of the bag in training."""
    bag_learning_rate_scale: float = 10.0
    """Learning rate of the bag, relative to optimizer.learning_rate: few texts have a gradient for an n-gram."""
    bag_loss: BagLoss = "joint"
    """joint: one loss for the sum of both logits; separate: a loss for each, and the mean of both predicts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("bpe_dropout", "bag_dropout"):
            check_share(name, getattr(self, name))
        if self.bpe_dropout and self.documents:
            raise ValueError("bpe_dropout has no effect on documents, whose sentences begin at fixed tokens")
        if self.max_tokens < 0 or (self.max_tokens and self.documents):
            raise ValueError("max_tokens is 0 or more, and 0 for documents, which max_sentences and max_words limit")
        if self.documents and self.long_texts == "cut":
            raise ValueError("long_texts has no effect on documents, which max_sentences and max_words limit")
        for name in ("max_sentences", "max_words"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, but is {getattr(self, name)}")
        check_mix(self)
        if self.mix_layers and self.documents:
            raise ValueError("mix_layers mixes layers of tokens, and documents are read by words and sentences")
        if self.lm_weight < 0:
            raise ValueError(f"lm_weight must not be negative, but is {self.lm_weight}")
        for name in ("documents", "word_dropout", "freeze"):
            if self.lm_weight and getattr(self, name):
                raise ValueError(f"lm_weight and {name} exclude each other: leave one of them out")
        self.check_bag()

    def check_bag(self) -> None:
        """Refuse impossible n-grams, and options of a bag where there is none."""
        if not self.bag_learning_rate_scale > 0:
            raise ValueError(f"bag_learning_rate_scale must be above 0, but is {self.bag_learning_rate_scale}")
        try:
            NgramIndex(1, self.bag_orders, buckets=self.bag_buckets)
        except ValueError as error:
            raise ValueError(f"bag_{error}") from None
        for each in fields(self):
            if each.name.startswith("bag_") and not self.bag_buckets and getattr(self, each.name) != each.default:
                raise ValueError(f"{each.name} has no effect without a bag: set bag_buckets, for example to 4194304")
