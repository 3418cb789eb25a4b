"""The outputs of a finished run for every split and search, all in one process: starting torch takes longer than most.

python -m benchmarks.translation_outputs runs/mine \\
    '{"splits": ["test"], "searches": {"": {"options": [], "words": []}}, "device": "auto"}'

`options` are the search options as the record names them, `words` the same as arguments of `mallang evaluate`. With
`"reversed": [false, true]` a run of two directions is scored in both.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from mallang.commands.main import make_app
from mallang.errors import UserError


def main() -> None:
    """Print a JSON list: the scores that `mallang evaluate` gives, and the outputs."""
    folder, asked = Path(sys.argv[1]), json.loads(sys.argv[2])
    try:
        found = [
            translate(folder, split, asked["device"], [*given["words"], *["--reverse"] * is_reversed])
            | {"search": name, "options": given["options"], "reversed": is_reversed}
            for split in asked["splits"]
            for name, given in asked["searches"].items()
            for is_reversed in asked.get("reversed", [False])
        ]
    except UserError as error:
        sys.exit(str(error))
    print(json.dumps(found, ensure_ascii=False))


def translate(folder: Path, split: str, device: str, more: Sequence[str]) -> dict[str, Any]:
    """The outputs of one split, with the scores that the command gives."""
    corpus, _, split = split.rpartition(":")
    words = ["evaluate", str(folder), "--split", split, "--device", device, "--json"]
    words += ["--corpus", corpus] if corpus else []
    words += more
    file = "-".join(filter(None, [corpus.replace("/", "-"), split])) + "-reverse" * ("--reverse" in more)
    began = time.monotonic()
    said = json.loads(printed_by(words))
    return {
        "corpus": corpus,
        "split": split,
        "seconds": round(time.monotonic() - began, 1),
        "scores": said[corpus] if corpus else said,
        "hypotheses": (folder / "outputs" / f"{file}.txt").read_text("utf-8").split("\n")[:-1],
    }


def printed_by(words: Sequence[str]) -> str:
    """What a command prints."""
    with redirect_stdout(io.StringIO()) as printed:
        make_app()(list(words), prog_name="mallang", standalone_mode=False)
    return printed.getvalue()


if __name__ == "__main__":
    main()
