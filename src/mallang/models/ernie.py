"""ERNIE: a BERT whose upper layers read entities of a knowledge graph beside the tokens that name them.

ERNIE: Enhanced Language Representation with Informative Entities. Zhang, Han, Liu, Jiang, Sun, Liu 2019,
arXiv:1905.07129 (that of Tsinghua; Baidu's ERNIE is another model).

New against BERT: the lower layers, the T-Encoder, are BERT's. The upper ones, the K-Encoder, have two streams: tokens
w, and entities e with the vectors that a run of TransE has learned. An entity belongs to the first token of its name.

    tokens    → self-attention → w̃ ┐ fusion, at the first token       ┌ W_t h + b_t → w, the tokens of the next layer
    entities  → self-attention → ẽ ┴ h = GELU(W̃_t w̃ + W̃_e ẽ + b̃)  ───┴ W_e h + b_e → e, the entities of the next one

    tokens that name no entity:  h = GELU(W̃_t w̃ + b̃),  w = W_t h + b_t

So the fusion is BERT's feed-forward network into which an entity is added, and without entities the model is BERT: it
starts from the weights of one (`--from`), and the weights for entities are new.

    vector of the first token of a name → linear → · vectors of the entities of the batch    = dEA, which entity it is

Where this differs from the paper: residual sums and norms stand in its code, not in its formulas, and no GELU follows
W_t and W_e there. The first K layer has attention over entities, the last gives none, for nothing reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.layers.attention import Mask, SelfAttention, padding_mask
from mallang.layers.bidirectional import Embeddings, MaskedLMHead, make_block, missing, normal_weights, own_text
from mallang.layers.checks import check_sizes
from mallang.layers.dropout import Dropout
from mallang.layers.encoded import Encoded, EncoderDims
from mallang.layers.feedforward import FeedForward
from mallang.layers.frozen import Frozen
from mallang.layers.linear import Linear
from mallang.layers.pooling import masked_mean
from mallang.text.vocabulary import Vocabulary

__all__ = ["ERNIE", "SIZES", "Config", "Model"]

TASK = "mention_classification"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The shape of an ERNIE; the defaults are those of the paper, on BERT-base."""

    text_layers: int = 6
    """Blocks of the T-Encoder, which reads tokens alone."""
    knowledge_layers: int = 6
    """Blocks of the K-Encoder, which reads entities too."""
    dim: int = 768
    """Size of the hidden vectors (d_model)."""
    heads: int = 12
    """Attention heads of every layer."""
    hidden_dim: int | None = None
    """Hidden size of the feed-forward networks, in which tokens and entities meet; default: 4 · dim."""
    entity_dim: int = 100
    """Size of the vectors of entities, that of the given run."""
    entity_heads: int = 4
    """Attention heads over entities."""
    max_length: int = 512
    """The maximum number of tokens of a text, with [CLS] and [SEP]."""
    token_types: int = 2
    """The number of segments that have a vector."""
    dropout: float = 0.1
    """Dropout after each sublayer and after the embedding."""
    attention_dropout: float = 0.1
    """Dropout on attention weights."""
    norm_epsilon: float = 1e-12
    """What is added to the variance in a layer normalization."""
    pooling: Literal["pooler", "mean"] = "pooler"
    """The vector of a text: tanh of a linear layer over [CLS]; or the mean of all tokens, without that layer."""
    pretraining_heads: Literal["none", "masked-lm", "both"] = "none"
    """The head that predicts masked tokens; both: also the one that tells whether the second text follows."""
    predict_entities: bool = False
    """Whether there is the head of the dEA, which predicts the entity that a token names."""

    def __post_init__(self) -> None:
        sizes = "text_layers", "knowledge_layers", "dim", "heads", "hidden_dim", "entity_dim", "entity_heads"
        check_sizes(self, *sizes, "max_length", "token_types", dropouts=("dropout", "attention_dropout"))
        for dim, heads in (("dim", "heads"), ("entity_dim", "entity_heads")):
            if getattr(self, dim) % getattr(self, heads):
                found = f"{dim} {getattr(self, dim)} cannot be divided among {getattr(self, heads)} {heads}"
                raise ValueError(f"{found}; change one of them")
        if self.norm_epsilon <= 0:
            raise ValueError(f"norm_epsilon must be above 0, but is {self.norm_epsilon}")
        if self.pretraining_heads == "both" and self.pooling != "pooler":
            raise ValueError("pretraining_heads = 'both' needs pooling = 'pooler'")


class Entities(NamedTuple):
    """The entities of a batch of texts: their vectors, the position of the token of each, and whether there is one."""

    vectors: Float[Tensor, "batch entities entity_dim"]
    places: Int[Tensor, "batch entities"]
    present: Bool[Tensor, "batch entities"]


