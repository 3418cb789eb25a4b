"""A small convolutional encoder of images: one annotation vector for every cell of a grid.

    pixels 0 … 255 → −1 … 1 → [convolution 3 × 3, ReLU] of each width → layer norm → annotations a_1 … a_L

The first convolution and the last halve the sides, so that a cell is a square of 4 × 4 pixels and sees few beyond it:
attention to a cell is attention to a place. Nothing is pooled over the image.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from mallang.errors import UserError

STRIDE = 4
"""Pixels of a side of a cell."""


class ImageEncoder(nn.Module):
    """Convolutions of these widths over an image; the annotation vectors have the last."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        strides = [2, *[1] * (len(widths) - 2), 2]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, width, 3, stride, padding=1)
            for before, width, stride in zip((3, *widths), widths, strides, strict=False)
        )
        self.norm = nn.LayerNorm(widths[-1])
        for convolution in self.convolutions:
            assert isinstance(convolution, nn.Conv2d) and convolution.bias is not None
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            nn.init.zeros_(convolution.bias)

    def forward(self, images: UInt8[Tensor, "batch height width 3"]) -> Float[Tensor, "batch regions dim"]:
        """The annotation vectors of every image, row after row."""
        colors_first = images.permute(0, 3, 1, 2).contiguous()  # else gradients lie otherwise than weights in memory
        x = colors_first.to(self.norm.weight.dtype).div(127.5).sub(1)
        for convolution in self.convolutions:
            x = F.relu(convolution(x))
        annotations: Tensor = self.norm(x.flatten(2).transpose(1, 2))
        return annotations


def grid_of(regions: int, width: int, height: int) -> tuple[int, int]:
    """The rows and columns of the cells of an image; refuses regions that are no such grid."""
    rows, columns = -(-height // STRIDE), -(-width // STRIDE)
    if rows * columns != regions:
        raise UserError(
            f"{regions} regions are no grid over {width} × {height} pixels",
            todo="regions that were given as features have no place in the image that is known here",
        )
    return rows, columns
