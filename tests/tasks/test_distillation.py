"""Distillation: every loss against explicit loops, padding, what a student starts from, and runs without a teacher."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mallang
from mallang.data.batch import IGNORE, Batch, Shapes
from mallang.data.columns import LabelSet
from mallang.errors import UserError
from mallang.find import find
from mallang.layers.attention import record_attention
from mallang.recipe import read
from mallang.runs.given import Given
from mallang.runs.weights import own_weights
from mallang.tasks import distillation, distilled_classification, distilled_pairs
from mallang.tasks import distilled_layers as distilled
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.training.train import Options, train

WORDS = [f"w{number}" for number in range(30)]
TOKENIZER = Tokenizer.train([" ".join(WORDS)], Text(unit="space", vocabulary=60), special=("mask", "cls", "sep"))
SMALL: dict[str, Any] = {"heads": 2, "max_length": 128, "dropout": 0.0, "attention_dropout": 0.0}
TEACHER: dict[str, Any] = {**SMALL, "layers": 4, "dim": 16}
EVERY = {f"{name}_weight": 1.0 + place for place, name in enumerate(("embedding", "hidden", "attention", "cosine"))}


def randomized(model: Any, seed: int = 3) -> Any:
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.3)
    return model.eval()


def teacher(name: str = "bert", folder: Path = Path("runs/x"), head: Any = None, **options: Any) -> dict[str, Given]:
    module = find("models", name)
    config = module.Config(**{**TEACHER, "pretraining_heads": "masked-lm", **options})
    model = randomized(module.Model(config, TOKENIZER.vocabulary), 5)
    return {"teacher": Given("teacher", folder, model, TOKENIZER, "classification", "sum", head or {})}


def student(task: Any, name: str = "distilbert", **options: Any) -> Any:
    module = find("models", name)
    config = module.Config(**{**TEACHER, "layers": 2, "pretraining_heads": "masked-lm", **options})
    torch.manual_seed(1)
    return task.build(module, config).eval()


def general(given: dict[str, Given] | None = None, **options: Any) -> distillation.Task:
    given = teacher() if given is None else given
    return distillation.Task(distillation.Config(**options), {"text": TOKENIZER}, given)


def texts(count: int = 4) -> list[np.ndarray]:
    random = np.random.default_rng(2)
    return [random.integers(7, 37, size=length) for length in (3, 12, 7, 5)[:count]]


def batch_of(task: distillation.Task) -> Batch:
    """All texts, masked."""
    return task.prepare([((ids, np.zeros(0, dtype=np.int64), IGNORE),) for ids in texts()], np.random.default_rng(0))


def vectors(model: Any, tokens: list[int]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The vectors between the layers and the attention scores of one text, alone and without padding."""
    batch = Batch(tokens=torch.tensor([tokens]), lengths=torch.tensor([len(tokens)]))
    with record_attention(model, scores=True) as maps:
        layers = [each[0] for each in model.layers_of(batch)]
    return layers, [value[0] for name, value in maps.items() if name.endswith(".scores")]


