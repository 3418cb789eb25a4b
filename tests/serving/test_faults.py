"""Faults: clients that leave, dawdle or flood, and workers that end or hang. Each gets its answer; nothing hangs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h11
import pytest

from mallang.serving.guard import Limits
from mallang.serving.impatient import Impatient
from serving.serving import Client, Running, slow_serving, until

LIMITS = {"receiving": 1, "sending": 1, "seconds": 3, "hanging": 5, "waiting": 20, "stopping": 2}
SECRET = "비밀 문장 xyzzy"


@pytest.fixture(scope="module")
def faulty(translator: Path, writer: Path) -> Iterator[tuple[Client, Running]]:
    """A server with short limits, one worker, and models that obey."""
    with slow_serving(translator, writer, limits=LIMITS, MALLANG_TEST_STEP="0.1") as found:
        yield found


@pytest.fixture
def client(faulty: tuple[Client, Running]) -> Iterator[Client]:
    """After every test the server serves again, and nothing waits."""
    yield faulty[0]
    until(lambda: translated(faulty[0], "물")[0] == 200)
    assert metric(faulty[0], "mallang_queue_size") == 0


def translated(client: Client, *texts: str) -> tuple[int, Any]:
    return client.post("/api/translate", texts=list(texts))


def metric(client: Client, start: str) -> float:
    """The value of a metric, summed over the labels that are not named."""
    text = client.ask("GET", "/metrics")[2].decode()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(start))


def connect(client: Client) -> socket.socket:
    return socket.create_connection(("127.0.0.1", client.port), timeout=20)


def request_of(path: str, body: Any) -> bytes:
    sent = json.dumps(body).encode()
    return (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(sent)}\r\n\r\n"
    ).encode() + sent


def read_all(connection: socket.socket) -> bytes:
    """What comes until the server closes."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            found += part
    return found


def in_background(*calls: Any) -> list[Any]:
    """Threads that call; their results are theirs to keep."""
    threads = [threading.Thread(target=each) for each in calls]
    for thread in threads:
        thread.start()
    return threads


def test_a_client_that_leaves_is_forgotten(client: Client) -> None:
    busy = in_background(lambda: translated(client, "sleep 2.5"))
    until(lambda: metric(client, 'mallang_batch_size_count{run="translator"') >= 1)
    before = metric(client, 'mallang_requests_total{run="translator",verb="translate",status="499"')
    leaving = [connect(client) for _ in range(5)]
    for connection in leaving:
        connection.sendall(request_of("/api/translate", {"texts": SECRET}))
    until(lambda: metric(client, "mallang_queue_size") == 5)
    for connection in leaving:
        connection.close()
    until(lambda: metric(client, "mallang_queue_size") == 0)
    assert busy[0].is_alive()  # the worker is still busy with the first: they were forgotten before their turn
    gone = metric(client, 'mallang_requests_total{run="translator",verb="translate",status="499"')
    assert gone - before == 5
    busy[0].join()


def test_a_stream_ends_with_its_client(client: Client) -> None:
    connection = connect(client)
    connection.sendall(request_of("/api/generate", {"prompts": "", "stream": True, "max_length": 60, "min_length": 60}))
    assert b"data: {" in connection.recv(65536) + connection.recv(65536)
    connection.close()
    until(lambda: metric(client, 'mallang_requests_total{run="writer",verb="generate",status="499"') == 1)
    assert metric(client, 'mallang_tokens_total{run="writer"') == 0  # it was never finished


@pytest.mark.parametrize(
    "sent", [b"", b"POST /api/translate HT", b"POST /api/translate HTTP/1.1\r\nhost: localhost\r\nx"]
)
def test_half_a_head_is_answered_408(client: Client, sent: bytes) -> None:
    with connect(client) as connection:
        connection.sendall(sent)
        begun = time.monotonic()
        assert b" 408 " in read_all(connection)
        assert time.monotonic() - begun < 5


def test_a_body_byte_by_byte_is_answered_408(client: Client) -> None:
    whole = request_of("/api/translate", {"texts": SECRET})
    with connect(client) as connection:
        connection.sendall(whole[:-20])
        for byte in whole[-20:-1]:
            time.sleep(0.15)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(bytes([byte]))
        answer = read_all(connection)
    assert b" 408 " in answer and b'"slow_sender"' in answer


def test_a_second_request_on_a_connection_has_the_same_deadline(client: Client) -> None:
    with connect(client) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b" 200 " in connection.recv(65536)
        for byte in b"GET /health HTTP/1.1\r\nhost: local":
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(bytes([byte]))
            time.sleep(0.1)
        assert b" 408 " in read_all(connection)


def test_a_slow_reader_is_cut_off(client: Client) -> None:
    data = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 400  # 30 MB of answers, which nobody reads
    with connect(client) as connection:
        sending = in_background(lambda: ignore_errors(connection, data))
        until(lambda: metric(client, "mallang_connections") >= 2)
        until(lambda: translated(client, "물")[0] == 200)  # others are served meanwhile
        until(lambda: metric(client, "mallang_connections") == 1)
        sending[0].join()


