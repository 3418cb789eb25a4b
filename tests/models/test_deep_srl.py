"""Deep SRL: layers in turn, a flag that matters, features at the input, and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mallang.data.batch import Batch, pad_rows
from mallang.layers.flagged_words import RoleLabeler, RoleSizes
from mallang.layers.spelling import ReadsSpelling
from mallang.models.contract import Encoder
from mallang.models.deep_srl import Config, DeepSRL
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, "Kim", "gave", "Lee", "rice", "먹다", "Seoul"))
ROWS = [[4, 5, 6, 7, 3], [9, 5, 3], [8, 4, 5, 9, 3]]


def made(features: int = 0, **options: Any) -> DeepSRL:
    torch.manual_seed(1)
    small = {"embedding_dim": 5, "flag_dim": 3, "dim": 4, "layers": 3, "character_features": 6, **options}
    return DeepSRL(Config(**small), WORDS, RoleSizes(roles=5, lemmas=4, features=features)).eval()


def batch_of(rows: list[list[int]], asked: list[int]) -> Batch:
    tokens, lengths = pad_rows(rows)
    words, _ = pad_rows([range(len(row) - 1) for row in rows], -1)
    return Batch(
        tokens=tokens, lengths=lengths, words=words, asked=torch.tensor(asked), lemmas=torch.zeros(len(rows), dtype=int)
    )


@torch.no_grad()
def test_the_layers_read_to_and_fro() -> None:
    """The last word reaches the first one from the second layer on, and the first one reaches the last at once."""
    model = made()
    for change, reached in ((3, [False, True, True]), (0, [True, True, True])):
        row = ROWS[0].copy()
        other = [*row[:change], 9, *row[change + 1 :]]
        states = [model.encode(batch_of([each], [1])).layers for each in (row, other)]
        far = 0 if change == 3 else 3
        changed = [not torch.equal(one[0, far], two[0, far]) for one, two in zip(*states, strict=True)]
        assert changed == reached


@torch.no_grad()
def test_the_flag_decides_whose_roles_are_asked_for() -> None:
    model = made()
    found = [model.label(batch_of([ROWS[0]], [asked])) for asked in (-1, 0, 1)]
    assert found[0].roles.shape == (1, 4, 5) and found[0].predicates.shape == (1, 4)
    assert not torch.equal(found[1].roles, found[2].roles) and not torch.equal(found[0].roles, found[1].roles)
    together = model.label(batch_of(ROWS, [1, 1, -1]))
    torch.testing.assert_close(together.roles[0], found[2].roles[0])
    alone = model.label(batch_of([ROWS[1]], [1]))
    torch.testing.assert_close(together.roles[1, :2], alone.roles[0])


def test_features_are_read_and_every_weight_is_trained() -> None:
    model, batch = made(features=2), batch_of(ROWS, [1, 1, -1])
    features = torch.randn(3, 4, 2)
    first, second = model.label(batch, features), model.label(batch, features + 1)
    assert not torch.equal(first.roles, second.roles)
    (first.roles.square().sum() + first.predicates.square().sum()).backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in model.parameters())


@torch.no_grad()
def test_unknown_words_are_read_from_their_characters() -> None:
    model = made()
    assert isinstance(model, Encoder) and isinstance(model, RoleLabeler) and isinstance(model, ReadsSpelling)
    [known, other] = model.ids_of_oov(["Leek", "rices"])
    one, two = (model.encode(batch_of([[4, word, 6, 3]], [1])).layers[-1] for word in (known, other))
    assert known >= 2 * len(WORDS) and not torch.equal(one, two)
    model.forget_oov(0)
    plain = made(character_features=0)
    assert plain.ids_of_oov(["KIM", "Leek"]) == [4, WORDS.unk], "without characters only case and digits are forgiven"


def test_impossible_shapes_are_refused() -> None:
    for wrong in ({"layers": 0}, {"dropout": 1.0}, {"character_features": 0, "jamo": True}, {"longest_word": 2}):
        with pytest.raises(ValueError, match="must be|no effect"):
            Config(**wrong)  # type: ignore[arg-type]
