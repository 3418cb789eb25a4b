import torch

from mallang.layers.cache import State


def example():
    fixed = {"memory": [torch.arange(3)], "note": None}
    return State(fixed, [(torch.arange(6), {"hidden": torch.arange(12).view(6, 2)}), 4])


def test_select_reorders_the_hypotheses_alone():
    state = example().select(torch.tensor([5, 5, 0]))
    assert state.moving[0][0].tolist() == [5, 5, 0]
    assert state.moving[0][1]["hidden"].tolist() == [[10, 11], [10, 11], [0, 1]]
    assert state.moving[1] == 4
    assert state.fixed["memory"][0].tolist() == [0, 1, 2]


def test_keep_drops_sentences_and_their_hypotheses():
    state = example().keep(torch.tensor([0, 2]), torch.tensor([0, 1, 4, 5]))
    assert state.fixed["memory"][0].tolist() == [0, 2] and state.fixed["note"] is None
    assert state.moving[0][0].tolist() == [0, 1, 4, 5]


def test_widen_lays_the_copies_of_a_hypothesis_together():
    assert example().widen(2).moving[0][0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_a_copy_is_independent():
    state = example()
    state.copy().moving[0][0].zero_()
    assert state.moving[0][0].tolist() == [0, 1, 2, 3, 4, 5]
