"""Fine-tuning: rates by layer against hand-computed ones, unfreezing, LoRA, mixed layers, R-Drop against formulas."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from contracts.tiny_models import ENCODERS, examples_of, make, task_of
from mallang.commands.doctor import examine_run
from mallang.data.batch import IGNORE
from mallang.data.columns import LabelSet
from mallang.errors import UserError
from mallang.find import find
from mallang.layers.lora import adapters, merge_adapters
from mallang.loading import assemble, load
from mallang.models.contract import Layered
from mallang.recipe import read
from mallang.runs.folder import Run
from mallang.tasks import tagging
from mallang.tasks.classification import Config
from mallang.tasks.finetuning import depths_of, symmetric_divergence
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer
from mallang.training import checkpoint, optimizer
from mallang.training.materials import frame_marks
from mallang.training.train import Options, train

LAYERED = [name for name in ENCODERS if issubclass(find("models", name).Model, Layered)]
DEEP = ["bert", "transformer_encoder"]


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def one_update(task: Any, model: Any, batch: Any, optimized: torch.optim.Optimizer) -> None:
    model.train()
    optimized.zero_grad()
    task.loss(model, batch, None).sums["loss"].backward()
    optimized.step()


@pytest.mark.parametrize("name", LAYERED)
def test_every_parameter_of_an_encoder_belongs_to_one_layer(name: str) -> None:
    model: Any = make(task_of(name), name)
    groups = [
        [each for part in group for each in ([part] if isinstance(part, torch.nn.Parameter) else part.parameters())]
        for group in model.model.layer_groups()
    ]
    flat = [id(each) for group in groups for each in group]
    assert len(flat) == len(set(flat)) and set(flat) == {id(each) for each in model.model.parameters()}
    depth = {"albert": lambda config: 1, "ernie": lambda config: config.text_layers + config.knowledge_layers}
    layers = depth.get(name, lambda config: config.layers)(model.model.config)
    assert len(groups) == layers + 1 and all(groups)


def test_rates_fall_from_the_head_to_the_embedding_as_computed_by_hand() -> None:
    task = task_of("bert", layer_decay=0.5)
    model = make(task, "bert")  # two layers
    groups = task.updates(model)
    built = optimizer.build(optimizer.Config(learning_rate=1.0), groups, model)
    optimizer.set_rate(built, 0.8)
    rates = {id(each): group["lr"] for group in built.param_groups for each in group["params"]}
    assert len(rates) == len(list(model.parameters()))
    wanted = {"head.": 0.8, "model.pooler.": 0.4, "model.encoder.1.": 0.4, "model.encoder.0.": 0.2,
              "model.embedding.": 0.1}  # fmt: skip
    for name, parameter in model.named_parameters():
        [rate] = [rate for start, rate in wanted.items() if name.startswith(start)]
        assert rates[id(parameter)] == pytest.approx(rate), name
    assert built.param_groups[0]["lr"] == 0.8, "the rate that is logged is that of the head"


def test_layers_are_unfrozen_from_the_highest_to_the_embedding() -> None:
    task = task_of("bert", unfreeze_every=3)
    model: Any = make(task, "bert")
    [group] = task.updates(model)
    assert len(group.parameters) == len(list(model.parameters()))
    starts = ["head.", ("model.encoder.1.", "model.pooler."), "model.encoder.0.", "model.embedding."]
    for step in range(1, 14):
        has_changed = task.unfreeze(model, step)
        assert has_changed == (step in (1, 4, 7, 10)), step
        trained = tuple(
            start for each in starts[: (step + 2) // 3] for start in ([each] if isinstance(each, str) else each)
        )
        for name, parameter in model.named_parameters():
            assert parameter.requires_grad == name.startswith(trained), (step, name)
    task.unfreeze(model, 5)  # as a run that resumes
    assert {depth for each, depth in depths_of(model).items() if each.requires_grad} == {1}


def rows_in(folder: Path) -> list[str]:
    lines = [f"{word} {word} so\t{label}" for word, label in (("good", "yes"), ("bad", "no")) for _ in range(12)]
    (folder / "train.tsv").write_text("text\tlabel\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return [f"data.train={folder / 'train.tsv'}", f"data.valid={folder / 'train.tsv'}", "text.unit=word"]


def trained(
    folder: Path, name: str, *overrides: str, model: str = "bert", start: Path | None = None, quiet: bool = True
) -> Run:
    values = [*rows_in(folder), "task.name=classification", "model.size=tiny", "train.threads=1", "train.workers=0",
              "train.batch_sentences=8", "optimizer.learning_rate=0.01", "schedule.name=constant"]  # fmt: skip
    recipe = read(model, [*values, *overrides]).build()
    return train(recipe, Options(folder=folder / name, device="cpu", quiet=quiet, start=start))


def test_a_frozen_layer_stays_bit_equal_until_its_update_and_starts_with_a_fresh_optimizer_state(
    tmp_path: Path,
) -> None:
    run = trained(
        tmp_path, "run", "task.unfreeze_every=2", "train.steps=6", "train.validate_every=1", "train.keep=9",
        "train.final=average", "optimizer.name=adamw", "optimizer.weight_decay=0.1", "optimizer.max_grad_norm=1.0",
    )  # fmt: skip
    saved = {each.step: each for each in map(checkpoint.read, checkpoint.found(run.folder / "checkpoints"))}
    table, top, head = (
        "model.embedding.words.weight",
        "model.encoder.1.feedforward.up_proj.weight",
        "head.linear.weight",
    )

    def changed(name: str, first: int, last: int) -> bool:
        return not torch.equal(saved[first].tensors["model"][name], saved[last].tensors["model"][name])

    assert changed(head, 1, 2) and not changed(top, 1, 2) and not changed(table, 1, 6)
    assert changed(top, 2, 3) and changed("model.encoder.0.self_attention.output.weight", 4, 5)
    memory = {step: each.tensors["optimizer"] for step, each in saved.items()}
    assert f"exp_avg/{top}" not in memory[2] and float(memory[3][f"step/{top}"]) == 1.0
    assert float(memory[3][f"step/{head}"]) == 3.0 and f"exp_avg/{table}" not in memory[6]


def test_a_run_that_unfreezes_resumes_bit_for_bit(tmp_path: Path) -> None:
    options = "task.unfreeze_every=2", "train.validate_every=3", "model.dropout=0.1", "train.final=last"
    whole = trained(tmp_path, "whole", *options, "train.steps=8").read_weights()

    class StoppedError(Exception):
        pass

    def at_step(self: Any, model: Any, step: int) -> bool:
        if step == 5:
            raise StoppedError
        return unfreeze(self, model, step)

    kind = find("tasks", "classification").Task
    unfreeze = kind.unfreeze
    with pytest.MonkeyPatch.context() as patch, pytest.raises(StoppedError):
        patch.setattr(kind, "unfreeze", at_step)
        trained(tmp_path, "halted", *options, "train.steps=8")
    again = trained(tmp_path, "halted", *options, "train.steps=8").read_weights()
    assert whole.keys() == again.keys()
    for name, value in whole.items():
        assert torch.equal(value, again[name]), name


@pytest.mark.parametrize("targets", [("query", "value"), ("key",), ("query", "key", "value", "output", "ffn")])
@pytest.mark.parametrize("name", DEEP)
def test_adapters_train_and_the_frozen_weights_stay_bit_equal(name: str, targets: tuple[Any, ...]) -> None:
    task = task_of(name, lora_rank=2, lora_alpha=4.0, lora_targets=targets)
    model: Any = make(task, name)
    plain = make(task_of(name), name)
    batch = task.collate(examples_of(name, 6))
    [group] = task.updates(model)
    assert all(key.startswith("head.") or ".lora_" in key for key, _ in group.parameters)
    before, built = weights_of(model), torch.optim.AdamW([each for _, each in group.parameters], lr=0.05)
    for _ in range(3):
        one_update(task, model, batch, built)
    for key, value in model.named_parameters():
        assert torch.equal(value, before[key]) == (not value.requires_grad), key
    model.eval()
    with torch.no_grad():
        applied = task.logits(model, batch)[0]
        found = adapters(model)
        assert len(found) == {1: 1, 2: 1, 5: 4}[len(targets)] * model.model.config.layers
        merge_adapters(model)
        assert not adapters(model) and {key for key, _ in model.named_parameters()} == {
            key for key, _ in plain.named_parameters()
        }
        torch.testing.assert_close(task.logits(model, batch)[0], applied, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", LAYERED)
def test_the_mix_of_layers_is_the_formula_and_its_weights_are_trained(name: str) -> None:
    task = task_of(name, mix_layers=True, freeze=True)
    model: Any = make(task, name)
    batch = task.collate(examples_of(name, 6))
    with torch.no_grad():
        layers = task.encoded(model.model, batch).layers
        assert model.mix is not None and model.mix.weights().tolist() == pytest.approx([1 / len(layers)] * len(layers))
        scores = torch.linspace(1.0, -1.0, len(layers))
        model.mix.scores.copy_(scores)
        model.mix.scale.fill_(0.7)
        shares = np.exp(scores.numpy()) / np.exp(scores.numpy()).sum()
        mix = 0.7 * sum(float(share) * layer for share, layer in zip(shares, layers, strict=True))
        text = torch.stack([row[:length].mean(dim=0) for row, length in zip(mix, batch.lengths, strict=True)])
        torch.testing.assert_close(task.logits(model, batch)[0], model.head(text), rtol=1e-5, atol=1e-5)
    [group] = task.updates(model)
    names = {key for key, _ in group.parameters}
    assert names == {"head.linear.weight", "head.linear.bias", "head.mix.scores", "head.mix.scale"}
    before = weights_of(model)
    one_update(task, model, batch, torch.optim.Adam([each for _, each in group.parameters], lr=0.05))
    assert {key for key, value in model.named_parameters() if not torch.equal(value, before[key])} == names


def test_the_divergence_of_r_drop_is_the_sum_of_both_kl_divergences() -> None:
    torch.manual_seed(0)
    first, second = torch.randn(5, 3), torch.randn(5, 3)
    p, q = first.softmax(dim=1), second.softmax(dim=1)
    wanted = (p * (p / q).log()).sum(dim=1) + (q * (q / p).log()).sum(dim=1)
    torch.testing.assert_close(symmetric_divergence(first, second), wanted)
    p, q = first.sigmoid(), second.sigmoid()
    one_way = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
    other = q * (q / p).log() + (1 - q) * ((1 - q) / (1 - p)).log()
    torch.testing.assert_close(symmetric_divergence(first, second, independent=True), (one_way + other).sum(dim=1))


@pytest.mark.parametrize("kind", ["single", "ordinal"])
def test_r_drop_is_the_mean_of_two_passes_and_their_divergence(kind: Any) -> None:
    task = task_of("transformer_encoder", r_drop=2.0, kind=kind)
    model = make(task, "transformer_encoder").train()
    batch = task.collate(examples_of("transformer_encoder", 6))
    torch.manual_seed(3)
    (first, one), (second, two) = task.one_pass(model, batch), task.one_pass(model, batch)
    apart = symmetric_divergence(one, two, independent=kind == "ordinal").sum()
    torch.manual_seed(3)
    found = task.loss(model, batch, None)
    assert float(apart.detach()) > 0
    torch.testing.assert_close(found.report["divergence"], apart.detach())
    torch.testing.assert_close(found.sums["loss"], (first.sums["loss"] + second.sums["loss"]) / 2 + 0.5 * apart)
    torch.testing.assert_close(found.report["nll"], (first.report["nll"] + second.report["nll"]) / 2)
    model.eval()
    assert "divergence" not in task.loss(model, batch, None).report


def tagger(**config: Any) -> tagging.Task:
    tokenizer = Tokenizer.train(["a b c d"], TextConfig(unit="space", vocabulary=20))
    labels = LabelSet.learn(iter(["O\tB-PER\tI-PER"]), "tags", "tags")
    return tagging.Task(tagging.Config(**config), {"words": tokenizer}, {"tags": labels})


def test_tagging_has_the_same_options() -> None:
    module = find("models", "transformer_encoder")
    config = module.Config(**module.SIZES["tiny"])
    task = tagger(r_drop=1.0, mix_layers=True, layer_decay=0.5)
    torch.manual_seed(1)
    model: Any = task.build(module, config).train()
    rows = [
        (np.array([4, 5, 6]), np.array([0, 1, 0]), np.array([0, 1, 2])),
        (np.array([5]), np.array([0]), np.array([0])),
    ]
    loss = task.loss(model, task.collate(rows), None)
    assert float(loss.report["divergence"]) > 0 and [group.scale for group in task.updates(model)] == [
        1,
        0.5,
        0.25,
        0.125,
    ]
    loss.sums["loss"].backward()
    assert float(model.mix.scores.grad.abs().sum()) > 0
    with pytest.raises(UserError, match="not of a CRF"):
        tagger(r_drop=1.0, head="crf").build(module, config)
    with pytest.raises(UserError, match="has its own CRF"):
        crf = find("models", "lstm_crf")
        tagger(lora_rank=1).build(crf, crf.Config(**crf.SIZES["tiny"]))


@pytest.mark.parametrize("sharing", ["none", "attention", "feed-forward", "all"])
def test_shared_layers_of_an_albert_are_trained_as_its_highest(sharing: Any) -> None:
    module = find("models", "albert")
    model = module.Model(module.Config(**{**module.SIZES["tiny"], "sharing": sharing, "pretraining_heads": "both"}),
                         task_of("albert").text.vocabulary)  # fmt: skip
    groups = [[each for part in group for each in part.parameters()] for group in model.layer_groups()]
    assert len(groups) == (2 if sharing == "all" else 3) and all(groups)
    flat = [id(each) for group in groups for each in group]
    assert len(flat) >= len(set(flat)) == len(list(model.parameters()))
    table = model.embedding.words.weight
    assert any(each is table for each in groups[0])
    shared = {"attention": [model.attention], "feed-forward": [model.feedforward]}.get(sharing, [])
    highest = {id(each) for each in groups[-1]}
    assert all({id(each) for each in part.parameters()} <= highest for part in shared)


def answering(kind: str, **options: Any) -> tuple[Any, Any]:
    """A task of pairs of that name, and a batch of two examples."""
    module = find("tasks", kind)
    tokenizer = Tokenizer.train(["a b c d"], TextConfig(unit="space", vocabulary=20), special=("cls", "sep"))
    one, two, three = (np.array(ids) for ids in ([5, 6], [7], [8, 5, 6]))
    none = np.array([IGNORE])
    columns, rows = {
        "similarity": (("first", "second"), [(one, two, number(2.5)), (two, three, number(4.0))]),
        "multiple_choice": (
            ("question", "choices"), [(one, three, np.array([0, 2]), np.array([1])), (two, three, np.array([0]), none)]
        ),
        "question_answering": (("question", "context"), [(one, three, (1, 2)), (two, one, (IGNORE, IGNORE))]),
    }[kind]  # fmt: skip
    task = module.Task(module.Config(**options), dict.fromkeys(columns, tokenizer), {})
    return task, task.collate(rows)


def number(value: float) -> np.ndarray:
    return np.array([value], dtype=np.float32).view(np.int32).astype(np.int64)


def headed(task: Any, name: str = "bert", **changes: Any) -> Any:
    module = find("models", name)
    torch.manual_seed(1)
    values = {**module.SIZES["tiny"], **({"max_length": 400} if name == "bert" else {}), **changes}
    return task.build(module, module.Config(**values))


ANSWERING = ["similarity", "multiple_choice", "question_answering"]


@pytest.mark.parametrize("kind", ANSWERING)
def test_tasks_of_pairs_and_questions_have_the_same_options(kind: str) -> None:
    task, batch = answering(kind, r_drop=2.0, mix_layers=True, layer_decay=0.5)
    model = headed(task).train()
    assert [group.scale for group in task.updates(model)] == [1, 0.5, 0.25, 0.125]
    torch.manual_seed(3)
    (first, one), (second, two) = task.one_pass(model, batch), task.one_pass(model, batch)
    torch.manual_seed(3)
    found = task.loss(model, batch, None)
    if kind == "similarity":
        apart = symmetric_divergence(one[:, None], two[:, None], independent=True).sum()
    elif kind == "multiple_choice":
        apart = symmetric_divergence(one[0, :2], two[0, :2])  # the right choice of the second question is not known
    else:
        asked = batch.candidates[0]  # nor is the answer to the second one
        apart = sum(symmetric_divergence(one[0, side][asked], two[0, side][asked]) for side in (0, 1)) / 2
    assert float(apart.detach()) > 0
    torch.testing.assert_close(found.report["divergence"], apart.detach())
    torch.testing.assert_close(found.sums["loss"], (first.sums["loss"] + second.sums["loss"]) / 2 + 0.5 * apart)
    found.sums["loss"].backward()
    assert float(model.mix.scores.grad.abs().sum()) > 0
    assert all(bool(each.grad.isfinite().all()) for each in model.parameters() if each.grad is not None)
    model.eval()
    assert "divergence" not in task.loss(model, batch, None).report


@pytest.mark.parametrize("kind", ANSWERING)
def test_their_encoders_are_adapted_frozen_and_unfrozen(kind: str) -> None:
    task, batch = answering(kind, lora_rank=2)
    model = headed(task)
    [group] = task.updates(model)
    assert adapters(model) and all(key.startswith("head.") or ".lora_" in key for key, _ in group.parameters)
    before = weights_of(model)
    one_update(task, model, batch, torch.optim.AdamW([each for _, each in group.parameters], lr=0.05))
    for key, value in model.named_parameters():
        assert value.requires_grad or torch.equal(value, before[key]), key
    task, _ = answering(kind, freeze=True)
    [group] = task.updates(headed(task))
    assert all(key.startswith("head.") for key, _ in group.parameters)
    task, _ = answering(kind, unfreeze_every=2)
    model = headed(task)
    task.unfreeze(model, 1)
    assert {key.split(".")[0] for key, each in model.named_parameters() if each.requires_grad} == {"head"}
    module = find("tasks", kind)
    with pytest.raises(ValueError, match="layer_decay has no effect on a frozen encoder"):
        module.Config(freeze=True, layer_decay=0.5)
    with pytest.raises(UserError, match="does not declare any"):
        headed(answering(kind, layer_decay=0.5)[0], "rnn_tagger")


def test_a_bi_encoder_has_no_head_to_tune() -> None:
    config = find("tasks", "similarity").Config
    for option in ({"layer_decay": 0.5}, {"lora_rank": 2}, {"r_drop": 1.0}, {"mix_layers": True}):
        with pytest.raises(ValueError, match="has no effect on kind = 'bi'"):
            config(kind="bi", **option)
    marks = "start", "delimiter", "extract"
    for kind, expected in (("cross", marks), ("bi", ())):
        recipe = read("gpt", ["task.name=similarity", f"task.kind={kind}", "data.train=a", "data.valid=a"]).build()
        assert frame_marks(recipe) == expected
    for kind in ("multiple_choice", "question_answering"):
        recipe = read("gpt", [f"task.name={kind}", "data.train=a", "data.valid=a"]).build()
        assert frame_marks(recipe) == marks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer_decay": 0.0}, "layer_decay must be above 0"),
        ({"freeze": True, "layer_decay": 0.9}, "layer_decay has no effect on a frozen encoder"),
        ({"freeze": True, "lora_rank": 2}, "lora_rank has no effect on a frozen encoder"),
        ({"freeze": True, "unfreeze_every": 2}, "unfreeze_every has no effect on a frozen encoder"),
        ({"lora_rank": 2, "unfreeze_every": 2}, "unfreeze_every has no effect with lora_rank"),
        ({"lora_alpha": 2.0}, "lora_alpha has no effect without lora_rank"),
        ({"lora_dropout": 0.1}, "lora_dropout has no effect without lora_rank"),
        ({"lora_targets": ("key",)}, "lora_targets has no effect without lora_rank"),
        ({"lora_rank": 2, "lora_targets": ()}, "lora_targets names some of"),
        ({"r_drop": -1.0}, "r_drop must not be negative"),
        ({"mix_layers": True, "documents": True}, "mix_layers mixes layers of tokens"),
    ],
)
def test_options_without_effect_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config(**options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cnn", {"layer_decay": 0.9}, "does not declare any"),
        ("cnn", {"unfreeze_every": 5}, "does not declare any"),
        ("cnn", {"lora_rank": 2}, "has none"),
        ("cnn", {"mix_layers": True}, "has one"),
        ("char_cnn", {"mix_layers": True}, "has none"),
        ("bag_of_words", {"r_drop": 1.0}, "about an encoder under a head"),
        ("transformer_encoder", {"r_drop": 1.0, "freeze": True}, "has none"),
    ],
)
def test_models_on_which_an_option_has_no_effect_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(task_of(name, **options), name)


def test_gradient_checkpointing_trains_the_same_weights(tmp_path: Path) -> None:
    options = "train.steps=3", "model.dropout=0.2"
    plain = trained(tmp_path, "plain", *options).read_weights()
    again = trained(tmp_path, "again", *options, "train.gradient_checkpointing=true").read_weights()
    assert all(torch.equal(value, again[name]) for name, value in plain.items())
    with pytest.raises(UserError, match="gradient_checkpointing has no effect on cnn"):
        trained(tmp_path, "none", *options, "train.gradient_checkpointing=true", model="cnn")
    for wrong in ("train.engine=compile", "train.precision=bf16-weights"):
        with pytest.raises(UserError, match="gradient_checkpointing needs"):
            trained(tmp_path, "none", *options, "train.gradient_checkpointing=true", wrong)


def test_a_run_of_lora_has_merged_weights_and_its_adapter_apart(tmp_path: Path) -> None:
    base = trained(tmp_path, "base", "train.steps=2")
    options = "train.final=last", "task.lora_rank=2", "task.lora_alpha=6", "task.lora_targets=['query', 'value', 'ffn']"
    run = trained(tmp_path, "tuned", *options, "train.steps=4", "optimizer.weight_decay=0.1", start=base.folder)
    merged, before = run.read_weights(), base.read_weights()
    assert merged.keys() == before.keys()
    adapter = safetensors.torch.load_file(run.folder / "adapter.safetensors")
    assert {name for name in adapter if ".lora_" not in name} == {"head.linear.weight", "head.linear.bias"}
    dim, adapted = 128, 0
    for name, value in before.items():
        place = name.removesuffix("weight")
        if f"{place}lora_up" not in adapter or not name.endswith("weight"):
            assert torch.equal(merged[name], adapter.get(name, value)), name
            continue
        down, up = adapter[f"{place}lora_down"], adapter[f"{place}lora_up"]
        change = torch.zeros_like(value)
        if "query_key_value" in name:  # query and value have each their own A and B, the key has none
            change[:dim], change[2 * dim :] = 3 * up[:dim] @ down[:2], 3 * up[dim:] @ down[2:]
        else:
            change = 3 * up @ down
        torch.testing.assert_close(merged[name], value + change, rtol=1e-6, atol=1e-6)
        assert change.abs().sum() > 0
        adapted += 1
    assert adapted == 2 * 3
    newest = checkpoint.read(checkpoint.found(run.folder / "checkpoints")[-1]).tensors["model"]
    assert all(torch.equal(newest[name], value) for name, value in before.items() if name.startswith("model."))
    applied = assemble(run, newest, torch.device("cpu")).predictions(["good so", "bad"]).logits
    loaded = load(run.folder, device="cpu")
    assert not adapters(loaded.model)
    np.testing.assert_allclose(loaded.predictions(["good so", "bad"]).logits, applied, rtol=1e-5, atol=1e-6)
    with pytest.raises(UserError, match="nothing has trained them"):
        trained(tmp_path, "alone", *options, "train.steps=1")


def test_a_language_model_becomes_a_classifier_and_gets_the_tokens_around_texts(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    values = rows_in(tmp_path)
    values[:2] = [f"data.train={tmp_path / 'lines.txt'}", f"data.valid={tmp_path / 'lines.txt'}"]
    (tmp_path / "lines.txt").write_text("good so good\nbad so bad\n" * 10, encoding="utf-8")
    quick = "model.size=tiny", "train.steps=2", "train.workers=0", "train.batch_tokens=64"
    recipe = read("gpt", [*values, *quick]).build()
    base = train(recipe, Options(folder=tmp_path / "base", device="cpu", quiet=True))
    options = "task.lm_weight=0.5", "train.steps=30", "schedule.warmup=0", "optimizer.learning_rate=0.02"
    run = trained(tmp_path, "tuned", *options, model="gpt", start=base.folder, quiet=False)
    assert "the head is new; new rows for <start> <delimiter> <extract>" in " ".join(capfd.readouterr().err.split())
    before, after = (Tokenizer.load(each.folder).vocabulary for each in (base, run))
    assert after.tokens == (*before.tokens, "<start>", "<delimiter>", "<extract>") and not before.optional
    assert after.frame == (len(before), len(before) + 2) and after.between == len(before) + 1
    loaded = load(run.folder, device="cpu")
    assert [str(each) for each in loaded.classify(["good so", "bad so"])] == ["yes", "no"]
    again = trained(tmp_path, "again", "train.steps=1", model="gpt", start=run.folder)
    assert Tokenizer.load(again.folder).fingerprint == Tokenizer.load(run.folder).fingerprint
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text("utf-8").splitlines()]
    [last] = [line for line in lines if line["kind"] == "train"][-1:]
    assert last["lm"] == pytest.approx(0.5 * last["lm_nll"]) and 0 < last["accuracy"] <= 1


def test_the_auxiliary_loss_is_the_sum_over_all_tokens_but_the_first() -> None:
    task = task_of("gpt", lm_weight=0.5)
    model: Any = make(task, "gpt")
    batch = task.collate(examples_of("gpt", 5))
    loss, counts = task.loss(model, batch, None), task.counts(batch)
    expected = 0.0
    for row, length in zip(batch.tokens, batch.lengths, strict=True):
        with torch.no_grad():
            alone = replace(batch, tokens=row[None, :length], lengths=length[None])
            shares = model.model.output(model.model(alone))[0].log_softmax(dim=-1)
        expected -= sum(float(shares[place, row[place + 1]]) for place in range(int(length) - 1))
    assert float(loss.report["lm_nll"]) == pytest.approx(expected, rel=1e-5)
    assert float(loss.sums["lm"].detach()) == pytest.approx(0.5 * expected, rel=1e-5)
    assert counts["lm"] == int(batch.lengths.sum()) - 5 and task.parts == ("loss", "lm")
    with pytest.raises(UserError, match="an encoder that is a language model"):
        make(task_of("bert", lm_weight=0.5), "bert")
    with pytest.raises(ValueError, match="lm_weight and freeze exclude each other"):
        Config(lm_weight=0.5, freeze=True)


def test_the_learned_mix_is_in_run_json_and_doctor_shows_it(tmp_path: Path) -> None:
    run = trained(tmp_path, "mixed", "task.mix_layers=true", "train.steps=3", "optimizer.learning_rate=0.1")
    scores = run.read_weights()["head.mix.scores"]
    shares = run.info["layer_mix"]["weights"]
    assert shares == pytest.approx(scores.softmax(dim=0).tolist(), abs=1e-4) != [0.5, 0.5]
    report = examine_run(run.folder, None, None, 1, "cpu")
    assert report.facts["mix of layers"].startswith("{:.2f} {:.2f} from the lowest, scale ".format(*shares))
    assert load(run.folder, device="cpu").classify("good so").label in ("yes", "no")
