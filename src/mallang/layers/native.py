"""What searches and trainings do again and again on a CPU, in kernels of our own: see native.c beside this file.

They are compiled by the C compiler of the machine they run on, the first time one is needed (two seconds), and kept in
the user's cache. Without a compiler, or on a processor without AVX-512 and VNNI, there are none: `library` is None, and
who would have used them does the same in plain operations of torch.

    a product in 8-bit integers   rounds, multiplies and scales in one call
    a product in 32-bit floats    of a matrix laid out for it: packed.py
    attention of a few queries    scores of a head never leave the cache
    new keys and values           go to their slots, which lie as attention reads them
    log softmax                   a row at a time, which stays in the cache
    the best of a beam            are found while every score is looked at once, and their paths copied
    attention over short texts    and its gradients, for training: native_attention.py
    the loss of logits            and its gradient, for training: a row at a time, too

They see memory and no tensors, so they know neither gradients nor compilers of graphs: `may_take` says whether tensors
can be given to them.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shlex
import stat
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

import torch
from jaxtyping import Float, Float32, Int8, Int32
from torch import Tensor, nn

from mallang.layers.kernel import are_off, is_off

SOURCE = Path(__file__).with_suffix(".c")
FLAGS = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-lm"]
NEEDED = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}
"""What the processor must know, by the names of Linux."""
PANEL = 64
"""Columns of a matrix that are multiplied together: as in native.c."""
SHARED = 2**17
"""Multiplications from which threads share a call: to wait for each other takes them some microseconds."""
MOST = 16
"""Queries up to which attention is that of a few."""

Pointer, Count = ctypes.c_void_p, ctypes.c_long
FURTHEST = 2**27
"""Numbers between two neighbours of a matrix that the kernel can count."""
PLAIN = (Tensor, nn.Parameter)
"""Classes whose memory may be looked at: others may mean something else by it."""
SIGNATURES: dict[str, list[type]] = {
    "pack": [Pointer, Count, Count, Pointer, Pointer],
    "multiply": [
        Pointer, Count, Count, Pointer, Pointer, Pointer, Pointer, Pointer, Count, ctypes.c_int
    ],
    "pack_floats": [Pointer, Count, Count, Count, Count, Pointer, ctypes.c_int],
    "multiply_floats": [Pointer, Count, ctypes.c_int],
    "attend": [Pointer, Pointer, Pointer, Pointer, Pointer, Pointer, ctypes.c_int],
    "put": [Pointer, Pointer, Pointer, Pointer, Pointer],
    "log_softmax": [Pointer, Count, Count, Count, Pointer, ctypes.c_int],
    "best_sums": [
        Pointer, Pointer, Count, Count, Count, Count, Count, Pointer, Pointer, ctypes.c_int
    ],
    "follow": [Pointer],
    "softmax_gradient": [
        Pointer, Count, Count, Count, Pointer, Count, ctypes.c_double, Pointer, Pointer, ctypes.c_int
    ],
    "attend_short": [Pointer, ctypes.c_int],
    "attend_short_back": [Pointer, ctypes.c_int],
}  # fmt: skip


# ---- compiling ----


@functools.cache
def library() -> ctypes.CDLL | None:
    """The kernels, if this machine can have them."""
    processor = processor_flags()
    if are_off() or not set(processor) >= NEEDED:
        return None
    compiler = os.environ.get("CC") or "cc"
    for folder in (cache_folder, spare_folder):
        with suppress(OSError, subprocess.SubprocessError, RuntimeError, AttributeError, ValueError):
            built_from = repr((SOURCE.read_bytes(), FLAGS, compiler, processor)).encode()
            return load(own(folder()) / f"kernels-{hashlib.sha256(built_from).hexdigest()[:16]}.so", compiler)
    return None


def state() -> str:
    """Whether there are kernels, or why not, in words."""
    if are_off():
        return "none: MALLANG_KERNELS=off"
    if not set(processor_flags()) >= NEEDED:
        return "none: the processor has no AVX-512 with VNNI"
    if library() is None:
        return "none: they could not be compiled by cc, or what CC names, or not be kept in the user's cache"
    return "compiled"


def load(path: Path, compiler: str) -> ctypes.CDLL:
    """The library at this path, compiled first if it is not there whole."""
    if not is_whole(path):
        build(path, compiler)
    kernels = ctypes.CDLL(str(path))
    for name, arguments in SIGNATURES.items():
        function = getattr(kernels, name)
        function.argtypes, function.restype = arguments, None
    return kernels


def build(path: Path, compiler: str) -> None:
    """Compile beside the path, then move it there: whoever looks meanwhile sees nothing or all of it."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made, mark = Path(folder, path.name), Path(folder, "mark")
        command = [*shlex.split(compiler), str(SOURCE), *FLAGS, "-o", str(made)]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        mark.write_text(hashlib.sha256(made.read_bytes()).hexdigest(), "utf-8")
        made.replace(path)
        mark.replace(mark_of(path))


