"""GPT-2 with 124M parameters generates several times as fast as Hugging Face's generate; int8 beside CTranslate2's.

Greedy, 256 new tokens after a prompt of 8, random weights, and no system may end early. On a CPU: one text at a time,
float32 and int8. On a GPU, if there is one: 1 and 64 texts at once, bfloat16; ours as CUDA graphs, also compiled.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from benchmarks.contest import Entrant, large_matmul, race
from benchmarks.gpt_models import GPT2, Shape
from benchmarks.report import Result, show


def measure(rounds: int = 5, new: int = 256, prompt: int = 8, rows: str = "", peers: int = 1) -> dict[str, Result]:
    """All systems (peers 0: ours alone), for each number of texts at once: 1 on a CPU, 1 and 64 on a GPU."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = replace(GPT2, words=50257)  # GPT-2's own
    results: dict[str, Result] = {}
    for many in [int(each) for each in (rows or ("1,64" if device == "cuda" else "1")).split(",")]:
        began = time.monotonic()
        matmul = large_matmul(device)
        outcomes = race([*entrants_of(shape, many, new, prompt, device, bool(peers)), matmul], rounds)
        rate = outcomes.pop(matmul.label).rate
        each = shape.operations(prompt + (new + 1) / 2)
        table = [(label, one.rate, one.peak / 2**20, one.rate * each / rate) for label, one in outcomes.items()]
        show(f"generating on {device}, {many} at once", [("", "tokens/s", "MiB", "share of the matmul"), *table])
        protocol = (
            f"{shape.layers} layers, {shape.dim}, {shape.words} words, random weights; {many} texts at once, {prompt} "
            f"tokens in, {new} out, greedy; each in a process of its own, by turns of at least a second, median of "
            f"{rounds}; {matmul.label}: {rate / 1e9:,.0f} GFLOP/s in the same run"
        )
        seconds = round(time.monotonic() - began, 1)
        for label, speed, memory, share in table:
            results[f"generation-{device}-{many}-{label.replace(' ', '-')}"] = Result(
                system=label,
                metric=f"generating on {device}, {many} at once, tokens/s",
                value=round(speed, 1),
                protocol=protocol,
                seed=1,
                seconds=seconds,
                signature=f"{label}: peak {memory:.0f} MiB, {share:.1%} of the matmul|{outcomes[label].signature}",
            )
    return results


def entrants_of(shape: Shape, rows: int, new: int, prompt: int, device: str, peers: bool = True) -> list[Entrant]:
    """Ours and the other systems."""
    common: dict[str, Any] = {"shape": shape.options(), "rows": rows, "new": new, "prompt": prompt}

    def entrant(label: str, function: str, needs: tuple[str, ...] = (), **options: Any) -> Entrant:
        return Entrant(label, f"benchmarks.generation_entrants:{function}", common | options, needs)

    if device == "cuda":
        own = [
            entrant("mallang bfloat16 compiled", "ours", weights="bfloat16", device=device, compile=True),
            entrant("mallang bfloat16", "ours", weights="bfloat16", device=device),
        ]
        others = [
            entrant(
                f"hugging face bfloat16 {cache}", "generate", ("transformers", "mallang"), weights="bfloat16",
                device=device, cache=cache,
            )
            for cache in ("static", "dynamic")
        ]  # fmt: skip
    else:
        own = [entrant(f"mallang {weights}", "ours", weights=weights, device=device) for weights in ("float32", "int8")]
        others = [
            entrant(
                "hugging face float32", "generate", ("transformers", "mallang"), weights="float32", device=device,
                cache="dynamic",
            )
        ]  # fmt: skip
        others += [
            entrant(
                f"ctranslate2 {weights} {threads} threads", "ctranslate2", ("ctranslate2", "transformers", "mallang"),
                weights=weights, threads=threads,
            )
            for weights, threads in (("int8", 1), ("int8", 2), ("float32", 2))
        ]  # fmt: skip
    return [*own, *others] if peers else own
