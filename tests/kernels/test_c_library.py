"""The kernels in C against what torch computes, and how they come to be on a machine."""

from __future__ import annotations

import ctypes
import math
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from mallang.kernels import c_attention, c_library, c_matmul
from mallang.kernels.int8 import PlainMatrix, quantize_rows
from mallang.kernels.log_softmax import log_softmax
from mallang.layers.attention import SelfAttention, padding_mask
from mallang.layers.cache import DynamicCache, StaticCache

needs_kernels = pytest.mark.skipif(c_library.library() is None, reason="no compiler, or not such a processor")
few = st.integers(1, 7)
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size, one thread or two."""
    monkeypatch.setattr(c_library, "threads", lambda multiplications: request.param)


@needs_kernels
@pytest.mark.usefixtures("threads")
@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(0, 20), inputs=st.integers(1, 150), outputs=st.integers(1, 150), seed=seeds, has_bias=st.booleans()
)
def test_an_integer_product_is_that_of_the_formula(
    rows: int, inputs: int, outputs: int, seed: int, has_bias: bool
) -> None:
    torch.manual_seed(seed)
    x, weight = 10 * torch.randn(rows, inputs), torch.randn(outputs, inputs)
    bias = torch.randn(outputs) if has_bias else None
    integers, scale = quantize_rows(weight)
    found, wanted = (
        kernel(integers, scale.flatten()).multiply(x, bias) for kernel in (c_matmul.Int8Matrix, PlainMatrix)
    )  # fmt: skip
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-5)


@needs_kernels
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sums_do_not_overflow(sign: int) -> None:
    largest = torch.full((3, 4096), 127, dtype=torch.int8)
    x = sign * torch.ones(2, 4096)
    found = c_matmul.Int8Matrix(largest, torch.ones(3)).multiply(x)
    torch.testing.assert_close(found, torch.full((2, 3), sign * 4096 * 127.0))


@needs_kernels
def test_a_row_is_the_same_bit_by_bit_among_any_others() -> None:
    torch.manual_seed(1)
    matrix = c_matmul.Int8Matrix(*(part.squeeze(1) for part in quantize_rows(torch.randn(70, 33))))
    x = torch.randn(13, 33)
    for count in range(1, 14):
        assert torch.equal(matrix.multiply(x)[:count], matrix.multiply(x[:count]))


def by_the_formula(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    scores = queries.double() @ keys.double().transpose(2, 3) / math.sqrt(queries.shape[3])
    context = (scores if mask is None else scores + mask).softmax(dim=3) @ values.double()
    return context.transpose(1, 2).flatten(2).float()


@needs_kernels
@pytest.mark.usefixtures("threads")
@settings(max_examples=60, deadline=None)
@given(
    batch=few, heads=few, queries=st.integers(1, c_attention.FEW), keys=st.integers(1, 70), key_dim=st.integers(1, 40),
    value_dim=st.integers(1, 70), seed=seeds, kind=st.sampled_from(["none", "each", "all"]),
)  # fmt: skip
def test_attention_is_that_of_the_formula(
    batch: int, heads: int, queries: int, keys: int, key_dim: int, value_dim: int, seed: int, kind: str
) -> None:
    torch.manual_seed(seed)
    looks = torch.randn(batch, queries, heads, key_dim).transpose(1, 2)
    looked_at = 3 * torch.randn(batch, heads, key_dim, keys + 3).transpose(2, 3)[:, :, :keys]
    values = torch.randn(batch, heads, keys + 2, value_dim)[:, :, :keys]
    hidden = torch.rand(batch, 1, queries if kind == "each" else 1, keys) < 0.5
    hidden[..., 0] = False  # everyone sees something
    mask = None if kind == "none" else torch.zeros_like(hidden, dtype=torch.float32).masked_fill(hidden, -math.inf)
    assert c_attention.decodes(looks, looked_at, values, mask)
    found = c_attention.decode(looks, looked_at, values, mask)
    torch.testing.assert_close(found, by_the_formula(looks, looked_at, values, mask), rtol=1e-5, atol=1e-5)


@needs_kernels
def test_attention_to_scores_of_any_size_and_to_what_is_no_number() -> None:
    keys = torch.tensor([[1e4, -1e4, 3.0, 0.0]]).view(1, 1, 1, 4).transpose(2, 3)
    queries, values = torch.ones(1, 1, 1, 1), torch.arange(4.0).view(1, 1, 4, 1)
    assert c_attention.decode(queries, keys, values, None).item() == 0.0
    assert c_attention.decode(-queries, keys, values, None).item() == 1.0
    assert c_attention.decode(queries * math.nan, keys, values, None).isnan().all()
    nothing = torch.full((1, 1, 1, 4), -math.inf)
    assert c_attention.decode(queries, keys, values, nothing).isnan().all()  # as softmax has it


GUARDED = """
import ctypes, mmap, torch
from mallang.kernels import c_attention, c_library