def is_whole(path: Path) -> bool:
    """Whether it is what was compiled: to load the half of a library, as a crash may leave it, ends the program."""
    try:
        return mark_of(path).read_text("utf-8") == hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return False


def mark_of(path: Path) -> Path:
    """The file that holds its checksum."""
    return path.with_suffix(".sha256")


def own(folder: Path) -> Path:
    """A folder, made if need be, in which nobody else could have put anything: what lies there is run."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} can be written to by others")
    return folder


def cache_folder() -> Path:
    """Not the one of data, which may be shared between machines and users."""
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "mallang-kernels"


def spare_folder() -> Path:
    """Where there is no home to write to."""
    return Path(tempfile.gettempdir()) / f"mallang-{os.getuid()}"


def processor_flags() -> list[str]:
    """What the processor knows, as Linux says; nothing elsewhere."""
    try:
        said = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return []
    found = re.search(r"^flags\s*:(.*)$", said, re.MULTILINE)
    return sorted(found.group(1).split()) if found else []


# ---- calling ----


def may_take(*tensors: Tensor) -> bool:
    """Whether these are plain numbers in the memory of a CPU, nobody watches what becomes of them (for a gradient, to
    compile or to count it), and there are kernels.
    """
    gradients = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
    return not gradients and are_plain(*tensors)


def are_plain(*tensors: Tensor) -> bool:
    """The same where gradients are somebody else's affair."""
    return (
        not torch.compiler.is_compiling()
        and all(
            each.dtype == torch.float32 and each.is_cpu and type(each) in PLAIN and each.layout == torch.strided
            for each in tensors
        )
        and not is_watched()
        and library() is not None
    )


