"""Memory that is freed is kept: the pages of a large tensor are asked for once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COUNT = """
import resource, sys, torch
from mallang.kernels.allocator import keep_pages

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

agreed = keep_pages() if sys.argv[1] == "kept" else None
def work():
    return [torch.ones(1 << 22) for _ in range(16)]  # 256 MiB: more than the C library keeps by itself

for _ in range(3):
    work()
before = faults()
for _ in range(5):
    work()
print(agreed, faults() - before)
"""


def count(how: str, **more: str) -> tuple[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", COUNT, how], env={**os.environ, **more}, capture_output=True, text=True, check=True
    )
    agreed, number = done.stdout.split()
    return agreed, int(number)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other allocators")
def test_pages_are_asked_for_once() -> None:
    agreed, asked = count("kept")
    if agreed == "False":
        pytest.skip("this C library has no mallopt")
    assert 10 * asked < count("given back", MALLOC_MMAP_THRESHOLD_="131072")[1]


def test_who_has_set_it_keeps_it_so() -> None:
    assert count("kept", MALLOC_TRIM_THRESHOLD_="131072")[0] == "False"
