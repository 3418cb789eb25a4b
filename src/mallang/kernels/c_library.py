"""The C kernels for CPUs: how they are compiled, loaded and called. Their source is kernels.c beside this file.

They are compiled by the C compiler of the machine they run on, the first time one is needed (two seconds), and kept in
the user's cache. Without a compiler, or on a processor without AVX-512 and VNNI, there are none: `library` is None, and
the plain version of every operation runs instead.

    int8_linear          quantizes, multiplies and rescales in one call                         c_matmul.py
    matmul               a float32 matmul with prepacked weights                                c_matmul.py
    decode_attention     attention of a few queries: the scores of a head never leave the cache c_attention.py
    write_cache          new keys and values go to their slots of the KV cache                  c_attention.py
    attention            attention over short texts, and its gradients, for training            c_attention.py
    log_softmax          a row at a time, which stays in the cache                              log_softmax.py
    cross_entropy        the loss of logits and its gradient, a row at a time                   c_cross_entropy.py

The kernels see memory and no tensors, so they know neither gradients nor graph compilers: `may_take` says whether
tensors can be given to them.
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
from torch import Tensor, nn

from mallang.kernels.dispatch import is_off

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-lm"]
NEEDED = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}
"""What the processor must know, by the names of Linux."""
SHARED = 2**17
"""Multiplications from which threads share a call: to wait for each other takes them some microseconds."""

Pointer, Count = ctypes.c_void_p, ctypes.c_long
PLAIN = (Tensor, nn.Parameter)
"""Classes whose memory may be looked at: others may mean something else by it."""
SIGNATURES: dict[str, list[type]] = {
    "prepack_int8": [Pointer, Count, Count, Pointer, Pointer],
    "int8_linear": [
        Pointer, Count, Count, Pointer, Pointer, Pointer, Pointer, Pointer, Count, ctypes.c_int
    ],
    "prepack": [Pointer, Count, Count, Count, Count, Pointer, ctypes.c_int],
    "matmul": [Pointer, Count, ctypes.c_int],
    "decode_attention": [Pointer, Pointer, Pointer, Pointer, Pointer, Pointer, ctypes.c_int],
    "write_cache": [Pointer, Pointer, Pointer, Pointer, Pointer],
    "log_softmax": [Pointer, Count, Count, Count, Pointer, ctypes.c_int],
    "cross_entropy": [
        Pointer, Count, Count, Count, Pointer, Count, ctypes.c_double, Pointer, Pointer, ctypes.c_int
    ],
    "attention": [Pointer, ctypes.c_int],
    "attention_backward": [Pointer, ctypes.c_int],
}  # fmt: skip


# ---- compiling ----


@functools.cache
def library() -> ctypes.CDLL | None:
    """The kernels, if this machine can have them."""
    flags = processor_flags()
    if is_off() or not set(flags) >= NEEDED:
        return None
    compiler = os.environ.get("CC") or "cc"
    for folder in (cache_folder, spare_folder):
        with suppress(OSError, subprocess.SubprocessError, RuntimeError, AttributeError, ValueError):
            built_from = repr((SOURCE.read_bytes(), FLAGS, compiler, flags)).encode()
            return load(own(folder()) / f"kernels-{hashlib.sha256(built_from).hexdigest()[:16]}.so", compiler)
    return None


def state() -> str:
    """Whether there are kernels, or why not, in words."""
    if is_off():
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


def processor() -> str:
    """What Linux says of the processor; nothing elsewhere."""
    try:
        return Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return ""


def processor_flags() -> list[str]:
    """The names of its instruction sets."""
    found = re.search(r"^flags\s*:(.*)$", processor(), re.MULTILINE)
    return sorted(found.group(1).split()) if found else []


# ---- calling ----


def may_take(*tensors: Tensor) -> bool:
    """Whether there are kernels, these are float32 tensors in the memory of a CPU, and no gradient, compiler or counter
    follows what becomes of them.
    """
    gradients = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
    return not gradients and are_plain(*tensors)


def are_plain(*tensors: Tensor) -> bool:
    """`may_take` for code that takes care of gradients itself."""
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
