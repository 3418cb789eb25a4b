"""Shapes in signatures are checked while the tests run, before anything of mallang is imported."""

import os

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from jaxtyping import install_import_hook

install_import_hook("mallang", "beartype.beartype")

import torch

torch.set_num_threads(1)
