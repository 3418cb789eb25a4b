"""Mappings of word vectors: against a known rotation, a loop over CSLS, and the closed form of Procrustes."""

from __future__ import annotations

import torch
from torch import Tensor

from mallang.layers.vector_mapping import (
    NEIGHBORHOOD,
    Adversary,
    adversarially,
    agreement,
    by_pairs,
    by_similarities,
    closeness,
    csls_neighbors,
    identical_words,
    mutual_neighbors,
    one_attempt,
    procrustes,
    refine,
    unit,
)


def clusters(words: int, dim: int, seed: int = 1) -> Tensor:
    """Vectors with a shape of their own: clusters of unequal sizes and spreads, so that one rotation fits alone."""
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(8, dim, generator=generator) * torch.linspace(0.3, 2, dim)
    sizes = torch.tensor([0.3, 0.2, 0.15, 0.1, 0.1, 0.05, 0.05, 0.05])
    chosen = torch.multinomial(sizes, words, replacement=True, generator=generator)
    return unit(centers[chosen] + 0.4 * torch.randn(words, dim, generator=generator))


def rotation(dim: int, seed: int = 2) -> Tensor:
    return torch.linalg.qr(torch.randn(dim, dim, generator=torch.Generator().manual_seed(seed)))[0]


def test_procrustes_finds_a_rotation_again_and_is_orthogonal() -> None:
    source, turn = clusters(60, 10), rotation(10)
    found = procrustes(source, source @ turn)
    torch.testing.assert_close(found, turn, atol=1e-4, rtol=1e-4)
    noisy = procrustes(source, source @ turn + 0.1 * torch.randn(60, 10, generator=torch.Generator().manual_seed(3)))
    torch.testing.assert_close(noisy @ noisy.T, torch.eye(10), atol=1e-5, rtol=0)


def test_no_rotation_nearby_is_better_than_that_of_procrustes() -> None:
    source, target = clusters(40, 6), clusters(40, 6, seed=9)
    best = float((source @ procrustes(source, target) - target).square().sum())
    for seed in range(50):
        assert float((source @ rotation(6, seed) - target).square().sum()) >= best - 1e-4


def test_csls_is_the_formula_of_the_paper() -> None:
    source, target, near = clusters(13, 5), clusters(17, 5, seed=4), NEIGHBORHOOD
    expected = torch.zeros(13, 17)
    for i, x in enumerate(source):
        for j, y in enumerate(target):
            r_target = sorted((float(x @ other) for other in target), reverse=True)[:near]
            r_source = sorted((float(y @ other) for other in source), reverse=True)[:near]
            expected[i, j] = 2 * float(x @ y) - sum(r_target) / near - sum(r_source) / near
    torch.testing.assert_close(closeness(source, target, near)[0], (source[0] @ target.T).topk(near).values.mean())
    values, places = csls_neighbors(source, target, 3)
    torch.testing.assert_close(values, expected.topk(3, dim=1).values, atol=1e-5, rtol=0)
    assert torch.equal(places, expected.topk(3, dim=1).indices)


def test_mutual_neighbors_choose_each_other() -> None:
    source, target = clusters(30, 6), clusters(25, 6, seed=5)
    forth, back = csls_neighbors(source, target)[1][:, 0].tolist(), csls_neighbors(target, source)[1][:, 0].tolist()
    expected = [[word, other] for word, other in enumerate(forth) if back[other] == word]
    assert expected and mutual_neighbors(source, target).tolist() == expected


def test_a_few_pairs_and_refinement_find_a_noisy_rotation() -> None:
    source, noise = clusters(400, 20), torch.Generator().manual_seed(7)
    target = unit(source @ rotation(20) + 0.03 * torch.randn(400, 20, generator=noise))
    start = by_pairs(source, target, [(i, i) for i in range(15)])
    refined = refine(start, source, target, rounds=5)

    def right(mapping: Tensor) -> float:
        return float((csls_neighbors(source @ mapping, target)[1][:, 0] == torch.arange(400)).float().mean())

    assert right(refined) > 0.9 and right(refined) > right(start) + 0.1
    assert agreement(source @ refined, target) > agreement(source @ start, target)


def right_share(mapping: Tensor, source: Tensor, target: Tensor, order: Tensor) -> float:
    """The share of words whose nearest neighbor is the word that they were before the shuffling."""
    nearest = csls_neighbors(source @ mapping, target)[1][:, 0]
    return float((order[nearest] == torch.arange(len(source))).float().mean())


def test_the_adversarial_game_turns_a_mapping_the_right_way() -> None:
    dim, generator = 8, torch.Generator().manual_seed(7)
    skew = torch.randn(dim, dim, generator=torch.Generator().manual_seed(2))
    turn = torch.linalg.matrix_exp(1.2 * (skew - skew.T) / torch.linalg.matrix_norm(skew - skew.T, 2))
    source, order = clusters(400, dim), torch.randperm(400, generator=generator)
    target = unit(source @ turn + 0.01 * torch.randn(400, dim, generator=generator))[order]
    adversary = Adversary(updates=300, hidden_dim=64, discriminator_updates=2, dropout=0.0)
    start = torch.eye(dim)
    played = one_attempt(start, source, target, adversary, torch.Generator().manual_seed(1))
    torch.testing.assert_close(played @ played.T, torch.eye(dim), atol=1e-4, rtol=0)
    assert right_share(start, source, target, order) < 0.3 and right_share(played, source, target, order) > 0.8


def test_attempts_are_chosen_without_translations_and_by_the_seed_alone() -> None:
    source = clusters(80, 5)
    target = unit(source @ rotation(5))
    adversary = Adversary(updates=10, attempts=2, hidden_dim=8)
    first, again = (adversarially(source, target, adversary, seed=3) for _ in range(2))
    assert torch.equal(first, again)
    alone = adversarially(source, target, Adversary(updates=10, attempts=1, hidden_dim=8), seed=3)
    assert agreement(source @ first, target) >= agreement(source @ alone, target)


def test_similarities_within_each_language_find_any_rotation() -> None:
    source, generator = clusters(300, 8), torch.Generator().manual_seed(7)
    order = torch.randperm(300, generator=generator)
    target = unit(source @ rotation(8) + 0.01 * torch.randn(300, 8, generator=generator))[order]
    assert right_share(refine(by_similarities(source, target), source, target), source, target, order) > 0.9


def test_words_that_are_spelled_alike() -> None:
    assert identical_words(["a", "hotel", "dog"], {"hotel": 4, "hund": 5, "a": 0}) == [(0, 0), (1, 4)]
