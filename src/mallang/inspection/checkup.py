"""Examine a run: its files, its training curve, and the outputs of its model for some texts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mallang.data.columns import split_cell
from mallang.data.corpus import open_corpus
from mallang.errors import UserError
from mallang.find import find
from mallang.inspection.health import Finding, Outputs, Training, examine, examine_text, other_script, rows_of
from mallang.inspection.label_health import Labels, examine_labels
from mallang.loading import assemble, load
from mallang.runs.device import choose_device
from mallang.runs.files import load_tensors, sha256
from mallang.runs.folder import Run
from mallang.runs.own_files import WEIGHTS
from mallang.tasks.contract import Evaluating, Labeled, Writing
from mallang.text.tokenizer import Tokenizer
from mallang.training import checkpoint, record

MOST = 1_000_000
"""Training lines that are compared with the outputs."""


@dataclass
class Report:
    """The findings about a run."""

    run: str
    status: str
    facts: dict[str, str] = field(default_factory=dict)
    """Measured values."""
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What could not be examined, and why."""
    outputs: list[dict[str, str]] = field(default_factory=list)
    """Every text with its output and its reference."""

    def to_json(self) -> dict[str, Any]:
        """Plain values; the outputs only where they are kept."""
        values = {
            "run": self.run,
            "status": self.status,
            "facts": self.facts,
            "findings": [finding.to_json() for finding in self.findings],
            "serious": sum(finding.serious for finding in self.findings),
            "notes": self.notes,
        }
        return values | ({"outputs": self.outputs} if self.outputs else {})


def open_model(run: Run, device: str) -> Any:
    """The model of a finished run, or of the newest whole checkpoint of one that is not; None before the first."""
    if run.is_finished or (run.folder / WEIGHTS).exists():
        return load(run.folder, device)
    newest = checkpoint.newest(run.folder / "checkpoints", lambda text: None)
    if newest is None:
        return None
    return assemble(run, newest.tensors.get("average", newest.tensors["model"]), choose_device(device))


def facts_of(run: Run) -> dict[str, str]:
    """What run.json says of the model: how the head weighs layers, its own and those of features, if it learned to."""
    found = {}
    for key, name in (("layer_mix", "mix of layers"), ("features_mix", "mix of the layers of the features")):
        if mix := run.info.get(key):
            shares = " ".join(f"{weight:.2f}" for weight in mix["weights"])
            found[name] = f"{shares} from the lowest, scale {mix['scale']:.2f}"
    return found


def examine_files(run: Run) -> list[Finding]:
    """Whether the files of a run are unchanged and its weights are finite."""
    findings = []
    weights, expected = run.folder / WEIGHTS, run.info.get("weights")
    if run.is_finished and not weights.exists():
        findings.append(Finding("damaged weights", True, f"{WEIGHTS} is missing", "restore the file, or train again"))
    elif expected is not None and sha256(weights) != expected:
        what = f"{WEIGHTS} is not the file that the training run wrote: its checksum differs from run.json"
        findings.append(Finding("damaged weights", True, what, "restore the file, or train again"))
    else:
        findings += examine_weights(run)
    paths = checkpoint.found(run.folder / "checkpoints")
    damaged = [(path, problem) for path in paths if (problem := checkpoint.damage(path)) is not None]
    if damaged:
        findings.append(
            Finding(
                "damaged checkpoints",
                len(damaged) == len(paths) and not run.is_finished,
                f"{len(damaged)} of {len(paths)} checkpoints are damaged",
                "remove them: a training run resumes from the newest whole one; check the disk that they are on",
                len(damaged),
                len(paths),
                f"{damaged[0][0].name}: {damaged[0][1]}",
            )
        )
    return findings


def examine_weights(run: Run) -> list[Finding]:
    """Whether all weights are finite: the final ones of a run, or else those of its newest whole checkpoint."""
    if (run.folder / WEIGHTS).exists():
        try:
            where, tensors = WEIGHTS, load_tensors(run.folder / WEIGHTS)
        except UserError as error:
            return [Finding("damaged weights", True, error.what, "restore the file, or train again")]
    else:
        newest = checkpoint.newest(run.folder / "checkpoints", lambda text: None)
        if newest is None:
            return []
        where, tensors = checkpoint.name_of(newest.step), dict(newest.tensors.get("average", newest.tensors["model"]))
    # -inf is allowed: it is the log-probability of an impossible n-gram.
    broken = {
        name: int((tensor.isnan() | tensor.isposinf()).sum())
        for name, tensor in tensors.items()
        if tensor.is_floating_point()
    }
    worst = [name for name, count in broken.items() if count]
    if not worst:
        return []
    values = sum(tensor.numel() for tensor in tensors.values())
    return [
        Finding(
            "NaN weights",
            True,
            f"{sum(broken.values()):,} of {values:,} weights in {where} are NaN or infinite",
            "train again with a lower optimizer.learning_rate, a longer schedule.warmup, optimizer.max_grad_norm=1.0, "
            "or train.precision=fp32",
            sum(broken.values()),
            values,
            f"{worst[0]}: {broken[worst[0]]:,} of {tensors[worst[0]].numel():,}",
        )
    ]