@pytest.mark.parametrize("name", ["distilbert", "bert", "albert"])
@torch.no_grad()
def test_every_loss_is_that_of_explicit_loops_over_texts_without_padding(name: str) -> None:
    task = general(**EVERY, initialize="random", rate=0.4, temperature=3.0)
    model = randomized(student(task, name))
    batch = batch_of(task)
    assert batch.masked is not None
    scaffold, other = model.get_submodule("scaffold"), task.teacher.model  # type: ignore[union-attr]
    expected = dict.fromkeys(task.parts, 0.0)
    for row, length in enumerate(batch.lengths.tolist()):
        ours, our_scores = vectors(model, batch.tokens[row, :length].tolist())
        theirs, their_scores = vectors(other, batch.tokens[row, :length].tolist())
        for place in range(length):
            expected["embedding"] += float((scaffold.embedding(ours[0][place]) - theirs[0][place]).pow(2).mean())
            cosine = ours[-1][place] @ theirs[-1][place] / (ours[-1][place].norm() * theirs[-1][place].norm())
            expected["cosine"] += 1 - float(cosine)
            for layer in (1, 2):
                hidden = scaffold.hidden(ours[layer][place]) - theirs[2 * layer][place]
                expected["hidden"] += float(hidden.pow(2).mean())
                scores = our_scores[layer - 1][:, place] - their_scores[2 * layer - 1][:, place]
                expected["attention"] += float(scores.pow(2).mean())
        for place, token in batch.masked[batch.masked[:, 0] == row, 1:].tolist():
            mine, wanted = model.output(ours[-1][place]), other.output(theirs[-1][place])
            expected["masked_lm"] -= float(mine.log_softmax(0)[token])
            p, q = (wanted / 3).softmax(0), (mine / 3).softmax(0)
            expected["prediction"] += 9 * sum(float(a * (a / b).log()) for a, b in zip(p, q, strict=True))
    weights = {name: getattr(task.config, f"{name}_weight") for name in task.parts}
    found = task.loss(model, batch, None)
    assert (
        set(found.sums) == set(task.parts) == {"prediction", "masked_lm", "embedding", "hidden", "attention", "cosine"}
    )
    for part, value in found.sums.items():
        assert float(value) == pytest.approx(weights[part] * expected[part], rel=1e-3), part
    counts = task.counts(batch)
    assert counts["hidden"] == counts["attention"] == int(batch.lengths.sum())
    assert counts["prediction"] == len(batch.masked) >= 10


@torch.no_grad()
def test_padding_and_rows_that_fill_up_a_batch_have_no_part() -> None:
    task = general(**EVERY, initialize="random")
    model = randomized(student(task))
    batch = batch_of(task)
    filled = Shapes(tokens=256, multiple=16).fill(batch)
    changed = replace(filled, tokens=filled.tokens.masked_fill(~filled.mask, 9))
    expected = task.loss(model, batch, None)
    for each in (filled, changed):
        found = task.loss(model, each, None)
        assert len(each) > len(batch) and task.counts(each) == task.counts(batch)
        for name, value in found.sums.items():
            torch.testing.assert_close(value, expected.sums[name], rtol=1e-4, atol=1e-4)


def test_a_student_of_six_layers_starts_from_layers_0_2_4_7_9_11_of_twelve() -> None:
    given = teacher(layers=12)
    model = student(general(given), layers=6)
    theirs = own_weights(given["teacher"].model)
    own = {name: value for name, value in own_weights(model).items() if not name.startswith("scaffold")}
    for place, layer in enumerate((0, 2, 4, 7, 9, 11)):
        for name, value in own.items():
            if name.startswith(f"encoder.{place}."):
                assert torch.equal(value, theirs[name.replace(f".{place}.", f".{layer}.", 1)])
    assert torch.equal(own["embedding.words.weight"], theirs["embedding.words.weight"])
    assert torch.equal(own["masked_lm.transform.weight"], theirs["masked_lm.transform.weight"])
    with pytest.raises(UserError, match="no layer of the teacher has the size"):
        student(general(cosine_weight=0.0), dim=8)


def test_the_map_of_layers() -> None:
    assert distilled.teacher_layers(4, 12, "uniform") == [3, 6, 9, 12]
    assert distilled.teacher_layers(4, 12, "top") == [9, 10, 11, 12]
    assert distilled.teacher_layers(4, 12, "bottom") == [1, 2, 3, 4]
    with pytest.raises(UserError, match="a multiple of the student's 5 layers, not 12"):
        distilled.teacher_layers(5, 12, "uniform")
    with pytest.raises(UserError, match="the student has 6 layers, and the teacher only 4"):
        distilled.teacher_layers(6, 4, "top")


def test_the_teacher_is_frozen_and_only_the_student_and_its_projections_learn() -> None:
    task = general(**EVERY, initialize="random")
    model = student(task).train()
    before = {name: value.clone() for name, value in own_weights(task.teacher.model).items()}  # type: ignore[union-attr]
    groups = task.updates(model)
    batch = batch_of(task)
    sum(task.loss(model, batch, None).sums.values()).backward()  # type: ignore[union-attr]
    names = {name for group in groups for name, weight in group.parameters if weight.grad is not None}
    assert {"scaffold.embedding.weight", "scaffold.hidden.weight"} < names and len(names) == len(own_weights(model))
    assert task.teacher is not None and not task.teacher.model.training
    assert all(torch.equal(value, before[name]) for name, value in own_weights(task.teacher.model).items())


