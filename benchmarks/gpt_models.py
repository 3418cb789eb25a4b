"""GPT-2 in three hands: ours, nanoGPT's `model.py` from a path, and Hugging Face's, all with the same weights.

The weights are ours as they begin, random, copied to the others by name. Nothing of nanoGPT is in this repository: its
file is read where it lies.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import asdict, dataclass
from typing import Any

SEED = 1


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A GPT with one table for embeddings and the output, biases, and no dropout."""

    layers: int
    dim: int
    heads: int
    words: int
    context: int

    def options(self) -> dict[str, Any]:
        """As plain values, for another process."""
        return asdict(self)

    def operations(self, seen: float) -> float:
        """Floating-point operations of one token forward, where a token sees so many on average, itself among them:
        two for each weight that it meets, and attention."""
        weights = self.layers * 12 * self.dim**2 + self.dim * self.words
        return 2 * (weights + 2 * self.layers * self.dim * seen)


GPT2 = Shape(layers=12, dim=768, heads=12, words=50304, context=1024)
"""124M parameters; the vocabulary filled up to a multiple of 64, as nanoGPT does, for everyone."""


def ours(shape: Shape) -> Any:
    """Our GPT as it begins."""
    import torch

    from mallang.models.gpt import GPT, Config
    from mallang.text.vocabulary import SPECIALS, Vocabulary

    torch.manual_seed(SEED)
    names = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(shape.words - len(SPECIALS)))))
    config = Config(
        layers=shape.layers, dim=shape.dim, heads=shape.heads, max_length=shape.context, dropout=0.0,
        attention_dropout=0.0,
    )  # fmt: skip
    return GPT(config, names)


def nanogpt(shape: Shape, path: str) -> Any:
    """nanoGPT with our weights."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["nanogpt_model"] = module
    spec.loader.exec_module(module)
    sizes = {"n_layer": shape.layers, "n_head": shape.heads, "n_embd": shape.dim}
    config = module.GPTConfig(block_size=shape.context, vocab_size=shape.words, dropout=0.0, bias=True, **sizes)
    model = module.GPT(config)
    copy_weights(ours(shape), model, transposed=False)
    return model


def hugging_face(shape: Shape) -> Any:
    """Hugging Face's GPT-2 with our weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    from mallang.text.vocabulary import BOS, EOS, PAD

    sizes = {"n_layer": shape.layers, "n_head": shape.heads, "n_embd": shape.dim, "n_positions": shape.context}
    dropped = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    ids = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=shape.words, **sizes, **dropped, **ids))
    copy_weights(ours(shape), model, transposed=True)
    return model


def copy_weights(source: Any, target: Any, *, transposed: bool) -> None:
    """Our weights into a model whose parts are named as in GPT-2's first code; c_… matrices may be transposed."""
    import torch

    from mallang.models.gpt import HF_NAMES

    theirs, done = dict(target.named_parameters()), set()
    for name, value in source.named_parameters():
        part, _, kind = name.rpartition(".")
        layer = next((piece for piece in part.split(".") if piece.isdigit()), "")
        their_name = HF_NAMES[part.replace(f".{layer}.", ".{}.")][0].format(layer) + "." + kind
        own = f"transformer.{their_name}"
        if own not in theirs and kind == "weight" and "wte" in their_name:
            own = "lm_head.weight"  # the same tensor under its other name
        turned = transposed and ".c_" in their_name and kind == "weight"
        with torch.no_grad():
            theirs[own].copy_(value.t() if turned else value)
        done.add(own)
    if missed := set(theirs) - done:
        raise RuntimeError(f"no weights for {sorted(missed)}")
