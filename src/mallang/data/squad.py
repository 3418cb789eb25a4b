"""Files in the format of SQuAD: articles of paragraphs, each a context with its questions and their answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mallang.data.source import Row
from mallang.errors import UserError

COLUMNS = ("id", "title", "context", "question", "answers")


def squad_rows(whole: Any, path: Path) -> Iterator[Row]:
    """A row per question of what a file holds: its columns, the answers as JSON; none where it is impossible."""
    try:
        for article in whole["data"]:
            for paragraph in article["paragraphs"]:
                for asked in paragraph["qas"]:
                    given = [] if asked.get("is_impossible") else asked.get("answers", [])
                    answers, title = json.dumps(given, ensure_ascii=False), article.get("title", "")
                    yield str(asked.get("id", "")), title, paragraph["context"], asked["question"], answers
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path} is JSON, but not a SQuAD file",
            todo="expected: "
            '{"data": [{"title", "paragraphs": [{"context", "qas": [{"question", "answers"}]}]}]}, '
            "or a .jsonl file with one object a line",
        ) from error
