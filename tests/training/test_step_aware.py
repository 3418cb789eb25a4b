"""A loss that changes with the updates: the loop tells the number of each, wherever a run was stopped."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from commands.running import mallang, metrics, write_corpus
from mallang.data.loader import Source
from mallang.data.sampler import Buckets
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.find import find
from mallang.models import transformer
from mallang.tasks.translation import Config, Task
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.training import loop as loops
from mallang.training import optimizer
from mallang.training.distributed import World
from mallang.training.loop import Loop, Plan
from mallang.training.record import FILE, Recorder, read, without_clock
from mallang.training.schedule import Config as Rates
from mallang.training.seeding import seed_everything
from mallang.training.step import Step
from mallang.training.stopping import Stop
from training.test_distributed import RECIPE, RUN, torchrun
from training.test_loop import StopAt, same, weights

SAMPLING = {"scheduled_sampling": "exponential", "sampling_k": 0.8}
RANDOM = np.random.default_rng(7)
PAIRS = [tuple(RANDOM.integers(4, 15, size=1 + i % 6) for _ in range(2)) for i in range(40)]
LENGTHS = np.array([[len(source), len(target)] for source, target in PAIRS], dtype=np.int32)


def make_task():
    tokenizer = Tokenizer.train(["a b c d e f g h i j"], Text(unit="char", vocabulary=30))
    return Task(Config(**SAMPLING), {"source": tokenizer, "target": tokenizer})


def make(folder, steps=9):
    folder.mkdir(exist_ok=True)
    task = make_task()
    torch.manual_seed(3)
    model = task.build(transformer, transformer.Config(**transformer.SIZES["tiny"]))
    source = Source(
        examples=lambda epoch: PAIRS,
        plan=lambda epoch: Buckets(LENGTHS, tokens=60, seed=1, epoch=epoch),
        prepare=task.prepare,
        seed=1,
    )
    return Loop(
        Plan(
            config=loops.Config(steps=steps, log_every=1, validate_every=4, workers=0, gradient_accumulation=2),
            optimizer=optimizer.Config(learning_rate=0.01), seed=1, task=task, model=model, source=source,
            schedule=Rates(name="constant", warmup=0), validate=lambda: [Score("loss", 1.0, "toy")], folder=folder,
            device=torch.device("cpu"), world=World(),
            recorder=Recorder(folder, console=Console(file=io.StringIO()), quiet=True),
        )
    )  # fmt: skip


def test_stopping_anywhere_changes_nothing(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    straight = make(whole)
    assert straight.run(Stop())
    for step in (1, 5):
        loop = make(parts)
        assert not loop.run(StopAt(loop, step))
    resumed = make(parts)
    assert resumed.run(Stop())
    assert same(weights(straight), weights(resumed))
    kept = [[without_clock(entry) for entry in read(folder / FILE)] for folder in (whole, parts)]
    assert kept[0] == kept[1]
    shares = [entry["own"] for entry in kept[0] if entry["kind"] == "train"]
    assert shares[0] == 0, "at the first update every word is a true one"
    assert shares[-1] > 0.4 > shares[1], "later fewer are"


def test_a_step_is_not_compiled():
    task = make_task()
    with pytest.raises(UserError, match="cannot be compiled"):
        Step(task, torch.nn.Identity(), torch.device("cpu"), "fp32", "compile")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["transformer", "sutskever"])
def test_a_replayed_step_sees_the_new_probability(name):
    """One recording serves every update: what it reads more and more of must change between replays."""
    cuda, module, found = torch.device("cuda"), find("models", name), {}
    for engine in ("eager", "cuda-graphs"):
        task = make_task()
        torch.manual_seed(3)
        model = task.build(module, module.Config(**module.SIZES["tiny"])).to(cuda).train()
        step = Step(task, model, cuda, "fp32", engine)
        batch = task.prepare([(pair,) for pair in PAIRS[:8]], np.random.default_rng(0))
        losses = []
        for number in (1, 1, 1, 4, 30, 1):
            task.at_step(number)
            model.zero_grad(set_to_none=False)
            seed_everything(1, 1, 0)
            loss = step.run(batch, [10])
            gradient = sum(float(p.grad.norm()) for p in model.parameters() if p.grad is not None)
            losses.append((float(loss.sums["loss"]), float(loss.report["own"]), gradient))
        found[engine] = losses
    assert found["eager"][4][1] > found["eager"][3][1] > found["eager"][2][1] == 0
    np.testing.assert_allclose(found["cuda-graphs"], found["eager"], rtol=1e-3)


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    options = ("task.scheduled_sampling=exponential", "task.sampling_k=0.8")
    for home in (one, two):
        home.mkdir()
        write_corpus(home)
    assert mallang(*RECIPE, *options, "train.gradient_accumulation=2", cwd=one).code == 0
    ended = torchrun(*RECIPE, *options, cwd=two)
    assert ended.code == 0, ended.err
    for left, right in zip(metrics(two / RUN), metrics(one / RUN), strict=True):
        for key in left.keys() - {"kind"}:
            assert left[key] == pytest.approx(right[key], abs=1e-6, rel=1e-6), (key, left["step"])
    there = load_file(two / RUN / "model.safetensors")
    for name, weight in load_file(one / RUN / "model.safetensors").items():
        assert there[name].sub(weight).abs().max() < 1e-4, name
