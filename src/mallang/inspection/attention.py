"""Attention maps of an output: `forward` runs again on it, and the weights of every layer are recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor

from mallang import notebook
from mallang.data.batch import Batch
from mallang.decoding.contract import inference
from mallang.layers.attention import record_attention
from mallang.text.vocabulary import Vocabulary

Side = Literal["source", "said", "read"]
"""The source; the output tokens at the step that generates each; or at the next step, which reads it."""


@dataclass(frozen=True)
class AttentionMap:
    """The attention of one layer in one sentence, without padding."""

    name: str
    """The layer: "encoder.0.self", "decoder.1.cross"."""
    weights: Float[Tensor, "heads query key"]
    """Attention weights of every head; each row sums to one."""
    queries: tuple[str, ...]
    """The query tokens. In a decoder the token to be predicted, if the batch has labels, else the token just read."""
    keys: tuple[str, ...]
    """The key tokens."""

    def _repr_html_(self) -> str:
        """In a notebook: every head as a table of colors."""
        heads = (
            notebook.note(f"head {number}") + notebook.heat(self.queries, self.keys, weights.tolist())
            for number, weights in enumerate(self.weights, start=1)
        )
        row = "".join(f'<div style="display:inline-block;margin-right:1em">{head}</div>' for head in heads)
        return notebook.block(self.name, row)


def attention_maps(model: Any, batch: Batch) -> list[dict[str, AttentionMap]]:
    """The attention maps of a model over a batch of sources and outputs: for every sentence, by layer name.

    In layers named `encoder…` the source attends to itself, in `….cross` the tokens attend to the source, in all others
    the tokens attend to tokens.
    """
    with inference(model), record_attention(model) as recorded:
        model(batch)
    recorded = {name: weights.float().cpu() for name, weights in recorded.items()}
    found = []
    for row in range(len(batch)):
        tokens = spell(model.vocabulary, batch.tokens, batch.lengths, row)
        said = tokens if batch.labels is None else spell(model.vocabulary, batch.labels, batch.lengths, row)
        source: tuple[str, ...] = ()
        if batch.source is not None and batch.source_lengths is not None:
            source = spell(model.source_vocabulary, batch.source, batch.source_lengths, row)
        maps = {}
        for name, weights in recorded.items():
            queries, keys = sides(name, source, tokens, said)
            maps[name] = AttentionMap(name, weights[row, :, : len(queries), : len(keys)], queries, keys)
        found.append(maps)
    return found


def sides(
    name: str, source: Sequence[str], tokens: Sequence[str], said: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The query tokens and the key tokens of the layer of that name."""
    known: dict[Side, Sequence[str]] = {"source": source, "said": said, "read": tokens}
    queries, keys = sides_of(name, has_source=bool(source))
    return tuple(known[queries]), tuple(known[keys])


def sides_of(name: str, has_source: bool = True) -> tuple[Side, Side]:
    """The side of the queries and the side of the keys in the layer of that name."""
    layer = name.split(":")[0]
    if has_source and layer.startswith("encoder"):
        return "source", "source"
    return "said", "source" if layer.endswith("cross") else "read"


def spell(vocabulary: Vocabulary, ids: Tensor, lengths: Tensor, row: int) -> tuple[str, ...]:
    """The tokens of one row, without padding."""
    return tuple(vocabulary.tokens[number] for number in ids[row, : int(lengths[row])].tolist())
