"""Training of word vectors by mallang and by gensim, for the benchmarks: on a text file, or on generated words.

python -m benchmarks.word_vectors_entrants JOB    # JOB: a `Job` as JSON; trains in this process, writes an .npz file
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contest import Turn

SEED = 1
MIN_COUNT = 5
"""Rarer words have no vector."""
BATCH = 512
"""Lines of a batch."""
Lines = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Job:
    """A training run."""

    system: str
    """word2vec, glove, fasttext, gensim-word2vec or gensim-fasttext."""
    text: str
    """A file with a line of words per line."""
    out: str
    """The .npz file: words, vectors, and the vectors of `unseen` words where the system can compute them."""
    seed: int
    epochs: int
    options: dict[str, Any]
    """The configuration of our model, or arguments of gensim's."""
    unseen: str = ""
    """A file of words, one per line."""
    device: str = "cpu"


def read_lines(path: Path | str) -> list[list[str]]:
    """The words of every line."""
    return [line.split() for line in Path(path).read_text("utf-8").splitlines()]


def counted(lines: Lines) -> Counter[str]:
    """How often each word occurs."""
    return Counter(word for line in lines for word in line)


def vocabulary_of(counts: Counter[str]) -> Any:
    """Special tokens, then the frequent words."""
    from mallang.text.vocabulary import SPECIALS, Vocabulary

    return Vocabulary((*SPECIALS, *(word for word, count in counts.most_common() if count >= MIN_COUNT)))


def batches(lines: Lines, vocabulary: Any, device: str) -> list[Any]:
    """Lines as batches of ids."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    from mallang.data.batch import Batch

    ids, found = {word: number for number, word in enumerate(vocabulary.tokens)}, list[Any]()
    for first in range(0, len(lines), BATCH):
        rows = [torch.tensor([ids.get(word, vocabulary.unk) for word in line]) for line in lines[first : first + BATCH]]
        tokens = pad_sequence(rows, batch_first=True, padding_value=vocabulary.pad)
        found.append(Batch(tokens=tokens, lengths=torch.tensor([len(row) for row in rows])).to(device))
    return found


def fitted(name: str, options: dict[str, Any], vocabulary: Any, text: Sequence[Any], seed: int, device: str) -> Any:
    """A model of ours, trained."""
    import torch

    from mallang.find import find

    torch.manual_seed(seed)
    module = find("models", name)
    model = module.Model(module.Config(**options), vocabulary).to(device)
    for _ in model.fit(text):
        pass
    return model


def by_mallang(job: Job) -> dict[str, Any]:
    """The words and vectors of a model of ours."""
    import numpy as np

    from mallang.models.contract import SpelledVectors

    lines = read_lines(job.text)
    vocabulary = vocabulary_of(counted(lines))
    options = {**job.options, "epochs": job.epochs}
    model = fitted(job.system, options, vocabulary, batches(lines, vocabulary, job.device), job.seed, job.device)
    found = {"words": np.array(vocabulary.tokens), "vectors": model.vectors().cpu().numpy()}
    if job.unseen and isinstance(model, SpelledVectors):
        found["unseen"] = model.spelled_vectors(Path(job.unseen).read_text("utf-8").split()).cpu().numpy()
    return found


def by_gensim(job: Job) -> dict[str, Any]:
    """The words and vectors of gensim, with a worker for each core."""
    import numpy as np
    from gensim.models import FastText, Word2Vec

    lines = read_lines(job.text)
    kind, workers = FastText if job.system.endswith("fasttext") else Word2Vec, len(os.sched_getaffinity(0))
    model = kind(sg=1, min_count=MIN_COUNT, workers=workers, seed=job.seed, **job.options)
    model.build_vocab(lines)
    model.train(lines, total_examples=len(lines), epochs=job.epochs)
    found = {"words": np.array(model.wv.index_to_key), "vectors": model.wv.vectors}
    if job.unseen and kind is FastText:
        found["unseen"] = np.stack([model.wv[word] for word in Path(job.unseen).read_text("utf-8").split()])
    return found


def ours(words: int, dim: int, tokens: int, device: str) -> Turn:
    """One epoch of word2vec over words drawn by Zipf's law; a turn is one epoch, in words."""
    return epochs_of("word2vec", words, dim, tokens, device)


def our_glove(words: int, dim: int, tokens: int, device: str) -> Turn:
    """Counting and ten epochs of GloVe over such words; a turn is all of it, in words."""
    return epochs_of("glove", words, dim, tokens, device, epochs=10)


def epochs_of(name: str, words: int, dim: int, tokens: int, device: str, epochs: int = 1) -> Turn:
    """The fit of a model to words drawn by Zipf's law."""
    import torch

    from mallang.data.batch import Batch
    from mallang.find import find
    from mallang.text.vocabulary import SPECIALS, Vocabulary

    torch.manual_seed(SEED)
    vocabulary, module = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(words)))), find("models", name)
    model = module.Model(module.Config(dim=dim, epochs=epochs), vocabulary).to(device)
    shares = 1.0 / torch.arange(1, words + 1)
    drawn = torch.multinomial(shares, tokens, replacement=True).reshape(-1, 20) + len(SPECIALS)
    batch = Batch(tokens=drawn, lengths=torch.full((len(drawn),), drawn.shape[1])).to(device)

    def turn() -> float:
        for _ in model.fit([batch]):
            pass
        return float(tokens)

    return turn


def main() -> None:
    """Train what is asked for; the file is whole or not there."""
    import numpy as np

    job = Job(**json.loads(sys.argv[1]))
    found = by_gensim(job) if job.system.startswith("gensim") else by_mallang(job)
    draft = Path(f"{job.out}.draft.npz")
    np.savez(draft, **found)
    draft.rename(job.out)


if __name__ == "__main__":
    main()
