"""`mallang inspect --attribution`: where the answer of every kind of run comes from, in a terminal and as a page."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest

from commands.running import mallang, ran

BERT = (
    "train", "bert", "model.size=tiny", "model.layers=1", "model.dim=16", "model.heads=2", "model.max_length=40",
    "text.unit=space", "train.steps=2", "train.workers=0",
)  # fmt: skip
TASKS = {
    "classification": ("text\tlabel", "good film\tyes", "bad film\tno"),
    "similarity": ("first\tsecond\tscore", "good film\tgood story\t4", "bad film\tgood story\t1"),
    "question_answering": ("question\tcontext\tanswer", "Who ?\tKim saw Lee .\tKim", "Who ?\tLee saw Kim .\tLee"),
    "multiple_choice": ("question\tchoices\tanswer", 'what film\t["good", "bad"]\t0', 'bad what\t["film", "good"]\t0'),
}
GIVEN = {
    "classification": ("good film",),
    "similarity": ("good film", "bad story"),
    "question_answering": ("Who ?", "Kim saw Lee ."),
    "multiple_choice": ("what film", "good", "bad"),
}
TERMINAL = {"NO_COLOR": None, "FORCE_COLOR": "1", "COLORTERM": "truecolor", "TERM": "xterm-256color"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of each task, trained for a moment."""
    folder = tmp_path_factory.mktemp("attribution")
    for task, (header, *rows) in TASKS.items():
        name = f"{task}.jsonl" if task == "multiple_choice" else f"{task}.tsv"
        lines = [header, *rows * 4]
        if task == "multiple_choice":
            cells = [row.split("\t") for row in rows * 4]
            lines = [
                json.dumps({"question": question, "choices": json.loads(choices), "answer": int(answer)})
                for question, choices, answer in cells
            ]
        (folder / name).write_text("\n".join(lines) + "\n", "utf-8")
        window = ("task.window=32", "task.stride=8") if task == "question_answering" else ()
        data = (f"data.train={name}", f"data.valid={name}")
        ran(*BERT, f"task.name={task}", *window, *data, "--name", task, cwd=folder)
    return folder


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("method", ["gradient", "integrated"])
def test_every_task_shows_where_its_answer_comes_from(task: str, method: str, home: Path) -> None:
    asked = ("inspect", f"runs/{task}", *GIVEN[task], "--attribution", method)
    found = json.loads(ran(*asked, "--json", cwd=home).out)
    sentences = found["sentences"]
    weights = [weight for each in sentences for weight in each["weights"]]
    tokens = [token for each in sentences for token in each["tokens"]]
    shown = [GIVEN[task][0], found["output"]] if task == "multiple_choice" else GIVEN[task]
    assert all(word in tokens for text in shown for word in text.split())
    if method == "integrated":
        assert sum(weights) == pytest.approx(found["value"] - found["baseline_value"], abs=2e-4, rel=0.011)
    plain = ran(*asked, cwd=home).out
    head, note, *_ = plain.splitlines()
    assert head == f"{found['output']} {found['score']:.3f}"
    assert note.startswith("integrated gradients of " if method == "integrated" else "gradient × input of ")
    marked = dict(re.findall(r"(\S+?)\[([+-]\d\.\d{3})\]", plain))
    heaviest = max(zip(tokens, weights, strict=True), key=lambda pair: abs(pair[1]))
    assert marked[heaviest[0]] == f"{heaviest[1]:+.3f}"


@pytest.mark.parametrize("task", TASKS)
def test_a_terminal_shows_colors_and_a_page_the_same_words(task: str, home: Path) -> None:
    asked = ("inspect", f"runs/{task}", *GIVEN[task], "--attribution", "integrated")
    done = mallang(*asked, cwd=home, env=TERMINAL)
    assert done.code == 0, done.err
    colors = re.findall(r"\x1b\[30;48;2;(\d+);(\d+);(\d+)m", done.out)
    assert colors, "words have a colored background"
    darkest = {tuple(map(int, each)) for each in colors} & {(66, 135, 245), (214, 64, 69)}
    assert darkest, "the heaviest word has the full color of its sign"
    bare = re.sub(r"\x1b\[[0-9;]*m", "", done.out)
    written = ran(*asked, "--out", f"{task}.html", cwd=home)
    page = (home / f"{task}.html").read_text("utf-8")
    assert written.out == f"{task}.html\n" and "<h1>Where the answer comes from</h1>" in page and "<script" not in page
    assert re.search(r"rgba\((66, 135, 245|214, 64, 69), 1\.0\)", page)
    words = [re.sub("<[^>]+>", "", each) for each in re.findall(r'<span[^>]*title="[^"]+">[^<]*</span>', page)]
    assert len(words) > 3 and [html.unescape(word) for word in words] == bare.split()[-len(words) :]


def test_a_part_of_the_context_and_another_choice_can_be_asked_for(home: Path) -> None:
    asked = ("inspect", "runs/question_answering", *GIVEN["question_answering"], "--attribution", "gradient", "--json")
    assert json.loads(ran(*asked, "--label", "saw Lee", cwd=home).out)["output"] == "saw Lee"
    asked = ("inspect", "runs/multiple_choice", "\t".join(GIVEN["multiple_choice"]), "--attribution", "gradient")
    assert ran(*asked, "--label", "B", cwd=home).out.startswith("bad ")
    for task, label, message in (
        ("question_answering", "Bob", "the context does not hold 'Bob'"),
        ("multiple_choice", "C", "none of the 2 choices"),
        ("similarity", "yes", "there is no label to explain"),
    ):
        done = mallang("inspect", f"runs/{task}", *GIVEN[task], "--attribution", "gradient", "--label", label, cwd=home)
        assert done.code == 2 and message in done.err and "Traceback" not in done.err
    done = mallang("inspect", "runs/question_answering", "Who ?", "--attribution", "gradient", cwd=home)
    assert done.code == 2 and "this run reads 2 texts at once" in done.err