def examine_tokenizers(run: Run, columns: tuple[str, ...]) -> tuple[dict[str, Tokenizer], list[Finding]]:
    """The tokenizers of a run, and whether they are those that it was trained with."""
    try:
        return run.tokenizers(columns), []
    except UserError as error:
        remedy = "restore tokenizer.json and text.json from where the model was trained: ids mean nothing without them"
        where = f" ({error.where})" if error.where else ""
        return {}, [Finding("other tokenizer", True, f"{error.what}{where}", remedy)]


def examine_training(entries: Sequence[Mapping[str, Any]], words: int | None = None) -> list[Finding]:
    """How a training run went, from its metrics; `words` is the size of the target vocabulary."""
    train = [entry for entry in entries if entry.get("kind") == "train" and "loss" in entry]
    valid = [entry for entry in entries if entry.get("kind") == "valid" and "nll" in entry]
    findings = [falling(train), learned(valid, words), overfitted(train, valid), improving(valid)]
    return [finding for finding in findings if finding is not None]


def falling(train: Sequence[Mapping[str, Any]]) -> Finding | None:
    """Whether the training loss is finite and decreases."""
    # Updates with a non-finite gradient are skipped; a non-finite loss before the last line was recovered from.
    passed = [each for each in train[:-1] if "skipped_updates" not in each or math.isfinite(float(each["loss"]))]
    train = [*passed, *train[-1:]]
    losses = [float(entry["loss"]) for entry in train]
    broken = next((entry for entry in train if not math.isfinite(float(entry["loss"]))), None)
    remedy = (
        "train with a lower optimizer.learning_rate, a longer schedule.warmup, optimizer.max_grad_norm=1.0, "
        "or train.precision=fp32"
    )
    if broken is not None:
        return Finding("diverged", True, f"the training loss is not finite at step {broken['step']}", remedy)
    if len(losses) < 5:
        return None
    means = [sum(three) / 3 for three in zip(losses, losses[1:], losses[2:], strict=False)]
    last, lowest = means[-1], min(means)
    what = f"the training loss is {last:.3g} at step {train[-1]['step']}"
    # Where the lowest loss is one of the last three, the loss may be falling fast, and three are too few to judge.
    if min(losses[:-3]) < min(losses[-3:]) and last > lowest + max(0.5, 0.3 * lowest):
        step = train[means.index(lowest) + 2]["step"]
        return Finding("diverged", True, f"{what}, it was {lowest:.3g} at step {step}", remedy)
    if last > 0.97 * losses[0]:
        return Finding("not falling", True, f"{what}, and began at {losses[0]:.3g}", remedy)
    return None


def learned(valid: Sequence[Mapping[str, Any]], words: int | None) -> Finding | None:
    """Whether the model is better than a uniform distribution over tokens."""
    if not valid or words is None or words < 2:
        return None
    best = min(float(entry["nll"]) for entry in valid)
    if best < 0.8 * math.log(words):
        return None
    return Finding(
        "hardly learned",
        True,
        f"the validation loss is {best:.2f} nats per token; a uniform distribution has {math.log(words):.2f}",
        "train longer (train.steps, train.epochs) than schedule.warmup; if it was long, raise "
        "optimizer.learning_rate and check that the lines of both sides, if there are two, belong together",
    )


def overfitted(train: Sequence[Mapping[str, Any]], valid: Sequence[Mapping[str, Any]]) -> Finding | None:
    """Whether the validation loss rose again, or is far above the training loss."""
    if not valid:
        return None
    values = [float(entry["nll"]) for entry in valid]
    best, last = min(values), values[-1]
    step = valid[values.index(best)]["step"]
    remedy = "use more text, more model.dropout or a smaller model, and let train.patience stop it"
    if last > 1.05 * best + 0.02:
        end = valid[-1]["step"]
        what = f"validation was best at step {step} ({best:.3f} nats per token) and is {last:.3f} at step {end}"
        return Finding("over-fitting", False, what, f"{remedy}; train.final=best keeps the best weights")
    seen = next((float(entry["nll"]) for entry in reversed(train) if "nll" in entry), None)
    if seen is not None and last > 2 * seen and last > seen + 0.7:
        what = f"the loss is {seen:.2f} nats per token on the training text but {last:.2f} on the validation text"
        return Finding("over-fitting", False, what, remedy)
    return None


def improving(valid: Sequence[Mapping[str, Any]]) -> Finding | None:
    """Whether a training run ended while validation still improved."""
    values = [float(entry["nll"]) for entry in valid]
    if len(values) < 3 or values[-1] != min(values) or values[-2] - values[-1] < 0.02 + 0.02 * values[-2]:
        return None
    what = f"validation still improved at the end: {values[-2]:.3f}, then {values[-1]:.3f} nats per token"
    return Finding("ended early", False, what, "train longer: more train.steps or train.epochs")


def gives_labels(run: Run) -> bool:
    """Whether the run is for labels of texts or of their words."""
    return issubclass(find("tasks", run.task).Task, Labeled)


