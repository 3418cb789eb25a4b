"""What the rows of a stream continue from: kept by stream, saved whole, and lost at the beginning of an epoch."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from commands.running import mallang, metrics, start
from mallang.data.batch import Batch
from mallang.errors import UserError
from mallang.models import rnn_lm
from mallang.tasks.language_modeling import Config, Task
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.training.carry import Carries, carry_like, leaves
from mallang.training.distributed import World
from mallang.training.step import Step
from training.test_distributed import torchrun

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
RECIPE = (
    "train", "rnn-lm", "task.name=language_modeling", "task.layout=stream", "task.context=7",
    "model.layers=2", "model.embedding_dim=12",
    "model.dim=16", "model.dropout=0.2", "text.unit=space", "text.vocabulary=60", "data.train=train.txt",
    "data.valid=valid.txt", "data.test=valid.txt", "train.steps=50", "train.save_every=3", "train.log_every=1",
    "train.validate_every=20", "train.batch_tokens=28", "train.workers=0", "optimizer.learning_rate=0.01",
)  # fmt: skip
RUN = Path("runs", "rnn-lm")
WORDS = list("abcdefghijklmn")


def write_text(folder: Path) -> None:
    """Lines in which every word hints at the next one."""
    random = np.random.default_rng(3)
    for name, lines in (("train.txt", 120), ("valid.txt", 15)):
        text = []
        for _ in range(lines):
            first, count = random.integers(len(WORDS)), random.integers(0, 9)
            text.append(" ".join(WORDS[(first + step * 3) % len(WORDS)] for step in range(count)))
        folder.joinpath(name).write_text("".join(f"{line}\n" for line in text))


def trained(folder: Path, *more: str) -> Path:
    folder.mkdir(exist_ok=True)
    write_text(folder)
    ended = mallang(*RECIPE, *more, cwd=folder)
    assert ended.code == 0, ended.err
    return folder


@pytest.mark.parametrize("streams", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_a_killed_training_goes_on_with_what_it_carried(tmp_path: Path, streams: int) -> None:
    """Bit by bit, in the midst of an epoch and beyond its end."""
    more = [f"train.micro_batches={streams}"] if streams > 1 else []
    untouched = trained(tmp_path / "untouched", *more)
    home = tmp_path / "killed"
    home.mkdir()
    write_text(home)
    for step in (4, 31):
        job = start(*RECIPE, *more, cwd=home)
        job.until(
            lambda step=step: any((home / RUN / "checkpoints").glob(f"step-*{step - 1:03d}")) or newest(home) >= step
        )
        job.send(signal.SIGKILL)
        job.wait()
    ended = mallang(*RECIPE, *more, cwd=home)
    assert ended.code == 0 and "resuming from step" in ended.err, ended.err
    assert (home / RUN / "model.safetensors").read_bytes() == (untouched / RUN / "model.safetensors").read_bytes()
    assert metrics(home / RUN) == metrics(untouched / RUN)
    epochs = [entry["epoch"] for entry in metrics(home / RUN) if entry["kind"] == "train"]
    assert len(set(epochs)) > 1, "the text was read more than once"
    saved = sorted((home / RUN / "checkpoints").glob("step-*"))[-1]
    if json.loads((saved / "state.json").read_text())["position"]["place"]:
        carried = load_file(saved / "carry.safetensors")
        assert {name.split(".")[0] for name in carried} == {str(stream) for stream in range(streams)}


def newest(home: Path) -> int:
    return max((int(path.name[5:]) for path in (home / RUN / "checkpoints").glob("step-*")), default=0)


def test_what_is_carried_matters(tmp_path: Path) -> None:
    """A training that forgets at every window is another one; so the tests above can fail."""
    found = {}
    for name, carry in (("faithful", "carry"), ("forgetful", "None")):  # both plugins: defaults know neither
        plugin = tmp_path / f"{name}.py"
        plugin.write_text(
            f"from mallang.models.rnn_lm import *\nfrom mallang.models.rnn_lm import RNNLM\n\n"
            f"class {name.title()}(RNNLM):\n    def forward_stateful(self, batch, carry):\n"
            f"        return super().forward_stateful(batch, {carry})\n\nModel = {name.title()}\n"
        )
        folder = tmp_path / f"{name}-home"
        folder.mkdir()
        write_text(folder)
        recipe = [part.replace("rnn-lm", name) for part in RECIPE]
        ended = mallang(*recipe, "train.steps=12", "--plugin", str(plugin), cwd=folder)
        assert ended.code == 0, ended.err
        found[name] = metrics(folder / "runs" / name)
    one, two = found["faithful"], found["forgetful"]
    assert one[0]["loss"] == two[0]["loss"] and one[1]["loss"] != two[1]["loss"]


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["task.jitter=true"]])
def test_two_processes_equal_one_with_two_lanes(tmp_path: Path, more: list[str]) -> None:
    more = [*more, "schedule.name=constant", "schedule.warmup=0"]  # those fitted to the text depend on the steps
    one = trained(tmp_path / "one", "train.gradient_accumulation=2", *more)
    two = tmp_path / "two"
    two.mkdir()
    write_text(two)
    ended = torchrun(*RECIPE, "train.steps=20", *more, cwd=two)
    assert ended.code == 0, ended.err
    expected = [entry for entry in metrics(one / RUN) if entry["kind"] == "train"][:20]
    for left, right in zip([e for e in metrics(two / RUN) if e["kind"] == "train"], expected, strict=True):
        assert left["loss"] == pytest.approx(right["loss"], rel=1e-5), left["step"]
        assert left["rate"] == pytest.approx(right["rate"], rel=1e-12), left["step"]
    # The checkpoint of two processes holds both streams.
    saved = sorted((two / RUN / "checkpoints").glob("step-*"))[-1]
    there = sorted((one / RUN / "checkpoints").glob("step-*"))
    assert {name.split(".")[0] for name in load_file(saved / "carry.safetensors")} == {"0", "1"} and there


def test_a_checkpoint_holds_the_lanes_of_all_processes() -> None:
    model = make_model()
    like = carry_like(model)
    both = [Carries(4, World(rank, 2)) for rank in range(2)]  # without a connection each gives its own part of a sum
    for stream in range(4):
        both[stream % 2].put(stream, [type(memory)(*(leaf + stream + 1 for leaf in memory)) for memory in like])
    tensors = [carries.tensors() for carries in both]
    whole = {name: tensors[0][name] + tensors[1][name] for name in tensors[0]}
    alone = Carries(4, World())
    alone.restore(whole, None, model, place=8)
    for stream in range(4):
        found, expected = leaves(alone.get(stream)), leaves(both[stream % 2].get(stream))
        assert all(torch.equal(left, right) for left, right in zip(found, expected, strict=True))
    second = Carries(4, World(1, 2))
    second.restore(whole, None, model, place=8)
    assert sorted(second.kept) == [1, 3]
    alone.begin(12)
    assert alone.get(0) is not None
    alone.begin(0)
    assert alone.get(0) is None and alone.tensors() == {}
    with pytest.raises(UserError, match="rows of 4 micro-batches"):
        Carries(2, World()).restore(whole, None, model, place=8)
    Carries(2, World()).restore(whole, None, model, place=0)  # an epoch begins: any number will do


def make_task() -> Task:
    tokenizer = Tokenizer.train([" ".join(WORDS)], Text(unit="space", vocabulary=60))
    return Task(Config(layout="stream", context=6), {"text": tokenizer})


def make_model(dropout: float = 0.0) -> torch.nn.Module:
    torch.manual_seed(5)
    config = rnn_lm.Config(layers=2, embedding_dim=12, dim=16, dropout=dropout)
    return make_task().build(rnn_lm, config)


def windows(count: int, device: torch.device) -> list[Batch]:
    random = torch.Generator().manual_seed(7)
    widths = [6, 6, 4] * count
    made = [torch.randint(4, 18, (3, width + 1), generator=random) for width in widths[:count]]
    lengths = [torch.full((3,), tokens.shape[1] - 1) for tokens in made]
    return [
        Batch(tokens=tokens[:, :-1], lengths=length, labels=tokens[:, 1:]).to(device)
        for tokens, length in zip(made, lengths, strict=True)
    ]


def epochs_of(
    engine: str, device: torch.device, dropout: float, streams: int
) -> tuple[list[float], list[torch.Tensor]]:
    """The losses of two epochs over the same windows, and the gradients of all."""
    task, model = make_task(), make_model(dropout).to(device)
    step = Step(task, model, device, "fp32", engine)  # type: ignore[arg-type]
    losses = []
    for _ in range(3):
        carries: list[object] = [None] * streams
        for number, batch in enumerate(windows(12, device)):
            torch.manual_seed(number)
            loss = step.run(batch, [18], carries[number % streams])
            carries[number % streams] = loss.carry
            losses.append(float(loss.sums["loss"]))
    return losses, [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize("streams", [1, 2])
@needs_gpu
def test_replayed_windows_go_on_like_plain_ones(streams: int) -> None:
    """Two shapes, each from nothing and from a carry: op by op, recorded, replayed."""
    cuda = torch.device("cuda")
    plain, replayed = (epochs_of(engine, cuda, 0.2, streams) for engine in ("eager", "cuda-graphs"))
    assert replayed[0] == pytest.approx(plain[0], rel=1e-4)
    for left, right in zip(replayed[1], plain[1], strict=True):
        torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-4)


def test_windows_without_a_carry_differ_from_those_with_one() -> None:
    cpu = torch.device("cpu")
    task, model, (first, second, *_) = make_task(), make_model(), windows(3, cpu)
    step = Step(task, model, cpu, "fp32", "eager")
    carry = step.run(first, [18]).carry
    assert float(step.run(second, [18], carry).sums["loss"]) != float(step.run(second, [18]).sums["loss"])
    again = step.run(second, [18], carry).sums["loss"]
    assert float(again) == float(step.run(second, [18], carry).sums["loss"]), "what is carried is not consumed"
