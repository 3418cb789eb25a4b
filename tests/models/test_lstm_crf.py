"""LSTM-CRF: its loss by enumeration of all tag sequences, its constraints, and words that it has never seen."""

import itertools

import pytest
import torch

from mallang.data.batch import Batch, pad_rows
from mallang.layers.crf import Constraints, allowed_transitions
from mallang.layers.spelling import ReadsSpelling
from mallang.layers.words import HidesWords
from mallang.models.contract import Encoder, Tagger
from mallang.models.lstm_crf import LSTMCRF, Config
from mallang.text.tag_scheme import may_end, may_follow, may_start
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, "Kim", "Lee", "eats", "rice", "먹다", "Seoul"))
ROWS, TAGS = [[4, 6, 7, 3], [9, 3], [5, 4, 8, 9, 3]], [[0, 1, 2], [2], [1, 0, 0, 2]]
NAMES = ("O", "B-A", "I-A", "E-A", "S-A")


def made(constraints=None, **options):
    torch.manual_seed(1)
    free = Constraints(torch.ones(3, 3, dtype=torch.bool), *torch.ones(2, 3, dtype=torch.bool))
    small = {"embedding_dim": 5, "character_dim": 4, "character_features": 6, "dim": 4, **options}
    model = LSTMCRF(Config(**small), WORDS, constraints or free).eval()
    with torch.no_grad():
        for weight in model.crf.parameters():
            weight.uniform_(-1, 1)
    return model


def batch_of(rows, tags):
    tokens, lengths = pad_rows(rows)
    words, _ = pad_rows([range(len(each)) for each in tags], -1)
    return Batch(tokens=tokens, lengths=lengths, words=words, tags=pad_rows(tags, -100)[0])


@pytest.mark.parametrize("characters", ["cnn", "lstm", "none"])
@torch.no_grad()
def test_the_loss_is_log_z_minus_the_sum_of_emissions_and_transitions(characters):
    model, batch = made(characters=characters), batch_of(ROWS, TAGS)
    found = model.tag_crf().negative_log_likelihood(model.emissions(batch), batch.tags, batch.words >= 0)
    best, _ = model.tag_crf().decode(model.emissions(batch), batch.words >= 0)
    crf = model.crf
    for place, (row, tags) in enumerate(zip(ROWS, TAGS, strict=True)):
        emissions = model.emissions(batch_of([row], [tags]))[0]

        def score(path, emissions=emissions):
            total = crf.start[path[0]] + crf.end[path[-1]] + sum(emissions[t, tag] for t, tag in enumerate(path))
            return total + sum(crf.transitions[one, two] for one, two in itertools.pairwise(path))

        paths = list(itertools.product(range(3), repeat=len(tags)))
        scores = torch.stack([score(path) for path in paths])
        torch.testing.assert_close(found[place], scores.logsumexp(0) - score(tags), atol=1e-5, rtol=1e-5)
        assert tuple(best[place, : len(tags)].tolist()) == paths[int(scores.argmax())]


def test_the_gradient_of_the_loss_reaches_every_weight():
    model, batch = made(), batch_of(ROWS, TAGS)
    model.tag_crf()(model.emissions(batch), batch.tags, batch.words >= 0).sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in model.parameters())


@torch.no_grad()
def test_no_forbidden_sequence_is_predicted():
    model = made(allowed_transitions(NAMES, "bioes"))
    rows = [torch.randint(4, 10, (length,)).tolist() for length in range(1, 20)]
    batch = batch_of(rows, [[0] * len(row) for row in rows])
    emissions = torch.randn(len(rows), 19, len(NAMES)) * 5  # whatever the network says
    found, _ = model.tag_crf().decode(emissions, batch.words >= 0)
    for row, ids in zip(rows, found.tolist(), strict=True):
        tags = [NAMES[number] for number in ids[: len(row)]]
        assert may_start(tags[0], "bioes") and may_end(tags[-1], "bioes")
        assert all(may_follow(one, two, "bioes") for one, two in itertools.pairwise(tags))


@torch.no_grad()
def test_a_word_of_several_tokens_has_the_emissions_of_its_first_one():
    model, batch = made(), batch_of([[4, 5, 6, 7, 3]], [[0, 0, 0, 0]])
    every = model.emissions(batch)[0]
    some = Batch(tokens=batch.tokens, lengths=batch.lengths, words=torch.tensor([[0, 2, -1]]))
    assert torch.equal(model.emissions(some)[0, :2], every[[0, 2]])


@torch.no_grad()
def test_an_unseen_word_changes_the_scores_by_its_characters():
    model = made()
    assert isinstance(model, ReadsSpelling) and isinstance(model, HidesWords)
    assert isinstance(model, Encoder) and isinstance(model, Tagger)
    first, second = model.ids_of_oov(["miK", "eeL"])
    one, two = (model.emissions(batch_of([[4, number, 3]], [[0, 0]])) for number in (first, second))
    assert not torch.allclose(one, two)
    model.forget_oov(0)
    assert model.ids_of_oov(["eeL"]) == [first]


def test_without_tags_it_is_an_encoder_alone():
    model = LSTMCRF(Config(dim=4), WORDS)
    assert model.encoder_dims().token == 8 and model.crf is None
    with pytest.raises(AssertionError, match="without tags"):
        model.emissions(batch_of(ROWS, TAGS))


@pytest.mark.parametrize(
    "wrong", [{"character_features": 7}, {"character_features": 0}, {"longest_word": 2}, {"dim": 0}, {"dropout": -0.1}]
)
def test_impossible_sizes_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Config(**wrong)