def is_watched() -> bool:
    """Whether torch traces, transforms or counts operations, or takes derivatives forward."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
        or torch._C._is_tracing()
    )


def threads(multiplications: int) -> int:
    """How many share a call."""
    return 1 if multiplications < SHARED else torch.get_num_threads()


class IntegerMatrix:
    """A matrix of 8-bit integers in the order in which its kernel reads it."""

    def __init__(self, integers: Int8[Tensor, "outputs inputs"], scale: Float32[Tensor, " outputs"]) -> None:
        kernels, (outputs, inputs), integers = library(), integers.shape, integers.contiguous()
        assert kernels is not None
        padded = -(-outputs // PANEL) * PANEL
        self.inputs, self.outputs, self.scale = inputs, outputs, scale.contiguous()
        self.packed: Int8[Tensor, " numbers"] = integers.new_empty(padded * -(-inputs // 4) * 4)
        self.totals: Int32[Tensor, " padded"] = integers.new_empty(padded, dtype=torch.int32)
        kernels.pack(integers.data_ptr(), outputs, inputs, self.packed.data_ptr(), self.totals.data_ptr())

    def multiply(
        self, x: Float32[Tensor, "*batch inputs"], bias: Float32[Tensor, " outputs"] | None = None
    ) -> Float32[Tensor, "*batch outputs"]:
        """x Wᵀ + b, with x rounded row by row: the formula of int8.py."""
        kernels, inputs = library(), x.shape[-1]
        assert kernels is not None
        if not x.is_cpu or x.dtype != torch.float32 or inputs != self.inputs:
            raise ValueError(f"{x.dtype} of {inputs} on {x.device} for a matrix of float32 of {self.inputs} on the CPU")
        y, rows = x.new_empty(*x.shape[:-1], self.outputs), x.numel() // inputs
        # Asking first: every call into torch lets other threads of Python in, and waits for them.
        x = x if x.is_contiguous() else x.contiguous()
        bias = bias if bias is None or bias.is_contiguous() else bias.contiguous()
        kernels.multiply(
            x.data_ptr(), rows, inputs, self.packed.data_ptr(), self.totals.data_ptr(), self.scale.data_ptr(),
            None if bias is None else bias.data_ptr(), y.data_ptr(), self.outputs,
            threads(rows * inputs * self.outputs),
        )  # fmt: skip
        return y


class ProductShape(ctypes.Structure):
    """What `multiply_floats` reads and writes: as in native.c."""

    _fields_ = [
        ("x", Pointer), ("x_row", Count), ("x_column", Count), ("inputs", Count), ("packed", Pointer),
        ("start", Pointer), ("start_row", Count), ("y", Pointer), ("outputs", Count),
    ]  # fmt: skip


class FloatMatrix:
    """A matrix of 32-bit floats in the order in which its kernel reads it."""

    def __init__(self, weight: Float32[Tensor, "outputs inputs"]) -> None:
        kernels, (outputs, inputs) = library(), weight.shape
        assert kernels is not None
        weight = weight if max(weight.stride()) < FURTHEST else weight.contiguous()
        self.inputs, self.outputs = inputs, outputs
        self.packed: Float32[Tensor, " numbers"] = weight.new_empty(-(-outputs // PANEL) * PANEL * inputs)
        kernels.pack_floats(
            weight.data_ptr(), outputs, inputs, *weight.stride(), self.packed.data_ptr(), threads(weight.numel())
        )

    def multiply(
        self, x: Float32[Tensor, "*batch inputs"], bias: Float32[Tensor, " outputs"] | None = None
    ) -> Float32[Tensor, "*batch outputs"]:
        """x Wᵀ + b."""
        y = x.new_empty(*x.shape[:-1], self.outputs)
        bias = bias if bias is None or bias.is_contiguous() else bias.contiguous()
        return self.put(x if x.is_contiguous() else x.contiguous(), bias, 0, y)

    def multiply_turned(self, x: Float32[Tensor, "inputs rows"]) -> Float32[Tensor, "rows outputs"]:
        """xᵀ Wᵀ."""
        return self.put(x.T, None, 0, x.new_empty(x.shape[1], self.outputs))

    def add_turned_(self, total: Float32[Tensor, "rows outputs"], x: Float32[Tensor, "inputs rows"]) -> None:
        """total + xᵀ Wᵀ, in place of the total."""
        assert total.is_contiguous() and total.shape == (x.shape[1], self.outputs)
        self.put(x.T, total, self.outputs, total)

    def put(self, x: Tensor, start: Tensor | None, start_row: int, y: Tensor) -> Tensor:
        """Into y, of which the first axes are x's: x Wᵀ and what the sums start with."""
        kernels, inputs, rows = library(), x.shape[-1], x.shape[:-1].numel()
        assert kernels is not None
        if not x.is_cpu or x.dtype != torch.float32 or inputs != self.inputs:
            raise ValueError(f"{x.dtype} of {inputs} on {x.device} for a matrix of float32 of {self.inputs} on the CPU")
        row, column = x.stride() if x.dim() == 2 else (inputs, 1)
        given = ProductShape(
            x=x.data_ptr(), x_row=row, x_column=column, inputs=inputs, packed=self.packed.data_ptr(),
            start=None if start is None else start.data_ptr(), start_row=start_row, y=y.data_ptr(),
            outputs=self.outputs,
        )  # fmt: skip
        kernels.multiply_floats(ctypes.byref(given), rows, threads(rows * inputs * self.outputs))
        return y


