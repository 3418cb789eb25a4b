"""Requests made from the schema by schemathesis, also wrong ones: no 500, no status or body that the schema lacks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mallang.serving.app import Service
from mallang.serving.guard import Limits
from mallang.serving.metrics import Metrics
from mallang.serving.openapi import document
from mallang.serving.pool import Pool
from mallang.serving.site import files
from mallang.serving.training_runs import TrainingRuns
from mallang.serving.worker import WorkerOptions
from serving.serving import Client

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "negative_data_rejection,unsupported_method"
)
SETTINGS = Path(__file__).with_name("schemathesis.toml")
PROGRAM = Path(sys.executable).with_name("schemathesis")


@pytest.mark.parametrize(
    ("examples", "phases", "least"),
    [(1, "fuzzing", 30), pytest.param(90, "coverage,fuzzing", 2000, marks=pytest.mark.slow)],
)
def test_no_request_breaks_the_schema(server: Client, tmp_path: Path, examples: int, phases: str, least: int) -> None:
    if not PROGRAM.exists() and shutil.which("schemathesis") is None:
        pytest.skip("needs schemathesis: pip install -e '.[dev]'")
    report = tmp_path / "cases.ndjson"
    command = [
        str(PROGRAM), "--config-file", str(SETTINGS), "run", f"http://127.0.0.1:{server.port}/openapi.json",
        "--checks", CHECKS, "--phases", phases, "--max-examples", str(examples), "--mode", "all", "--seed", "1",
        "--no-shrink", "--continue-on-failure", "--exclude-path", "/api/reload", "--request-timeout", "100",
        "--suppress-health-check", "all", "--report", "ndjson", "--report-ndjson-path", str(report),
        "--warnings", "off",
    ]  # fmt: skip
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "serving.json_lines", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=3000, env=environment)
    assert done.returncode == 0, done.stdout[-6000:]
    events = map(json.loads, report.read_text("utf-8").splitlines())
    cases = sum(len(each.get("ScenarioFinished", {}).get("recorder", {}).get("cases", ())) for each in events)
    assert cases >= least, (cases, done.stdout[-2000:])
    assert server.get("/ready")["workers"] == 1


def test_every_route_is_in_the_schema_and_the_other_way_round() -> None:
    routes: dict[str, set[str]] = {}
    service = Service(Pool(WorkerOptions({}), 0, Limits(), Metrics()), Limits(), Metrics(), TrainingRuns([]))
    app = service.app()
    for route in app.routes:
        path = str(getattr(route, "path", "")).replace(":path", "")
        if path not in files():
            routes[path] = {each.lower() for each in getattr(route, "methods", ()) or ()} - {"head"}
    assert routes == {path: set(methods) for path, methods in document()["paths"].items()}
