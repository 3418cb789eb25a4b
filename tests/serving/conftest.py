"""One server for most tests: a translator and a language model, both with random weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.serving import Client, serving, write_run


@pytest.fixture(scope="session")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(
        tmp_path_factory.mktemp("served") / "translator", "transformer-miniworld", "decoding.max_length=12"
    )


@pytest.fixture(scope="session")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("served") / "writer", "gpt-miniworld", "model.max_length=64")


@pytest.fixture(scope="session")
def chatbot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    changes = ("task.name=dialogue", "decoding.max_length=12")
    return write_run(tmp_path_factory.mktemp("served") / "chatbot", "transformer-miniworld", *changes)


@pytest.fixture(scope="session")
def server(translator: Path, writer: Path, chatbot: Path) -> Iterator[Client]:
    with serving(translator, writer, chatbot, "--workers", "1") as (client, _):
        yield client
