"""Scheduled sampling: teacher forcing where no own word is read, and a hand-written decoder where some are."""

import math
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.errors import UserError
from mallang.find import find, names
from mallang.models.contract import is_fitted
from mallang.tasks.contract import StepAware
from mallang.tasks.scheduled_sampling import Schedule, ScheduledSampling
from mallang.tasks.translation import Config, Task
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, PAD
from mallang.training.seeding import seed_everything

MODELS = [
    name
    for name in names("models")
    if find("models", name).TASK == "translation" and not is_fitted(find("models", name))
]
ALWAYS_TRUE = {"scheduled_sampling": "linear", "sampling_c": 0.1}
"""Before the first update ε is 1."""
ROWS_OF_A_PAIR = ("tokens", "lengths", "labels", "source", "source_lengths")


def make(name="transformer", dropout=None, **options):
    tokenizer = Tokenizer.train(["a b c d e f g h i j"], Text(unit="char", vocabulary=30))
    task = Task(Config(**options), {"source": tokenizer, "target": tokenizer})
    module = find("models", name)
    config = module.Config(**module.SIZES["tiny"])
    changes = {key: dropout or 0.0 for key in vars(config) if "dropout" in key and "attention" not in key}
    torch.manual_seed(5)
    return task, task.build(module, replace(config, **changes)).train()


def make_batch(task, lengths=((3, 4), (5, 2), (1, 9))):
    random = np.random.default_rng(0)
    rows = [((random.integers(4, 15, size=a), random.integers(4, 15, size=b)),) for a, b in lengths]
    return task.prepare(rows, random)


def gradients(loss, model):
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return {name: grad for (name, _), grad in zip(model.named_parameters(), found, strict=True) if grad is not None}


def teacher_forced(model, batch, smoothing):
    """The true words one at a time, after the random numbers of coins and words are drawn."""
    torch.rand(batch.tokens.shape), torch.rand(batch.tokens.shape)
    state, total = model.start(batch), torch.zeros(())
    for place in range(batch.tokens.shape[1]):
        logits, state = model.step(batch.tokens[:, place : place + 1], state)
        log_probs = logits[:, 0].log_softmax(dim=1)
        labels = batch.labels[:, place]
        asked = (labels != PAD).float()
        nll = -(log_probs.gather(1, labels[:, None])[:, 0] * asked).sum()
        total = total + ((1 - smoothing) * nll + smoothing * -(log_probs.mean(dim=1) * asked).sum())
    return total


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("name", MODELS)
def test_with_true_words_alone_it_is_teacher_forcing_bit_for_bit(name, dropout):
    task, model = make(name, dropout, **ALWAYS_TRUE)
    batch = make_batch(task)
    seed_everything(1, 1, 0)
    loss = task.loss(model, batch, None)
    found = gradients(loss.sums["loss"], model)
    seed_everything(1, 1, 0)
    expected = teacher_forced(model, batch, 0.1)
    assert torch.equal(loss.sums["loss"], expected)
    assert loss.report["own"] == 0
    wanted = gradients(expected, model)
    assert found.keys() == wanted.keys() and found
    assert all(torch.equal(found[part], wanted[part]) for part in found)