page = mmap.PAGESIZE
memory = mmap.mmap(-1, 2 * page)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
assert ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(start + page), page, 0) == 0
numbers = (ctypes.c_float * 256).from_address(start + page - 1024)
values = torch.frombuffer(numbers, dtype=torch.float32).view(1, 1, 4, 64)  # nothing may be read behind them
keys = torch.randn(1, 1, 64, 4).transpose(2, 3)
for queries, mask in (
    (torch.randn(1, 1, 5, 64), None),
    (torch.full((1, 1, 5, 64), torch.nan), None),
    (torch.randn(1, 1, 5, 64), torch.full((1, 1, 5, 4), -torch.inf)),
):
    c_attention.decode(queries, keys, values, mask)
"""


@needs_kernels
def test_nothing_is_read_behind_the_last_value() -> None:
    done = subprocess.run([sys.executable, "-c", GUARDED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_kernels
def test_a_mask_that_is_the_same_for_all_keys_is_left_to_torch() -> None:
    queries, values = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 6, 4)
    keys = torch.randn(1, 1, 4, 6).transpose(2, 3)
    assert c_attention.decodes(queries, keys, values, torch.zeros(1, 1, 2, 6))
    assert not c_attention.decodes(queries, keys, values, torch.zeros(1, 1, 2, 1))
    assert not c_attention.decodes(queries, keys, values, torch.ones(1, 1, 2, 6, dtype=torch.bool))
    assert not c_attention.decodes(queries, keys[:, :, :0], values[:, :, :0], None)


class Look(torch.nn.Module):
    """Attention over padded texts."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = SelfAttention(8, 2, 4, 4)

    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        looked, _ = self.layer(x, padding_mask(real))
        assert isinstance(looked, Tensor)
        return looked


@needs_kernels
def test_attention_over_padded_texts_of_any_length_can_be_exported() -> None:
    look, time = Look().eval(), torch.export.Dim("time")
    given = torch.randn(2, 5, 8), torch.ones(2, 5, dtype=torch.bool)
    with warnings.catch_warnings():  # torch's own, of what it means to give up
        warnings.simplefilter("ignore")
        made = torch.export.export(look, given, dynamic_shapes=({1: time}, {1: time}))
    longer = torch.randn(2, 20, 8), torch.ones(2, 20, dtype=torch.bool)
    torch.testing.assert_close(made.module()(*longer), look(*longer))


@needs_kernels
@pytest.mark.parametrize("usual", [torch.float16, torch.float64])
def test_results_have_the_precision_of_the_kernels_whatever_is_usual(usual: torch.dtype) -> None:
    x, weight = torch.randn(3, 40), torch.randn(50, 40)
    keys = torch.randn(1, 1, 4, 6).transpose(2, 3)
    queries, values = torch.randn(1, 1, 2, 4), torch.randn(1, 1, 6, 4)
    integers, scale = quantize_rows(weight)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(usual)
        found = (
            log_softmax(x),
            c_matmul.Int8Matrix(integers, scale.flatten()).multiply(x),
            c_attention.decode(queries, keys, values, None),
        )
    finally:
        torch.set_default_dtype(before)
    wanted = x.log_softmax(dim=1), PlainMatrix(integers, scale.flatten()).multiply(x)
    torch.testing.assert_close(found, (*wanted, by_the_formula(queries, keys, values, None)), atol=1e-4, rtol=1e-5)


