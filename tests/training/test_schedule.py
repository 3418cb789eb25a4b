"""Learning rates against their formulas."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallang.training.schedule import Config, Plateau, multiplier


@given(st.integers(1, 20000), st.integers(1, 5000))
def test_noam_is_the_papers_formula(step, warmup):
    expected = 512**-0.5 * min(step**-0.5, step * warmup**-1.5)
    assert multiplier(Config(name="noam", warmup=warmup), step, total=1, dim=512) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["inverse-sqrt", "linear", "cosine", "constant", "plateau"])
@given(step=st.integers(1, 1000))
def test_warm_up_is_linear_and_peaks_at_one(name, step):
    config = Config(name=name, warmup=400)
    value = multiplier(config, step, total=1000, dim=8)
    assert value == step / 400 if step <= 400 else value <= 1.0


def test_ends():
    at = lambda name, step, **more: multiplier(Config(name=name, warmup=100, **more), step, total=1100, dim=8)  # noqa: E731
    assert at("linear", 600) == pytest.approx(0.5) and at("linear", 1100) == 0
    assert at("cosine", 600) == pytest.approx(0.5) and at("cosine", 1100) == pytest.approx(0, abs=1e-12)
    assert at("cosine", 1100, floor=0.1) == pytest.approx(0.1) and at("linear", 1100, floor=0.1) == pytest.approx(0.1)
    assert at("inverse-sqrt", 400) == pytest.approx(0.5)
    assert at("constant", 9999) == 1.0
    assert multiplier(Config(name="inverse-sqrt", warmup=0), 4, total=9, dim=8) == pytest.approx(0.5)


@given(st.integers(0, 900), st.integers(1, 1000))
def test_a_rate_is_held_then_falls_as_it_would_in_the_steps_that_are_left(held, step):
    for name, floor in (("linear", 0.0), ("cosine", 0.1), ("exponential", 0.01)):
        found = multiplier(Config(name=name, warmup=0, hold=held / 1000, floor=floor), step, total=1000, dim=8)
        if step <= held:
            assert found == 1.0
        else:
            left = multiplier(Config(name=name, warmup=0, floor=floor), step - held, total=1000 - held, dim=8)
            assert found == pytest.approx(left)


def test_exponential_divides_by_the_same_number_in_every_epoch():
    """Zaremba's medium model: 39 epochs, from the seventh on the rate is divided by 1.2 in each."""
    config = Config(name="exponential", warmup=0, hold=6 / 39, floor=1.2**-33)
    for epoch in range(1, 40):
        value = multiplier(config, epoch * 100, total=3900, dim=8)
        assert value == pytest.approx(1.2 ** -max(0, epoch - 6))


@pytest.mark.parametrize(
    "options", [{"name": "constant", "hold": 0.5}, {"name": "linear", "hold": 1.0}, {"name": "exponential"}]
)
def test_a_hold_that_does_nothing_and_a_fall_to_nowhere_are_refused(options):
    with pytest.raises(ValueError, match="hold|floor"):
        Config(**options)


def test_plateau_waits_falls_and_recovers_its_patience():
    config = Config(name="plateau", factor=0.5, patience=2, floor=0.2)
    state = Plateau()
    seen = []
    for improved in (True, False, False, False, True, False, False, False, False):
        state = state.after(improved, config)
        seen.append(state.scale)
    assert seen == [1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.2]
    assert Plateau().after(False, Config(name="cosine")).scale == 1.0


@pytest.mark.parametrize(
    "wrong", [{"warmup": -1}, {"name": "noam", "warmup": 0}, {"floor": 1.5}, {"factor": 1.0}, {"patience": 0}]
)
def test_impossible_values_are_refused(wrong):
    with pytest.raises(ValueError):
        Config(**wrong)
    assert math.isfinite(multiplier(Config(), 1, total=1, dim=1))
