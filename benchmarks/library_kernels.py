"""Our FP8 linear layers beside torchao's: GPT-2 with 124M parameters trains as in `gpt_speed`, at 16 × 1,024 tokens.

torchao must be installed. liger-kernel's fused linear cross-entropy (0.8.5) cannot take the place of ours: it asks the
GPU how many labels count (`.item()`), which no CUDA graph can hold.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.contest import Entrant, Turn, race
from benchmarks.gpt_models import GPT2
from benchmarks.report import Result, show

ROWS, UPDATES = 16, 10


def measure(rounds: int = 7) -> dict[str, Result]:
    """Ours in bfloat16 and FP8, and theirs."""
    began = time.monotonic()
    common: dict[str, Any] = {"system": "mallang", "shape": GPT2.options(), "rows": ROWS, "updates": UPDATES}
    common |= {"device": "cuda", "engine": "compile"}

    def entrant(label: str, library: str, precision: str, *needs: str) -> Entrant:
        options = common | {"precision": precision, "library": library}
        return Entrant(label, "benchmarks.library_kernels:turn", options, needs)

    entrants = [
        entrant("bf16", "", "bf16-weights"),
        entrant("fp8", "", "fp8"),
        entrant("fp8 by torchao", "torchao", "bf16-weights", "torchao"),
    ]
    outcomes = race(entrants, rounds)
    table = [(label, one.rate, one.peak / 2**20) for label, one in outcomes.items()]
    show("training GPT with the kernels of libraries", [("", "tokens/s", "MiB"), *table])
    return {
        f"library-kernels-{label.replace(' ', '-')}": Result(
            system=label,
            metric="training GPT on cuda with the kernels of libraries, tokens/s",
            value=round(rate, 1),
            protocol=f"GPT-2, {ROWS} x {GPT2.context} tokens, compiled; each in a process of its own, by turns of "
            f"{UPDATES} updates, median of {rounds}",
            seed=1,
            seconds=round(time.monotonic() - began, 1),
            signature=f"{label}: peak {memory:.0f} MiB|{outcomes[label].signature}",
        )
        for label, rate, memory in table
    }


def turn(library: str, **options: Any) -> Turn:
    """An entrant: our training, with its linear layers exchanged for a library's."""
    from benchmarks import gpt_entrants

    if library == "torchao":
        build = gpt_entrants.ours
        gpt_entrants.ours = lambda shape: in_torchaos_fp8(build(shape))
    return gpt_entrants.turn(**options)


def in_torchaos_fp8(model: Any) -> Any:
    """The model with torchao's FP8 linear layers: row-wise scales, weight gradients in 16 bits, as ours."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    return convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name("rowwise_with_gw_hp"))