@needs_kernels
def test_what_torch_transforms_traces_or_counts_is_left_to_it() -> None:
    x = torch.randn(3, 2, 5)
    torch.testing.assert_close(torch.vmap(log_softmax)(x), x.log_softmax(dim=2))
    with torch.autograd.forward_ad.dual_level():
        assert not c_library.may_take(x)
    with FlopCounterMode(display=False):
        assert not c_library.may_take(x)
    assert c_library.may_take(x)


@needs_kernels
@settings(deadline=None)
@given(batch=few, heads=few, width=few, key_dim=few, value_dim=few, first=st.integers(0, 5), seed=seeds)
def test_what_is_put_lies_in_its_slots(
    batch: int, heads: int, width: int, key_dim: int, value_dim: int, first: int, seed: int
) -> None:
    torch.manual_seed(seed)
    keys = torch.zeros(batch, heads, key_dim, 14).transpose(2, 3)
    values = torch.zeros(batch, heads, 14, value_dim)
    new_keys = torch.randn(batch, width, heads, key_dim).transpose(1, 2)
    new_values = torch.randn(batch, width, heads, value_dim).transpose(1, 2)
    wanted_keys, wanted_values = keys.clone(), values.clone()
    wanted_keys[:, :, first : first + width], wanted_values[:, :, first : first + width] = new_keys, new_values
    c_attention.write_cache(new_keys, new_values, keys, values, first)
    assert torch.equal(keys, wanted_keys)
    assert torch.equal(values, wanted_values)


