"""How weights begin where a paper says nothing else (Glorot and Bengio 2010)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import parametrize


def xavier(model: nn.Module) -> None:
    """Xavier for every matrix, zero for its bias, dim^-0.5 for embeddings, so that √dim times them is of size one."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)


@torch.no_grad()
def torch_defaults(model: nn.Module) -> None:
    """Every layer as torch initializes it, whatever the model had chosen: to see what its choice is worth.

    Linear and recurrent layers are uniform with a bound of 1/√inputs or 1/√dim, embeddings are N(0, 1), norms are ones
    and zeros. Weights that are no layer of torch (a bias of the output, the vector of an attention score) stay.
    """
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            nn.RNNBase.reset_parameters(module)  # not the version that our recurrent layers override it with
        elif isinstance(module, nn.Linear) and parametrize.is_parametrized(module, "weight"):
            plain = nn.Linear(module.in_features, module.out_features).to(module.bias)
            module.weight = plain.weight.detach()  # the parametrization takes it apart
            module.bias.copy_(plain.bias)
        elif isinstance(module, nn.Linear | nn.Embedding | nn.LayerNorm | nn.Conv1d):
            module.reset_parameters()
