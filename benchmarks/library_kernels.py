"""Our GPU training kernels beside those of libraries that do the same: liger-kernel's fused loss, torchao's FP8 linear.

GPT-2 with 124M parameters trains as in `gpt_speed`, at 16 × 1,024 tokens; only the kernel in question is exchanged.
liger-kernel and torchao must be installed; who is not there is not measured.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.contest import Entrant, Turn, race
from benchmarks.gpt_models import GPT2
from benchmarks.report import Result, show

ROWS, UPDATES = 16, 10


def measure(rounds: int = 7) -> dict[str, Result]:
    """Ours and theirs, in bfloat16 for the loss and in FP8 for linear layers."""
    began = time.monotonic()
    common: dict[str, Any] = {"system": "mallang", "shape": GPT2.options(), "rows": ROWS, "updates": UPDATES}
    common |= {"device": "cuda", "engine": "compile"}

    def entrant(label: str, library: str, precision: str, *needs: str) -> Entrant:
        options = common | {"precision": precision, "library": library}
        return Entrant(label, "benchmarks.library_kernels:turn", options, needs)

    entrants = [
        entrant("bf16", "", "bf16-weights"),
        entrant("bf16 with the loss of liger-kernel", "liger", "bf16-weights", "liger_kernel"),
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
    """An entrant: our training with one kernel exchanged for a library's."""
    from benchmarks import gpt_entrants

    if library == "liger":
        use_ligers_loss()
    elif library == "torchao":
        build = gpt_entrants.ours
        gpt_entrants.ours = lambda shape: in_torchaos_fp8(build(shape))
    return gpt_entrants.turn(**options)


def use_ligers_loss() -> None:
    """Let language models compute their loss with liger-kernel's fused linear cross-entropy."""
    import torch
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    from mallang.tasks import language_modeling
    from mallang.text.vocabulary import PAD

    fused = LigerFusedLinearCrossEntropyLoss(reduction="sum", ignore_index=PAD, accum_dtype=torch.float32)

    @torch.compiler.disable
    def loss(model: Any, hidden: Any, labels: Any, smoothing: float = 0.0) -> Any:
        total = fused(model.head.weight.to(hidden.dtype), hidden, labels)
        return total, total.detach()

    language_modeling.cross_entropy_of = loss


def in_torchaos_fp8(model: Any) -> Any:
    """The model with torchao's FP8 linear layers: row-wise scales, weight gradients in 16 bits, as ours."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    return convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name("rowwise_with_gw_hp"))
