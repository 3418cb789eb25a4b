"""The loop on a toy task: stopping anywhere changes nothing, accumulation equals a larger batch, trouble is told."""

import io
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

from mallang.data.batch import Batch, pad_rows
from mallang.data.loader import Source
from mallang.data.sampler import Buckets
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.tasks.contract import Group, Loss
from mallang.training import checkpoint, optimizer
from mallang.training.diagnosis import check_health
from mallang.training.distributed import World
from mallang.training.loop import Loop, Plan
from mallang.training.options import Config
from mallang.training.record import FILE, Recorder, read, without_clock
from mallang.training.schedule import Config as Schedule
from mallang.training.seeding import seed_everything
from mallang.training.stopping import Stop

WORDS = 11
TEXTS = [np.random.default_rng(i).integers(4, WORDS, size=1 + i % 7) for i in range(60)]
LENGTHS = np.array([[len(text)] for text in TEXTS], dtype=np.int32)


class ToyTask:
    """Say each token again."""

    columns = ("text",)
    unread = ()
    open_ended = False
    can_compile = True
    parts = ("loss",)
    metrics = {"loss": "lower", "luck": "higher"}
    tokenizers = {}
    build = examples = plan = validate = lambda self, *given: None  # the loop is handed what it needs of these

    def counts(self, batch):
        return {"loss": int(batch.lengths.sum())}

    def prepare(self, rows, random):
        tokens, lengths = pad_rows([text for (text,) in rows])
        return Batch(tokens=tokens, lengths=lengths, labels=tokens)

    def loss(self, model, batch, carry):
        logits = model(batch.tokens)[batch.mask]
        return Loss(sums={"loss": nn.functional.cross_entropy(logits, batch.labels[batch.mask], reduction="sum")})

    def updates(self, model):
        return [Group(list(model.named_parameters()))]


class VaryingTask(ToyTask):
    """The same, with a factor of the rate for every batch."""

    def __init__(self, factor):
        self.rate_factor = factor


def make_model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Embedding(WORDS, 8), nn.Dropout(0.3), nn.Linear(8, WORDS))


def make(folder, model=None, validate=None, rate=0.01, rule=None, schedule=None, tokens=40, task=None, **options):
    model = make_model() if model is None else model
    task = task or ToyTask()
    source = Source(
        examples=lambda epoch: TEXTS,
        plan=lambda epoch: Buckets(LENGTHS, tokens=tokens, seed=1, epoch=epoch),
        prepare=task.prepare,
        seed=1,
    )
    if validate is None:
        validate = lambda: [Score("loss", float(model[2].weight.detach().square().mean()), "toy")]  # noqa: E731
    config = Config(**{"steps": 20, "log_every": 3, "validate_every": 7, "workers": 0, **options})
    return Loop(
        Plan(
            config=config, optimizer=rule or optimizer.Config(learning_rate=rate), seed=1, task=task, model=model,
            source=source,
            schedule=schedule or Schedule(name="constant", warmup=0), validate=validate, folder=folder,
            device=torch.device("cpu"), world=World(),
            recorder=Recorder(folder, console=Console(file=io.StringIO()), quiet=False),
        )
    )  # fmt: skip


class StopAt(Stop):
    """Asks to stop before the given step."""

    def __init__(self, loop, step):
        self.loop, self.step = loop, step

    @property
    def asked(self):
        return self.loop.step >= self.step


def weights(loop):
    return [parameter.detach().clone() for parameter in loop.model.parameters()]


def same(some, other):
    return all(torch.equal(a, b) for a, b in zip(some, other, strict=True))


def test_a_factor_of_the_rate_is_not_undone_by_clipping(tmp_path):
    """A window that is half as wide moves half as far, however short gradients are clipped."""
    moved, losses = {}, {}
    for factor in (1.0, 0.5):
        folder = tmp_path / str(factor)
        folder.mkdir()
        rule = optimizer.Config(name="sgd", learning_rate=2.0, max_grad_norm=1e-3)
        task = VaryingTask(lambda batch, factor=factor: factor)
        loop = make(folder, rule=rule, task=task, steps=1, log_every=1, gradient_accumulation=3)
        before = weights(loop)
        loop.run(Stop())
        moved[factor] = [after - old for after, old in zip(weights(loop), before, strict=True)]
        losses[factor] = read(folder / FILE)[0]["loss"]
    far = torch.cat([change.flatten() for change in moved[1.0]])
    assert far.norm() == pytest.approx(2.0 * 1e-3, rel=1e-2), "clipped"
    for half, whole in zip(moved[0.5], moved[1.0], strict=True):
        torch.testing.assert_close(half, whole / 2, rtol=1e-2, atol=1e-7)
    assert losses[0.5] == losses[1.0]


