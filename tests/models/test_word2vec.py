"""word2vec: a pass over a text equals explicit loops for each architecture and loss; seeds, samples, options."""

import math

import numpy as np
import pytest
import torch

from kernels.gpu import needs_gpu
from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.layers.huffman import huffman_tree
from mallang.layers.word_windows import AliasTable, text_of, windows
from mallang.models.word2vec import Config, Model, Objective
from mallang.text.vocabulary import SPECIALS, Vocabulary

VOCABULARY = Vocabulary((*SPECIALS, *"abcdefg"))
FIRST = len(SPECIALS)
LINES = ["abcabd", "fa", "cdefba", "a", "abc"]  # g never occurs
LOSSES = ["negative-sampling", "hierarchical-softmax", "softmax"]
every_loss = pytest.mark.parametrize("loss", LOSSES)
every_architecture = pytest.mark.parametrize("architecture", ["skip-gram", "cbow"])


def batches(lines=LINES):
    """One line per batch."""
    rows = [[FIRST + "abcdefg".index(word) for word in line] for line in lines]
    return [Batch(tokens=torch.tensor([row]), lengths=torch.tensor([len(row)])) for row in rows]


def build(seed=1, **config):
    torch.manual_seed(seed)
    settings = {"dim": 5, "window": 1, "epochs": 1, "subsample": 0.0, "learning_rate": 0.5, "final_learning_rate": 0.1}
    model = Model(Config(**{**settings, **config}), VOCABULARY)
    model.output.normal_(std=0.3)  # zeros have no gradient for the inputs
    model.embedding.weight.normal_(std=0.3)
    return model


def sigmoid(score):
    return 1 / (1 + math.exp(-score))


def predictions(architecture, center, around):
    """(words whose mean predicts, the word that is predicted) at one position."""
    if architecture == "cbow":
        return [(around, center)] if around else []
    return [([word], center) for word in around]


def logistic_terms(word, drawn, tree):
    """(row, label) pairs of the outputs that a predicted word is scored with."""
    if tree is None:
        return [(word, 1.0), *((other, 0.0) for other in drawn if other != word)]
    path = zip(tree.nodes[word].tolist(), tree.labels[word].tolist(), strict=True)
    return [(node, label) for node, label in path if node >= 0]


def by_loops(model, drawn, architecture, loss, span):
    """One epoch with windows of one word, position by position, in double precision."""
    x, y = (table.detach().double().numpy().copy() for table in (model.embedding.weight, model.output))
    words = [[FIRST + "abcdefg".index(word) for word in line] for line in LINES]
    size = sum(map(len, words))
    counts = torch.bincount(torch.tensor([word for line in words for word in line]), minlength=len(VOCABULARY))
    tree = huffman_tree(counts) if loss == "hierarchical-softmax" else None
    occurs, total, asked, position = counts.numpy() > 0, 0.0, 0, 0
    for line in words:
        for at, center in enumerate(line):
            rate = span[0] + (span[1] - span[0]) * position / size
            old_x, old_y = x.copy(), y.copy()
            around = line[max(0, at - 1) : at] + line[at + 1 : at + 2]
            pairs = predictions(architecture, center, around)
            if loss == "softmax" and architecture == "skip-gram":  # the word predicts those around it
                pairs = [([center], word) for word in around]
            for ins, word in pairs:
                asked += 1
                mean = sum(old_x[each] for each in ins) / len(ins)
                if loss == "softmax":
                    scores = np.where(occurs, old_y @ mean, -np.inf)
                    chances = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
                    total -= math.log(chances[word])
                    slopes = (np.arange(len(y)) == word) - chances
                    rows = list(range(len(y)))
                else:
                    terms = logistic_terms(word, () if drawn is None else drawn[position].tolist(), tree)
                    chances = [sigmoid(float(mean @ old_y[row])) for row, _ in terms]
                    total -= sum(math.log(p if label else 1 - p) for p, (_, label) in zip(chances, terms, strict=True))
                    slopes = [label - p for p, (_, label) in zip(chances, terms, strict=True)]
                    rows = [row for row, _ in terms]
                for row, slope in zip(rows, slopes, strict=True):
                    y[row] += rate * slope * mean
                    for each in ins:
                        x[each] += rate * slope * old_y[row] / len(ins)
            position += 1
    return x, y, total / asked, asked


@every_architecture
@every_loss
def test_an_epoch_is_that_of_explicit_loops(architecture, loss, monkeypatch):
    drawn = []
    original = AliasTable.draw

    def draw(self, *arguments):
        drawn.append(original(self, *arguments))
        return drawn[-1]

    monkeypatch.setattr(AliasTable, "draw", draw)
    model = build(architecture=architecture, loss=loss, block=1)
    before = build(architecture=architecture, loss=loss, block=1)
    (report,) = model.fit(batches())
    assert len(drawn) == (loss == "negative-sampling")
    x, y, mean, asked = by_loops(before, drawn[0] if drawn else None, architecture, loss, (0.5, 0.1))
    np.testing.assert_allclose(model.embedding.weight.numpy(), x, atol=2e-5)
    np.testing.assert_allclose(model.output.numpy(), y, atol=2e-5)
    assert report["loss"] == pytest.approx(mean, rel=1e-5) and report["predictions"] == asked


