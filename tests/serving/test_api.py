"""The verbs over HTTP: results equal those of the library, mistakes get an answer that names them."""

from __future__ import annotations

import json
import math
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import mallang
from serving.serving import TEXTS, Client


def test_runs_with_their_tasks_and_verbs(server: Client) -> None:
    runs = {run["name"]: run for run in server.get("/api/runs")["runs"]}
    assert runs["translator"]["task"] == "translation" and runs["writer"]["task"] == "language_modeling"
    assert runs["translator"]["verbs"] == ["translate", "score", "embed"]
    assert runs["writer"]["verbs"] == ["generate", "score", "embed", "prefer"]
    assert server.get("/health") == {"status": "ok"}
    assert server.get("/ready")["workers"] == 1


@pytest.mark.parametrize(
    "options", [{}, {"beam": 2, "nbest": 2}, {"method": "greedy"}, {"method": "sampling", "seed": 7}]
)
def test_translations_are_those_of_the_library(server: Client, translator: Path, options: dict[str, Any]) -> None:
    status, answer = server.post("/api/translate", run="translator", texts=TEXTS, **options)
    assert status == 200, answer
    expected = mallang.load(translator, "cpu").translate(TEXTS, **options)
    for found, own in zip(answer["results"], expected, strict=True):
        assert found["output"] == own.output and found["tokens"] == list(own.tokens)
        assert math.isclose(found["score"], own.score, abs_tol=1e-4)
        assert [each["output"] for each in found["nbest"]] == [each[0] for each in own.nbest]


def test_requests_at_once_get_what_they_get_alone(server: Client, translator: Path) -> None:
    texts = [f"{text} {text}" if place % 3 else text for place, text in enumerate(TEXTS * 6)]
    alone = [str(each) for each in mallang.load(translator, "cpu").translate(texts)]
    found: dict[int, Any] = {}

    def ask(place: int) -> None:
        found[place] = server.post("/api/translate", run="translator", texts=texts[place])

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[place][1]["results"][0]["output"] for place in range(len(texts))] == alone


