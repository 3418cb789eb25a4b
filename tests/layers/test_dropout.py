"""Dropout drops as often as it is told, keeps the mean, and depends on the seed alone."""

import pytest
import torch

from mallang.layers.dropout import Dropout


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9])
def test_the_share_is_met_and_the_mean_kept(share):
    torch.manual_seed(1)
    x = torch.ones(300, 1001)
    dropped = Dropout(share)(x)
    found = (dropped == 0).float().mean().item()
    assert found == pytest.approx(share, abs=5 * (share * (1 - share) / x.numel()) ** 0.5 + 1 / 65_536)
    assert dropped.mean().item() == pytest.approx(1, abs=5 * (share / (1 - share) / x.numel()) ** 0.5)
    assert len(dropped.unique()) == 2


def test_the_seed_decides_and_every_place_differs():
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(Dropout(0.5)(torch.ones(64, 64)))
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
    # Four neighbors are decided by one number: they must not agree more often than by chance.
    kept = masks[0].flatten().bool()
    for away in range(1, 8):
        assert (kept[away:] == kept[:-away]).float().mean() == pytest.approx(0.5, abs=0.05)


def test_gradients_flow_where_values_were_kept():
    torch.manual_seed(3)
    x = torch.randn(5, 7, 3, requires_grad=True)
    dropped = Dropout(0.4)(x)
    dropped.sum().backward()
    torch.testing.assert_close(x.grad, dropped.detach() / x.detach())


def test_it_does_nothing_outside_training():
    x = torch.randn(4, 4)
    assert Dropout(0.9).eval()(x) is x
    assert Dropout(0.0)(x) is x
