"""Every engine gives the gradients that op-by-op computing gives; padding to a shape changes none of them."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.batch import IGNORE, Batch, Shapes
from mallang.data.columns import LabelSet
from mallang.errors import UserError
from mallang.kernels import fp8
from mallang.layers.position import SinusoidalPositions
from mallang.models import cho, gpt, nplm, self_attentive, transformer
from mallang.tasks import classification, language_modeling
from mallang.tasks.translation import Config, Task
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.training.seeding import seed_everything
from mallang.training.step import Step, choose_engine

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def make_task():
    tokenizer = Tokenizer.train(["a b c d e f g h i j"], Text(unit="char", vocabulary=30))
    return Task(Config(), {"source": tokenizer, "target": tokenizer})


@pytest.fixture(scope="module")
def task():
    return make_task()


def make_model(task, **changes):
    torch.manual_seed(5)
    return task.build(transformer, transformer.Config(**{**transformer.SIZES["tiny"], "tie_weights": "all", **changes}))


def make_batch(task, lengths, seed=0):
    random = np.random.default_rng(seed)
    rows = [((random.integers(4, 15, size=a), random.integers(4, 15, size=b)),) for a, b in lengths]
    return task.prepare(rows, random)


def gradients(step, model, batches, totals):
    for parameter in model.parameters():
        if step.keeps_gradients and parameter.grad is not None:
            parameter.grad.zero_()
        else:
            parameter.grad = None
    sums = 0.0
    for number, batch in enumerate(batches):
        seed_everything(1, 1, number)
        sums += float(step.run(batch, totals).sums["loss"])
    return sums, {name: p.grad.clone().cpu() for name, p in model.named_parameters()}


def assert_alike(first, second, tolerance=1e-5):
    assert first[0] == pytest.approx(second[0], rel=1e-4)
    for name, gradient in first[1].items():
        torch.testing.assert_close(
            gradient, second[1][name], rtol=1e-3, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


pairs = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=1, max_size=6)


@settings(deadline=None, max_examples=15)
@given(pairs, st.integers(1, 9), st.integers(0, 200))
def test_padding_to_a_shape_changes_no_gradient(lengths, multiple, more):
    task = make_task()
    model = make_model(task, dropout=0.0)
    batch = make_batch(task, lengths)
    widest = -(-max(batch.tokens.shape[1], batch.source.shape[1]) // multiple) * multiple
    filled = Shapes(len(batch) * widest + more, multiple=multiple).fill(batch)
    assert filled.tokens.shape[1] % multiple == filled.source.shape[1] % multiple == 0
    assert len(filled) == len(filled.lengths) == len(filled.source_lengths) == len(batch) + more // widest
    assert task.counts(filled) == task.counts(batch)
    step = Step(task, model, CPU, "fp32", "eager")
    assert_alike(gradients(step, model, [filled], [7]), gradients(step, model, [batch], [7]))


def test_shapes_of_one_width_are_alike(task):
    shapes = Shapes(64, sentences=5)
    filled = [shapes.fill(make_batch(task, [(6, 6)] * rows)) for rows in (1, 3, 5)]
    assert {each.tokens.shape for each in filled} == {(5, 8)}
    assert shapes.fill(make_batch(task, [(30, 2)])).source.shape == (2, 32)
    assert len(shapes.fill(make_batch(task, [(70, 2)]))) == 1, "an example wider than the budget stays"


def test_auto_is_plain_here_and_graphs_need_a_gpu():
    assert choose_engine("auto", CPU) == "eager"
    assert choose_engine("auto", torch.device("cuda")) == "cuda-graphs"
    with pytest.raises(UserError, match="needs a GPU"):
        choose_engine("cuda-graphs", CPU)


class Transposed(torch.nn.Module):
    """Two weights that are given the same gradient, in the memory layout of the transpose."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Parameter(torch.zeros(2, 3)) for _ in range(2))


def test_gradients_that_stay_in_place_have_the_strides_of_their_parameters(task):
    model = Transposed()
    step = Step(task, model, CPU, "fp32", "eager")
    step.keeps_gradients = True  # as on a GPU
    factors = torch.arange(6.0).view(3, 2)
    for times in (1, 2):
        step.add_gradients(((model.first + model.second).t() * factors).sum())
        for parameter in (model.first, model.second):
            assert parameter.grad.stride() == parameter.stride(), "fused optimizers refuse any other"
            assert torch.equal(parameter.grad, times * factors.t())
    assert model.first.grad.data_ptr() != model.second.grad.data_ptr()