def read_training(run: Run, report: Report) -> Training | None:
    """What the training text is like, where it can still be read."""
    try:
        task = find("tasks", run.task).Task
        rows = itertools.islice(open_corpus(run.data(), task.columns).split("train"), MOST)
        if gives_labels(run):  # what is written is one of few labels, so the text alone is compared
            return training_of(((row[0],) for row in rows), ("text",), open_ended=True)
        return training_of(rows, task.columns, open_ended=task.open_ended)
    except UserError as error:
        report.notes.append(f"the training text cannot be read, so nothing was compared with it: {error.what}")
        return None


def training_of(rows: Iterable[Sequence[str]], columns: Sequence[str], *, open_ended: bool) -> Training:
    """Statistics of the training text of a task with these columns, of which the outputs are one."""
    if len(columns) > 1:
        return Training.of(rows)
    found = Training.of((text, text) for (text,) in rows)
    found = replace(found, scripts={**found.scripts, "text": found.scripts["source"]})
    # The output of a language model may have any length, and may be a line of the training text.
    return replace(found, ratio=0.0, targets=frozenset()) if open_ended else found


def examine_outputs(
    model: Any,
    rows: Sequence[Sequence[str]],
    domains: Sequence[str | None],
    training: Training | None,
    report: Report,
) -> None:
    """Generate outputs for some texts and add them, their statistics and findings about them to the report."""
    is_writing = isinstance(model, Writing)
    if not is_writing:
        if isinstance(model, Evaluating) and model.evaluated in ("labels", "tags"):
            look_at_labels(model, [row for row in rows if row[-1].strip()], training, report)
        else:
            kind = model.evaluated if isinstance(model, Evaluating) else "for training alone"
            report.notes.append(f"outputs were not looked at: they are {kind}")
        return
    written = model.write_rows(rows, domains)
    found = Outputs(written.sources, written.outputs, written.references, written.cut)
    report.outputs += [
        {"source": source, "output": output, "reference": reference} for source, output, reference in rows_of(found)
    ]
    tokenizers = model.task.tokenizers
    for (side, tokenizer), texts in zip(tokenizers.items(), zip(*rows, strict=True), strict=True):
        report.findings += examine_text(side, texts, tokenizer, training)
        report.facts[f"unknown {side}"] = share_of_unknown(texts, tokenizer)
    sources, outputs = found.sources, found.outputs
    given, said = (sum(len(text.strip()) for text in texts) for texts in (sources, outputs))
    usual = "" if training is None or not training.ratio else f"; in training {training.ratio:.2f}"
    of = "prompt" if model.task.open_ended else "source"
    report.facts["length"] = f"{said / max(1, given):.2f} characters of output per character of {of}{usual}"
    report.facts["outputs"] = f"{len(set(outputs))} different ones for {len(set(sources))} different texts"
    findings = examine(found, training)
    report.findings += [of_language_model(each) for each in findings] if model.task.open_ended else findings


def look_at_labels(model: Evaluating, rows: Sequence[Sequence[str]], training: Training | None, report: Report) -> None:
    """Let a classifier or tagger label some texts; what is found is added to the report."""
    if not rows:
        report.notes.append("outputs were not looked at: there are no gold labels to compare them with")
        return
    try:
        _, outputs = model.evaluate(rows)
    except UserError as error:  # such as a label that training did not have
        place = f", {error.where}" if error.where else ""
        report.notes.append(f"outputs were not looked at: {error.what}{place}")
        return
    has_tags = model.evaluated == "tags"
    found = Labels.of(rows, outputs, tags=has_tags)
    texts, golds = ([" ".join(split_cell(row[at], "words")) if has_tags else row[at] for row in rows] for at in (0, -1))
    triples = zip(texts, outputs, golds, strict=True)
    report.outputs += [{"source": text, "output": output, "reference": gold} for text, output, gold in triples]
    report.facts.update(found.facts())
    if training is not None and (strange := other_script("text", texts, training.scripts["text"])) is not None:
        report.findings.append(strange)
    report.findings += examine_labels(found)


def of_language_model(finding: Finding) -> Finding:
    """The finding with a remedy for a model that has no source."""
    if finding.name not in ("one output", "copied source", "empty outputs"):
        return finding
    remedy = "train longer or on more text, with a lower optimizer.learning_rate or a longer schedule.warmup"
    what = finding.what.replace("repeat their source instead of translating it", "repeat their prompt")
    return replace(finding, what=what, remedy=f"{remedy}; see that the training text has no such lines")


def share_of_unknown(texts: Iterable[str], tokenizer: Tokenizer) -> str:
    """The share of unknown tokens, for people."""
    ids = tokenizer.encode_batch(list(texts))
    return f"{sum(row.count(tokenizer.vocabulary.unk) for row in ids) / max(1, sum(map(len, ids))):.2%} of the tokens"


def read_metrics(folder: Path, report: Report) -> list[dict[str, Any]]:
    """The metrics of a run; a line that cannot be read is a finding."""
    path = folder / record.FILE
    try:
        return record.read(path) if path.exists() else []
    except UserError as error:
        report.findings.append(Finding("damaged metrics", False, f"{error.what}: {error.where}", str(error.todo)))
        return []
