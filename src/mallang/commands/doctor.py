"""`mallang doctor`: what this machine has and lacks; `mallang doctor RUN`: what is wrong with a trained model.

Some imports stand inside functions: every help loads this file, and none needs them.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import mallang
from mallang.commands.inputs import choose_split
from mallang.commands.options import (
    Device,
    Json,
    Plugin,
    Quiet,
    Verbose,
    add_plugins,
    check_run,
    complete_run,
    print_json,
)
from mallang.errors import UserError, install
from mallang.find import ROOT

if TYPE_CHECKING:
    from mallang.inspection.checkup import Report
    from mallang.runs.folder import Run

EXAMPLES = (
    "mallang doctor",
    "mallang doctor --device cuda",
    "mallang doctor runs/transformer-miniworld",
    "mallang doctor runs/transformer-miniworld --data mine.tsv --limit 500 --json",
)
ADDS = {
    "plots": "figures as PNG and SVG files",
    "data": "Parquet files",
    "track": "TensorBoard logs",
    "export": "models for CTranslate2 and ONNX Runtime",
}
"""What an extra is good for; one that is not named here is described by its packages."""
LABELED = ("classification", "distilled_classification", "tagging")
"""Tasks whose rows are one text and no pair of texts."""
HIDDEN = ("dev", "serve", "hf", "sentencepiece", "quant", "fast", "ngram")
"""Extras that nobody needs who uses mallang: nothing but tests asks for them yet."""
LIMIT = 200
UNUSABLE = {
    "damaged weights": "the model cannot be loaded",
    "other tokenizer": "the model cannot be loaded",
    "NaN weights": "weights are NaN or infinite",
}
"""Findings after which no output is worth a look, and why."""
RunToExamine = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN",
        help="A run to examine, finished or not.",
        autocompletion=complete_run,
        callback=check_run,
        show_default=False,
    ),
]
Split = Annotated[
    str | None, typer.Option("--split", help="The split of the run's corpus; otherwise valid.", show_default=False)
]
Data = Annotated[
    str | None, typer.Option("--data", metavar="PATH", help="Your own pairs instead of a split.", show_default=False)
]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, help=f"Texts to look at; otherwise {LIMIT}.", show_default=False)
]


def command(
    run: RunToExamine = None,
    split: Split = None,
    data: Data = None,
    limit: Limit = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Say what is wrong with this machine, or with a run.

    Without a run: devices, packages, optional extras with the line that installs them, folders with their free space,
    fonts with Hangul; with -v every installed package too. With a run: its files, its training and what it makes of
    some text; with -v every text and its output too. Each finding comes with a remedy. With -q only what is wrong is
    printed. The exit code is 0 whatever is found; programs read `serious` in --json.
    """
    if run is not None:
        add_plugins(plugin)
        report = examine_run(run, split, data, limit or LIMIT, device)
        if not verbose:
            report.outputs.clear()
        show_report(report, as_json=json, quiet=quiet)
        return
    for name, value in {"--split": split, "--data": data, "--limit": limit, "--plugin": plugin}.items():
        if value is not None:
            raise UserError(f"{name} has no effect without a run", todo=f"mallang doctor RUN {name} …")
    found = examine(device, everything=verbose)
    if json:
        print_json(found)
        return
    if not quiet:
        for title, section in found.items():
            if title != "problems":
                print_section(title, section)
    for problem in found["problems"]:
        print(f"problem: {problem}")
    if not quiet and not found["problems"]:
        print("all is well")


def examine_run(folder: Path, split: str | None, data: str | None, limit: int, device: str) -> Report:
    """All that can be found out about a run."""
    from mallang.find import find
    from mallang.inspection import checkup
    from mallang.runs.folder import Run
    from mallang.runs.own_files import has_checkpoint
    from mallang.tasks import language_modeling
    from mallang.tasks.contract import Writing

    choose_split(split, data, usual="valid")
    run = Run.open(folder)
    report = checkup.Report(str(folder), str(run.info["status"]))
    report.findings += checkup.examine_files(run)
    tokenizers, changed = checkup.examine_tokenizers(run, find("tasks", run.task).Task.columns)
    says = tokenizers.get("target", tokenizers.get("text"))  # the side that the model writes
    words = len(says.vocabulary) if says is not None else None
    metrics = checkup.read_metrics(folder, report)
    if issubclass(
        find("tasks", run.task).Task, language_modeling.Task
    ):  # its validation measures nothing but what a token costs
        metrics = [{"nll": entry["loss"], **entry} if "loss" in entry else entry for entry in metrics]
    report.findings += [*changed, *checkup.examine_training(metrics, words)]
    report.facts |= {"steps": str(metrics[-1]["step"] if metrics else 0), **checkup.facts_of(run)}
    if not run.is_finished:
        how = "continues where it stopped" if has_checkpoint(folder) else "starts it over"
        report.notes.append(f"the run is not finished; the command that trains it {how}")
    unusable = [UNUSABLE[finding.name] for finding in report.findings if finding.serious and finding.name in UNUSABLE]
    if unusable:
        report.notes.append(f"outputs were not looked at: {unusable[0]}")
    elif not (issubclass(find("tasks", run.task).Verbs, Writing) or checkup.gives_labels(run)):
        report.notes.append(f"outputs were not looked at: a run for {run.task.replace('_', ' ')} writes nothing")
    else:
        listen(run, report, (split, data, limit), device)
    return report