def check_replayed(engine, device, dropout):
    """The same gradients from batches of two shapes, again and again."""
    task = make_task()
    model = make_model(task, dropout=dropout).to(device)
    lengths = [(3, 4), (12, 3), (5, 6), (10, 2), (2, 2)] * 3
    batches = [Shapes(64).fill(make_batch(task, [pair], seed=number)) for number, pair in enumerate(lengths)]
    plain = gradients(Step(task, model, device, "fp32", "eager"), model, batches, [50])
    step = Step(task, model, device, "fp32", engine)
    for _ in range(3):  # op by op, recorded, replayed
        assert_alike(gradients(step, model, batches, [50]), plain, tolerance=1e-4)
    if device.type == "cuda":
        assert len(step.recorded) == 2 and all(step.recorded.values())


def test_a_recurrent_model_is_not_compiled_for_many_shapes(task):
    model = task.build(cho, cho.Config(**cho.SIZES["tiny"]))
    with pytest.raises(UserError, match="compiled again for every length"):
        Step(task, model, CPU, "fp32", "compile")


@needs_gpu
def test_replayed_gradients_are_the_plain_ones():
    check_replayed("cuda-graphs", torch.device("cuda"), dropout=0.2)  # with the same random numbers, too


def make_language_model(device):
    """A task, its model, and batches of windows of one width."""
    tokenizer = Tokenizer.train(["a b c d e f g h i j"], Text(unit="char", vocabulary=30))
    settings = language_modeling.Config(layout="stream", context=8, order="shuffled")
    task = language_modeling.Task(settings, {"text": tokenizer})
    torch.manual_seed(5)
    model = task.build(gpt, gpt.Config(**{**gpt.SIZES["tiny"], "dropout": 0.0, "attention_dropout": 0.0})).to(device)
    ids = torch.from_numpy(np.random.default_rng(1).integers(4, 15, (4, 3, 9)))
    return task, model, [Batch(tokens=each[:, :-1], labels=each[:, 1:], lengths=torch.full((3,), 8)) for each in ids]


def check_language_model(engine, device):
    """The same for windows of one width, whose loss a GPU computes by a kernel."""
    task, model, batches = make_language_model(device)
    plain = gradients(Step(task, model, device, "fp32", "eager"), model, batches, [96])
    step = Step(task, model, device, "fp32", engine, one_shape=True)
    for _ in range(3):
        assert_alike(gradients(step, model, batches, [96]), plain, tolerance=1e-4)
    assert sum(gradient.norm() for gradient in plain[1].values()) > 0.1


