"""The device that a model runs on."""

from __future__ import annotations

import torch

from mallang.errors import UserError


def choose_device(name: str = "auto", local_rank: int = 0) -> torch.device:
    """The device with this name; auto takes a GPU where there is one."""
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
        # With TF32 cuDNN rounds the inputs of recurrent layers to 10 bits in float32: the score of a sentence changed
        # by 1e-3, while the same layers step by step are exact.
        torch.backends.cudnn.allow_tf32 = False
    elif device.type != "cpu":
        raise UserError(f"the device {name!r} is not supported", todo="use --device cpu or cuda")
    return device