def test_an_update_of_several_batches_takes_the_mean_of_their_factors(tmp_path):
    task = VaryingTask(lambda batch: float(batch.tokens.shape[1]))
    loop = make(tmp_path, rate=0.01, task=task, steps=1, log_every=1, gradient_accumulation=3)
    widths = [batch.tokens.shape[1] for (batch, _), _ in zip(loop.micro_batches(), range(3), strict=False)]
    loop.run(Stop())
    assert len(set(widths)) > 1 and read(tmp_path / FILE)[0]["rate"] == pytest.approx(0.01 * sum(widths) / 3)


ASGD = {"rule": optimizer.Config(name="asgd", learning_rate=0.5, average_from=7)}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ema_decay": 0.9, "final": "ema"},
        {"gradient_accumulation": 3, "save_every": 2},
        {"micro_batches": 4, "first_micro_batches": 1},
        ASGD,
    ],
)
@pytest.mark.parametrize("stops", [[5], [1, 2, 13, 19]])
def test_stopping_anywhere_changes_nothing(tmp_path, options, stops):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    straight = make(whole, **options)
    assert straight.run(Stop())
    for step in stops:
        loop = make(parts, **options)
        assert not loop.run(StopAt(loop, step))
        assert loop.step == step
    resumed = make(parts, **options)
    assert resumed.run(Stop())
    assert same(weights(straight), weights(resumed))
    if straight.average is not None:
        assert straight.average.weights.keys() == resumed.average.weights.keys() != set()
        assert all(torch.equal(v, resumed.average.weights[k]) for k, v in straight.average.weights.items())
    metrics = [[without_clock(entry) for entry in read(folder / FILE)] for folder in (whole, parts)]
    assert metrics[0] == metrics[1] and len(metrics[0]) == 10
    states = [checkpoint.newest(folder / "checkpoints", print).state for folder in (whole, parts)]
    assert without_seconds(states[0]) == without_seconds(states[1])


def without_seconds(state):
    return {key: value for key, value in state.items() if key != "seconds"}


