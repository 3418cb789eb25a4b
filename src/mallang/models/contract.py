"""The capabilities that models declare, as protocols that tasks, training and inspection check.

Every other file of this folder defines `Config`, `Model`, `SIZES` (named shapes) and `TASK` (the task that the model is
trained for unless the recipe names another). Every model class declares by `reads_source` whether it reads a source
text beside the text that it predicts. The rest is optional: a model has a capability if it has the members of its
protocol.

    isinstance(model, Fitted)        it learns without gradients
    isinstance(model, Encoder)       it encodes a whole text as one vector

`Autoregressive` (decoding/contract.py), `Observable` (layers/attention.py), `OutputProjection` (layers/head.py),
`Stateful` (layers/stateful.py), `ReadsSpelling` (layers/spelling.py), `HidesWords` and `SharedEmbedding`
(layers/words.py), `CoreferenceScorer` (layers/spans.py), `RoleLabeler` (layers/flagged_words.py), `MaskedLM`
(tasks/masked_lm.py), `ReplacedTokens` (tasks/replaced_token.py) and `Bidirectional`
(tasks/bidirectional_language_modeling.py) are declared in the same way, beside the code that needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.layers.crf import CRF
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.head import Headed
from mallang.layers.words import SharedEmbedding
from mallang.text.vocabulary import Vocabulary


@runtime_checkable
class TokenModel(Protocol):
    """A model that computes a hidden vector for every position, and logits from it."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of its output ids."""

    def __call__(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The hidden vector of every position."""

    def output(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word of the vocabulary."""


@runtime_checkable
class SourceReader(Protocol):
    """What every model class declares: whether it reads a source."""

    reads_source: bool
    """Whether it reads a source text: then its constructor takes a `source_vocabulary` after the `vocabulary`."""


@runtime_checkable
class Fitted(Protocol):
    """A model that learns without gradients: one call of `fit` fits it to the text."""

    def fit(self, stream: Iterable[Batch]) -> Iterator[Mapping[str, float]]:
        """Learn from the batches, which may be read more than once; yields measurements after each pass."""


@runtime_checkable
class Bounded(Protocol):
    """A model with a maximum number of positions."""

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens that it can read or generate; None: this configuration has no limit."""


@runtime_checkable
class Segmented(Protocol):
    """A model that declares whether several documents may be packed into one row."""

    reads_segments: bool
    """Whether tokens attend to their own document alone, as `batch.segments` numbers them."""


@runtime_checkable
class Marked(Protocol):
    """A model whose texts have special tokens beyond pad, unk, bos and eos: its tokenizers are trained with them."""

    marks: tuple[str, ...]
    """The names of these tokens: mask, cls, sep. With cls and sep an encoder reads `<cls>` text `<sep>`."""


@runtime_checkable
class Bilingual(Protocol):
    """A model that translates between two languages in both directions: 0 is that of its source, 1 of its target."""

    def between(self, source: int, target: int) -> nn.Module:
        """The model as a translator from one language to another, or to itself; it is autoregressive."""

    def input_embedding(self, source: int = 0) -> nn.Embedding:
        """The embedding of a language."""

    def word_tables(self, language: int) -> Sequence[nn.Embedding]:
        """The embeddings of a language that begin as word vectors; none where both languages share one embedding."""


@runtime_checkable
class Adversarial(Protocol):
    """A bilingual model with a discriminator of the language that a latent state was read from."""

    discriminator: nn.Module

    def states(
        self, batch: Batch, source: int, target: int
    ) -> tuple[Float[Tensor, "batch time dim"], Float[Tensor, "batch source _"]]:
        """The hidden vector of every position, and the latent states of the source."""

    def judge(self, memory: Float[Tensor, "batch source _"], *, frozen: bool) -> Float[Tensor, "batch source"]:
        """The logit that each latent state is of language 1; `frozen` keeps gradients from the discriminator."""


@runtime_checkable
class Hierarchical(Protocol):
    """A model that declares whether it reads documents sentence by sentence."""

    reads_sentences: bool
    """Whether rows of the batch may be sentences, which `batch.sentences` joins to documents."""


@runtime_checkable
class ReadsRegions(Protocol):
    """A model of images that declares whether it reads features of their regions, and not the images."""

    @property
    def reads_regions(self) -> bool:
        """Whether `batch.regions` is read, and not `batch.images`."""


@runtime_checkable
class Encoder(Protocol):
    """A model that encodes a text: a vector of every token, and one vector of the whole.

    It reads `batch.source` if it reads a source, else `batch.tokens`. How it pools is its own affair.
    """

    def encode(self, batch: Batch) -> Encoded:
        """The vectors of the tokens after each layer, and one vector of the whole text."""

    def encoder_dims(self) -> EncoderDims:
        """The sizes of those vectors."""


@runtime_checkable
class Layered(Protocol):
    """A model that declares its layers in order, so that fine-tuning can treat them differently."""

    def layer_groups(self) -> Sequence[Sequence[nn.Module | nn.Parameter]]:
        """The parts of the embedding, then those of every layer from the lowest to the highest.

        Each parameter belongs to one group; what follows the layers belongs to the highest.
        """


@runtime_checkable
class Classifier(Protocol):
    """A model with an output of its own for every class; its constructor takes the number of classes last."""

    def classify(self, batch: Batch) -> Float[Tensor, "examples classes"]:
        """One logit per class for each example."""


@runtime_checkable
class Tagger(Protocol):
    """A model with a CRF of its own over the tags of words; its constructor takes the constraints of the tags last.

    Without constraints it is built without tags, as an encoder.
    """

    def emissions(self, batch: Batch) -> Float[Tensor, "batch words tags"]:
        """The score of every tag for every word of `batch.words`, before the transitions."""

    def tag_crf(self) -> CRF:
        """The transitions between tags."""


@runtime_checkable
class TripleScorer(Protocol):
    """A model of a knowledge graph; its constructor takes the number of relations last."""

    def candidate_ids(self) -> Int[Tensor, " entities"]:
        """The ids of all entities."""

    def entities(self, numbers: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape dim"]:
        """The vectors of entities by their ids."""

    def queries(
        self, vectors: Float[Tensor, "asked dim"], relations: Int[Tensor, " asked"], *, heads: bool
    ) -> Float[Tensor, "asked dim"]:
        """What is compared with candidates for the tail of each entity and relation, or for its head."""

    def scores(
        self, queries: Float[Tensor, "asked dim"], candidates: Float[Tensor, "candidates dim"]
    ) -> Float[Tensor, "asked candidates"]:
        """The score of every candidate for every query."""

    def pair_scores(
        self, queries: Float[Tensor, "asked dim"], answers: Float[Tensor, "asked dim"]
    ) -> Float[Tensor, " asked"]:
        """The score of one answer for each query."""

    def answer_scores(
        self, entities: Int[Tensor, " asked"], relations: Int[Tensor, " asked"], *, heads: bool
    ) -> Float[Tensor, "asked words"]:
        """The score of every entity, by its id, as the tail of an entity and a relation, or as the head."""


@runtime_checkable
class ReadsEntities(Protocol):
    """An encoder that reads entities of a graph beside the tokens of a text: `batch.entities` at `batch.entity_places`.

    Without them it reads the text alone.
    """

    @property
    def entity_dim(self) -> int:
        """The size of the vectors of entities."""

    def give_graph(self, graph: nn.Module) -> None:
        """Take the vectors of entities from a trained `TripleScorer`, which is neither trained nor saved with it."""


@runtime_checkable
class GraphReasoner(Protocol):
    """A model of texts with schema graphs; its constructor takes the sizes of the graph and a text encoder last.

    Without both it is built as an encoder of texts alone.
    """

    def statement(self, batch: Batch) -> Float[Tensor, "batch statement"]:
        """The vector of each text by itself."""

    def start_concepts(self, vectors: Float[Tensor, "concepts dim"]) -> None:
        """Start the vectors of concepts from given ones."""


@runtime_checkable
class HiddenStates(Protocol):
    """A model that returns the hidden states of every layer."""

    def hidden_states(self, tokens: Int[Tensor, "rows time"]) -> list[Float[Tensor, "rows time _"]]:
        """The input vectors of tokens, then their hidden states after every layer."""


@runtime_checkable
class InputEmbedding(Protocol):
    """A model with a learned embedding of its input tokens."""

    def input_embedding(self) -> nn.Embedding:
        """The input embedding; that of the source if there is one."""


@runtime_checkable
class TokenLookups(Protocol):
    """A model that looks up more than the input embedding of a token, such as its spelling."""

    def token_lookups(self) -> Sequence[nn.Module]:
        """The modules that turn input tokens into vectors, each token by itself."""


@runtime_checkable
class WordVectors(Protocol):
    """A model that learns one vector per word, whatever the context."""

    def vectors(self) -> Float[Tensor, "words dim"]:
        """The vector of every word."""

    def held_out_loss(self, stream: Iterable[Batch]) -> tuple[float, int]:
        """The summed loss of a text, and the number of predictions to divide it by."""


@runtime_checkable
class SpelledVectors(Protocol):
    """A model that computes vectors of words outside its vocabulary from their spelling."""

    def spelled_vectors(self, words: Sequence[str]) -> Float[Tensor, "words dim"]:
        """A vector for each word; zeros for one without any known part."""


@runtime_checkable
class TokenScorer(Protocol):
    """A model that scores given labels in its own way, faster or more exactly than from logits."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of its output ids."""

    def token_log_probs(self, batch: Batch) -> Float[Tensor, "batch time"]:
        """The natural log-probability of every label, 0 at positions without a label."""


@runtime_checkable
class Normalized(Protocol):
    """A model that declares whether its scores are normalized probabilities."""

    @property
    def is_probability(self) -> bool:
        """Whether its scores of all words sum to 1; otherwise it only ranks, and has no perplexity."""


@runtime_checkable
class Signed(Protocol):
    """A model that adds to the signature of its scores."""

    @property
    def signature(self) -> str:
        """The settings besides the text that are needed to reproduce its scores."""


@runtime_checkable
class Configured(Protocol):
    """A model that keeps its configuration."""

    config: Any
    """The `Config` that it was built from."""


@runtime_checkable
class Sized(Protocol):
    """The configuration of a model whose hidden vectors have one size, which the noam schedule scales by."""

    @property
    def dim(self) -> int:
        """The size of a hidden vector."""


def encode_text(encoder: Any, batch: Batch) -> Encoded:
    """What an encoder makes of the tokens of a batch; one that reads a source gets them as its source."""
    if encoder.reads_source:
        batch = Batch(tokens=batch.tokens, lengths=batch.lengths, source=batch.tokens, source_lengths=batch.lengths)
    found: Encoded = encoder.encode(batch)
    return found


def token_lookups(model: object) -> Sequence[nn.Module]:
    """The modules that turn the input tokens of a model into vectors, each token by itself."""
    if isinstance(model, TokenLookups):
        return model.token_lookups()
    if isinstance(model, InputEmbedding):
        return [model.input_embedding()]
    raise UserError(
        f"{type(model).__name__} has no vectors of single tokens", todo="use a model that has, such as cnn or bert"
    )


def is_fitted(module: ModuleType) -> bool:
    """Whether the model of a module learns without gradients."""
    return issubclass(module.Model, Fitted)


def takes_vectors(module: ModuleType) -> bool:
    """Whether the model of a module can start from pretrained word vectors: it is trained, and has an embedding."""
    kind = module.Model
    return not is_fitted(module) and (issubclass(kind, InputEmbedding) or issubclass(kind, SharedEmbedding))


def longest_of(model: object) -> int | None:
    """The maximum number of tokens that a model, or the one below a head, can read or generate; None: no limit."""
    inner = model.model if isinstance(model, Headed) else model
    return inner.longest if isinstance(inner, Bounded) else None


def reads_sentences(model: object) -> bool:
    """Whether a model, or its class, reads documents sentence by sentence."""
    return model.reads_sentences if isinstance(model, Hierarchical) else False


def marks_of(model: object) -> tuple[str, ...]:
    """The special tokens that a model, or its class, needs beyond the usual four."""
    return model.marks if isinstance(model, Marked) else ()


def dim_of(config: object) -> int | None:
    """The size of a model's hidden vectors, where its configuration names one."""
    return config.dim if isinstance(config, Sized) else None


def is_probability(model: object) -> bool:
    """Whether a model's scores of all words sum to 1; true unless it declares otherwise."""
    return model.is_probability if isinstance(model, Normalized) else True


def signature_of(model: object) -> str:
    """The part that a model adds to the signature of its scores; empty for most models."""
    return model.signature if isinstance(model, Signed) else ""
