"""On which device and with how many bits: fp32 on the CPU, bf16 autocast over fp32 weights on a GPU."""

from __future__ import annotations

import contextlib
from typing import Literal

import torch

from mallang.errors import UserError

Precision = Literal["auto", "fp32", "bf16"]


def choose_device(name: str = "auto", local_rank: int = 0) -> torch.device:
    """The device of a name: auto takes a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"there is no device {name!r}", todo="use --device auto, cpu, cuda or cuda:1") from error
    if device.type == "cuda":
        count = torch.cuda.device_count()
        number = local_rank if device.index is None else device.index
        if number >= count:
            raise UserError(f"there is no device {name!r}: this machine has {count} GPUs", todo="use --device cpu")
        device = torch.device("cuda", number)
        torch.cuda.set_device(device)
        # cuDNN would round the inputs of recurrent layers to 10 bits where float32 was asked for: a score of a sentence
        # moved by 1e-3, while the same layers step by step round nothing.
        torch.backends.cudnn.allow_tf32 = False
    elif device.type != "cpu":
        raise UserError(f"the device {name!r} is not supported", todo="use --device cpu or cuda")
    return device


def autocast(precision: Precision, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """The context the model runs in; the weights stay fp32."""
    wanted = ("bf16" if device.type == "cuda" else "fp32") if precision == "auto" else precision
    if wanted == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)
