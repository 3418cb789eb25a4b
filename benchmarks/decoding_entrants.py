"""Systems of `decoding_speed`: ours, CTranslate2 with the same weights, and Hugging Face's Marian.

Weights are random, sources too. Every system must generate exactly the requested number of tokens: `</s>` is forbidden
before, by the option that each has for it.
"""

from __future__ import annotations

import tempfile
from typing import Any

from benchmarks.contest import Turn
from benchmarks.shape import Shape

SEED = 1


def ours(shape: dict[str, Any], beam: int, batches: int, weights: str, device: str, compile: bool = False) -> Turn:
    """Our search over batches, as many at once as translating does."""
    import torch

    from mallang.decoding.contract import Config
    from mallang.decoding.search import search
    from mallang.decoding.workers import spread, workers
    from mallang.layers.quantization import quantize

    sizes = Shape(**shape)
    model = our_model(sizes).to(device)
    if weights == "int8":
        model = quantize(model)
    method: dict[str, Any] = {"method": "greedy"} if beam == 1 else {"method": "beam", "beam": beam}
    precision: Any = "bf16" if weights == "bfloat16" else "fp32"
    method |= {"min_length": sizes.target, "max_length": sizes.target, "precision": precision, "compile": compile}
    config = Config(**method)
    texts = [our_batch(rows).to(torch.device(device)) for rows in sources(sizes, batches)]

    def run() -> float:
        count = workers(config, torch.device(device))
        for found in spread(model, lambda batch: search(model, batch, config), texts, count):
            assert all(len(nbest[0].token_scores) == sizes.target for nbest in found)
        return sizes.sentences * batches

    return run


def ctranslate2(shape: dict[str, Any], beam: int, batches: int, weights: str, workers: int, threads: int) -> Turn:
    """Its translator, with our weights in its own format and the given numbers of workers and threads."""
    import ctranslate2 as peer

    from mallang.interop.ctranslate2 import specify

    sizes = Shape(**shape)
    model = our_model(sizes)
    names = list(model.vocabulary.tokens)
    with tempfile.TemporaryDirectory() as folder:
        specify(model, names, names).save(folder)
        translator = peer.Translator(
            folder, device="cpu", compute_type=weights, inter_threads=workers, intra_threads=threads
        )
    texts = [[names[i] for i in row[:-1]] for rows in sources(sizes, batches) for row in rows]  # it adds </s> itself

    def run() -> float:
        found = translator.translate_batch(
            texts, beam_size=beam, max_batch_size=sizes.sentences, min_decoding_length=sizes.target,
            max_decoding_length=sizes.target,
        )  # fmt: skip
        assert all(len(each.hypotheses[0]) == sizes.target for each in found)
        return sizes.sentences * batches

    return run


def marian(shape: dict[str, Any], beam: int, batches: int, weights: str, device: str) -> Turn:
    """`generate` of a Marian model of the same shape."""
    import torch

    sizes = Shape(**shape)
    model = their_model(sizes).eval().to(device, getattr(torch, weights))
    texts = [torch.tensor(rows, device=device) for rows in sources(sizes, batches)]

    def run() -> float:
        for rows in texts:
            with torch.inference_mode():
                found = model.generate(
                    input_ids=rows, attention_mask=torch.ones_like(rows), num_beams=beam, do_sample=False,
                    min_new_tokens=sizes.target, max_new_tokens=sizes.target,
                )  # fmt: skip
            assert found.shape == (sizes.sentences, sizes.target + 1)
        return sizes.sentences * batches

    return run


def sources(shape: Shape, batches: int) -> list[list[list[int]]]:
    """Random sentences of equal length, `</s>` at the end of each."""
    import numpy as np

    from mallang.text.vocabulary import EOS, SPECIALS

    drawn = np.random.default_rng(SEED).integers(
        len(SPECIALS), shape.words, (batches, shape.sentences, shape.source - 1)
    )
    return [[[*row, EOS] for row in rows] for rows in drawn.tolist()]


def our_batch(rows: list[list[int]]) -> Any:
    """Sources as a batch that nothing is written to yet."""
    import torch

    from mallang.data.batch import Batch
    from mallang.text.vocabulary import BOS

    source = torch.tensor(rows)
    lengths = torch.full((len(rows),), source.shape[1])
    start = torch.full((len(rows), 1), BOS)
    return Batch(tokens=start, lengths=torch.ones_like(lengths), source=source, source_lengths=lengths)


def our_model(shape: Shape) -> Any:
    """A Transformer that has learned nothing."""
    import torch

    from mallang.models.transformer import Config, Transformer
    from mallang.text.vocabulary import SPECIALS, Vocabulary

    torch.manual_seed(SEED)
    names = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(shape.words - len(SPECIALS)))))
    config = Config(
        layers=shape.layers, dim=shape.dim, hidden_dim=shape.hidden_dim, heads=shape.heads, norm="pre",
        dropout=shape.dropout,
    )  # fmt: skip
    return Transformer(config, names, names).eval()


def their_model(shape: Shape) -> Any:
    """Marian of the same shape: norms after the sublayers, for it knows no others."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    from mallang.text.vocabulary import BOS, EOS, PAD

    torch.manual_seed(SEED)
    both: dict[str, Any] = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", shape.layers), ("attention_heads", shape.heads), ("ffn_dim", shape.hidden_dim))
    }
    config = MarianConfig(
        **both, vocab_size=shape.words, d_model=shape.dim, activation_function="relu", scale_embedding=True,
        max_position_embeddings=2 * max(shape.source, shape.target), dropout=shape.dropout, attention_dropout=0.0,
        activation_dropout=0.0, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=BOS,
        forced_eos_token_id=None,
    )  # fmt: skip
    return MarianMTModel(config)
