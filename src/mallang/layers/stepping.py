"""An LSTM stack in a Python loop over time, for input feeding: the output of attention is an input of the next step.

A recurrent layer alone runs in one call of cuDNN. Here the cost of a step is its kernel launches, so all that does not
depend on the state is computed before the loop, and the gradients of the weights after it (kernels/repeated_matmul.py).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mallang.kernels.recurrent import Memory, lstm_cell
from mallang.kernels.repeated_matmul import RepeatedMatmul
from mallang.layers.recurrent import Recurrent


class LSTMSteps:
    """The steps of an LSTM stack whose inputs are words, all known in advance, and a vector that each step is fed.

    The first layer's W is [W_word W_fed]: W_word is applied to the words of all steps at once.
    """

    def __init__(self, stack: Recurrent, words: Float[Tensor, "rows time word_dim"], memory: Memory) -> None:
        if memory.cell is None:
            raise ValueError("LSTMSteps needs the state of an LSTM, but this one has no cell (GRU or Elman)")
        weights = stack.weights()
        self.hidden, self.cell = list(memory.hidden.unbind(1)), list(memory.cell.unbind(1))
        self.from_words = F.linear(words, weights[0][:, : words.shape[2]], weights[2]).unbind(1)
        self.from_fed = RepeatedMatmul(weights[0][:, words.shape[2] :].t())
        self.from_below = [RepeatedMatmul(w.t(), b) for w, b in zip(weights[4::4], weights[6::4], strict=True)]
        self.from_state = [RepeatedMatmul(u.t(), d) for u, d in zip(weights[1::4], weights[3::4], strict=True)]
        self.between = stack.between

    def __call__(self, step: int, fed: Float[Tensor, "rows fed_dim"]) -> Float[Tensor, "rows dim"]:
        """The hidden state of the last layer after this word."""
        gates = self.from_words[step] + self.from_fed(fed)
        for layer, own in enumerate(self.from_state):
            if layer > 0:
                gates = self.from_below[layer - 1](self.between(self.hidden[layer - 1]))
            self.hidden[layer], self.cell[layer] = lstm_cell(gates, own(self.hidden[layer]), self.cell[layer])
        return self.hidden[-1]

    @property
    def memory(self) -> Memory:
        """The state after the last step."""
        return Memory(torch.stack(self.hidden, dim=1), torch.stack(self.cell, dim=1))