@torch.no_grad()
def test_a_student_of_another_size_and_a_narrow_teacher_are_projected_or_refused() -> None:
    tiny = {"prediction_weight": 0.0, "masked_lm_weight": 0.0, "cosine_weight": 0.0, "initialize": "random"}
    task = general(**tiny, hidden_weight=1.0, attention_weight=1.0)
    model = student(task, dim=8)
    assert task.parts == ("hidden", "attention") and model.get_submodule("scaffold").hidden.weight.shape == (16, 8)
    batch = batch_of(task)
    assert task.loss(model, batch, None).sums["hidden"] > 0
    with pytest.raises(UserError, match="those of the student have 8 dimensions and those of the teacher 16"):
        student(general(initialize="random"), dim=8)
    with pytest.raises(UserError, match="the student has 4 of them and the teacher 2"):
        task.loss(student(task, heads=4), batch, None)
    with pytest.raises(UserError, match="this BERT was built without its masked LM head"):
        student(general(teacher(pretraining_heads="none")))
    with pytest.raises(UserError, match="does not give the vectors between its layers"):
        general({"teacher": replace(teacher()["teacher"], model=torch.nn.Linear(1, 1))})
    with pytest.raises(ValueError, match="there is nothing to learn"):
        distillation.Config(**{**tiny, "initialize": "random"})


def classifier(folder: Path, **options: Any) -> tuple[distilled_classification.Task, Any]:
    labels = LabelSet(("bad", "good", "so-so"))
    labels.save(folder, "label")
    torch.manual_seed(4)
    head = {"linear.weight": torch.randn(3, 16), "linear.bias": torch.randn(3)}
    config = distilled_classification.Config(**options)
    task = distilled_classification.Task(
        config, {"text": TOKENIZER}, {"label": labels}, teacher(folder=folder, head=head)
    )
    return task, randomized(student(task, pretraining_heads="none"))


@torch.no_grad()
def test_the_predictions_of_a_classifier_by_hand(tmp_path: Path) -> None:
    task, model = classifier(tmp_path, label_weight=2.0, temperature=2.0, hidden_weight=0.0, attention_weight=0.0)
    examples = [(ids, np.array([place % 3])) for place, ids in enumerate(texts())]
    batch = task.collate(examples)
    given = task.teacher
    assert given is not None and task.parts == ("prediction", "label")
    soft = hard = 0.0
    for ids, label in examples:
        one = task.collate([(ids, label)])
        mine = model.head(model.model.encode(one).pooled)[0]
        theirs = given.model.encode(one).pooled[0] @ given.head["linear.weight"].T + given.head["linear.bias"]
        soft -= sum(float(p * q) for p, q in zip((theirs / 2).softmax(0), (mine / 2).log_softmax(0), strict=True))
        hard -= float(mine.log_softmax(0)[label[0]])
    found = task.loss(model, batch, None)
    assert float(found.sums["prediction"]) == pytest.approx(4 * soft, rel=1e-4)
    assert float(found.sums["label"]) == pytest.approx(2 * hard, rel=1e-4)
    filled = Shapes(tokens=256, multiple=16).fill(batch)
    assert (filled.classes == IGNORE).any() and task.counts(filled) == task.counts(batch)
    for name, value in task.loss(model, filled, None).sums.items():
        torch.testing.assert_close(value, found.sums[name], rtol=1e-4, atol=1e-4)


