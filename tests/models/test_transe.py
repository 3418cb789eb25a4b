"""TransE: its distances against loops."""

from __future__ import annotations

import pytest
import torch

from mallang.models.transe import Config, TransE
from mallang.text.vocabulary import SPECIALS, Vocabulary

VOCABULARY = Vocabulary((*SPECIALS, *"abcdefg"))
RELATIONS = 3


def model_of(**config: object) -> TransE:
    torch.manual_seed(2)
    return TransE(Config(dim=5, scale=1.0, **config), VOCABULARY, RELATIONS).eval()  # type: ignore[arg-type]


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@torch.no_grad()
def test_scores_are_minus_the_distance_of_a_translation(norm: int, reciprocal: bool, unit: bool) -> None:
    model = model_of(norm=norm, reciprocal=reciprocal, unit_entities=unit)
    vectors, relations = model.vectors(), model.relation.weight
    assert unit == bool(torch.allclose(vectors.norm(dim=1), torch.ones(len(VOCABULARY))))
    for entity in range(4, len(VOCABULARY)):
        for relation in range(RELATIONS):
            asked = torch.tensor([entity]), torch.tensor([relation])
            tails, heads = (model.answer_scores(*asked, heads=heads)[0] for heads in (False, True))
            for other in range(len(VOCABULARY)):
                ahead = vectors[entity] + relations[relation] - vectors[other]
                back = vectors[other] + relations[relation] - vectors[entity]
                if reciprocal:
                    back = vectors[entity] + relations[RELATIONS + relation] - vectors[other]
                for found, difference in ((tails, ahead), (heads, back)):
                    assert float(found[other]) == pytest.approx(-float(difference.norm(p=norm)), abs=2e-4)


@pytest.mark.parametrize("norm", [1, 2])
def test_pairs_have_the_scores_of_the_matrix(norm: int) -> None:
    model = model_of(norm=norm)
    asked = model.entities(torch.tensor([4, 5, 6]))
    queries = model.queries(asked, torch.tensor([0, 1, 2]), heads=False)
    answers = model.entities(torch.tensor([7, 8, 9]))
    torch.testing.assert_close(
        model.pair_scores(queries, answers), model.scores(queries, answers).diagonal(), atol=1e-4, rtol=1e-4
    )


@torch.no_grad()
def test_gradients_are_finite_where_a_distance_is_zero() -> None:
    model = model_of()
    with torch.enable_grad():
        vectors = model.entities(torch.tensor([4, 4]))
        (model.pair_scores(vectors, vectors).sum() + model.scores(vectors, vectors).sum()).backward()
    assert model.embedding.weight.grad is not None and model.embedding.weight.grad.isfinite().all()


def test_candidates_are_the_tokens_that_are_not_special() -> None:
    assert model_of().candidate_ids().tolist() == list(range(4, len(VOCABULARY)))
    with pytest.raises(ValueError, match="scale must be above 0"):
        Config(scale=0.0)


def test_initial_values_have_the_distribution_that_is_asked_for():
    def weights(**config):
        torch.manual_seed(1)
        words = Vocabulary((*SPECIALS, *(f"e{number}" for number in range(400))))
        return TransE(Config(dim=64, **config), words, relations=30).embedding.weight.detach()

    uniform = weights(initial="uniform", scale=0.01)
    assert uniform.abs().max() <= 0.01 and uniform.std() == pytest.approx(0.01 / 3**0.5, rel=0.05)
    assert weights(scale=0.3).std() == pytest.approx(0.3, rel=0.05)
    assert weights(initial="xavier").std() == pytest.approx((2 / (404 + 64)) ** 0.5, rel=0.05)
    with pytest.raises(ValueError, match="no effect on xavier"):
        Config(initial="xavier", scale=0.3)


def test_dropout_of_entities_is_for_training_alone():
    torch.manual_seed(1)
    words = Vocabulary((*SPECIALS, *(f"e{number}" for number in range(20))))
    model, ids = TransE(Config(dim=64, entity_dropout=0.5), words, relations=3), torch.arange(4, 24)
    zeros = (model.train().entities(ids) == 0).float().mean()
    assert 0.4 < float(zeros) < 0.6
    assert torch.equal(model.eval().entities(ids), model.embedding.weight[ids])
    with pytest.raises(ValueError, match="entity_dropout"):
        Config(entity_dropout=1.0)