@every_architecture
@pytest.mark.parametrize("loss", LOSSES[1:])
def test_one_block_descends_along_finite_differences_of_the_loss(architecture, loss):
    settings = {"architecture": architecture, "loss": loss, "block": 1000, "learning_rate": 0.1}
    model = build(**settings, final_learning_rate=0.1)
    before = [table.detach().clone() for table in (model.embedding.weight, model.output)]
    for _ in model.fit(batches()):
        pass
    moved = [now - old for now, old in zip((model.embedding.weight, model.output), before, strict=True)]
    places = [(0, FIRST, 2), (0, FIRST + 3, 0), (1, FIRST + 1, 4), (1, 0, 1), (1, 2, 3)]
    for side, row, column in places:
        found = []
        for step in (1e-2, -1e-2):
            for table, old in zip((model.embedding.weight, model.output), before, strict=True):
                table.copy_(old)
            (model.embedding.weight, model.output)[side][row, column] += step
            found.append(model.held_out_loss(batches())[0])
        slope = (found[0] - found[1]) / 2e-2
        assert float(moved[side][row, column]) == pytest.approx(-0.1 * slope, abs=2e-4)


# ---- negative samples ----


def test_negative_samples_are_drawn_with_their_counts_to_the_power():
    counts = torch.tensor([0, 0, 0, 0, 16, 1, 81, 0])
    for exponent in (0.75, 0.0, 1.0):
        objective = Objective(Config(exponent=exponent), counts)
        wanted = [0.0 if not count else count**exponent for count in counts.tolist()]
        assert objective.negatives.probabilities().tolist() == pytest.approx([each / sum(wanted) for each in wanted])
    assert Config().exponent == 0.75


def test_the_word_itself_is_no_negative_sample():
    model = build(negatives=30)
    for _ in model.fit(batches()):
        pass
    objective = Objective(model.config, model.counts)
    ((positions, random),) = windows(text_of(batches(), VOCABULARY), 1)
    groups = objective.groups(positions, random)
    assert groups.outputs.shape == (len(positions), 31)
    assert torch.equal(groups.outputs[:, 0], positions.words)
    assert not (groups.outputs[:, 1:] == positions.words[:, None]).any()
    dropped = (groups.outputs[:, 1:] < 0).float().mean()
    assert 0.1 < dropped < 0.4  # the chance that two draws of this text agree
    assert groups.labels[:, 0].eq(1).all() and groups.labels[:, 1:].eq(0).all()


# ---- seeds ----


@every_architecture
@every_loss
def test_a_seed_gives_the_same_bits(architecture, loss):
    settings = {"architecture": architecture, "loss": loss, "window": 3, "subsample": 0.1, "epochs": 3, "block": 4,
                "learning_rate": 0.1}  # fmt: skip

    def trained(seed):
        model = build(seed, **settings)
        for _ in model.fit(batches(LINES * 20)):
            pass
        return model

    first, again, other = trained(1), trained(1), trained(2)
    assert torch.equal(first.embedding.weight, again.embedding.weight) and torch.equal(first.output, again.output)
    assert not torch.equal(first.embedding.weight, other.embedding.weight)


@needs_gpu
def test_a_seed_gives_the_same_bits_on_a_gpu():
    text = [batch.to("cuda") for batch in batches(LINES * 400)]
    found = []
    for _ in range(2):
        model = build(window=3, epochs=2, block=4, dim=100, learning_rate=0.05, final_learning_rate=0.01).cuda()
        for _ in model.fit(text):
            pass
        found.append((model.embedding.weight, model.output))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_words_of_like_contexts_have_like_vectors():
    lines = ["aca", "ada", "beb", "bfb"] * 100
    model = build(dim=8, epochs=20, block=8, learning_rate=0.1, final_learning_rate=0.01)
    for _ in model.fit(batches(lines)):
        pass
    c, d, e, f = torch.nn.functional.normalize(model.vectors()[FIRST + 2 : FIRST + 6], dim=1)
    assert min(c @ d, e @ f) > max(c @ e, c @ f, d @ e, d @ f) + 0.5


# ---- options ----


def test_blocks_of_the_hierarchical_softmax_are_small():
    """Its root takes the updates of every pair of a block: with those of negative sampling it would diverge."""
    counts = torch.tensor([0, 0, 0, 0, 3, 2, 1])
    assert [Objective(Config(loss=loss), counts).block for loss in LOSSES] == [256, 32, 256]
    assert Objective(Config(loss="hierarchical-softmax", block=7), counts).block == 7


def test_a_text_without_words_is_an_error():
    batch = Batch(tokens=torch.tensor([[1, 2, 3]]), lengths=torch.tensor([3]))
    with pytest.raises(UserError, match="no words"):
        list(build().fit([batch]))


def test_a_rate_that_is_too_high_is_an_error():
    with pytest.raises(UserError, match="diverged"):
        list(build(learning_rate=1e30, epochs=2).fit(batches(LINES * 10)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "softmax", "negatives": 3}, "negatives = 3 has no effect"),
        ({"loss": "hierarchical-softmax", "exponent": 0.5}, "exponent = 0.5 has no effect"),
        ({"learning_rate": 0.1, "final_learning_rate": 0.2}, "final_learning_rate must be between"),
        ({"subsample": -1.0}, "subsample must not be negative"),
        ({"window": 0}, "window"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        Config(**options)