def test_a_teacher_of_other_classes_or_without_a_head_is_refused(tmp_path: Path) -> None:
    task, _ = classifier(tmp_path)
    assert task.parts == ("prediction", "hidden", "attention")
    LabelSet(("bad", "good", "fine")).save(tmp_path, "label")
    with pytest.raises(UserError, match="its classes are bad, good, fine, but those of the training rows are"):
        student(task, pretraining_heads="none")
    task.teacher = replace(task.teacher, head={})  # type: ignore[type-var]
    with pytest.raises(UserError, match="it is no classifier with one class per text"):
        student(task, pretraining_heads="none")
    with pytest.raises(ValueError, match="a distilled classifier has one class per text"):
        distilled_classification.Config(kind="multi")
    for option in ({"mix_layers": True}, {"r_drop": 1.0}, {"lora_rank": 2}, {"lm_weight": 0.5}, {"features_mix": True}):
        with pytest.raises(ValueError, match="has no effect on a distilled classifier"):
            distilled_classification.Config(**option)
    with pytest.raises(ValueError, match="no effect without label_weight"):
        distilled_classification.Config(label_smoothing=0.1)


def pair_student(folder: Path, name: str = "distilbert", **options: Any) -> tuple[distilled_pairs.Task, Any]:
    labels = LabelSet(("contradiction", "entailment", "neutral"))
    labels.save(folder, "label")
    torch.manual_seed(4)
    head = {"linear.weight": torch.randn(3, 16), "linear.bias": torch.randn(3)}
    given = {"teacher": replace(teacher(folder=folder, head=head)["teacher"], task="pairs")}
    config, both = distilled_pairs.Config(**options), {"first": TOKENIZER, "second": TOKENIZER}
    task = distilled_pairs.Task(config, both, {"label": labels}, given)
    return task, randomized(student(task, name, pretraining_heads="none"))


@pytest.mark.parametrize("name", ["distilbert", "bert"])
@torch.no_grad()
def test_all_losses_of_a_pair_are_those_of_its_one_row(name: str, tmp_path: Path) -> None:
    """TinyBERT's and DistilBERT's losses: by explicit loops over each pair alone, <cls> first <sep> second <sep>."""
    task, model = pair_student(tmp_path, name, **EVERY, label_weight=2.0, temperature=2.0)
    both = list(zip(texts(), texts()[::-1], strict=True))
    examples = [(one, np.array([place % 3]), two) for place, (one, two) in enumerate(both)]
    batch, given, scaffold = task.collate(examples), task.teacher, model.get_submodule("scaffold")
    assert given is not None and task.parts == ("prediction", "label", *distilled.PARTS)
    expected = dict.fromkeys(task.parts, 0.0)
    cls, sep = TOKENIZER.vocabulary.cls, TOKENIZER.vocabulary.sep
    for one, label, two in examples:
        tokens = torch.tensor([[cls, *one, sep, *two, sep]])
        types = torch.tensor([[0] * (len(one) + 2) + [1] * (len(two) + 1)])
        row = Batch(tokens=tokens, lengths=torch.tensor([tokens.shape[1]]), token_types=types)
        found = []
        for each in (model.model, given.model):
            with record_attention(each, scores=True) as maps:
                layers = [layer[0] for layer in each.layers_of(row)]
            found.append((layers, [value[0] for key, value in maps.items() if key.endswith(".scores")]))
        (ours, our_scores), (theirs, their_scores) = found
        expected["embedding"] += float((scaffold.embedding(ours[0]) - theirs[0]).pow(2).mean(dim=1).sum())
        expected["cosine"] += float((1 - torch.cosine_similarity(ours[-1], theirs[-1])).sum())
        for layer in (1, 2):
            expected["hidden"] += float((scaffold.hidden(ours[layer]) - theirs[2 * layer]).pow(2).mean(dim=1).sum())
            apart = our_scores[layer - 1] - their_scores[2 * layer - 1]
            expected["attention"] += float(apart.pow(2).mean(dim=(0, 2)).sum())
        mine = model.head(model.model.encode(row).pooled)[0]
        other = given.model.encode(row).pooled[0] @ given.head["linear.weight"].T + given.head["linear.bias"]
        expected["prediction"] -= 4 * float(((other / 2).softmax(0) * (mine / 2).log_softmax(0)).sum())
        expected["label"] -= float(mine.log_softmax(0)[label[0]])
    for each in (batch, Shapes(tokens=512, multiple=16).fill(batch)):
        sums = task.loss(model, each, None).sums
        assert set(sums) == set(expected)
        for part, value in sums.items():
            weight = getattr(task.distillation, f"{part}_weight")
            assert float(value) == pytest.approx(weight * expected[part], rel=1e-3), part
    counts = task.counts(batch)
    assert counts["prediction"] == counts["label"] == 4 and counts["hidden"] == int(batch.lengths.sum())


