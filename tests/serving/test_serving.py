"""The server as a whole: files of requests, views of the page, and runs that are loaded again."""

from __future__ import annotations

import base64
import gzip
import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mallang
from mallang.inspection.page import packed
from mallang.inspection.shown_runs import shown_runs
from serving.serving import TEXTS, Client, Running, serving, until, write_run

TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def guarded(translator: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Running, Path]]:
    """A server of one's own, with a token, whose run may be changed."""
    run = shutil.copytree(translator, tmp_path_factory.mktemp("changing") / "translator")
    with serving(run, "--workers", "2", "--queue", "4", MALLANG_TOKEN=TOKEN) as (client, running):
        yield Client(client.port, {"authorization": f"Bearer {TOKEN}"}), running, run


def batch(client: Client, *lines: Any) -> tuple[int, list[Any]]:
    body = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    status, _, answer = client.ask("POST", "/api/batch", body, {"content-type": "application/jsonl"})
    return status, [json.loads(line) for line in answer.splitlines()]


def test_a_file_is_answered_line_by_line_in_order(guarded: tuple[Client, Running, Path], translator: Path) -> None:
    client = guarded[0]
    texts = [f"{text} {number}" for number in range(10) for text in TEXTS]  # ten times what may wait
    status, answers = batch(client, *({"verb": "translate", "texts": text} for text in texts))
    assert status == 200 and [each["line"] for each in answers] == list(range(1, 41))
    expected = [str(each) for each in mallang.load(translator, "cpu").translate(texts)]
    assert [each["results"][0]["output"] for each in answers] == expected


def test_a_wrong_line_is_answered_and_the_others_are_served(guarded: tuple[Client, Running, Path]) -> None:
    lines = [
        b"{",
        b"",
        {"verb": "translate", "texts": "물"},
        {"texts": "물"},
        {"verb": "translat", "texts": "물"},
        {"verb": "translate"},
    ]
    status, answers = batch(guarded[0], *lines)
    assert status == 200 and [(each["line"], each["status"]) for each in answers] == [
        (1, 400),
        (3, 200),
        (4, 400),
        (5, 400),
        (6, 400),
    ]
    assert "translate" in answers[3]["error"]["message"]
    assert batch(guarded[0], b"")[0] == 400
    assert guarded[0].ask("POST", "/api/batch", b"{}", {"content-type": "application/json"})[0] == 415
    assert guarded[0].ask("POST", "/api/batch", b"a" * (17 * 2**20), {"content-type": "application/jsonl"})[0] == 413


def test_an_inspected_text_is_what_inspect_writes(guarded: tuple[Client, Running, Path]) -> None:
    client, _, run = guarded
    status, answer = client.post("/api/inspect", text=TEXTS[0])
    assert status == 200
    found = answer["results"][0]
    plain, numbers = packed(shown_runs([(run, mallang.load(run, "cpu"))], [TEXTS[0]]))
    assert (
        found["data"].keys() == plain.keys()
        and found["data"]["runs"][0]["texts"][0]["output"] == plain["runs"][0]["texts"][0]["output"]
    )
    got = np.frombuffer(gzip.decompress(base64.b64decode(found["numbers"])), "<f4")
    assert np.allclose(got, np.frombuffer(numbers, "<f4"), atol=1e-5)
    assert client.post("/api/inspect", text=TEXTS[0], beam=2, words=True)[0] == 200
    assert client.post("/api/inspect")[1]["results"][0]["data"]["runs"][0]["texts"] == []
    status, answer = client.post("/api/inspect", text=TEXTS[0], layers=["nothing"])
    assert status == 400 and "nothing" in answer["error"]["message"]


def test_a_live_model_comes_in_parts(guarded: tuple[Client, Running, Path]) -> None:
    status, answer = guarded[0].post("/api/live")
    header = json.loads(answer["results"][0]["header"].replace("\\u003c", "<"))
    assert status == 200 and header["name"] == "translator" and answer["results"][0]["weights"]


def test_recipes_and_training_runs_are_listed(guarded: tuple[Client, Running, Path]) -> None:
    client = guarded[0]
    assert "transformer-miniworld" in [each["name"] for each in client.get("/api/recipes")["recipes"]]
    assert client.get("/api/training") == {"runs": []}
    assert client.ask("GET", "/api/training/nothing")[0] == 404


def test_runs_are_loaded_again_without_a_restart(guarded: tuple[Client, Running, Path], tmp_path: Path) -> None:
    client, running, run = guarded
    options = {"method": "sampling", "seed": 1, "max_length": 12}
    old = mallang.load(run, "cpu").translate(TEXTS[0], **options).output
    other = write_run(tmp_path / "translator", "transformer-miniworld", "model.layers=2")
    new = mallang.load(other, "cpu").translate(TEXTS[0], **options).output
    assert translated(client, options) == old != new

    kept = shutil.copytree(run, tmp_path / "kept")
    (run / "model.safetensors").unlink()
    status, answer = client.post("/api/reload")
    assert status == 500 and "earlier ones are kept" in answer["error"]["message"]
    assert translated(client, options) == old

    shutil.rmtree(run)
    shutil.copytree(other, run)
    assert client.post("/api/reload")[0] == 200
    assert [translated(client, options) for _ in range(4)] == [new] * 4

    shutil.rmtree(run)
    shutil.copytree(kept, run)
    os.kill(running.process.pid, signal.SIGHUP)
    until(lambda: translated(client, options) == old)


def translated(client: Client, options: dict[str, Any]) -> str:
    status, answer = client.post("/api/translate", texts=TEXTS[0], **options)
    assert status == 200, answer
    output: str = answer["results"][0]["output"]
    return output
