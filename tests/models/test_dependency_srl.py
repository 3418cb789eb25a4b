"""Dependency SRL: the score of a role against the formula, one weight vector per lemma and role, and gradients."""

from __future__ import annotations

from typing import Any

import torch

from mallang.data.batch import Batch, pad_rows
from mallang.layers.flagged_words import RoleLabeler, RoleSizes
from mallang.models.contract import Encoder
from mallang.models.dependency_srl import Config, DependencySRL
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, "Kim", "gave", "Lee", "rice", "먹다", "Seoul"))
ROWS = [[4, 5, 6, 7, 3], [9, 5, 3], [8, 4, 5, 9, 3]]


def made(features: int = 0) -> DependencySRL:
    torch.manual_seed(1)
    config = Config(
        embedding_dim=5, character_dim=4, character_features=6, flag_dim=3, dim=4, layers=2, role_dim=3, lemma_dim=2
    )
    return DependencySRL(config, WORDS, RoleSizes(roles=5, lemmas=4, features=features)).eval()


def batch_of(rows: list[list[int]], asked: list[int], lemmas: list[int]) -> Batch:
    tokens, lengths = pad_rows(rows)
    words, _ = pad_rows([range(len(row) - 1) for row in rows], -1)
    return Batch(tokens=tokens, lengths=lengths, words=words, asked=torch.tensor(asked), lemmas=torch.tensor(lemmas))


@torch.no_grad()
def test_the_score_of_a_role_is_its_formula() -> None:
    model, batch = made(), batch_of(ROWS, [1, 1, 2], [2, 0, 3])
    found = model.label(batch).roles
    weights: Any = model.to_roles
    both = torch.cat((weights.from_lemma.weight, weights.from_role.weight), dim=1)  # U
    for row, (asked, lemma) in enumerate(zip([1, 1, 2], [2, 0, 3], strict=True)):
        states = model.encode(batch).layers[-1][row]
        for word in range(len(ROWS[row]) - 1):
            pair = torch.cat((states[word], states[asked]))
            for role in range(5):
                u, v = weights.lemmas.weight[lemma], weights.roles.weight[role]
                expected = (both @ torch.cat((u, v))).relu() @ pair
                torch.testing.assert_close(found[row, word, role], expected)


@torch.no_grad()
def test_lemma_and_predicate_decide_and_rows_do_not_disturb_each_other() -> None:
    model = made()
    first = model.label(batch_of([ROWS[0]], [1], [1])).roles
    assert not torch.equal(model.label(batch_of([ROWS[0]], [1], [2])).roles, first)
    assert not torch.equal(model.label(batch_of([ROWS[0]], [2], [1])).roles, first)
    together = model.label(batch_of(ROWS, [1, 0, -1], [1, 0, 0])).roles
    torch.testing.assert_close(together[0], first[0])


def test_features_are_read_and_every_weight_is_trained() -> None:
    model, batch = made(features=2), batch_of(ROWS, [1, 1, -1], [1, 2, 0])
    features = torch.randn(3, 4, 2)
    first, second = model.label(batch, features), model.label(batch, features + 1)
    assert not torch.equal(first.roles, second.roles)
    (first.roles.square().sum() + first.predicates.square().sum()).backward()
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in trained.values())
    assert isinstance(model, Encoder) and isinstance(model, RoleLabeler)