def listen(run: Run, report: Report, given: tuple[str | None, str | None, int], device: str) -> None:
    """Let the model write something for some texts, and add what is found to the report."""
    from mallang.inspection import checkup
    from mallang.inspection.outputs import read_parts
    from mallang.runs.data_places import places_of

    split, data, limit = given
    try:
        parts = read_parts(run.folder, choose_split(split, data, usual="valid"), data, None)
    except UserError as error:
        if split is not None or data is not None:
            raise
        places = " or ".join(map(str, places_of(run.folder, run.info)))
        report.notes.append(
            f"outputs were not looked at: {error.what} (looked in {places}); --data FILE gives texts to look at"
        )
        return
    model = checkup.open_model(run, device)
    if model is None:
        report.notes.append("outputs were not looked at: there is no checkpoint yet")
        return
    rows, domains = [], []
    for part in parts:
        chosen = part.rows[:: max(1, len(part.rows) * len(parts) // limit)][: -(-limit // len(parts))]
        rows += chosen
        domains += [part.domain] * len(chosen)
    if not rows:
        report.notes.append("outputs were not looked at: there is no text")
        return
    kind = "pairs" if len(rows[0]) > 1 and run.task not in LABELED else "texts"
    report.facts["texts"] = f"{len(rows)} {kind} of {', '.join(part.name for part in parts)}"
    checkup.examine_outputs(model, rows, domains, checkup.read_training(run, report), report)


def show_report(report: Report, *, as_json: bool, quiet: bool) -> None:
    """Print what was found: the serious first."""
    if as_json:
        print_json(report.to_json())
        return
    if not quiet:
        print_section(f"{report.run} ({report.status})", report.facts)
        for row in report.outputs:
            print_section(row["source"], {"output": row["output"], "reference": row["reference"]})
    for finding in sorted(report.findings, key=lambda finding: not finding.serious):
        print(f"{'problem' if finding.serious else 'warning'}: {finding.what}  [{finding.name}]")
        if finding.example:
            print(f"  example: {finding.example}")
        print(f"  remedy:  {finding.remedy}")
    if not quiet:
        for note in report.notes:
            print(f"note: {note}")
        if not report.findings:
            print("all is well")


def examine(device: str, *, everything: bool = False) -> dict[str, Any]:
    """All findings by section, and the problems among them."""
    problems: list[str] = []
    required, extras = requirements(problems)
    found = {
        "machine": machine(),
        "devices": devices(device, problems),
        "packages": packages(required, problems),
        "extras": {name: extra(name, needed) for name, needed in extras.items() if name not in HIDDEN},
        "folders": folders(problems),
        "fonts": fonts(problems),
    }
    if everything:
        from importlib import metadata

        found["all packages"] = {name: version(name) for name in sorted({d.name for d in metadata.distributions()})}
    return found | {"problems": problems}


def machine() -> dict[str, Any]:
    """The Python and the computer it runs on."""
    return {
        "mallang": mallang.__version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": memory(),
    }


def memory() -> str:
    """How much main memory there is, less where a container is given less."""
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a Unix
        return "unknown"
    limit = Path("/sys/fs/cgroup/memory.max")
    given = limit.read_text().strip() if limit.is_file() else ""
    return gigabytes(min(size, int(given)) if given.isdigit() else size)


def devices(chosen: str, problems: list[str]) -> dict[str, Any]:
    """What torch can compute on; one small sum on the chosen device says whether it really does."""
    try:
        import torch
    except ImportError as error:
        problems.append(f"torch cannot be imported ({error}): pip install torch")
        return {"torch": "missing"}
    from mallang.kernels import c_library

    found: dict[str, Any] = {
        "torch": torch.__version__,
        "cpu": f"{torch.get_num_threads()} threads",
        "cpu kernels": c_library.state(),
    }
    for number in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(number)
        bf16 = ", bf16" if torch.cuda.is_bf16_supported() else ""
        found[f"cuda:{number}"] = f"{card.name}, {gigabytes(card.total_memory)}{bf16}"
    if torch.backends.mps.is_available():
        found["mps"] = "Apple GPU"
    wanted = chosen if chosen != "auto" else next(name for name in ("cuda:0", "mps", "cpu") if name in found)
    try:
        total = torch.ones(3, device=wanted).sum().item()
        if total != 3.0:
            problems.append(f"{wanted} adds wrongly: 1 + 1 + 1 = {total}")
    except (RuntimeError, AssertionError) as error:
        problems.append(f"{wanted} does not work: {str(error).splitlines()[0]}")
    return found


def requirements(problems: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """The packages that mallang always needs, and those of each extra, as its own metadata lists them."""
    from importlib import metadata

    try:
        listed = metadata.requires("mallang") or []
    except metadata.PackageNotFoundError:
        problems.append("mallang is not installed, only run from its source: pip install -e .")
        return [], {}
    core: list[str] = []
    extras: dict[str, list[str]] = {}
    for line in listed:
        name = re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]
        marker = re.search(r"extra == ['\"]([^'\"]+)['\"]", line)
        (extras.setdefault(marker.group(1), []) if marker else core).append(name)
    return core, extras


def packages(required: list[str], problems: list[str]) -> dict[str, Any]:
    """The version of each package that mallang always needs."""
    found = {name: version(name) for name in required}
    problems += [f"{name} is missing: pip install {name}" for name, number in found.items() if number == "missing"]
    return found


def extra(name: str, needed: list[str]) -> str:
    """Whether an extra is there; if not, what it would add and how to get it."""
    missing = [package for package in needed if version(package) == "missing"]
    if not missing:
        return ", ".join(f"{package} {version(package)}" for package in needed)
    return f"not installed; adds {ADDS.get(name, ', '.join(missing))}: {install(name)}"


def version(package: str) -> str:
    """The installed version of a package."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"


def folders(problems: list[str]) -> dict[str, Any]:
    """Where mallang writes and reads, with the free space there."""
    from mallang.data.storage import cache_folder

    found = {"cache": room(cache_folder(), problems), "runs": room(Path("runs").resolve(), problems)}
    named = os.environ.get("MALLANG_DATA")
    if not named:
        return found | {"data": "MALLANG_DATA is not set; corpora are downloaded to the cache"}
    if not Path(named).expanduser().is_dir():
        problems.append(f"MALLANG_DATA names {named}, which is not a folder")
    return found | {"data": named}


def room(folder: Path, problems: list[str]) -> str:
    """A folder, or the one above it that exists, with its free space."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = gigabytes(shutil.disk_usage(existing).free)
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        problems.append(f"{folder} cannot be written to")
        return f"{folder}, not writable, {free} free"
    return f"{folder}, {free} free"


def fonts(problems: list[str]) -> dict[str, Any]:
    """The typefaces that figures can write Hangul with."""
    bundled = sorted(path.name for path in (ROOT / "inspection" / "vendor").glob("*.ttf"))
    installed: list[str] = []
    if shutil.which("fc-list"):
        import subprocess

        listed = subprocess.run(["fc-list", ":lang=ko", "family"], capture_output=True, text=True, check=False)
        installed = sorted({line.split(",")[0].strip() for line in listed.stdout.splitlines() if line.strip()})
    else:
        places = ("/System/Library/Fonts", "/Library/Fonts", "C:/Windows/Fonts", "/usr/share/fonts")
        known = re.compile(r"nanum|notosans(cjk|kr)|malgun|applesdgothic|applegothic", re.IGNORECASE)
        files = (path for place in places for path in Path(place).rglob("*.*") if known.search(path.name))
        installed = sorted({path.stem for path in files})
    if not installed and not bundled:
        problems.append("no typeface with Hangul: figures would show boxes; install Nanum or Noto Sans CJK")
    return {"Hangul": ", ".join(installed) or "none installed", "bundled": ", ".join(bundled) or "none"}


def gigabytes(size: int) -> str:
    """A number of bytes for people."""
    return f"{size / 2**30:.1f} GiB"


def print_section(title: str, section: dict[str, Any]) -> None:
    """One block of the report."""
    print(title)
    for name, value in section.items():
        print(f"  {name:<14} {value}")
    print()
