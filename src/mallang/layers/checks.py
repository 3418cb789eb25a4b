"""Checks of model configurations: sizes below 1, dropout outside [0, 1), weights that cannot be tied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mallang.errors import UserError
from mallang.text.vocabulary import Vocabulary


def check_sizes(config: Any, *sizes: str, dropouts: Sequence[str] = ("dropout",)) -> None:
    """Refuse a size below 1, where one is given, and a dropout outside [0, 1)."""
    for name in sizes:
        if (value := getattr(config, name)) is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, but is {value}")
    for name in dropouts:
        if not 0 <= (share := getattr(config, name)) < 1:
            raise ValueError(f"{name} must be at least 0 and less than 1, but is {share}")


def check_alike(config: Any, output: str) -> None:
    """Refuse weight tying of embeddings and output where the size named `output` is not embedding_dim."""
    if config.tie_weights != "none" and config.embedding_dim != getattr(config, output):
        raise ValueError(
            f"embeddings and output can be tied only if their sizes are equal, but embedding_dim is "
            f"{config.embedding_dim} and {output} {getattr(config, output)}"
        )


def check_shared(share: str, vocabulary: Vocabulary, source_vocabulary: Vocabulary) -> None:
    """Refuse weight tying across both sides where each side has its own vocabulary."""
    if share == "all" and vocabulary != source_vocabulary:
        raise UserError(
            'model.tie_weights = "all" needs one vocabulary, but the source and the target have their own '
            f"({len(source_vocabulary)} and {len(vocabulary)} tokens)",
            todo='learn one tokenizer for both sides, or set model.tie_weights = "target"',
        )


def check_tied(config: Any) -> None:
    """Refuse weight tying of embedding and output where their vectors differ in size."""
    if config.tie_weights and config.dim != config.embedding_dim:
        raise ValueError(
            f"tie_weights needs embedding and hidden vectors of one size, but embedding_dim is {config.embedding_dim} "
            f"and dim {config.dim}"
        )