def is_for_few(
    queries: Float[Tensor, "batch heads query key_dim"],
    keys: Float[Tensor, "batch heads key key_dim"],
    values: Float[Tensor, "batch heads key value_dim"],
    mask: object,
) -> bool:
    """Whether this is a step of a search, and lies in memory as `attend` reads it: keys as columns."""
    hides = [mask] if isinstance(mask, Tensor) else []
    if torch.compiler.is_compiling() or (mask is not None and not hides):
        return False  # first of all: to ask for shapes would bind what is compiled to the answer
    return (
        queries.shape[2] <= MOST
        and keys.shape[2] > 0
        and keys.stride(2) == queries.stride(3) == values.stride(3) == 1
        and all(each.shape[1] == each.stride(3) == 1 and each.shape[3] == keys.shape[2] for each in hides)
        and all(each.shape[0] in (1, len(queries)) and each.shape[2] in (1, queries.shape[2]) for each in hides)
        and may_take(queries, keys, values, *hides)
    )


def attend(
    queries: Float32[Tensor, "batch heads query key_dim"],
    keys: Float32[Tensor, "batch heads key key_dim"],
    values: Float32[Tensor, "batch heads key value_dim"],
    mask: Float32[Tensor, "#batch 1 #query key"] | None,
) -> Float32[Tensor, "batch query joined"]:
    """softmax(Q Kᵀ / √key_dim + mask) V, the heads of a query side by side."""
    kernels, (batch, heads, count, key_dim), (slots, value_dim) = library(), queries.shape, values.shape[2:]
    assert kernels is not None
    context = queries.new_empty(batch, count, heads * value_dim)
    steps = [*queries.stride()[:3], *keys.stride()[:2], keys.stride(3), *values.stride()[:3]]
    hides = [0, 0] if mask is None else [mask.stride(axis) if mask.shape[axis] > 1 else 0 for axis in (0, 2)]
    numbers = [batch, heads, count, slots, key_dim, value_dim, *steps, *hides]
    kernels.attend(
        (Count * len(numbers))(*numbers), queries.data_ptr(), keys.data_ptr(), values.data_ptr(),
        None if mask is None else mask.data_ptr(), context.data_ptr(),
        threads(batch * heads * count * slots * (key_dim + value_dim)),
    )  # fmt: skip
    return context


def put(
    new_keys: Float32[Tensor, "batch heads width key_dim"],
    new_values: Float32[Tensor, "batch heads width value_dim"],
    keys: Float32[Tensor, "batch heads slots key_dim"],
    values: Float32[Tensor, "batch heads slots value_dim"],
    first: int,
) -> None:
    """Write new keys and values to the slots from `first` on; the keys lie there as columns."""
    kernels, (batch, heads, width, key_dim), value_dim = library(), new_keys.shape, values.shape[3]
    assert kernels is not None
    steps = [*new_keys.stride()[:3], *new_values.stride()[:3], *keys.stride()[:2], keys.stride(3), *values.stride()[:3]]
    numbers = [batch, heads, width, key_dim, value_dim, *steps]
    size = keys.element_size()
    kernels.put(
        (Count * len(numbers))(*numbers), new_keys.data_ptr(), new_values.data_ptr(), keys.data_ptr() + first * size,
        values.data_ptr() + first * values.stride(2) * size,
    )  # fmt: skip


def log_softmax(logits: Float[Tensor, "rows words"]) -> Float32[Tensor, "rows words"]:
    """Log-probabilities in float32, by the kernel where there is one for these."""
    if is_off("c-log-softmax") or not may_take(logits) or logits.stride(1) != 1:
        return logits.log_softmax(dim=-1, dtype=torch.float32)
    kernels, (rows, words) = library(), logits.shape
    assert kernels is not None
    found = logits.new_empty(rows, words)
    kernels.log_softmax(
        logits.data_ptr(), rows, words, logits.stride(0), found.data_ptr(), threads(8 * rows * words)
    )  # fmt: skip
    return found
