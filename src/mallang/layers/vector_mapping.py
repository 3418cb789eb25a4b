"""A mapping of the word vectors of one language into the space of another, with translations of few words or none.

Word Translation Without Parallel Data. Conneau, Lample, Ranzato, Denoyer, Jégou 2018, arXiv:1710.04087; the orthogonal
mapping is that of Smith et al. 2017, arXiv:1702.03859.

    start        an orthogonal W so that x W is near the translation of x: from pairs of words, or adversarially, when
                 a discriminator can no longer say whether a vector is mapped or of the other language, or from words
                 whose similarities to the others of their language are alike
    refinement   words that are mutual nearest neighbors are the pairs of the next W (Procrustes), several times

Neighbors are nearest by CSLS, which takes from a cosine the mean similarity of both words to their neighborhoods, so
that no hub is the translation of everything. All vectors here have length 1, and row i is the i-th most frequent word.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

NEIGHBORHOOD = 10
"""Neighbors whose mean similarity CSLS takes off."""
CHUNK = 1024
"""Rows of a similarity matrix that are computed at once."""


@dataclass(frozen=True, kw_only=True)
class Adversary:
    """The adversarial start: sizes and learning rates of mapping and discriminator."""

    updates: int = 4000
    """Updates of the mapping in each attempt."""
    attempts: int = 3
    """Attempts, the first from the identity, the others from random rotations; the best by `agreement` is kept."""
    rows: int = 64
    """Words of each language per update."""
    words: int = 5000
    """The most frequent words, from which they are drawn."""
    hidden_dim: int = 256
    """Size of both hidden layers of the discriminator."""
    dropout: float = 0.1
    """Dropout on the vectors that the discriminator reads."""
    discriminator_updates: int = 3
    """Updates of the discriminator for each of the mapping."""
    learning_rate: float = 0.3
    """The learning rate of plain SGD for both; it falls linearly to a tenth."""
    smoothing: float = 0.1
    """Label smoothing of the discriminator."""
    orthogonality: float = 0.01
    """β of W ← (1 + β) W − β (W Wᵀ) W, which pulls the mapping towards an orthogonal one after each update."""


def unit(vectors: Float[Tensor, "words dim"], *, centered: bool = True) -> Float[Tensor, "words dim"]:
    """Vectors of length 1; `centered` takes their mean off in between (Artetxe et al. 2016)."""
    normed = F.normalize(vectors.float(), dim=1)
    return F.normalize(normed - normed.mean(dim=0), dim=1) if centered else normed


def procrustes(source: Float[Tensor, "pairs dim"], target: Float[Tensor, "pairs dim"]) -> Float[Tensor, "dim dim"]:
    """The orthogonal W with the least squared distance between source W and target: U Vᵀ of sourceᵀ target."""
    left, _, right = torch.linalg.svd(source.T @ target)
    found: Tensor = left @ right
    return found


def closeness(
    vectors: Float[Tensor, "words dim"], others: Float[Tensor, "others dim"], count: int = NEIGHBORHOOD
) -> Float[Tensor, " words"]:
    """The mean cosine of every vector to its nearest neighbors among the others."""
    count = min(count, len(others))
    return torch.cat([(some @ others.T).topk(count, dim=1).values.mean(dim=1) for some in torch.split(vectors, CHUNK)])


def csls_neighbors(
    source: Float[Tensor, "words dim"], target: Float[Tensor, "others dim"], count: int = 1
) -> tuple[Float[Tensor, "words count"], Int[Tensor, "words count"]]:
    """The nearest target words of every source word by CSLS, and their CSLS; both are in one space."""
    hubness = closeness(target, source)
    own = closeness(source, target)
    found = [
        (2 * some @ target.T - hubness).topk(min(count, len(target)), dim=1) for some in torch.split(source, CHUNK)
    ]
    values = torch.cat([each.values for each in found]) - own[:, None]
    return values, torch.cat([each.indices for each in found])


def mutual_neighbors(source: Float[Tensor, "words dim"], target: Float[Tensor, "others dim"]) -> Int[Tensor, "pairs 2"]:
    """The pairs of words that are each other's nearest neighbor by CSLS."""
    forth, back = csls_neighbors(source, target)[1][:, 0], csls_neighbors(target, source)[1][:, 0]
    words = torch.arange(len(source), device=source.device)
    kept = back[forth] == words
    return torch.stack((words[kept], forth[kept]), dim=1)


def refine(
    mapping: Float[Tensor, "dim dim"],
    source: Float[Tensor, "words dim"],
    target: Float[Tensor, "others dim"],
    *,
    rounds: int = 5,
    words: int = 10_000,
) -> Float[Tensor, "dim dim"]:
    """Procrustes on the mutual neighbors under the mapping so far; the round with the best `agreement` is kept."""
    source, target = source[:words], target[:words]
    best, value = mapping, agreement(source @ mapping, target)
    for _ in range(rounds):
        pairs = mutual_neighbors(source @ mapping, target)
        if len(pairs) < 2:
            break
        mapping = procrustes(source[pairs[:, 0]], target[pairs[:, 1]])
        if (now := agreement(source @ mapping, target)) > value:
            best, value = mapping, now
    return best


def agreement(source: Float[Tensor, "words dim"], target: Float[Tensor, "others dim"], words: int = 10_000) -> float:
    """The mean cosine of frequent source words to their nearest target words by CSLS: how good a mapping seems.

    It needs no translations, so that attempts can be compared by it (section 2.4 of the paper).
    """
    mapped, others = source[:words], target[:words]
    nearest = csls_neighbors(mapped, others)[1][:, 0]
    return float((mapped * others[nearest]).sum(dim=1).mean())


