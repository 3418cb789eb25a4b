"""Xavier initialization (Glorot and Bengio 2010), for models whose paper specifies nothing else; torch's defaults."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils import parametrize

from mallang.layers.recurrent import Reader


def xavier(model: nn.Module) -> None:
    """Xavier-uniform matrices, zero biases, embeddings with standard deviation dim^-0.5: √dim scales them to one."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)


@torch.no_grad()
def torch_defaults(model: nn.Module) -> None:
    """PyTorch's default initialization for every layer, as an ablation of the model's own.

    Linear and recurrent layers are uniform with a bound of 1/√inputs or 1/√dim, embeddings are N(0, 1), norms are ones
    and zeros. Parameters outside torch's layers (an output bias, the vector of an attention score) are unchanged.
    """
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            nn.RNNBase.reset_parameters(module)  # not the version that our recurrent layers override it with
            if isinstance(module, Reader):
                module.reset_candidate_biases()  # or padding would have an effect
        elif isinstance(module, nn.Linear) and parametrize.is_parametrized(module, "weight"):
            plain = nn.Linear(module.in_features, module.out_features).to(module.bias)
            module.weight = plain.weight.detach()  # the parametrization splits it into its parts
            module.bias.copy_(plain.bias)
        elif isinstance(module, nn.Linear | nn.Embedding | nn.LayerNorm | nn.Conv1d):
            module.reset_parameters()
