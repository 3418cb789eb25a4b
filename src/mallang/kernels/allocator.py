"""Let glibc's malloc keep freed CPU memory for the next tensors.

Every operation allocates its result and frees it soon after. By default glibc returns large blocks to the system at
once and requests them again a moment later; the system then zeroes every page before its first use. In a training step
of a small Transformer these were 13,000 page faults, and 8 % of the time.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys

from mallang.kernels.dispatch import is_left_out

BYTES = {-1: 1 << 30, -3: 32 << 20}
"""Parameters of mallopt(3): M_TRIM_THRESHOLD, free memory that is kept at the end of the heap; M_MMAP_THRESHOLD, the
size from which a block is mapped outside the heap and returned when freed: the largest value that glibc itself uses."""


@functools.cache
def keep_pages() -> bool:
    """Set these parameters, unless the environment sets them; returns whether it worked. Linux with glibc only."""
    is_set = any(name in os.environ for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"))
    if (
        is_left_out("allocator")
        or sys.platform != "linux"
        or is_set
        or not hasattr(library := ctypes.CDLL(None), "mallopt")
    ):
        return False
    agreed = {which: library.mallopt(which, size) for which, size in BYTES.items()}
    return all(agreed.values())
