"""How weights begin where a paper says nothing else (Glorot and Bengio 2010)."""

from __future__ import annotations

from torch import nn


def xavier(model: nn.Module) -> None:
    """Xavier for every matrix, zero for its bias, dim^-0.5 for embeddings, so that √dim times them is of size one."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
