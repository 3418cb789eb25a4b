"""The vector autoencoder: encodes the bag of words of a text as a short code, and reconstructs it from the code.

Reducing the Dimensionality of Data with Neural Networks. Hinton and Salakhutdinov 2006, doi:10.1126/science.1127647.

New against a linear projection such as PCA: layers with a non-linearity on both sides of the code. A code of two
numbers can be plotted as a map. Word order is ignored: see sutskever.py for an autoencoder of sequences.

    source → bag of words → encoder layers → code → decoder layers → one logit per word: is it in the text?

Where this differs from the paper: its layers were pretrained one by one as restricted Boltzmann machines before all of
them were trained together; ReLU and Adam need no pretraining. Its documents were relative frequencies of 2,000 words
with a softmax over them; here every word has a logistic output of its own, as the paper's pixels have, so that a bag
of words can be reconstructed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.bag import bag_of
from mallang.layers.checks import check_sizes
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.initialization import xavier
from mallang.text.vocabulary import Vocabulary

__all__ = ["SIZES", "Autoencoder", "Config", "Model"]

TASK = "autoencoding"
Activation = Literal["relu", "tanh", "logistic"]


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of a vector autoencoder; the defaults are the sizes that the paper used for documents."""

    dim: int = 2
    """Size of the code, the vector of a text."""
    hidden_dims: list[int] = field(default_factory=lambda: [500, 250, 125])
    """Sizes of the layers between the words and the code; the decoder has them in reverse order."""
    inputs: Literal["log-count", "binary"] = "log-count"
    """The input for each word: log(1 + its count), or whether it occurs."""
    activation: Activation = "relu"
    """The non-linearity of the layers; the paper's is logistic. The code itself is linear."""

    def __post_init__(self) -> None:
        check_sizes(self, "dim", dropouts=())
        if any(size < 1 for size in self.hidden_dims):
            raise ValueError(f"hidden_dims must be at least 1, but are {self.hidden_dims}")


class Autoencoder(nn.Module):
    """Bag of words → code → bag of words."""

    reads_source = True

    def __init__(self, config: Config, vocabulary: Vocabulary, source_vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary, self.source_vocabulary = config, vocabulary, source_vocabulary
        down = [len(source_vocabulary), *config.hidden_dims, config.dim]
        up = [config.dim, *reversed(config.hidden_dims), len(vocabulary)]
        self.encoder = nn.Sequential(*layers(down, config.activation))
        self.decoder = nn.Sequential(*layers(up, config.activation))
        self.init_weights()

    def forward(self, batch: Batch) -> Float[Tensor, "batch words"]:
        """A logit for every word of the vocabulary: whether it is in the text."""
        logits: Tensor = self.decoder(self.encode(batch).pooled)
        return logits

    def encode(self, batch: Batch) -> Encoded:
        """The code of every source; this model has no vectors of single words."""
        assert batch.source is not None
        counts = bag_of(batch.source, batch.source_mask, self.source_vocabulary)
        seen = counts.log1p() if self.config.inputs == "log-count" else counts.clamp(max=1.0)
        return Encoded(layers=[], mask=batch.source_mask, pooled=self.encoder(seen))

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=self.config.dim, token=None)

    def init_weights(self) -> None:
        """Xavier for every matrix, zero for every bias."""
        xavier(self)


def layers(sizes: Sequence[int], activation: Activation) -> Iterator[nn.Module]:
    """Linear layers from each size to the next, with the activation between them and none after the last."""
    kinds: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "logistic": nn.Sigmoid}
    for place, (before, after) in enumerate(pairwise(sizes)):
        if place:
            yield kinds[activation]()
        yield nn.Linear(before, after)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_dims": [16], "dim": 2},
    "small": {"hidden_dims": [256], "dim": 32},
    "base": {},
}
"""Named shapes, as changes to the defaults; base is the paper's for documents."""

Model = Autoencoder
