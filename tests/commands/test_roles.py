"""`mallang roles`, and a labeler trained on one's own files by the real commands."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from commands.running import as_served, mallang

TINY = (
    "model.size=tiny", "data.valid=mine.srl", "train.epochs=8", "train.batch_tokens=64", "train.workers=0",
    "optimizer.learning_rate=0.02",
)  # fmt: skip


def sentence(draw: random.Random) -> str:
    words = [draw.choice(("Anna", "Bob", "민수")), draw.choice(("gave", "sold")), draw.choice(("tea", "books")), "."]
    facts = zip(("NNP", "VBD", "NN", "."), (2, 0, 2, 2), ("nsubj", "root", "obj", "punct"), strict=True)
    roles = ("ARG0", "V", "ARG1", "_")
    lines = []
    for number, (word, fact, role) in enumerate(zip(words, facts, roles, strict=True), start=1):
        sense = f"{word}.01" if role == "V" else "_"
        lines.append("\t".join(map(str, (number, word, *fact, sense, role))))
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with mine.srl, and a run that was trained on it."""
    folder, draw = tmp_path_factory.mktemp("roles"), random.Random(1)
    folder.joinpath("mine.srl").write_text("\n".join(sentence(draw) for _ in range(80)), "utf-8")
    done = mallang("train", "dependency-srl", "data.train=mine.srl", *TINY, "--name", "ours", cwd=folder)
    assert done.code == 0, done.err
    return folder


def test_roles_as_lines_and_as_json(home: Path) -> None:
    texts = ("Anna gave books.", "Hm?", "민수 sold tea .")
    done = mallang("roles", "runs/ours", *texts, cwd=home)
    assert done.code == 0, done.err
    first, _, last = done.out.splitlines()
    assert first == "[ARG0 Anna] [V gave] [ARG1 books]." and last == "[ARG0 민수] [V sold] [ARG1 tea] ."
    lines = mallang("roles", "runs/ours", *texts, "--json", "--predicates", "1", cwd=home).out.splitlines()
    found = [json.loads(line) for line in lines]
    assert [each["input"] for each in found] == list(texts) and found[0]["predicates"] == "given"
    assert [made["predicate"] for each in found for made in each["propositions"]] == ["Anna", "Hm", "민수"]
    assert found == as_served(home / "runs/ours", "roles", texts, predicates=["1"])
    refused = mallang("roles", "runs/ours", texts[0], "--predicates", "ran", cwd=home)
    assert refused.code == 2 and "'ran' is no word of the text" in refused.err


def test_scores_a_page_and_what_is_refused(home: Path) -> None:
    home.joinpath("other.srl").write_text(
        sentence(random.Random(2)).replace("Bob", "Zoë").replace("Anna", "Zoë"), "utf-8"
    )
    done = mallang("evaluate", "runs/ours", "--data", "other.srl", cwd=home)
    assert "'Zoë'" in done.err and "read from the characters" in done.err
    assert done.code == 0 and "role F1" in done.out and "predicates:found" in done.out, done.err
    assert (home / "runs/ours/outputs").is_dir()
    page = mallang("inspect", "runs/ours", "Anna gave books.", "--out", "roles.html", cwd=home)
    assert page.code == 0 and "<mark" in (home / "roles.html").read_text("utf-8"), page.err
    plain = mallang("inspect", "runs/ours", "Anna gave books.", "--json", cwd=home)
    assert json.loads(plain.out)[0]["propositions"][0]["lemma"] == "gave"
    for wrong, message in (
        (("--tree",), "search"),
        (("--head", "1"), "on semantic roles"),
        (("--out", "a.png"), "page"),
    ):
        refused = mallang("inspect", "runs/ours", "Anna gave books.", *wrong, cwd=home)
        assert refused.code == 2 and message in refused.err, refused.err
    home.joinpath("broken.srl").write_text("1\tAnna\tNNP\n", "utf-8")
    broken = mallang("train", "dependency-srl", "data.train=broken.srl", "data.valid=mine.srl", "--name", "b", cwd=home)
    assert broken.code == 2 and "broken.srl, line 1" in broken.err and "Traceback" not in broken.err