@needs_kernels
@pytest.mark.usefixtures("threads")
@settings(deadline=None)
@given(rows=st.integers(0, 5), words=st.integers(1, 100), seed=seeds, size=st.floats(0, 1000))
def test_log_softmax_is_torchs(rows: int, words: int, seed: int, size: float) -> None:
    torch.manual_seed(seed)
    logits = size * torch.randn(rows, 2, words)[:, 1]
    logits[:, words // 2] = -math.inf if words > 1 else 0.0
    wanted = logits.double().log_softmax(dim=1).float()
    torch.testing.assert_close(log_softmax(logits), wanted, rtol=1e-6, atol=1e-5)


@needs_kernels
def test_the_same_logits_in_another_order_have_the_same_log_probabilities() -> None:
    torch.manual_seed(1)
    logits, order = 5 * torch.randn(1, 5000), torch.randperm(5000)
    assert torch.equal(log_softmax(logits)[:, order], log_softmax(logits[:, order]))


@needs_kernels
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_log_softmax_of_what_is_no_number_is_none(wrong: float) -> None:
    logits = torch.randn(2, 40)
    logits[1, 17] = wrong
    found = log_softmax(logits)
    assert found[0].isfinite().all()
    assert found[1].isnan().all()


@needs_kernels
def test_gradients_doubles_and_compilers_are_left_to_torch() -> None:
    x = torch.randn(2, 3)
    assert c_library.may_take(x)
    assert not c_library.may_take(x.double())
    assert not c_library.may_take(x.clone().requires_grad_())
    assert log_softmax(x.clone().requires_grad_()).requires_grad
    assert log_softmax(x.bfloat16()).dtype == torch.float32
    assert not c_library.may_take(x.to("meta"))
    with torch.no_grad():
        assert c_library.may_take(x.clone().requires_grad_())
    seen = []
    torch.compile(lambda y: seen.append(c_library.may_take(y)) or y + 1, backend="eager")(x)  # type: ignore[func-returns-value]
    assert seen == [False]


@needs_kernels
@pytest.mark.parametrize("width", [1, 3])
def test_steps_with_reserved_memory_are_those_with_memory_that_grows(width: int) -> None:
    torch.manual_seed(1)
    layer = SelfAttention(16, 4, 4, 4).eval()
    with torch.no_grad():
        _, read = layer(torch.randn(2, 5, 16), "causal")
        grown: DynamicCache = DynamicCache([read])
        room: StaticCache = grown.reserve(4, width)
        grown = grown.select(torch.arange(2).repeat_interleave(width))
        for step in range(1, 5):
            x = torch.randn(2 * width, 1, 16)
            (past,), mask = grown.enter(1, None)
            wanted, seen = layer(x, mask, past)
            grown = grown.leave([seen])
            looked = room.look(step)
            (slots,), mask = looked.enter(1, None)
            found, seen = layer(x, mask, slots)
            room = looked.leave([seen])
            torch.testing.assert_close(found, wanted)


# ---- compiling ----


@pytest.fixture
def afresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine on which nothing was compiled yet: its cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(c_library.tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("MALLANG_KERNELS", raising=False)  # why there are none is what these tests ask
    c_library.library.cache_clear()
    yield tmp_path / "cache" / "mallang-kernels"
    c_library.library.cache_clear()


@needs_kernels
def test_they_are_compiled_once(afresh: Path) -> None:
    assert isinstance(c_library.library(), ctypes.CDLL)
    (made,) = afresh.glob("*.so")
    written = made.stat().st_mtime_ns
    c_library.library.cache_clear()
    assert c_library.library() is not None
    assert made.stat().st_mtime_ns == written
    assert c_library.state() == "compiled"


@needs_kernels
@pytest.mark.parametrize("fault", ["header", "half", "no mark"])
def test_a_damaged_file_is_compiled_again(afresh: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    whole = c_library.library()
    assert whole is not None
    made = Path(whole._name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(afresh.parent / "other"))
    damaged = c_library.own(c_library.cache_folder()) / made.name
    content = made.read_bytes()
    damaged.write_bytes({"header": b"\x7fELF damaged", "half": content[: len(content) // 2], "no mark": content}[fault])
    if fault != "no mark":
        c_library.mark_of(damaged).write_bytes(c_library.mark_of(made).read_bytes())
    c_library.library.cache_clear()
    mended = c_library.library()
    assert mended is not None
    assert mended._name == str(damaged)
    assert c_library.is_whole(damaged)


@needs_kernels
@pytest.mark.parametrize("fault", ["no folder", "no home"])
def test_where_nothing_can_be_written_there_are_none(afresh: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    def lost() -> Path:
        raise RuntimeError("Could not determine home directory.")

    def full() -> Path:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(c_library, "cache_folder", lost if fault == "no home" else lambda: Path("/proc/nowhere"))
    monkeypatch.setattr(c_library, "spare_folder", full)
    assert c_library.library() is None
    assert not afresh.exists()


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_without_a_compiler_there_are_none(afresh: Path, monkeypatch: pytest.MonkeyPatch, compiler: str) -> None:
    monkeypatch.setenv("CC", compiler)
    assert c_library.library() is None
    assert c_library.state().startswith("none: ")
    x = torch.randn(3, 5)
    assert torch.equal(log_softmax(x), x.log_softmax(dim=1))
    assert [path for path in afresh.rglob("*") if path.is_file()] == []


def test_on_another_processor_there_are_none(afresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_library, "processor_flags", lambda: ["sse2", "avx2"])
    assert c_library.library() is None
    assert c_library.state() == "none: the processor has no AVX-512 with VNNI"
    assert not afresh.exists()


@needs_kernels
def test_what_others_could_have_written_is_not_run(afresh: Path) -> None:
    afresh.mkdir(parents=True)
    afresh.chmod(0o777)
    found = c_library.library()
    assert found is not None
    assert str(afresh) not in found._name
    assert list(afresh.iterdir()) == []