def test_a_student_of_pairs_takes_a_teacher_of_pairs_alone(tmp_path: Path) -> None:
    task, _ = pair_student(tmp_path)
    assert task.parts == ("prediction", "hidden", "attention")
    task.teacher = replace(task.teacher, task="classification")  # type: ignore[type-var]
    with pytest.raises(UserError, match="no classifier with one class per text") as caught:
        student(task, pretraining_heads="none")
    assert "give a run of the task pairs" in str(caught.value.todo)
    for option in ({"kind": "multi"}, {"both_orders": True}, {"freeze": True}):
        with pytest.raises(ValueError, match="has one class per pair and reads it in one row"):
            distilled_pairs.Config(**option)  # type: ignore[arg-type]
    for option in ({"mix_layers": True}, {"r_drop": 1.0}, {"lora_rank": 2}, {"features_mix": True}):
        with pytest.raises(ValueError, match="has no effect on a distilled classifier of pairs"):
            distilled_pairs.Config(**option)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="a distilled classifier of pairs needs a teacher"):
        distilled_pairs.Task(
            distilled_pairs.Config(), {"first": TOKENIZER, "second": TOKENIZER}, {"label": LabelSet(("a", "b"))},
            {"other": teacher()["teacher"]},
        )  # fmt: skip


def test_a_distilled_classifier_of_pairs_is_a_run_that_is_complete_without_its_teacher(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ["w1 w2\tw2\tyes", "w4 w5 w2\tw7\tno", "w3 w1\tw1\tyes", "w2 w1\tw9 w8\tno"]
    Path("some.tsv").write_text("\n".join(lines * 10) + "\n", "utf-8")
    usual = ["data.train=some.tsv", "data.valid=some.tsv", "train.batch_tokens=128", "train.steps=4", "text.unit=space",
             "text.vocabulary=60", "model.layers=2", "model.dim=16", "model.heads=2",
             "model.max_length=64"]  # fmt: skip

    def run(name: str, *options: str) -> None:
        recipe = read(options[0], [*usual, *options[1:]]).build()
        train(recipe, Options(folder=Path("runs", name), device="cpu", quiet=True))

    run("teacher", "bert", "task.name=pairs")
    run("student", "distilbert", "task.name=distilled_pairs", "given.teacher=runs/teacher", "model.layers=1")
    shutil.rmtree("runs/teacher")
    model = mallang.load("runs/student", device="cpu")
    assert model.classify(("w1 w2", "w2")).label in ("no", "yes") and model.reads_pairs
    assert {name.split(".")[0] for name in safe_names("runs/student")} == {"model", "head"}
    assert model.control == ("task.read=second",)


@pytest.mark.parametrize("kind", ["classification", "pairs"])
def test_a_teacher_with_fewer_positions_than_the_texts_need_is_refused(
    kind: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """Before anything is learned; and what the message says to do makes the texts short enough."""
    monkeypatch.chdir(tmp_path)
    more = "w3 w1 w5\t" if kind == "pairs" else ""
    lines = [f"w1 w2 w4 w5 w6 w7 w8 w9\t{more}yes", f"w4 w5\t{more}no", f"w3\t{more}yes", f"w2 w1\t{more}no"]
    Path("some.tsv").write_text("\n".join(lines * 10) + "\n", "utf-8")
    usual = ["data.train=some.tsv", "data.valid=some.tsv", "train.batch_tokens=128", "train.steps=2", "text.unit=space",
             "text.vocabulary=60", "model.layers=1", "model.dim=16", "model.heads=2"]  # fmt: skip
    usual += [] if kind == "pairs" else ["data.columns=[1, 2]"]

    def run(name: str, *options: str) -> None:
        recipe = read(options[0], [*usual, *options[1:]]).build()
        train(recipe, Options(folder=Path("runs", name), device="cpu", quiet=True))

    run("teacher", "bert", f"task.name={kind}", "model.max_length=9")
    student = "distilbert", f"task.name=distilled_{kind}", "given.teacher=runs/teacher"
    with pytest.raises(UserError, match="it reads up to 9 tokens, but a row of the training text has 1") as caught:
        run("student", *student, "model.max_length=64")
    assert not Path("runs/student/checkpoints").exists()
    assert str(caught.value.todo) == f"task.max_tokens={9 if kind == 'pairs' else 7}"
    run("student", *student, "model.max_length=64", str(caught.value.todo))
    with pytest.raises(UserError, match="it reads up to 9 tokens") as caught:
        student_of = general(teacher(max_length=9), length=16)
        student_of.build(find("models", "distilbert"), find("models", "distilbert").Config(
            **{**TEACHER, "layers": 2, "max_length": 64, "pretraining_heads": "masked-lm"}
        ))  # fmt: skip
    assert str(caught.value.todo) == "task.length=9"


def test_both_stages_as_runs_that_are_complete_without_their_teachers(tmp_path: Path, monkeypatch: Any) -> None:
    """Masked texts from a pre-trained teacher, then a classifier from a fine-tuned one that starts from that run."""
    monkeypatch.chdir(tmp_path)
    lines = ["w1 w2 w3\tgood", "w4 w5 w2\tbad", "w3 w1 w4 w5\tgood", "w2 w2 w1\tbad"]
    Path("some.tsv").write_text("\n".join(lines * 10) + "\n", "utf-8")
    shape = ["model.layers=2", "model.dim=16", "model.heads=2", "model.dropout=0.1", "model.max_length=128"]
    usual = ["data.train=some.tsv", "data.valid=some.tsv", "train.batch_tokens=128", "train.steps=4", "text.unit=space",
             "text.vocabulary=60", "train.save_every=2", "train.log_every=1"]  # fmt: skip

    def run(name: str, *options: str, start: Path | None = None) -> Path:
        recipe = read(options[0], [*usual, *shape, *options[1:]]).build()
        return train(recipe, Options(folder=Path("runs", name), device="cpu", quiet=True, start=start)).folder

    classes = ["data.columns=[1, 2]"]
    run("teacher", "bert", *classes, "model.pretraining_heads=masked-lm")
    general_stage = ["distilbert", "task.name=distillation", "given.teacher=runs/teacher", "model.layers=1"]
    general_stage += ["data.columns=[1]", "model.pretraining_heads=masked-lm", "task.hidden_weight=1"]
    whole = run("whole", *general_stage)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mallang.training.loop.Loop.log", stop_at(3))
        with pytest.raises(RuntimeError, match="power cut"):
            run("resumed", *general_stage)
    run("resumed", *general_stage)
    files = [Path("runs", name, "model.safetensors").read_bytes() for name in ("whole", "resumed")]
    assert files[0] == files[1] and b"scaffold" not in files[0] and b"model.encoder.0" in files[0]
    second = ["distilbert", *classes, "task.name=distilled_classification", "given.teacher=runs/teacher"]
    run("tuned", *second, "model.layers=1", start=whole)
    with pytest.raises(UserError, match="learns from another run"):
        run("none", *second[:-1], "model.layers=1")
    with pytest.raises(UserError, match="text.vocabulary: 60 → 50"):
        run("other", *second, "model.layers=1", "text.vocabulary=50")
    shutil.rmtree("runs/teacher")
    assert mallang.load("runs/tuned", device="cpu").classify("w1 w2").label in ("good", "bad")
    assert mallang.load("runs/whole", device="cpu").embed("w1 w2").shape == (16,)
    assert {name.split(".")[0] for name in safe_names("runs/tuned")} == {"model", "head"}


def safe_names(folder: str) -> list[str]:
    import safetensors.torch

    return list(safetensors.torch.load_file(Path(folder, "model.safetensors")))


def stop_at(step: int) -> Any:
    from mallang.training.loop import Loop

    log = Loop.log

    def stopping(loop: Any) -> None:
        log(loop)
        if loop.step == step:
            raise RuntimeError("power cut")

    return stopping