def ignore_errors(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(data)


def test_a_large_body_is_answered_413_and_costs_no_memory(faulty: tuple[Client, Running], client: Client) -> None:
    before = resident(faulty[1].process.pid)
    for _ in range(4):
        status, _, answer = client.ask("POST", "/api/translate", b'{"texts": "' + b"a" * 10_000_000 + b'"}')
        assert status == 413 and json.loads(answer)["error"]["code"] == "too_large"
    assert resident(faulty[1].process.pid) - before < 20e6


def resident(process: int) -> float:
    """The bytes of memory that a process holds."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def flood(client: Client, count: int, together: int, body: Any) -> Counter[int]:
    """The statuses of many requests, each on a connection of its own; every refusal says when to come again."""
    found: Counter[int] = Counter()
    data = request_of("/api/translate", body).replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1)

    async def ask(turn: asyncio.Semaphore) -> None:
        async with turn, asyncio.timeout(120):
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
            writer.write(data)
            answer = await reader.read()
            writer.close()
        status = int(answer.split(b" ", 2)[1])
        assert status in (200, 504) or b"retry-after: " in answer, answer
        found[status] += 1

    async def all_of_them() -> None:
        turn = asyncio.Semaphore(together)
        await asyncio.gather(*(ask(turn) for _ in range(count)))

    asyncio.run(all_of_them())
    return found


def test_a_deadline_that_a_busy_server_looks_at_too_late_is_given_again() -> None:
    now, answers, waited = 100.0, list[bytes](), list[float]()
    connection: Any = Impatient.__new__(Impatient)
    connection.limits, connection.coming, connection.due = Limits(receiving=1.0), object(), 100.0
    connection.conn = SimpleNamespace(our_state=h11.IDLE)
    connection.transport = SimpleNamespace(is_closing=lambda: False, write=answers.append, close=lambda: None)
    connection.loop = SimpleNamespace(time=lambda: now, call_later=lambda seconds, call: waited.append(seconds))
    now = 102.0  # two seconds after the deadline: the server did something else meanwhile
    connection.give_up()
    assert not answers and waited == [2.0] and connection.due == 104.0
    now = 104.01
    connection.give_up()
    assert len(answers) == 1 and b" 408 " in answers[0]


def test_a_full_queue_is_answered_429(client: Client) -> None:
    found = flood(client, 120, 60, {"texts": "sleep 0.02"})
    assert {200, 429} <= set(found) <= {200, 429, 504} and found.total() == 120, found
    assert metric(client, 'mallang_requests_total{run="translator",verb="translate",status="429"') >= found[429]


@pytest.mark.slow
def test_ten_thousand_requests_at_once(translator: Path) -> None:
    """One process opens them all, and may take some seconds to send each: that is not what is tested here."""
    with slow_serving(translator, limits={**LIMITS, "receiving": 60, "sending": 60}) as (client, _):
        flood_all(client)
        until(lambda: translated(client, "물")[0] == 200)
        assert metric(client, "mallang_queue_size") == 0


def flood_all(client: Client) -> None:
    """As many requests at once as this process may have files."""
    import resource

    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))
    together = min(10_000, files[1] - 100)
    try:
        found = flood(client, 10_000, together, {"texts": "물"})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
    assert set(found) <= {200, 429, 503, 504} and found[200] > 0 and found.total() == 10_000, found


def test_a_request_that_takes_too_long_is_answered_504_and_a_worker_that_hangs_replaced(
    faulty: tuple[Client, Running], client: Client
) -> None:
    before, begun = faulty[1].workers(), time.monotonic()
    status, answer = translated(client, "hang")
    assert status == 504 and answer["error"]["code"] == "deadline" and time.monotonic() - begun >= 3
    until(lambda: translated(client, "물")[0] == 200)
    assert faulty[1].workers() != before


def test_no_text_is_logged(faulty: tuple[Client, Running], client: Client) -> None:
    for body in ({"texts": SECRET}, {"texts": SECRET, "domain": SECRET}, {SECRET: 1}, {"run": SECRET, "texts": "물"}):
        client.ask("POST", "/api/translate", body)
    client.ask("GET", "/xyzzy?xyzzy")
    client.ask("POST", "/api/translate", b"xyzzy")
    said = faulty[1].said()
    assert "xyzzy" not in said and "비밀" not in said and "Traceback" not in said, said
    assert "xyzzy" not in client.ask("GET", "/metrics")[2].decode()


def test_a_killed_worker_and_a_stop_under_load(translator: Path) -> None:
    found: dict[int, Counter[int]] = {1: Counter(), 2: Counter(), 3: Counter()}
    with slow_serving(translator, limits={**LIMITS, "seconds": 60, "hanging": 60}) as (client, running):

        def ask(text: str, beam: int) -> None:
            found[beam][client.post("/api/translate", texts=text, beam=beam)[0]] += 1

        def arrived() -> float:
            """The texts that wait, and all that workers have taken."""
            return metric(client, "mallang_queue_size") + metric(client, "mallang_queue_duration_seconds_count")

        asking = in_background(*(lambda: ask("sleep 0.5", 1) for _ in range(3)))
        until(lambda: metric(client, 'mallang_batch_size_count{run="translator"') >= 1)
        for process in running.workers():
            os.kill(process, signal.SIGKILL)
        for thread in asking:
            thread.join()
        assert found[1] == {200: 3}  # by the worker that took its place
        assert metric(client, "mallang_workers_replaced_total") == 1
        status, answer = client.post("/api/translate", texts="die")
        assert status == 500 and "two workers" in answer["error"]["message"]

        asking, before = [], arrived()
        for count, (text, beam) in enumerate([("sleep 0.3", 1)] * 3 + [("sleep 30", 2), ("물", 3)], start=1):
            asking += in_background(lambda text=text, beam=beam: ask(text, beam))
            until(lambda count=count: arrived() == before + count)
        running.process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        assert running.process.wait(30) == 0 and time.monotonic() - begun < 20
        for thread in asking:
            thread.join(5)
    assert found[1] == {200: 6}  # they were running, or had been taken in before
    assert found[2] == found[3] == {503: 1}  # it took too long to stop, and what waited behind it
    assert not running.workers() and "Traceback" not in running.said()
