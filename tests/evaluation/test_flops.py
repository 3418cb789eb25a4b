"""FLOPs are those of formulas written by hand."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from mallang.data.batch import Batch
from mallang.evaluation.flops import counting, flops_of_fit, flops_per_token
from mallang.layers.head import cross_entropy_of
from mallang.models import transformer
from mallang.tasks.contract import Loss
from mallang.text.vocabulary import SPECIALS, Vocabulary


def counted(work):
    with counting() as count:
        work()
    return count.flops


def test_a_stack_of_linear_layers():
    rows, sizes = 6, (5, 7, 3)
    stack = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
    x = torch.randn(rows, 5)
    products = [2 * rows * before * after for before, after in pairwise(sizes)]
    assert counted(lambda: stack(x)) == sum(products)
    # Backward: the gradient of every weight, and of every input but the first, which needs none.
    assert counted(lambda: stack(x).sum().backward()) == 3 * sum(products) - products[0]


@pytest.mark.parametrize(("kind", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("layers", [1, 2])
def test_recurrent_layers(kind, gates, directions, layers):
    batch, time, size, dim = 3, 5, 4, 6
    model = kind(size, dim, layers, bidirectional=directions == 2, batch_first=True)
    x = torch.randn(batch, time, size)
    inputs = [size, *[dim * directions] * (layers - 1)]
    from_input = sum(2 * batch * time * each * gates * dim * directions for each in inputs)
    from_state = 2 * batch * time * dim * gates * dim * directions * layers
    assert counted(lambda: model(x)) == from_input + from_state
    first_states = 2 * batch * dim * gates * dim * directions * layers
    first_input = 2 * batch * time * size * gates * dim * directions
    both = counted(lambda: model(x)[0].sum().backward())
    # Nobody asks for the gradients of the input and of the states before the first word.
    assert both == 3 * (from_input + from_state) - first_states - first_input


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention(is_causal):
    batch, heads, query, key, key_dim, value_dim = 2, 3, 5, 5, 4, 6
    q, k = torch.randn(batch, heads, query, key_dim), torch.randn(batch, heads, key, key_dim)
    v = torch.randn(batch, heads, key, value_dim)
    for tensor in (q, k, v):
        tensor.requires_grad_()
    forward = 2 * batch * heads * query * key * (key_dim + value_dim)

    def attend():
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    assert counted(attend) == forward
    assert counted(lambda: attend().sum().backward()) == 3 * forward


def test_a_convolution():
    batch, time, channels, out, width = 2, 9, 4, 6, 3
    layer, x = nn.Conv1d(channels, out, width), torch.randn(batch, channels, time)
    assert counted(lambda: layer(x)) == 2 * batch * (time - width + 1) * channels * out * width


def test_products_with_a_vector():
    x, v = torch.randn(2, 7, 5), torch.randn(5)
    assert counted(lambda: x @ v) == 2 * 2 * 7 * 5
    assert counted(lambda: v @ v) == 2 * 5
    assert counted(lambda: torch.addmv(torch.zeros(7), x[0], v)) == 2 * 7 * 5
    assert counted(lambda: torch.zeros(7).addmv_(x[0], v)) == 2 * 7 * 5


def test_products_that_are_added_in_place():
    left, right = torch.randn(2, 7, 5), torch.randn(2, 5, 3)
    assert counted(lambda: torch.zeros(7, 3).addmm_(left[0], right[0])) == 2 * 7 * 5 * 3
    assert counted(lambda: torch.zeros(2, 7, 3).baddbmm_(left, right)) == 2 * 2 * 7 * 5 * 3
    for added in (torch.zeros(7, 3).addbmm, torch.zeros(7, 3).addbmm_):
        assert counted(lambda added=added: added(left, right)) == 2 * 2 * 7 * 5 * 3


@torch.inference_mode()
def test_outside_of_training_layers_are_taken_apart():
    x = torch.randn(6, 5)
    assert counted(lambda: nn.Linear(5, 7)(x)) == 2 * 6 * 5 * 7
    assert counted(lambda: torch.randn(2, 6, 5) @ torch.randn(2, 5, 3)) == 2 * 2 * 6 * 5 * 3


def test_the_count_is_torchs_own():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Conv1d(3, 2, 2), nn.Flatten(), nn.Linear(14, 5))
    x = torch.randn(6, 3, 4)
    with FlopCounterMode(display=False) as theirs:
        model(x).sum().backward()
    assert counted(lambda: model(x).sum().backward()) == theirs.get_total_flops() > 0


def test_counting_leaves_the_machine_as_it_was():
    before = torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled
    counted(lambda: None)
    assert (torch.backends.mkldnn.enabled, torch.backends.cudnn.enabled) == before


def batch_of(rows, source, target, words):
    """Rows without padding."""
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(4, words, (rows, target), generator=draw)
    lengths = torch.full((rows,), target)
    read = torch.randint(4, words, (rows, source), generator=draw)
    return Batch(tokens=tokens, lengths=lengths, labels=tokens, source=read, source_lengths=torch.full((rows,), source))


class Plain:
    """The loss of translation, and nothing else of it."""

    def loss(self, model, batch, carry):
        loss, _ = cross_entropy_of(model, model(batch).flatten(0, 1), batch.labels.flatten(), 0.1)
        return Loss(sums={"loss": loss})

    def counts(self, batch):
        return {"loss": batch.labels.numel()}


def test_the_transformer_by_its_formula():
    vocabulary = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(40))))
    config = transformer.Config(layers=2, decoder_layers=3, dim=8, heads=2, hidden_dim=20, dropout=0.0)
    model = transformer.Model(config, vocabulary, vocabulary)
    rows, source, target, dim, hidden, words = 3, 5, 7, 8, 20, len(vocabulary)
    block = 4 * dim * dim + 2 * dim * hidden  # query, key, value, output; feed-forward
    encoder = 2 * source * (block + 2 * source * dim)  # two products of n × n × dim each
    cross = target * 2 * dim * dim + source * 2 * dim * dim + 2 * target * source * dim
    decoder = 3 * (target * (block + 2 * target * dim) + cross)
    forward = 2 * rows * (encoder + decoder + target * dim * words)
    smoothing = 2 * rows * target * dim  # one product with a vector, in the gradient of the loss
    found = flops_per_token(Plain(), model, [batch_of(rows, source, target, words)])
    assert found == pytest.approx((3 * forward + smoothing) / (rows * target), rel=1e-9)


def test_batches_are_weighed_by_their_tokens():
    vocabulary = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(10))))
    model = transformer.Model(transformer.Config(**transformer.SIZES["tiny"]), vocabulary, vocabulary)
    short, long = batch_of(4, 3, 2, 10), batch_of(1, 6, 9, 10)
    alone = [flops_per_token(Plain(), model, [batch]) * batch.labels.numel() for batch in (short, long)]
    together = flops_per_token(Plain(), model, [short, long])
    assert together == pytest.approx(sum(alone) / (4 * 2 + 9))
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_learns_without_gradients_has_none():
    task = SimpleNamespace(
        loss=lambda model, batch, carry: Loss(sums={"loss": torch.tensor(1.0)}), counts=lambda batch: {"loss": 3}
    )
    assert flops_per_token(task, nn.Linear(1, 1), [batch_of(1, 2, 3, 10)]) is None
    assert flops_per_token(task, nn.Linear(1, 1), []) is None


class Fitted(nn.Module):
    """Reads its text three times, or not at all."""

    def __init__(self, passes):
        super().__init__()
        self.passes, self.weight = passes, nn.Parameter(torch.zeros(1), requires_grad=False)

    def fit(self, stream):
        for _ in range(self.passes):
            for batch in stream:
                numbers = batch.tokens.double()
                table = torch.zeros(50, dtype=torch.float64).index_add_(
                    0, batch.tokens.flatten(), numbers.flatten() / 2
                )
                torch.where(table > 0, table, 1.0).log().sum()
            yield {"loss": 0.0}


def test_of_a_fit_every_number_counts():
    batch = batch_of(2, 3, 4, 10)
    task = Plain()
    # A division and an addition for each of 8 tokens; logarithms of 50 numbers, and their sum.
    assert flops_of_fit(task, Fitted(3), [batch]) == pytest.approx((8 + 50 + 50 + 50) / 8)
    assert flops_of_fit(task, Fitted(1), [batch]) == flops_of_fit(task, Fitted(3), [batch])
    assert flops_of_fit(task, Fitted(0), [batch]) is None


@pytest.mark.slow
def test_the_papers_base_model():
    """What docs/how-to/compare.md says of it."""
    vocabulary = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(36_996))))
    model = transformer.Model(transformer.Config(), vocabulary, vocabulary)
    each = flops_per_token(Plain(), model, [batch_of(1, 30, 30, 37_000)])
    assert each == pytest.approx(3.8e8, rel=0.01)
    assert each * 100_000 * 25_000 == pytest.approx(9.5e17, rel=0.01)
    hours = 12 * 3600 * 8 * 9.5e12
    assert hours == pytest.approx(3.3e18, rel=0.01)
