"""Weights by name: tied ones are kept once, and what does not fit is named."""

import pytest
import torch

from mallang.errors import UserError
from mallang.runs.weights import own_weights, set_weights


def test_shared_weights_are_kept_once_and_come_back_shared():
    def tied():
        model = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
        model[1].weight = model[0].weight
        return model

    one, other = tied(), tied()
    assert list(own_weights(one)) == ["0.weight"]
    set_weights(other, own_weights(one), "here")
    assert torch.equal(other[1].weight, one[0].weight) and other[0].weight is other[1].weight
    with pytest.raises(UserError, match="0.weight is 3×3 in the file but 4×4 in the model"):
        set_weights(other, {"0.weight": torch.zeros(3, 3)}, "here")
    with pytest.raises(UserError, match="1.bias is 4 in the file but missing"):
        set_weights(other, {**own_weights(one), "1.bias": torch.zeros(4)}, "here")