def test_other_verbs(server: Client, translator: Path, writer: Path) -> None:
    model = mallang.load(writer, "cpu")
    status, scores = server.post("/api/score", run="writer", texts=TEXTS[:2])
    assert status == 200
    for found, own in zip(scores["results"], model.score(TEXTS[:2]), strict=True):
        assert math.isclose(found["score"], own.score, abs_tol=1e-4)
    status, pairs = server.post("/api/score", run="translator", pairs=[[TEXTS[0], "Minsu"]])
    assert status == 200
    assert math.isclose(
        pairs["results"][0]["score"], mallang.load(translator, "cpu").score(TEXTS[0], "Minsu").score, abs_tol=1e-4
    )
    status, vectors = server.post("/api/embed", run="writer", texts=TEXTS[0])
    assert vectors["results"][0]["input"] == TEXTS[0]
    assert vectors["results"][0]["vector"] == pytest.approx(model.embed(TEXTS[0]).tolist(), abs=1e-4)
    status, better = server.post("/api/prefer", pairs=[[TEXTS[0], TEXTS[1]]])
    assert status == 200 and better["results"][0]["better"] == TEXTS[0]


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "param"),
    [
        ("/api/translate", {"text": "물"}, 400, "unknown_field", "text"),
        ("/api/translate", {}, 400, "invalid_value", "texts"),
        ("/api/translate", {"texts": []}, 400, "invalid_value", "texts"),
        ("/api/translate", {"texts": ["물", 1]}, 400, "invalid_value", "texts.1"),
        ("/api/translate", {"texts": "물", "beam": 0}, 400, "invalid_value", "beam"),
        ("/api/translate", {"texts": "물", "beam": "5"}, 400, "invalid_value", "beam"),
        ("/api/translate", {"texts": "물", "run": "nobody"}, 404, "no_run", "run"),
        ("/api/translate", {"texts": "물", "run": "writer"}, 404, "no_verb", "run"),
        ("/api/translate", {"run": "translator", "texts": "물", "domain": "bible"}, 400, "invalid_value", None),
        ("/api/score", {"texts": "물"}, 400, "run_needed", "run"),
        ("/api/score", {"run": "writer", "pairs": [["물", "water"]]}, 400, "invalid_value", None),
        ("/api/score", {"run": "chatbot", "texts": "물"}, 400, "invalid_value", None),
        ("/api/score", {"run": "writer"}, 400, "invalid_value", None),
        ("/api/score", {"run": "writer", "texts": "물", "domain": "bible"}, 400, "invalid_value", None),
        ("/api/score", {"run": "writer", "texts": "물", "pairs": [["물", "water"]]}, 400, "invalid_value", "pairs"),
        ("/api/reply", {"texts": "물", "forbid": ["0" * 201]}, 400, "invalid_value", "forbid"),
        ("/api/reply", {"texts": "물", "require": ["0" * 201]}, 400, "invalid_value", "require"),
        ("/api/fill", {"texts": "물"}, 404, "no_run", "run"),
        ("/api/nothing", {}, 404, "no_path", None),
        ("/api/translate", b"{", 400, "invalid_value", None),
        ("/api/translate", b"[1]", 400, "invalid_value", None),
        ("/api/translate", b'{"texts": "\\ud800"}', 400, "invalid_value", None),
        ("/api/translate", b"\xff", 400, "invalid_value", None),
    ],
)  # fmt: skip
def test_mistakes_are_named(server: Client, path: str, body: Any, status: int, code: str, param: str | None) -> None:
    found, headers, answer = server.ask("POST", path, body)
    error = json.loads(answer)["error"]
    assert (found, error["code"]) == (status, code), error
    assert param is None or (error["param"] or "").startswith(param), error
    assert headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/api/translate", {"texts": []}, "texts: List should have at least 1 item"),
        ("/api/translate", {"texts": ["물", 1]}, "texts.1: Input should be a valid string"),
        ("/api/generate", {"texts": "물"}, "unknown field 'texts': this verb reads prompts"),
        ("/api/generate", {"lenght_penalty": 1}, "unknown field 'lenght_penalty'"),
    ],
)
def test_a_mistake_is_said_in_words_of_the_request(server: Client, path: str, body: Any, said: str) -> None:
    error = json.loads(server.ask("POST", path, body)[2])["error"]
    assert error["message"].startswith(said) and "constrained" not in json.dumps(error)


def test_other_methods_types_and_hosts(server: Client) -> None:
    assert server.ask("GET", "/api/translate")[0] == 405
    assert server.ask("POST", "/api/translate", b"texts=a", {"content-type": "text/plain"})[0] == 415
    assert server.ask("POST", "/api/translate", b"", {"content-encoding": "gzip"})[0] == 415
    assert server.ask("GET", "/api/runs", headers={"host": "evil.example"})[0] == 403
    assert server.ask("GET", "/health", headers={"host": "evil.example"})[0] == 403
    assert server.ask("GET", "/api/runs", headers={"origin": "http://evil.example"})[0] == 403
    assert server.ask("GET", "/api/runs", headers={"origin": f"http://127.0.0.1:{server.port}"})[0] == 200


def test_markup_in_a_text_stays_text(server: Client) -> None:
    hostile = "<script>alert(1)</script>&amp;"
    status, headers, body = server.ask("POST", "/api/score", {"run": "writer", "texts": hostile})
    assert status == 200 and b"<" not in body and json.loads(body)["results"][0]["text"] == hostile
    assert headers["content-type"] == "application/json" and headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in headers["content-security-policy"]


def test_metrics(server: Client) -> None:
    server.post("/api/translate", run="translator", texts="물")
    text = server.ask("GET", "/metrics")[2].decode()
    assert 'mallang_requests_total{run="translator",verb="translate",status="200"}' in text
    assert "mallang_queue_size 0" in text and 'mallang_request_duration_seconds_bucket{run="translator"' in text


def test_phrases_of_the_longest_kind_are_answered_in_time(server: Client) -> None:
    phrases = [f"{number} {'가나다라마바사아자차카타파하' * 15}"[:200] for number in range(8)]
    begun = time.monotonic()
    status, answer = server.post("/api/reply", texts=TEXTS[0], forbid=phrases, beam=5, max_length=60)
    assert status == 200, answer
    assert time.monotonic() - begun < 20
