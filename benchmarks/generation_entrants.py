"""Systems of `generation_speed`: ours, Hugging Face's `generate`, and CTranslate2, with the same weights.

Weights are random. Every system reads the same prompts and generates exactly the requested number of tokens, greedily.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.contest import Turn, for_a_second
from benchmarks.gpt_models import SEED, Shape, hugging_face
from benchmarks.gpt_models import ours as our_model


def ours(
    shape: dict[str, Any], rows: int, new: int, prompt: int, weights: str, device: str, compile: bool = False
) -> Turn:
    """Our greedy search, as the verb generate runs it."""
    import torch

    from mallang.decoding.contract import Config
    from mallang.decoding.prompted import Prompted, prompt_batch
    from mallang.decoding.search import search
    from mallang.layers.quantization import quantize

    sizes = Shape(**shape)
    model = our_model(sizes).eval().to(device)
    if weights == "int8":
        model = quantize(model)
    precision: Any = "bf16" if weights == "bfloat16" else "fp32"
    config = Config(method="greedy", min_length=new, max_length=new, precision=precision, compile=compile)
    batch = prompt_batch(prompts(sizes, rows, prompt)).to(torch.device(device))
    reader = Prompted(model)

    def run() -> float:
        found = search(reader, batch, config)
        assert all(len(nbest[0].token_scores) == new for nbest in found)
        return rows * new

    return for_a_second(run)


def generate(shape: dict[str, Any], rows: int, new: int, prompt: int, weights: str, device: str, cache: str) -> Turn:
    """Hugging Face's, with a cache that grows (dynamic), or one of a fixed size, which it compiles (static)."""
    import torch

    sizes = Shape(**shape)
    model = hugging_face(sizes).eval().to(device, getattr(torch, weights))
    ids = torch.tensor(prompts(sizes, rows, prompt), device=device)
    options = {"cache_implementation": cache} if cache == "static" else {}

    def run() -> float:
        with torch.inference_mode():
            found = model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=new,
                max_new_tokens=new, **options,
            )  # fmt: skip
        assert found.shape == (rows, prompt + new)
        return rows * new

    return for_a_second(run)


def ctranslate2(shape: dict[str, Any], rows: int, new: int, prompt: int, weights: str, threads: int) -> Turn:
    """CTranslate2's generator, converted from a Hugging Face folder that is made on the spot."""
    import ctranslate2 as peer
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    sizes = Shape(**shape)
    names = [f"w{number}" for number in range(sizes.words)]
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "source"), Path(folder, "target")
        hugging_face(sizes).save_pretrained(source)
        backend = Tokenizer(models.WordLevel({name: place for place, name in enumerate(names)}, unk_token=names[1]))
        PreTrainedTokenizerFast(
            tokenizer_object=backend, pad_token=names[0], unk_token=names[1], bos_token=names[2], eos_token=names[3]
        ).save_pretrained(source)
        peer.converters.TransformersConverter(str(source)).convert(str(target), force=True)
        generator = peer.Generator(
            str(target), device="cpu", compute_type=weights, inter_threads=1, intra_threads=threads
        )
    starts = [[names[place] for place in row] for row in prompts(sizes, rows, prompt)]

    def run() -> float:
        found = generator.generate_batch(
            starts, sampling_topk=1, min_length=new, max_length=new, include_prompt_in_result=False
        )
        assert all(len(each.sequences_ids[0]) == new for each in found)
        return rows * new

    return for_a_second(run)


def prompts(shape: Shape, rows: int, length: int) -> list[list[int]]:
    """`<s>` and random words."""
    import numpy as np

    from mallang.text.vocabulary import BOS, SPECIALS

    drawn = np.random.default_rng(SEED).integers(len(SPECIALS), shape.words, (rows, length - 1))
    return [[BOS, *row] for row in drawn.tolist()]