@pytest.mark.parametrize("name", MODELS)
def test_with_true_words_alone_it_is_the_ordinary_loss(name):
    task, model = make(name, **ALWAYS_TRUE)
    plain, _ = make(name)
    batch = make_batch(task)
    stepped, whole = task.loss(model, batch, None), plain.loss(model, batch, None)
    torch.testing.assert_close(stepped.sums["loss"], whole.sums["loss"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(stepped.report["nll"], whole.report["nll"], rtol=1e-5, atol=1e-5)
    found, wanted = gradients(stepped.sums["loss"], model), gradients(whole.sums["loss"], model)
    for part, gradient in wanted.items():
        torch.testing.assert_close(found[part], gradient, rtol=1e-3, atol=1e-4, msg=lambda m, n=part: f"{n}: {m}")


@pytest.mark.parametrize("name", MODELS)
def test_without_true_words_the_best_ones_are_those_of_greedy_search(name):
    task, model = make(name, scheduled_sampling="linear", sampling_c=1.0, sampling_own="best")
    batch = make_batch(task)
    task.at_step(2)
    loss = task.loss(model, batch, None)
    read, total = torch.full((len(batch), 1), BOS), 0.0
    for place in range(batch.tokens.shape[1]):
        logits, _ = model.step(read, model.start(batch))  # all own words so far, read again: no cache
        log_probs = logits[:, -1].log_softmax(dim=1)
        for row, label in enumerate(batch.labels[:, place].tolist()):
            if label != PAD:
                total = total - 0.9 * log_probs[row, label] - 0.1 * log_probs[row].mean()
        log_probs = log_probs.detach().clone()
        log_probs[:, [PAD, BOS]] = -torch.inf
        read = torch.cat((read, log_probs.argmax(dim=1, keepdim=True)), dim=1)
    torch.testing.assert_close(loss.sums["loss"], total, rtol=1e-4, atol=1e-4)
    assert int(loss.report["own"]) == 4 + 2 + 9, "every word but <s>"


@pytest.mark.parametrize("name", MODELS)
def test_each_word_that_is_read_has_a_coin_of_its_own(name):
    """Against a decoder written by hand, row by row, that flips the same coins: true here, own there."""
    task, model = make(name, scheduled_sampling="linear", sampling_k=0.5, sampling_c=1e-9, sampling_own="best")
    batch = make_batch(task, lengths=((3, 7), (5, 7), (1, 9)))
    torch.manual_seed(3)
    loss = task.loss(model, batch, None)
    torch.manual_seed(3)
    keeps = torch.rand(batch.tokens.shape) < 0.5
    assert len({tuple(row) for row in keeps[:, 1:].tolist()}) == 3 and 0 < keeps[:, 1:].sum() < keeps[:, 1:].numel()
    total = 0.0
    for row in range(len(batch)):
        one, read = replace(batch, **{f: getattr(batch, f)[row : row + 1] for f in ROWS_OF_A_PAIR}), [BOS]
        for place, label in enumerate(batch.labels[row].tolist()):
            logits, _ = model.step(torch.tensor([read]), model.start(one))
            log_probs = logits[0, -1].log_softmax(dim=0)
            total = total if label == PAD else total - 0.9 * log_probs[label] - 0.1 * log_probs.mean()
            allowed = log_probs.detach().clone()
            allowed[[PAD, BOS]] = -torch.inf
            if place + 1 < batch.tokens.shape[1]:
                true = bool(keeps[row, place + 1])
                read.append(int(batch.tokens[row, place + 1]) if true else int(allowed.argmax()))
    torch.testing.assert_close(loss.sums["loss"], total, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "changes"), [("convs2s", {}), ("transformer", {"positions": "learned"})], ids=["convs2s", "transformer"]
)
def test_a_target_of_more_positions_than_were_learned_is_refused_as_without_it(name, changes):
    told = []
    for options in (ALWAYS_TRUE, {}):
        task, model = make(name, **options)
        config = replace(model.config, max_length=6, **changes)
        model = task.build(find("models", name), config)
        task.loss(model, make_batch(task, [(3, 5)]), None)  # <s> and five words
        with pytest.raises(UserError, match="a text has 7 tokens, but the model learned only 6 positions") as caught:
            task.loss(model, make_batch(task, [(3, 5), (3, 6)]), None)
        told.append(str(caught.value))
    assert told[0] == told[1]


def test_every_position_flips_its_own_coin():
    task, model = make(scheduled_sampling="linear", sampling_k=0.7, sampling_c=1e-9)
    lengths = [(2, 30)] * 40
    batch = make_batch(task, lengths)
    torch.manual_seed(0)
    own = int(task.loss(model, batch, None).report["own"])
    assert own / (40 * 30) == pytest.approx(0.3, abs=0.05)
    torch.manual_seed(1)
    assert own != int(task.loss(model, batch, None).report["own"])


def test_own_words_are_drawn_as_the_model_says():
    task, model = make(**ALWAYS_TRUE)
    logits = torch.randn(1, len(model.vocabulary)).repeat(20000, 1)
    said = ScheduledSampling(task.config.sampling).own_words(logits, torch.rand(20000), model.vocabulary)
    found = torch.bincount(said, minlength=logits.shape[1]) / len(said)
    allowed = logits[0].clone()
    allowed[[PAD, BOS]] = -torch.inf
    torch.testing.assert_close(found, allowed.softmax(dim=0), rtol=0.0, atol=0.015)
    assert found[PAD] == found[BOS] == 0


@settings(max_examples=50)
@given(
    st.one_of(
        st.builds(
            Schedule, decay=st.just("linear"), k=st.floats(0.01, 1), c=st.floats(1e-6, 1), floor=st.floats(0, 0.9)
        ),
        st.builds(Schedule, decay=st.just("exponential"), k=st.floats(0.01, 0.9999), floor=st.floats(0, 0.9)),
        st.builds(Schedule, decay=st.just("inverse-sigmoid"), k=st.floats(1, 1e4), floor=st.floats(0, 0.9)),
    ),
    st.integers(0, 10**6),
)
def test_the_probability_falls_and_stays_one(schedule, done):
    now, later = schedule.probability(done), schedule.probability(done + 1)
    assert schedule.floor <= later <= now <= 1


def test_the_formulas_of_the_paper():
    assert Schedule(decay="none").probability(99) == 1
    assert Schedule(decay="linear", k=0.9, c=0.01, floor=0.25).probability(20) == pytest.approx(0.7)
    assert Schedule(decay="linear", k=0.9, c=0.01, floor=0.25).probability(90) == 0.25
    assert Schedule(decay="linear", c=0.01).probability(0) == 1
    assert Schedule(decay="exponential", k=0.99).probability(50) == pytest.approx(0.99**50)
    assert Schedule(decay="inverse-sigmoid", k=10.0).probability(30) == pytest.approx(10 / (10 + math.exp(3)))


def test_a_step_number_is_all_it_depends_on():
    task, model = make(scheduled_sampling="exponential", sampling_k=0.5)
    assert isinstance(task, StepAware)
    before = task.sampling.probability
    for step, expected in ((1, 1.0), (3, 0.25), (2, 0.5)):
        task.at_step(step)
        assert float(task.sampling.probability) == expected
    assert task.sampling.probability is before, "changed in place, so that a recorded step sees it"
    model.eval()
    plain, _ = make()
    batch = make_batch(task)
    torch.testing.assert_close(task.loss(model, batch, None).sums, plain.loss(model, batch, None).sums)
    make()[0].at_step(5)  # teacher forcing does not mind


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sampling_k": 0.9}, "no effect"),
        ({"sampling_own": "best"}, "no effect"),
        ({"sampling_floor": 0.1}, "no effect"),
        ({"scheduled_sampling": "linear"}, "sampling_c"),
        ({"scheduled_sampling": "linear", "sampling_c": 0.1, "sampling_k": 1.5}, "sampling_k"),
        ({"scheduled_sampling": "exponential", "sampling_k": 1.5}, "below 1"),
        ({"scheduled_sampling": "exponential", "sampling_k": 0.9, "sampling_c": 0.1}, "no effect"),
        ({"scheduled_sampling": "inverse-sigmoid", "sampling_k": 0.5}, "1 or more"),
        ({"scheduled_sampling": "inverse-sigmoid"}, "1 or more"),
        ({"scheduled_sampling": "exponential", "sampling_k": 0.9, "sampling_floor": 1.0}, "less than 1"),
        ({"scheduled_sampling": "exponential", "sampling_k": 0.9, "r_drop": 1.0}, "r_drop"),
    ],
)
def test_what_would_have_no_effect_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        Config(**options)


def test_a_model_that_does_not_step_is_refused():
    class Silent(torch.nn.Module):
        reads_source = True

        def __init__(self, *given):
            super().__init__()

    task, _ = make(**ALWAYS_TRUE)
    with pytest.raises(UserError, match="autoregressive"):
        module = ModuleType("silent")
        module.Model = Silent
        task.build(module, None)
