"""The C kernels for CPUs: compiling, loading and calling them. Their sources are the C files beside this file.

The C compiler of the machine compiles them the first time one is needed (two seconds); the library is kept in the
user's cache. Without a compiler, or on a processor without AVX-512 and VNNI, there are none: `library` returns None,
and the plain version of every operation runs instead.

    int8_linear          quantizes, multiplies and rescales in one call                         c_matmul.py
    matmul               a float32 matmul with prepacked weights                                c_matmul.py
    decode_attention     attention of a few queries: the scores of a head never leave the cache c_attention.py
    write_cache          new keys and values go to their slots of the KV cache                  c_attention.py
    attention            attention over short texts, and its gradients, for training            c_attention.py
    log_softmax          row by row, so that a row stays in the cache                           log_softmax.py
    cross_entropy        the loss of logits and its gradient, row by row                        c_cross_entropy.py
    logistic_updates     training steps of word vectors                                         c_word_vectors.py

The kernels read memory, not tensors, so they support neither autograd nor graph compilers: `may_take` says whether
tensors can be passed to them.
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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor, nn

from mallang.kernels.dispatch import is_off

SOURCES = [Path(__file__).with_name(name) for name in ("kernels.c", "word_vectors.c")]
HEADER = Path(__file__).with_name("avx512.h")
FLAGS = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-lm"]
NEEDED = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}
"""Instruction sets that the processor must have, by their names in /proc/cpuinfo."""
SHARED = 2**17
"""Multiplications from which a call uses several threads: synchronizing them takes some microseconds."""

Pointer, Count = ctypes.c_void_p, ctypes.c_long
PLAIN = (Tensor, nn.Parameter)
"""Classes whose memory may be read directly: other tensor subclasses may give it another meaning."""
Signatures = Mapping[str, list[type]]
"""The argument types of every function of C files; none returns anything."""
SIGNATURES: Signatures = {
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
    "logistic_updates": [Pointer, ctypes.c_int],
    "glove_updates": [Pointer, ctypes.c_int],
}  # fmt: skip


# ---- compiling ----


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels, or None where this machine cannot have them."""
    return compiled(SOURCES, SIGNATURES) if set(processor_flags()) >= NEEDED else None


def compiled(sources: Sequence[Path], signatures: Signatures) -> ctypes.CDLL | None:
    """The compiled functions of C files, or None where they are switched off or cannot be compiled."""
    if is_off():
        return None
    compiler = os.environ.get("CC") or "cc"
    for folder in (cache_folder, spare_folder):
        with suppress(OSError, subprocess.SubprocessError, RuntimeError, AttributeError, ValueError):
            read = [path.read_bytes() for path in (*sources, HEADER)]
            built_from = repr((read, FLAGS, compiler, processor_flags())).encode()
            path = own(folder()) / f"{sources[0].stem}-{hashlib.sha256(built_from).hexdigest()[:16]}.so"
            return load(path, compiler, sources, signatures)
    return None


def state() -> str:
    """A sentence that says whether there are kernels, or why not."""
    if is_off():
        return "none: MALLANG_KERNELS=off"
    if not set(processor_flags()) >= NEEDED:
        return "none: the processor has no AVX-512 with VNNI"
    if library() is None:
        return "none: they could not be compiled with cc or $CC, or not be written to the user's cache"
    return "compiled"


def load(path: Path, compiler: str, sources: Sequence[Path], signatures: Signatures) -> ctypes.CDLL:
    """The library at this path, compiled first if it is missing or incomplete."""
    if not is_whole(path):
        build(path, compiler, sources)
    kernels = ctypes.CDLL(str(path))
    for name, arguments in signatures.items():
        function = getattr(kernels, name)
        function.argtypes, function.restype = arguments, None
    return kernels


def build(path: Path, compiler: str, sources: Sequence[Path]) -> None:
    """Compile beside the path, then move the library there: other processes see either nothing or all of it."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made, mark = Path(folder, path.name), Path(folder, "mark")
        command = [*shlex.split(compiler), *map(str, sources), *FLAGS, "-o", str(made)]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        mark.write_text(hashlib.sha256(made.read_bytes()).hexdigest(), "utf-8")
        made.replace(path)
        mark.replace(mark_of(path))


def is_whole(path: Path) -> bool:
    """Whether the checksum fits: loading half a library, as a crash may leave it, would crash the process."""
    try:
        return mark_of(path).read_text("utf-8") == hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return False


def mark_of(path: Path) -> Path:
    """The file that holds the checksum of a library."""
    return path.with_suffix(".sha256")


def own(folder: Path) -> Path:
    """A folder, created if needed, that no other user can write to: the code in it will be executed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} can be written to by others")
    return folder


def cache_folder() -> Path:
    """The folder of compiled kernels: not the data folder, which machines and users may share."""
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "mallang-kernels"


def spare_folder() -> Path:
    """A folder in the temporary directory, where the home folder is not writable."""
    return Path(tempfile.gettempdir()) / f"mallang-{os.getuid()}"


def processor() -> str:
    """The text of /proc/cpuinfo; empty on systems other than Linux."""
    try:
        return Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return ""


def processor_flags() -> list[str]:
    """The instruction sets of the processor."""
    found = re.search(r"^flags\s*:(.*)$", processor(), re.MULTILINE)
    return sorted(found.group(1).split()) if found else []


# ---- calling ----


def may_take(*tensors: Tensor) -> bool:
    """Whether the C kernels can compute with these: float32 CPU tensors that no gradient, compiler or dispatch mode
    tracks.
    """
    gradients = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
    return not gradients and are_plain(*tensors)


def are_plain(*tensors: Tensor) -> bool:
    """`may_take` for code that computes gradients itself."""
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
    """Whether torch traces, transforms or counts operations, or computes forward-mode derivatives."""
    return (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
        or torch._C._is_tracing()
    )


def threads(multiplications: int) -> int:
    """The number of threads for a call with this many multiplications."""
    return 1 if multiplications < SHARED else torch.get_num_threads()