class ERNIE(nn.Module):
    """T-Encoder, K-Encoder, pooler, and the heads of the pre-training; the vectors of entities are given."""

    reads_source = False
    reads_segments = True
    marks = ("cls", "sep", "mask")

    def __init__(self, config: Config, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.graph: Frozen | None = None
        self.embedding = Embeddings(
            len(vocabulary), config.dim, config.max_length, token_types=config.token_types,
            epsilon=config.norm_epsilon, dropout=config.dropout,
        )  # fmt: skip
        text = (
            make_block(
                config.dim, config.heads, config.hidden_dim, activation="gelu", dropout=config.dropout,
                attention_dropout=config.attention_dropout, epsilon=config.norm_epsilon,
            ) for _ in range(config.text_layers)
        )  # fmt: skip
        last = config.knowledge_layers - 1
        knowledge = (KnowledgeBlock(config, is_last=number == last) for number in range(config.knowledge_layers))
        self.encoder = nn.ModuleList([*text, *knowledge])  # the names of BERT's blocks, so that its weights fit
        self.pooler = Linear(config.dim, config.dim) if config.pooling == "pooler" else None
        self.masked_lm = None
        if config.pretraining_heads != "none":
            self.masked_lm = MaskedLMHead(config.dim, self.embedding.words, "gelu", config.norm_epsilon)
        self.next_sentence = Linear(config.dim, 2) if config.pretraining_heads == "both" else None
        self.entity_head = Linear(config.dim, config.entity_dim) if config.predict_entities else None
        normal_weights(self)

    def forward(self, batch: Batch) -> Float[Tensor, "batch time dim"]:
        """The vector of every token after the last block."""
        return self.layers_of(batch)[-1]

    def layers_of(self, batch: Batch) -> list[Float[Tensor, "batch time dim"]]:
        """The vectors of the tokens before the first block and after every block."""
        layers, mask = [self.embedding(batch.tokens, batch.token_types, batch.segments)], own_text(batch)
        entities = self.entities_of(batch)
        for number, block in enumerate(self.encoder):
            if number < self.config.text_layers:
                layers.append(block(layers[-1], mask))
            else:
                tokens, entities = block(layers[-1], mask, entities)
                layers.append(tokens)
        return layers

    def entities_of(self, batch: Batch) -> Entities | None:
        """The entities that a batch names, with their given vectors; None where it names none."""
        if batch.entities is None or batch.entity_places is None:
            return None
        return Entities(self.entity_vectors(batch.entities), batch.entity_places.clamp(min=0), batch.entities >= 0)

    def entity_vectors(self, entities: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape entity_dim"]:
        """The given vectors of entities; where there is none any vector."""
        if self.graph is None:
            missing(self, "graph", "a batch with entities needs given.entities")
        vectors: Tensor = self.graph.module.entities(entities.clamp(min=0))
        return vectors

    def give_graph(self, graph: nn.Module) -> None:
        """Take the vectors of entities from a trained model of a graph, which stays as it is."""
        self.graph = Frozen(graph)

    @property
    def entity_dim(self) -> int:
        """The size of the vectors of entities that it reads."""
        return self.config.entity_dim

    def encode(self, batch: Batch) -> Encoded:
        """The vectors of the tokens after every block, and one vector of the text."""
        layers = self.layers_of(batch)[1:]
        return Encoded(layers, batch.mask, self.text_vector(layers[-1], batch.mask))

    def text_vector(
        self, hidden: Float[Tensor, "batch time dim"], mask: Bool[Tensor, "batch time"]
    ) -> Float[Tensor, "batch dim"]:
        """One vector of each text, from those of its tokens after the last layer."""
        return masked_mean(hidden, mask) if self.pooler is None else self.pooler(hidden[:, 0]).tanh()

    def output(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch words"]:
        """One logit per word, for what a masked token was."""
        if self.masked_lm is None:
            missing(self, "masked LM head", "pretraining_heads=masked-lm")
        logits: Tensor = self.masked_lm(hidden)
        return logits

    def next_sentence_logits(self, hidden: Float[Tensor, "batch time dim"]) -> Float[Tensor, "batch 2"]:
        """Two logits per pair of texts: the second follows the first, it does not."""
        if self.next_sentence is None or self.pooler is None:
            missing(self, "next sentence head", "pretraining_heads=both")
        logits: Tensor = self.next_sentence(self.pooler(hidden[:, 0]).tanh())
        return logits

    def entity_logits(
        self, hidden: Float[Tensor, "*batch dim"], candidates: Int[Tensor, " distinct"]
    ) -> Float[Tensor, "*batch distinct"]:
        """One logit per candidate, for the entity that a token names: linear(w) · e (equation 6)."""
        if self.entity_head is None:
            missing(self, "head for entities", "predict_entities=true")
        asked: Tensor = self.entity_head(hidden)
        return asked.float() @ self.entity_vectors(candidates).float().T

    def encoder_dims(self) -> EncoderDims:
        """The sizes of what `encode` gives."""
        return EncoderDims(pooled=self.config.dim, token=self.config.dim, layers=len(self.encoder))

    def layer_groups(self) -> Sequence[Sequence[nn.Module]]:
        """The embedding, and the blocks; the heads go with the highest."""
        heads = [self.pooler, self.masked_lm, self.next_sentence, self.entity_head]
        *lower, last = self.encoder
        return [[self.embedding], *([block] for block in lower), [last, *(each for each in heads if each is not None)]]

    def input_embedding(self) -> nn.Embedding:
        """The word embeddings."""
        return self.embedding.words

    @property
    def objectives(self) -> tuple[str, ...]:
        """What its heads were built for: "masked-lm", "sentence-pairs", "entities"."""
        heads = {"none": (), "masked-lm": ("masked-lm",), "both": ("masked-lm", "sentence-pairs")}
        return (*heads[self.config.pretraining_heads], *(("entities",) if self.config.predict_entities else ()))

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens of a text."""
        return self.config.max_length


class KnowledgeBlock(nn.Module):
    """One layer of the K-Encoder: attention over tokens, attention over entities, and their fusion.

    The parts for tokens are those of a block of BERT, and have their names.
    """

    is_recomputable = True

    def __init__(self, config: Config, *, is_last: bool) -> None:
        super().__init__()
        share, own = config.dim // config.heads, config.entity_dim // config.entity_heads
        hidden_dim = config.hidden_dim or 4 * config.dim
        self.self_attention = SelfAttention(config.dim, config.heads, share, share, config.attention_dropout)
        self.self_norm = nn.LayerNorm(config.dim, config.norm_epsilon)
        self.feedforward = FeedForward(config.dim, hidden_dim, "gelu")
        self.feedforward_norm = nn.LayerNorm(config.dim, config.norm_epsilon)
        self.dropout = Dropout(config.dropout)
        self.entity_attention = SelfAttention(
            config.entity_dim, config.entity_heads, own, own, config.attention_dropout
        )
        self.entity_norm = nn.LayerNorm(config.entity_dim, config.norm_epsilon)
        self.entity_up = Linear(config.entity_dim, hidden_dim, bias=False)  # b̃ is that of the tokens
        self.entity_down = None if is_last else Linear(hidden_dim, config.entity_dim)
        self.entity_output_norm = None if is_last else nn.LayerNorm(config.entity_dim, config.norm_epsilon)

    def forward(
        self, x: Float[Tensor, "batch time dim"], mask: Mask, entities: Entities | None
    ) -> tuple[Float[Tensor, "batch time dim"], Entities | None]:
        """The new tokens and the new entities."""
        x = self.self_norm(x + self.dropout(self.self_attention(x, mask)[0]))
        if entities is None:
            return self.feedforward_norm(x + self.dropout(self.feedforward(x))), None
        attended = self.entity_attention(entities.vectors, self.seen(entities))[0]
        vectors = self.entity_norm(entities.vectors + self.dropout(attended))
        hidden = self.fuse(x, entities._replace(vectors=vectors))
        x = self.feedforward_norm(x + self.dropout(self.feedforward.down_proj(hidden)))
        if self.entity_down is None or self.entity_output_norm is None:
            return x, None
        change = self.entity_down(hidden.gather(1, spread(entities.places, hidden.shape[-1])))
        return x, entities._replace(vectors=self.entity_output_norm(vectors + self.dropout(change)))

    def seen(self, entities: Entities) -> Mask:
        """The mask in which entities see those of their text; where there are none, places see what nothing reads."""
        return padding_mask(entities.present | ~entities.present.any(dim=1, keepdim=True))

    def fuse(self, x: Float[Tensor, "batch time dim"], entities: Entities) -> Float[Tensor, "batch time hidden_dim"]:
        """GELU(W̃_t w̃ + W̃_e ẽ + b̃), where W̃_e ẽ is added at the token that the entity belongs to."""
        raised: Tensor = self.feedforward.up_proj(x)
        added = self.entity_up(entities.vectors).to(raised.dtype) * entities.present[:, :, None]
        raised = raised.scatter_add(1, spread(entities.places, raised.shape[-1]), added.to(raised.dtype))
        return self.feedforward.activation(raised)


def spread(places: Int[Tensor, "batch entities"], dim: int) -> Int[Tensor, "batch entities {dim}"]:
    """Each position once for every number of a vector."""
    return places[:, :, None].expand(-1, -1, dim)


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"text_layers": 1, "knowledge_layers": 2, "dim": 16, "heads": 2, "entity_dim": 8, "entity_heads": 2},
    "base": {},
    "minilm": {"text_layers": 3, "knowledge_layers": 3, "dim": 384},
}
"""Named shapes, as changes to the defaults: the paper's, and one that starts from the six layers of MiniLM."""

Model = ERNIE
