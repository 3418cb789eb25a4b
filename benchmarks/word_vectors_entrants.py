"""Training of word vectors for the benchmark of kernels: skip-gram with negative sampling on generated text."""

from __future__ import annotations

from benchmarks.contest import Turn

SEED = 1


def ours(words: int, dim: int, tokens: int, device: str) -> Turn:
    """One epoch of word2vec over words drawn by Zipf's law; a turn is one epoch, in words."""
    import torch

    from mallang.data.batch import Batch
    from mallang.models.word2vec import Config, Model
    from mallang.text.vocabulary import SPECIALS, Vocabulary

    torch.manual_seed(SEED)
    vocabulary = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(words))))
    model = Model(Config(dim=dim, epochs=1), vocabulary).to(device)
    shares = 1.0 / torch.arange(1, words + 1)
    drawn = torch.multinomial(shares, tokens, replacement=True).reshape(-1, 20) + len(SPECIALS)
    batch = Batch(tokens=drawn, lengths=torch.full((len(drawn),), drawn.shape[1])).to(device)

    def turn() -> float:
        for _ in model.fit([batch]):
            pass
        return float(tokens)

    return turn
