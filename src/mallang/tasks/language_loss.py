"""The loss of a language model on the texts that another task reads: the auxiliary objective of GPT-1.

Improving Language Understanding by Generative Pre-Training (Radford et al. 2018, section 3.2): L₃ = L₂ + λ · L₁.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from mallang.data.batch import Batch
from mallang.decoding.contract import Autoregressive
from mallang.errors import UserError
from mallang.layers.encoded import Encoded
from mallang.layers.head import cross_entropy_of
from mallang.text.vocabulary import PAD


def check_language_model(encoder: Any) -> None:
    """Refuse an encoder that predicts no next token from its own vectors."""
    if encoder.reads_source or not isinstance(encoder, Autoregressive):
        raise UserError(
            f"task.lm_weight needs an encoder that is a language model, and {type(encoder).__name__} is none",
            todo="task.lm_weight=0, or model.name=gpt",
        )


def language_loss(model: Any, encoded: Encoded, batch: Batch) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The summed cross-entropy of every token of a batch but the first of each row, and the same without gradients.

    Tokens are predicted from the last layer of the encoder, which is what `output` projects.
    """
    labels = pad(torch.where(batch.mask, batch.tokens, PAD)[:, 1:], (0, 1), value=PAD).flatten()
    hidden = encoded.layers[-1].flatten(0, 1)
    if not hidden.is_cuda:  # on a GPU, selecting the labels would synchronize with the host
        asked = labels != PAD
        hidden, labels = hidden[asked], labels[asked]
    loss, nll = cross_entropy_of(model, hidden, labels)
    return loss, nll.detach()
