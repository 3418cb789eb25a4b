"""Show, Attend and Tell: equations step by step, both kinds of attention, REINFORCE against its formula."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from contracts.tiny_models import pictures
from mallang.data.batch import Batch, pad_rows
from mallang.errors import UserError
from mallang.layers.attention import record_attention
from mallang.layers.image_encoder import ImageEncoder, grid_of
from mallang.models.show_attend_tell import SIZES, Config, ShowAttendTell
from mallang.tasks.captioning import Config as TaskConfig
from mallang.tasks.captioning import Task, doubly_stochastic
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, EOS, PAD, SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, *"abcdefgh"))
ROWS = ((4, 5, 6), (7,), (8, 9, 10, 11, 4))


def make(seed=1, **config):
    torch.manual_seed(seed)
    return ShowAttendTell(Config(**{**SIZES["tiny"], **config}), WORDS).eval()


def batch_of(rows=ROWS):
    tokens, lengths = pad_rows(rows, begin=BOS)
    labels, _ = pad_rows(rows, end=EOS)
    return Batch(tokens=tokens, lengths=lengths, labels=labels, images=pictures(rows))


def task_of(**config):
    tokenizer = Tokenizer.train(["a b c d e f g h"], Text(unit="space", vocabulary=12))
    return Task(TaskConfig(size=12, **config), {"caption": tokenizer})


@pytest.mark.parametrize("attention", ["soft", "hard"])
@torch.no_grad()
def test_forward_is_the_equations(attention):
    model, batch = make(attention=attention), batch_of()
    for row in range(len(batch)):
        a = model.encoder(batch.images[row : row + 1])[0]
        h, c = model.first_state(a.mean(dim=0)).tanh().chunk(2)
        score = model.image_attention.score
        for t, token in enumerate(batch.tokens[row, : batch.lengths[row]]):
            scores = torch.stack([score.v @ (score.query.weight @ h + score.key.weight @ each).tanh() for each in a])
            alpha = scores.softmax(dim=0)
            z = a[alpha.argmax()] if attention == "hard" else sum(w * each for w, each in zip(alpha, a, strict=True))
            z = torch.sigmoid(model.beta(h)) * z
            word = model.embedding.weight[token]
            gates = model.word_gates(word) + model.context_gates(z) + model.state_gates(h)
            i, f, g, o = gates.chunk(4)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            hidden = (word + model.readout_state(h) + model.readout_context(z)).tanh()
            torch.testing.assert_close(model(batch)[row, t], hidden, atol=1e-5, rtol=1e-5)


def test_a_cell_of_the_grid_sees_its_own_place():
    """The gradient of a cell with respect to the image is around it, and the grid has the order of the pixels."""
    encoder = ImageEncoder([8, 8, 8])
    seen = []
    hook = encoder.convolutions[0].register_forward_pre_hook(lambda _, given: seen.append(given[0].requires_grad_()))
    found = encoder(torch.randint(0, 256, (1, 32, 24, 3), dtype=torch.uint8))
    hook.remove()
    rows, columns = grid_of(found.shape[1], width=24, height=32)
    assert (rows, columns) == (8, 6)
    found[0, 3 * columns + 2].square().sum().backward()
    y, x = seen[0].grad[0].abs().sum(dim=0).nonzero().unbind(dim=1)
    assert y.min() >= 3 * 4 - 6 and y.max() <= 3 * 4 + 8 and x.min() >= 2 * 4 - 6 and x.max() <= 2 * 4 + 8
    with pytest.raises(UserError, match="no grid"):
        grid_of(47, 24, 32)


@torch.no_grad()
def test_given_regions_take_the_place_of_convolutions():
    features = torch.randn(3, 5, 7)
    model = make(encoder="given", region_dim=7)
    batch = replace(batch_of(), images=None, regions=features)
    with record_attention(model) as maps:
        assert model(batch).shape == (3, 6, 24)
    assert maps["image"].shape == (3, 1, 6, 5)
    assert model.reads_regions and not make().reads_regions
    with pytest.raises(ValueError, match="no region features"):
        model(batch_of())
    with pytest.raises(ValueError, match="no images"):
        make()(batch)
    with pytest.raises(ValueError, match="belong together"):
        Config(encoder="given")
    with pytest.raises(ValueError, match="belong together"):
        Config(region_dim=7)


@torch.no_grad()
def test_start_reads_the_image_alone():
    model, batch = make(), batch_of()
    one, other = model.start(batch), model.start(replace(batch, tokens=batch.tokens.flip(1), labels=None))
    assert all(torch.equal(a, b) for a, b in zip(one.moving, other.moving, strict=True))
    changed = model.start(replace(batch, images=255 - batch.images))
    assert not torch.equal(one.moving[0], changed.moving[0])


def test_hard_attention_draws_by_the_weights_for_half_of_the_images():
    model = make(attention="hard").train()
    batch = batch_of([ROWS[0]] * 4000)
    with torch.no_grad():
        torch.manual_seed(2)
        found = model.attended(batch)
        first = found.drawn[:, 0][found.is_drawn]
        assert 0.47 < found.is_drawn.float().mean() < 0.53 and (found.drawn[~found.is_drawn] == 0).all()
        alpha = found.weights[0, 0]  # the first step is alike for all images
        frequency = torch.stack([(first - each.log()).abs().lt(1e-5).float().mean() for each in alpha])
        torch.testing.assert_close(frequency, alpha, atol=0.04, rtol=0.0)
    assert make(attention="hard").attended(batch).drawn is None  # nothing is drawn outside training
    assert make().train().attended(batch).drawn is None


def test_the_penalty_is_its_formula():
    weights, asked = torch.rand(2, 3, 4), torch.tensor([[True, True, False], [True, True, True]])
    expected = sum(
        (1 - sum(float(weights[b, t, i]) for t in range(3) if asked[b, t])) ** 2 for b in range(2) for i in range(4)
    )
    assert float(doubly_stochastic(weights, asked)) == pytest.approx(expected, rel=1e-5)
    assert float(doubly_stochastic(weights, torch.zeros(2, 3, dtype=torch.bool))) == 0  # rows of padding


@torch.no_grad()
def test_the_loss_has_the_penalty_and_padding_counts_for_nothing():
    model, batch = make(), batch_of()
    plain, whole = task_of().loss(model, batch, None), task_of(penalty=0.5).loss(model, batch, None)
    penalty = doubly_stochastic(model.attended(batch).weights, batch.labels != PAD)
    assert float(whole.sums["loss"]) == pytest.approx(float(plain.sums["loss"]) + 0.5 * float(penalty), rel=1e-5)
    wide = batch_of((*ROWS, ()))
    wide = replace(wide, labels=torch.where(torch.arange(4)[:, None] == 3, PAD, wide.labels))
    assert float(task_of(penalty=0.5).loss(model, wide, None).sums["loss"]) == pytest.approx(
        float(whole.sums["loss"]), rel=1e-4
    )


def test_reinforce_is_its_formula():
    """Loss, baseline and entropy of one draw, from the logits and weights of the same draw."""
    task, model, batch = task_of(reinforce=0.7, entropy=0.03), make(attention="hard").train(), batch_of()
    torch.manual_seed(5)
    loss = task.loss(model, batch, torch.tensor(-9.0))
    torch.manual_seed(5)
    with torch.no_grad():
        found = model.attended(batch)
        said_by = model.output(found.hidden)
    log_probs, total, rewards = said_by.log_softmax(dim=-1), 0.0, []
    for row, labels in enumerate(batch.labels.tolist()):
        said = [(t, label) for t, label in enumerate(labels) if label != PAD]
        rewards.append(sum(float(log_probs[row, t, label]) for t, label in said))
        drawn = sum(float(found.drawn[row, t]) for t, _ in said)
        entropy = -sum(float((found.weights[row, t] * found.weights[row, t].log()).sum()) for t, _ in said)
        total -= rewards[-1] + 0.7 * (rewards[-1] + 9.0) * drawn + 0.03 * entropy
    assert float(loss.sums["loss"].detach()) == pytest.approx(total, rel=1e-4)
    assert float(loss.carry) == pytest.approx(0.9 * -9.0 + 0.1 * np.mean(rewards), rel=1e-4)
    first = task.loss(model, batch, None)  # the first baseline is the mean of its batch
    assert first.carry is not None and first.carry.shape == task.carry_like().shape and not first.carry.requires_grad


def test_hard_attention_learns_where_to_look():
    """The word says the color of one bright cell: attention must find it, by reward alone."""
    random = np.random.default_rng(0)
    images, labels = np.zeros((64, 12, 12, 3), np.uint8), []
    for image in images:
        y, x = 4 * random.integers(0, 3, 2)
        labels.append(int(random.integers(0, 3)))
        image[y : y + 4, x : x + 4, labels[-1]] = 255
    tokens, lengths = torch.full((64, 1), BOS), torch.ones(64, dtype=torch.long)
    batch = Batch(
        tokens=tokens, lengths=lengths, labels=torch.tensor(labels)[:, None] + 4, images=torch.from_numpy(images)
    )
    task, model = task_of(entropy=0.05), make(attention="hard")
    optimizer, carry = torch.optim.Adam(model.parameters(), lr=1e-2), None
    model.train()
    for _ in range(120):
        optimizer.zero_grad()
        loss = task.loss(model, batch, carry)
        (loss.sums["loss"] / 64).backward()
        optimizer.step()
        carry = loss.carry
    model.eval()
    with torch.no_grad():
        found = model.output(model(batch))[:, 0].argmax(dim=-1)
    assert (found == batch.labels[:, 0]).float().mean() > 0.95
