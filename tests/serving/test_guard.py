"""Who is served: by token, Host and Origin. What is on the page: only our own files."""

from __future__ import annotations

import re
from typing import Any

import pytest

from mallang.errors import UserError
from mallang.inspection import page
from mallang.serving import site
from mallang.serving.app import Service, is_open
from mallang.serving.guard import Guard, Limits, is_local
from mallang.serving.metrics import Metrics
from mallang.serving.openapi import document
from mallang.serving.pool import Pool
from mallang.serving.server import ServerOptions, checked_token, hosts_of
from mallang.serving.training_runs import TrainingRuns
from mallang.serving.worker import WorkerOptions
from serving.asgi import ask

TOKEN = "0123456789abcdef"
PATHS = [
    (method.upper(), path.replace("{name}", "x")) for path, methods in document()["paths"].items() for method in methods
]


def guard(token: str | None = TOKEN, **options: Any) -> Guard:
    """A guarded service without any worker."""
    return Guard(service().app(), ["localhost", "models.example.org"], token, is_open, **options)


def service() -> Service:
    return Service(Pool(WorkerOptions({}), 0, Limits(), Metrics()), Limits(), Metrics(), TrainingRuns([]))


@pytest.mark.parametrize("authorization", ["", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}", TOKEN])
def test_nothing_answers_without_the_token(authorization: str) -> None:
    app = guard()
    for method, path in PATHS:
        status, answer = ask(app, method, path, {"authorization": authorization} if authorization else {})
        assert path == "/health" or (status == 401 and answer["error"]["code"] == "invalid_token"), path


def test_health_and_the_empty_page_answer_without_it() -> None:
    assert ask(guard(), "GET", "/health") == (200, {"status": "ok"})
    for path in site.files():
        assert ask(guard(), "GET", path)[0] == 200
        assert ask(guard(), "POST", path)[0] == 401
    assert ask(guard(), "GET", "/page/../worker.py")[0] == ask(guard(), "GET", "/page/%2e%2e/app.py")[0] == 401
    assert ask(guard(), "GET", "/api/runs", {"authorization": f"bearer {TOKEN}"}) == (200, {"runs": []})


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("localhost", None, 200), ("LOCALHOST:8000", None, 200), ("models.example.org", None, 200),
        ("evil.example", None, 403), ("localhost.evil.example", None, 403), ("", None, 403), ("[::1]", None, 403),
        ("localhost:8000", "http://localhost:8000", 200), ("localhost:8000", "http://localhost:8001", 403),
        ("localhost", "null", 403), ("localhost", "http://evil.example", 403),
    ],
)  # fmt: skip
def test_foreign_hosts_and_origins_are_refused(host: str, origin: str | None, status: int) -> None:
    headers = {"host": host, **({} if origin is None else {"origin": origin})}
    assert ask(guard(None), "GET", "/health", headers)[0] == status


def test_too_many_connections_are_answered_503() -> None:
    status, answer = ask(guard(None, is_full=lambda: True), "GET", "/health")
    assert status == 503 and answer["error"]["code"] == "too_many"


def test_what_nobody_has_foreseen_is_answered_500_and_logged_without_its_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise KeyError("a text of the request")

    counted: list[tuple[str, str]] = []
    app = Guard(broken, ["localhost"], None, is_open, count=lambda *each: counted.append(each))
    status, answer = ask(app, "GET", "/x")
    assert status == 500 and answer["error"]["type"] == "server_error" and counted == [("/x", "500")]
    assert "KeyError at test_guard.py" in caplog.text and "a text" not in caplog.text


def test_paths_that_do_not_exist_are_counted_as_one() -> None:
    counted = service()
    app = counted.app()
    for path in ("/secret-1", "/api/secret-2", "/api/runs"):
        ask(Guard(app, ["localhost"], None, is_open, count=counted.count_answer), "GET", path)
    text = counted.metrics.text()
    assert (
        "secret" not in text and 'path="other",status="404"} 2' in text and 'path="/api/runs",status="200"} 1' in text
    )


def test_a_token_is_needed_beyond_localhost() -> None:
    assert checked_token("127.0.0.1", None) is None and checked_token("0.0.0.0", TOKEN) == TOKEN
    for host, token in [("0.0.0.0", None), ("192.168.0.2", None), ("example.org", None), ("127.0.0.1", "short")]:
        with pytest.raises(UserError):
            checked_token(host, token)
    assert is_local("::1") and is_local("127.1.2.3") and not is_local("0.0.0.0")
    assert hosts_of(ServerOptions([], host="10.0.0.1", hosts=["x.org"])) == [
        "10.0.0.1",
        "localhost",
        "127.0.0.1",
        "::1",
        "x.org",
    ]


def test_the_page_loads_nothing_from_elsewhere_and_runs_no_text() -> None:
    names = {f"#{name}" for name in page.modules()} | {f"#serve/{path.stem}" for path in site.FOLDER.glob("*.js")}
    for path, file in site.files().items():
        text = file.body.decode()
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), path
        assert set(re.findall(r"https?://[\w.]+", text)) <= {"http://www.w3.org"}, path  # a name of SVG, not an address
        assert "unsafe" not in file.policy and "default-src 'none'" in file.policy
        if path.endswith(".js"):
            assert set(re.findall(r'from "([^"]+)"', text)) <= names, path
    scripts = {path: len(file.body) for path, file in site.files().items() if path.endswith(".js")}
    assert sum(size for path, size in scripts.items() if not path.startswith("/live/")) < 180_000


def test_every_verb_of_every_task_is_served() -> None:
    from mallang import find
    from mallang.serving.requests import REQUESTS

    tasks = [find.find("tasks", name) for name in find.names("tasks")]
    known = {verb for task in tasks if hasattr(task, "Verbs") for verb in getattr(task.Verbs, "verbs", ())}
    assert known - {"evaluate"} == set(REQUESTS)