def by_pairs(
    source: Float[Tensor, "words dim"], target: Float[Tensor, "others dim"], pairs: Sequence[tuple[int, int]]
) -> Float[Tensor, "dim dim"]:
    """Procrustes on given pairs of row numbers: supervised, or from words that both languages spell alike."""
    rows = torch.tensor(list(pairs), dtype=torch.long, device=source.device).view(-1, 2)
    return procrustes(source[rows[:, 0]], target[rows[:, 1]])


def identical_words(source: Sequence[str], target: Mapping[str, int]) -> list[tuple[int, int]]:
    """The row numbers of words with the same spelling in both languages."""
    return [(row, target[word]) for row, word in enumerate(source) if word in target]


def by_similarities(
    source: Float[Tensor, "words dim"], target: Float[Tensor, "others dim"], words: int = 4000
) -> Float[Tensor, "dim dim"]:
    """Procrustes on words whose similarities to their own language are alike, whichever words they are to.

    The sorted similarities of a word are a vector that needs no mapping (Artetxe, Labaka, Agirre 2018,
    arXiv:1805.06297).
    """
    count = min(words, len(source), len(target))
    one, other = (unit(similarities(vectors[:count])) for vectors in (source, target))
    pairs = mutual_neighbors(one, other)
    return procrustes(source[pairs[:, 0]], target[pairs[:, 1]])


def similarities(vectors: Float[Tensor, "words dim"]) -> Float[Tensor, "words words"]:
    """The similarities of every word to all words, sorted; square roots make large ones count less."""
    left, sizes, _ = torch.linalg.svd(vectors, full_matrices=False)
    found: Tensor = (left * sizes @ left.T).sort(dim=1, descending=True).values
    return found


def adversarially(
    source: Float[Tensor, "words dim"],
    target: Float[Tensor, "others dim"],
    adversary: Adversary,
    seed: int,
) -> Float[Tensor, "dim dim"]:
    """A mapping under which a discriminator cannot tell mapped vectors from those of the target; the best attempt."""
    found = []
    for attempt in range(adversary.attempts):
        generator = torch.Generator().manual_seed(1000 * seed + attempt)
        dim = source.shape[1]
        start = torch.linalg.qr(torch.randn(dim, dim, generator=generator))[0] if attempt else torch.eye(dim)
        mapping = one_attempt(start.to(source.device), source, target, adversary, generator)
        mapping = refine(mapping, source, target, rounds=2)
        found.append((agreement(source @ mapping, target), -attempt, mapping))
    return max(found, key=lambda each: each[:2])[2]


def one_attempt(
    start: Float[Tensor, "dim dim"],
    source: Float[Tensor, "words dim"],
    target: Float[Tensor, "others dim"],
    adversary: Adversary,
    generator: torch.Generator,
) -> Float[Tensor, "dim dim"]:
    """Alternating updates of the discriminator and of the mapping."""
    dim, device = source.shape[1], source.device
    # Of variance one in each dimension: the updates of vectors of length 1 would be too small.
    first, other = (vectors[: adversary.words] * dim**0.5 for vectors in (source, target))
    mapping = start.clone().requires_grad_()
    weights = discriminator(dim, adversary.hidden_dim, generator, device)
    rows, smoothing = adversary.rows, adversary.smoothing
    is_mapped = torch.cat((torch.ones(rows), torch.zeros(rows))).to(device)

    def draw(vectors: Tensor) -> Tensor:
        return vectors[torch.randint(len(vectors), (rows,), generator=generator).to(device)]

    def loss(both: Tensor, labels: Tensor) -> Tensor:
        kept = torch.rand(both.shape, generator=generator).to(device) >= adversary.dropout
        logits = judge(weights, both * kept / (1 - adversary.dropout))
        return F.binary_cross_entropy_with_logits(logits, labels)

    for update in range(adversary.updates):
        rate = adversary.learning_rate * (1 - 0.9 * update / adversary.updates)
        for _ in range(adversary.discriminator_updates):
            both = torch.cat(((draw(first) @ mapping).detach(), draw(other)))
            descend(weights, loss(both, is_mapped * (1 - 2 * smoothing) + smoothing), rate)
        both = torch.cat((draw(first) @ mapping, draw(other)))
        descend([mapping], loss(both, (1 - is_mapped) * (1 - 2 * smoothing) + smoothing), rate)
        with torch.no_grad():
            beta = adversary.orthogonality
            mapping.copy_((1 + beta) * mapping - beta * (mapping @ mapping.T) @ mapping)
    left, _, right = torch.linalg.svd(mapping.detach())
    found: Tensor = left @ right
    return found


def discriminator(dim: int, hidden_dim: int, generator: torch.Generator, device: torch.device) -> list[Tensor]:
    """The weights of two hidden layers and one output, each a matrix and a bias."""
    sizes, weights = (dim, hidden_dim, hidden_dim, 1), []
    for inputs, outputs in itertools.pairwise(sizes):
        bound = inputs**-0.5
        for shape in ((outputs, inputs), (outputs,)):
            drawn = (2 * torch.rand(shape, generator=generator) - 1) * bound
            weights.append(drawn.to(device).requires_grad_())
    return weights


def judge(weights: Sequence[Tensor], vectors: Float[Tensor, "rows dim"]) -> Float[Tensor, " rows"]:
    """The logit that each vector is a mapped one."""
    x = vectors
    for place in range(0, len(weights) - 2, 2):
        x = F.leaky_relu(F.linear(x, weights[place], weights[place + 1]), 0.2)
    return F.linear(x, weights[-2], weights[-1])[:, 0]


def descend(weights: Sequence[Tensor], loss: Tensor, rate: float) -> None:
    """One update of plain SGD."""
    gradients = torch.autograd.grad(loss, list(weights))
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.sub_(rate * gradient)
