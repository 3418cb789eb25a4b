"""What every worker needs: imported once, before workers are forked, so that a replaced one starts in no time."""

import torch

import mallang.loading
import mallang.serving.calls

__all__ = ["mallang", "torch"]