def test_micro_batches_grow_linearly_and_each_is_read_once(tmp_path):
    """Of 20 updates the first 10 grow from 1 to 5 micro-batches; every update divides by all of its tokens."""
    loop = make(tmp_path, micro_batches=5, first_micro_batches=1, batch_growth=0.5, log_every=1)
    wanted = [min(5, 1 + 4 * step // 10) for step in range(20)]
    assert [loop.micro_batches_of(step) for step in range(1, 21)] == wanted
    batches = [batch for (batch, _), _ in zip(loop.micro_batches(), range(sum(wanted)), strict=False)]
    assert loop.run(Stop())
    sizes = [int(batch.lengths.sum()) for batch in batches]
    ends = np.cumsum(wanted)
    tokens = [sum(sizes[:end]) for end in ends]
    assert [entry["tokens"] for entry in read(tmp_path / FILE) if entry["kind"] == "train"] == tokens
    assert loop.progress.position.number == ends[-1]


def test_streams_with_carried_state_cannot_grow(tmp_path):
    class Streaming(ToyTask):
        carries, width, one_shape = True, 4, True
        filters = shapes = lambda self, *given: None

    with pytest.raises(UserError, match="their number cannot grow"):
        make(tmp_path, task=Streaming(), micro_batches=2, first_micro_batches=1).run(Stop())


def test_epochs_of_two_lengths_count_their_own_batches(tmp_path):
    class Phased(ToyTask):
        first_phase = 2

    loop = make(tmp_path, task=Phased(), steps=None, epochs=5)
    plan = lambda epoch: Buckets(LENGTHS, tokens=40 if epoch < 2 else 20, seed=1, epoch=epoch)  # noqa: E731
    loop.plan = replace(loop.plan, source=replace(loop.plan.source, plan=plan))
    assert loop.total == 2 * len(plan(0)) + 3 * len(plan(2)) and len(plan(2)) > len(plan(0))


@pytest.mark.parametrize(
    "rule", [optimizer.Config(name="sgd", learning_rate=0.5, max_grad_norm=0.0), optimizer.Config(learning_rate=0.01)]
)
def test_accumulation_divides_by_the_count_of_the_whole_step(tmp_path, rule):
    """Micro-batches of unequal size must weigh by their tokens: one update equals that of all texts in one batch.

    Adam's first update hardly depends on the size of a gradient, that of SGD is the gradient.
    """
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    pieces = len(Buckets(LENGTHS, tokens=40, seed=1, epoch=0))
    small = make(tmp_path / "a", tokens=40, steps=1, gradient_accumulation=pieces, rule=rule)
    large = make(tmp_path / "b", tokens=1000, steps=1, rule=rule)
    before = weights(large)
    for loop in (small, large):
        loop.model[1].p = 0.0
        loop.run(Stop())
    assert pieces > 3 and len(Buckets(LENGTHS, tokens=1000, seed=1, epoch=0)) == 1
    for a, b, old in zip(weights(small), weights(large), before, strict=True):
        assert torch.allclose(a, b, atol=1e-6)
        assert (b - old).abs().max() > 1e-3, "a whole update"
    losses = [read(tmp_path / name / FILE)[0]["loss"] for name in "ab"]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


class DrawingTask(ToyTask):
    """The same, remembering the random numbers that the loss of each micro-batch would draw."""

    def __init__(self):
        self.drawn = []

    def loss(self, model, batch, carry):
        self.drawn.append(torch.rand(6, generator=torch.default_generator.clone_state()).tolist())
        return super().loss(model, batch, carry)


def test_every_micro_batch_of_every_step_has_random_numbers_of_its_own(tmp_path):
    """Otherwise dropout would strike the same values again and again; the same run draws the same."""
    found = {}
    for name in ("once", "again"):
        (tmp_path / name).mkdir()
        task = DrawingTask()
        make(tmp_path / name, task=task, steps=4, gradient_accumulation=3).run(Stop())
        found[name] = task.drawn
    assert len({tuple(each) for each in found["once"]}) == 4 * 3
    assert found["once"] == found["again"]


@pytest.mark.parametrize("seed", [(1, 2, 3), (1, 3, 2), (2, 1, 3)])
def test_seed_step_and_micro_batch_are_told_apart(seed):
    def drawn(*three):
        seed_everything(*three)
        return torch.rand(3).tolist()

    assert drawn(*seed) == drawn(*seed)
    others = [tuple(n + (i == place) for i, n in enumerate(seed)) for place in range(3)]
    assert all(drawn(*seed) != drawn(*other) for other in others)


def test_epochs_decide_how_long(tmp_path):
    loop = make(tmp_path, steps=None, epochs=3, validate_every=None)
    loop.run(Stop())
    batches = len(Buckets(LENGTHS, tokens=40, seed=1, epoch=0))
    assert loop.step == 3 * batches and loop.progress.position.epoch == 3
    assert [entry["step"] for entry in read(tmp_path / FILE) if entry["kind"] == "valid"] == [
        batches, 2 * batches, 3 * batches,
    ]  # fmt: skip


def test_patience_ends_the_training_and_the_best_is_kept(tmp_path):
    values = iter([3.0, 2.0, 2.5, 2.6, 1.0])
    loop = make(tmp_path, validate=lambda: [Score("loss", next(values), "toy")], validate_every=2, patience=2)
    assert loop.run(Stop())
    assert loop.step == 8 and loop.progress.best == 2.0 and loop.progress.best_step == 4
    assert (tmp_path / "checkpoints" / checkpoint.name_of(4)).exists()
    again = make(tmp_path, validate=lambda: [Score("loss", 0.0, "toy")], validate_every=2, patience=2)
    assert again.run(Stop()) and again.step == 8, "a run that stopped early stays stopped"


def test_higher_can_be_better(tmp_path):
    values = iter([1.0, 3.0, 2.0])
    loop = make(tmp_path, validate=lambda: [Score("luck", next(values), "toy")], metric="luck", steps=21)
    loop.run(Stop())
    assert loop.progress.best == 3.0 and loop.progress.best_step == 14


def test_plateau_lowers_the_rate_and_is_remembered(tmp_path):
    def run(stop_at):
        values = [1.0] * 20
        schedule = Schedule(name="plateau", warmup=0, patience=1)
        loop = make(
            tmp_path, validate=lambda: [Score("loss", values.pop(), "toy")], schedule=schedule, validate_every=5
        )
        loop.run(StopAt(loop, stop_at))
        return loop

    run(12)
    loop = run(99)
    assert loop.progress.plateau.scale == 0.125
    rates = {entry["step"]: entry["rate"] for entry in read(tmp_path / FILE) if entry["kind"] == "train"}
    assert rates[3] == 0.01 and rates[12] == 0.005 and rates[18] == 0.0025


def test_numbers_that_are_none_stop_the_training_with_a_diagnosis(tmp_path):
    class Poison(Stop):
        def __init__(self):
            pass

        @property
        def asked(self):
            if loop.step == 10:
                with torch.no_grad():
                    loop.model[2].bias[0] = math.nan
            return False

    loop = make(tmp_path)
    with pytest.raises(UserError) as caught:
        loop.run(Poison())
    said = str(caught.value)
    assert "2.bias" in said or "0.weight" in said
    assert "step 12" in said and "last good checkpoint: step 7" in said and "optimizer.learning_rate" in said
    assert checkpoint.newest(tmp_path / "checkpoints", print).step == 7, "nothing broken was saved"


def test_a_loss_that_runs_away_is_told(tmp_path):
    with pytest.raises(UserError, match="diverged"):
        make(tmp_path, rate=500.0, schedule=Schedule(name="constant", warmup=500), steps=200).run(Stop())


def test_the_moving_average_is_the_formula(tmp_path):
    loop = make(tmp_path, ema_decay=0.9, steps=3, log_every=1, final="ema")
    expected = loop.model[2].bias.detach().clone()
    history = []
    step = loop.optimizer.step
    loop.optimizer.step = lambda: (step(), history.append(loop.model[2].bias.detach().clone()))
    loop.run(Stop())
    for value in history:
        expected = 0.9 * expected + 0.1 * value
    assert torch.allclose(loop.average.weights["2.bias"], expected)
    assert not torch.allclose(expected, history[-1], atol=1e-3)


@pytest.mark.parametrize(
    "options", [{"ema_decay": 0.9, "final": "ema"}, {"ema_decay": 0.9}, ASGD], ids=["ema", "best", "asgd"]
)
def test_the_average_is_what_is_validated_and_training_goes_on_without_it(tmp_path, options):
    """What is validated decides which weights the run ends with: it must be those that it can end with."""
    seen = []

    def validate():
        averaged = [loop.average.weights.get(name, value).clone() for name, value in loop.model.named_parameters()]
        seen.append((weights(loop), averaged, own[-1]))
        return [Score("loss", 1.0, "toy")]

    own = []
    loop = make(tmp_path, validate=validate, validate_every=5, **options)
    step = loop.optimizer.step
    loop.optimizer.step = lambda: (step(), own.append(weights(loop)))
    loop.run(Stop())
    began = 0 if "ema_decay" in options else 10  # averaged SGD begins at the first validation after update 7
    assert len(seen) == 4
    for number, (validated, averaged, trained) in enumerate(seen, start=1):
        assert same(validated, averaged)
        assert same(validated, trained) == (number * 5 <= began)
    assert same(weights(loop), own[-1])


def test_a_budget_of_seconds_ends_the_training_at_a_validation(tmp_path, monkeypatch):
    clock = iter(range(1_000_000))
    monkeypatch.setattr("mallang.training.loop.time.monotonic", lambda: float(next(clock)))
    loop = make(tmp_path, steps=1000, validate_every=4, seconds=30.0)
    assert loop.run(Stop()) and loop.step % 4 == 0 and 0 < loop.step < 30
    assert loop.progress.seconds >= 30, "not before the time is over"
    assert make(tmp_path, steps=1000, validate_every=4, seconds=30.0).run(Stop()), "nor does it go on afterwards"


def test_seconds_are_counted_from_the_start_of_the_run_and_go_on_when_it_resumes(tmp_path, monkeypatch):
    clock = iter(range(5000, 1_000_000))
    monkeypatch.setattr("mallang.training.loop.time.monotonic", lambda: float(next(clock)))
    loop = make(tmp_path, steps=12, validate_every=4)
    assert not loop.run(StopAt(loop, 6))
    first = loop.progress.seconds
    assert 6 <= first < 60
    for _ in range(1000):
        next(clock)  # while nobody trains no time passes
    loop = make(tmp_path, steps=12, validate_every=4)
    assert loop.run(Stop()) and first + 6 <= loop.progress.seconds < 2.5 * first


def test_configurations_that_contradict_themselves_are_refused():
    for wrong in (
        {"seconds": 0.5},
        {"steps": 1, "epochs": 1},
        {"final": "ema"},
        {"keep": 3},
        {"steps": 0},
        {"ema_decay": 1.0},
        {"workers": -1},
    ):
        with pytest.raises(ValueError):
            Config(**wrong)
    assert replace(Config(steps=5), steps=None, epochs=2).epochs == 2


def test_a_loss_that_began_near_zero_may_rise_a_little():
    model = make_model()
    numbers = {"step": 2, "rate": 0.1, "norm": 1.0, "saved": 0}
    check_health(model, loss=0.25, first_loss=0.09, **numbers)
    with pytest.raises(UserError, match="diverged"):
        check_health(model, loss=2.2, first_loss=0.09, **numbers)
    with pytest.raises(UserError, match="diverged"):
        check_health(model, loss=9.1, first_loss=6.0, **numbers)


def test_a_loss_without_a_gradient_is_told():
    numbers = {"step": 2, "rate": 0.1, "first_loss": 4.3, "saved": 0}
    check_health(make_model(), norm=0.0, loss=0.0, **numbers)  # all is learned
    with pytest.raises(UserError, match="nothing is learned.*gradient is zero"):
        check_health(make_model(), norm=0.0, loss=4.3, **numbers)
