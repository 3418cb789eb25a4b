import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.layers.attention import KeyValue, SelfAttention
from mallang.layers.cache import DynamicCache, State, map_nest, rows_of


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


def read(layer, x, state, window):
    """One step of a stack that is a single layer of self-attention."""
    layers, mask = state.moving.enter(x.shape[1], window)
    attended, after = layer(x, mask, layers[0])
    return attended, State(state.fixed, state.moving.leave([after]))


@settings(deadline=None, max_examples=25)
@given(
    data=st.data(),
    sentences=st.integers(1, 3),
    width=st.integers(1, 3),
    prompt=st.integers(1, 3),
    window=st.none() | st.integers(0, 4),
    align=st.sampled_from([1, 4]),
)
@torch.no_grad()
def test_reserved_slots_give_what_a_growing_past_gives(data, sentences, width, prompt, window, align):
    """Whatever is reordered, dropped and enlarged on the way, and whether attention attends to all slots or not."""
    layer = SelfAttention(12, heads=3, key_dim=3, value_dim=5)
    nothing = KeyValue(torch.zeros(sentences, 3, 0, 3), torch.zeros(sentences, 3, 0, 5))
    _, growing = read(
        layer, torch.randn(sentences, prompt, 12), State(torch.arange(sentences), DynamicCache([nothing])), window
    )
    roomy, growing = growing.reserve(2, width, align), growing.widen(width)
    exact = data.draw(st.booleans())
    for step in range(1, 6):
        if step == 3:
            roomy = roomy.enlarge(5)
        if exact:
            roomy = roomy.look(step)
        x = torch.randn(sentences * width, 1, 12)
        memory = [part.data_ptr() for part in roomy.moving.layers[0]]
        expected, growing = read(layer, x, growing, window)
        found, roomy = read(layer, x, roomy, window)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        parents = st.lists(st.integers(0, width - 1), min_size=width, max_size=width)
        rows = torch.tensor([i * width + parent for i in range(sentences) for parent in data.draw(parents)])
        growing, roomy = growing.select(rows), roomy.select(rows)
        assert memory == [part.data_ptr() for part in roomy.moving.layers[0]], "nothing was moved"
        if sentences > 1 and data.draw(st.booleans()):
            kept = torch.tensor(data.draw(st.lists(st.integers(0, sentences - 1), min_size=1, max_size=3, unique=True)))
            rows = (kept[:, None] * width + torch.arange(width)).flatten()
            growing, roomy, sentences = growing.keep(kept, rows), roomy.keep(kept, rows), len(kept)
            assert torch.equal(growing.fixed, roomy.fixed)


def test_what_has_no_room_needs_none():
    state = example().reserve(4, 2)
    assert state.moving[0][0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert state.enlarge(8).look(3).moving[0][0] is state.moving[0][0]


def test_a_room_takes_one_token_a_step():
    nothing = KeyValue(torch.zeros(2, 1, 1, 4), torch.zeros(2, 1, 1, 4))
    room = State(None, DynamicCache([nothing])).reserve(3, 2).moving
    assert room.most == 1 + 3
    with pytest.raises(ValueError, match="one token, not 2"):
        room.enter(2, None)


def test_rows_keep_the_order_of_their_axes():
    tensor = torch.arange(24).view(2, 3, 4).transpose(1, 2)
    taken = rows_of(tensor, torch.tensor([1, 1, 0]))
    assert torch.equal(taken, tensor[[1, 1, 0]]) and taken.transpose(1, 2).is_contiguous()


def test_nests_may_hold_named_tuples_and_dataclasses():
    pair = KeyValue(torch.ones(1), torch.zeros(1))
    doubled = map_nest({"past": DynamicCache([pair]), "n": 3}, lambda tensor: tensor * 2)
    assert isinstance(doubled["past"].layers[0], KeyValue) and doubled["past"].layers[0].keys.item() == 2
    assert doubled["n"] == 3
