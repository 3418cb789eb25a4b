"""A capture that fails leaves the GPU as it was."""

import gc

import pytest
import torch

from mallang.decoding import capture
from mallang.decoding.capture import without_garbage_collection


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_random_numbers_go_on_after_a_capture_that_failed() -> None:
    numbers = torch.zeros(4, device="cuda")
    pool = capture.Pool()
    drawing = capture.Replay(lambda: numbers.copy_(torch.rand(4, device="cuda")), pool)

    def drawn(seed: int) -> list[float]:
        torch.cuda.manual_seed(seed)
        drawing()
        return numbers.tolist()

    first = [drawn(seed) for seed in (1, 1, 2)][1:]  # the first one is not captured yet
    with pytest.raises(capture.NotStaticError):
        capture.capture(lambda: numbers.add_(float(numbers.sum())), capture.Pool())
    torch.cuda.manual_seed(1)
    plain = torch.rand(4, device="cuda")
    torch.cuda.manual_seed(1)
    assert torch.equal(torch.rand(4, device="cuda"), plain)
    assert [drawn(seed) for seed in (1, 2)] == first, "graphs captured before still follow the seed"


@pytest.mark.parametrize("enabled", [True, False])
def test_a_capture_is_free_of_garbage_collection(enabled):
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ValueError, match="inside"), without_garbage_collection():
            assert not gc.isenabled()
            raise ValueError("inside")
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("is_turned", [(False, False), (False, True), (True, False), (True, True)])
def test_tensors_are_copied_whatever_their_strides(is_turned: tuple[bool, bool]) -> None:
    held, new = (torch.randn(3, 4).t() if turned else torch.randn(4, 3) for turned in is_turned)
    expected = new.clone()
    capture.write([held], [new])
    assert torch.equal(held, expected)