def check_8_bits(engine, device):
    """Nearly the same from products of 8 bits, and further off than with 16."""
    task, model, batches = make_language_model(device)
    plain, rounded = (
        gradients(Step(task, model, device, precision, "eager"), model, batches, [96])
        for precision in ("fp32", "bf16-weights")
    )
    step = Step(task, model, device, "fp8", engine, one_shape=True)
    for _ in range(3):
        rough = gradients(step, model, batches, [96])
        assert rough[0] == pytest.approx(plain[0], rel=0.02)
        for name, wanted in plain[1].items():
            error = (wanted - rough[1][name]).norm() / wanted.norm()
            assert error < 0.3, name
            if name.endswith("query_key_value.weight"):
                assert error > 2 * (wanted - rounded[1][name]).norm() / wanted.norm(), name


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
def test_compiled_gradients_are_the_plain_ones(device):
    """Apart from the rest, since shapes in signatures are checked here and a compiler cannot look through that."""
    done = subprocess.run([sys.executable, __file__, device], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


if __name__ == "__main__":
    check_replayed("compile", torch.device(sys.argv[1]), dropout=0.0)
    check_language_model("compile", torch.device(sys.argv[1]))
    if sys.argv[1] == "cuda":
        check_8_bits("compile", torch.device("cuda"))


def test_weights_rounded_to_bfloat16_give_nearly_the_same_gradients_to_the_weights_themselves(task):
    batch, model = make_batch(task, [(5, 4), (7, 6)]), make_model(task, dropout=0.0, norm="pre")
    exact, rough = (
        gradients(Step(task, model, CPU, precision, "eager"), model, [batch], [12])
        for precision in ("fp32", "bf16-weights")
    )
    assert 0 < abs(exact[0] - rough[0]) < 0.02 * exact[0]
    for name, weight in model.named_parameters():
        assert weight.dtype == rough[1][name].dtype == torch.float32
        apart = (exact[1][name] - rough[1][name]).norm()
        assert 0 < apart < 0.15 * exact[1][name].norm(), name


def test_a_table_that_grows_beside_rounded_weights_stays_grown(task):
    model = make_model(task, dropout=0.0)
    tables = [part for part in model.modules() if isinstance(part, SinusoidalPositions)]
    for part in tables:
        part.table = part.table[:2]
    step, batch = Step(task, model, CPU, "bf16-weights", "eager"), make_batch(task, [(5, 4), (7, 6)])
    step.run(batch, [12])
    grown = [part.table for part in tables]
    assert tables and all(len(table) > 2 and table.dtype == torch.float32 for table in grown)
    step.run(batch, [12])
    assert all(part.table is table for part, table in zip(tables, grown, strict=True))


def test_weights_of_recurrent_layers_are_not_rounded(task):
    model = task.build(cho, cho.Config(**cho.SIZES["tiny"]))
    with pytest.raises(UserError, match="recurrent"):
        Step(task, model, CPU, "bf16-weights", "eager")


def test_a_cpu_has_no_products_of_8_bits(task):
    with pytest.raises(UserError, match="Hopper"):
        Step(task, make_model(task, dropout=0.0), CPU, "fp8", "eager")


def test_8_bits_on_a_cpu_that_is_said_to_have_them(monkeypatch):
    monkeypatch.setattr(fp8, "is_supported", lambda device: True)
    check_8_bits("eager", CPU)


def test_a_model_without_such_products_is_refused(monkeypatch):
    monkeypatch.setattr(fp8, "is_supported", lambda device: True)
    task, _, _ = make_language_model(CPU)
    model = task.build(nplm, nplm.Config(**nplm.SIZES["tiny"]))
    with pytest.raises(UserError, match="no effect on this model"):
        Step(task, model, CPU, "fp8", "eager")


@needs_gpu
@pytest.mark.parametrize("engine", ["eager", "cuda-graphs"])
def test_products_of_8_bits_give_nearly_the_same_gradients_on_a_gpu(engine):
    check_8_bits(engine, torch.device("cuda"))


class WithEmptyPart(Task):
    """Translation with a second part of the loss, over tokens that no batch has: its sum and its count are 0."""

    parts = ("loss", "extra")

    def loss(self, model, batch, carry):
        found = super().loss(model, batch, carry)
        logits = model.output(model(batch))
        return replace(found, sums={**found.sums, "extra": (0.0 * logits).sum()})


def test_an_empty_part_of_the_loss_costs_nothing(task):
    """Its count of 0 divides nothing: every gradient is finite and that of the other part, so no update is skipped."""
    model = make_model(task, dropout=0.0)
    batch = make_batch(task, [(4, 5), (3, 2)])
    total = task.counts(batch)["loss"]
    alone = gradients(Step(task, model, CPU, "fp32", "eager"), model, [batch], [total])
    step = Step(WithEmptyPart(Config(), task.tokenizers), model, CPU, "fp32", "eager")
    both = gradients(step, model, [batch], [total, 0])
    assert all(bool(gradient.isfinite().all()) for gradient in both[1].values())
    assert_alike(alone, both, 1e-6)


def test_a_batch_without_labels_costs_nothing():
    """All labels of a micro-batch may be ignored: the only part of its loss is empty."""
    tokenizer = Tokenizer.train(["a b c d"], Text(unit="char", vocabulary=50))
    task = classification.Task(
        classification.Config(), {"text": tokenizer}, {"label": LabelSet(("no", "yes"), "label", (1, 1))}
    )
    model = task.build(self_attentive, self_attentive.Config(**self_attentive.SIZES["tiny"], penalty=1.0))
    rows = [((np.array(ids, np.int64), np.array([0])),) for ids in tokenizer.encode_batch(["a b", "c"])]
    batch = task.prepare(rows, np.random.default_rng(0))
    batch = replace(batch, classes=torch.full_like(batch.classes, IGNORE))
    assert task.counts(batch)["loss"] == 0
    loss, found = gradients(Step(task, model, CPU, "fp32", "eager"), model, [batch], [0])
    assert loss == 0.0 and all(not gradient.any() for gradient in found.values())
