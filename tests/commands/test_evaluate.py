"""`mallang evaluate`: every number with its signature, and the outputs it was counted on."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import tempfile
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU

from commands.running import mallang


def test_scores_have_signatures_and_are_kept(run: Path) -> None:
    home = run.parent.parent
    ended = mallang("evaluate", run, "--json", cwd=home)
    assert ended.code == 0, ended.err
    scores = json.loads(ended.out)
    assert all(score["signature"] for score in scores)
    kept = json.loads((run / "scores" / "test.json").read_text("utf-8"))
    assert kept["scores"] == scores
    pairs = [line.split("\t") for line in (home / "valid.tsv").read_text("utf-8").splitlines()]
    outputs = (run / "outputs" / "test.txt").read_text("utf-8").splitlines()
    translated = mallang("translate", run, cwd=home, text="".join(f"{source}\n" for source, _ in pairs))
    assert translated.out.splitlines() == outputs
    by_name = {score["name"]: score for score in scores}
    expected = BLEU().corpus_score(outputs, [[target for _, target in pairs]]).score
    assert by_name["BLEU"]["value"] == pytest.approx(expected)
    assert by_name["BLEU"]["low"] <= expected <= by_name["BLEU"]["high"]
    valid = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines() if "valid" in line]
    best = min(entry["nll"] for entry in valid)
    perplexity = next(score for score in scores if "perplexity" in score["name"] and "token" in score["name"])
    assert perplexity["value"] == pytest.approx(math.exp(best), rel=1e-4)


def test_ones_own_pairs_and_another_search(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").write_text("민수는 물을 산다.\tMinsu buys water.\n지호는 책을 본다.\tJiho sees books.\n")
    ended = mallang("evaluate", run, "--data", "mine.tsv", "--search", "method=greedy", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "2 pairs of data-mine" in ended.err
    first = ended.out.splitlines()[0]
    assert first.startswith("BLEU 100.00")
    assert "tok:13a" in first
    assert (run / "outputs" / "data-mine.txt").read_text("utf-8") == "Minsu buys water.\nJiho sees books.\n"
    assert json.loads((run / "scores" / "data-mine.json").read_text("utf-8"))["search"] == {"method": "greedy"}


def test_unknown_tokens_are_counted(run: Path, tmp_path: Path) -> None:
    strange = "".join(f"{letter} 물을 산다.\tMinsu buys water.\n" for letter in "漢字漢日本語中")
    (tmp_path / "mine.tsv").write_text(f"{strange}민수는 물을 산다.\tMinsu 漢 buys water.\n", encoding="utf-8")
    ended = mallang("evaluate", run, "--data", "mine.tsv", cwd=tmp_path)
    assert ended.code == 0, ended.err
    source, target, last = ended.err.splitlines()
    assert source.startswith("note: source of data-mine: 7 of ") and target.startswith("note: target of data-mine: 1 ")
    assert source.endswith(" tokens are unknown to the model, and read as <unk>: '漢', '字', '日', '本', '語' …")
    assert target.endswith(": '漢'") and last.startswith("8 pairs of data-mine")
    for option in ("--quiet", "--json"):
        assert mallang("evaluate", run, "--data", "mine.tsv", option, cwd=tmp_path).err == ""
    assert "note" not in mallang("evaluate", run, cwd=run.parent.parent).err


def test_a_split_and_ones_own_pairs_exclude_each_other(trained: Path) -> None:
    both = mallang("evaluate", trained, "--split", "valid", "--data", "valid.tsv", cwd=trained.parent.parent)
    assert both.code == 2 and "--split and --data were both given" in both.err and "Traceback" not in both.err


def test_one_sentence_is_explained(run: Path) -> None:
    home = run.parent.parent
    ended = mallang("evaluate", run, "--explain", "3", cwd=home)
    assert ended.code == 0, ended.err
    source, target = (home / "valid.tsv").read_text("utf-8").splitlines()[2].split("\t")
    output = mallang("translate", run, source, cwd=home).out.strip()
    assert ended.out.splitlines()[0] == f"source     {source}"
    told = json.loads(mallang("evaluate", run, "--explain", "3", "--json", cwd=home).out)
    assert told["source"] == source
    expected = BLEU(effective_order=True).sentence_score(output, [target]).score
    assert told["bleu"] == pytest.approx(expected) and f"= {expected:.2f} (nrefs:1" in ended.out
    assert not (run / "scores").exists()  # one sentence is not the score of the run


def test_the_whole_split_is_explained_as_it_is_scored(run: Path) -> None:
    home = run.parent.parent
    told = json.loads(mallang("evaluate", run, "--explain", "all", "--json", cwd=home).out)
    kept = json.loads((run / "scores" / "test.json").read_text("utf-8"))
    values = {score["name"]: score["value"] for score in kept["scores"]}
    assert told["bleu"] == pytest.approx(values["BLEU"]) and told["f"] == pytest.approx(values["word F"])
    assert told["sentences"] == 20


def test_files_are_scored_without_a_run(tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("I love you\n나는 이 노래를 많이 사랑한다\n", "utf-8")
    (tmp_path / "ref.txt").write_text("Oh I love you\n나는 이 영화를 많이 사랑한다\n", "utf-8")
    files = ("--outputs", "out.txt", "--references", "ref.txt")
    ended = mallang("evaluate", *files, cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert [line.rsplit(" ", 3)[0].split()[0] for line in ended.out.splitlines()] == ["BLEU", "chrF2", "word", "exact"]
    first = mallang("evaluate", *files, "--explain", "1", cwd=tmp_path).out
    assert "exp(1 − 4/3) = 0.7165" in first and "precision 100.00, recall 75.00, F 85.71" in first
    assert "wrong:     “노래를”" in mallang("evaluate", *files, "--explain", "2", cwd=tmp_path).out
    both = mallang("evaluate", *files, "--references", "out.txt", "--json", cwd=tmp_path)
    assert {score["name"]: score["value"] for score in json.loads(both.out)}["exact match"] == 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.txt", "ref.txt"]


def test_a_run_of_another_task_is_not_held_against(run: Path, tmp_path: Path) -> None:
    other = shutil.copytree(run, tmp_path / "other")
    info = json.loads((other / "run.json").read_text())
    (other / "run.json").write_text(json.dumps({**info, "task": "dialogue"}))
    ended = mallang("evaluate", run, "--against", other, cwd=run.parent)
    assert (ended.code, ended.out) == (2, "") and "but " in ended.err and "for dialogue" in ended.err


def test_two_systems_are_tested_against_each_other(run: Path, tmp_path: Path) -> None:
    home = run.parent.parent
    same = json.loads(mallang("evaluate", run, "--against", run, "--json", cwd=home).out)
    assert [each["difference"] for each in same["against"]] == [0, 0, 0, 0]
    assert [each["metric"] for each in same["against"]] == ["BLEU", "chrF2", "word F", "exact match"]
    references = [line.split("\t")[1] for line in (home / "valid.tsv").read_text("utf-8").splitlines()]
    (tmp_path / "bad.txt").write_text("nothing\n" * len(references), "utf-8")
    ended = mallang("evaluate", run, "--against", tmp_path / "bad.txt", cwd=home)
    assert ended.code == 0, ended.err
    lines = [line for line in ended.out.splitlines() if line.startswith("against ")]
    assert len(lines) == 4 and all("p = 0.0010" in line for line in lines if "exact" not in line)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "nothing to score"),
        (("--outputs", "a.txt"), "--references FILE is missing"),
        (("--references", "a.txt"), "--outputs FILE is missing"),
        (("--outputs", "a.txt", "--references", "b.txt"), "1 outputs, but b.txt has 2 lines"),
        (("--outputs", "a.txt", "--references", "none.txt"), "none.txt"),
        (("--outputs", "a.txt", "--references", "a.txt", "--explain", "2"), "only 1 sentences"),
        (("--outputs", "a.txt", "--references", "a.txt", "--explain", "first"), "'first' is no sentence"),
        (("--outputs", "a.txt", "--references", "a.txt", "--explain", "0"), "'0' is no sentence"),
        (("--outputs", "a.txt", "--references", "a.txt", "--search", "beam=2"), "--search has no effect"),
        (("--outputs", "a.txt", "--references", "a.txt", "--with", "runs/x"), "--with has no effect"),
        (("--outputs", "a.txt", "--references", "a.txt", "--against", "."), "only outputs"),
        (("--outputs", "a.txt", "--references", "a.txt", "--against", "b.txt"), "1 outputs, but b.txt has 2 lines"),
        (("--explain", "1", "--against", "a.txt"), "both given"),
        (("runs/x", "--outputs", "a.txt"), "both given"),
        (("--outputs", "tree.txt", "--references", "tree.txt", "--explain", "all"), "parse trees"),
    ],
)
def test_what_cannot_be_scored_is_named(given: tuple[str, ...], said: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n", "utf-8")
    (tmp_path / "b.txt").write_text("one\ntwo\n", "utf-8")
    (tmp_path / "tree.txt").write_text("(S XX )S\n", "utf-8")
    ended = mallang("evaluate", *given, cwd=tmp_path)
    assert ended.code == 2 and said in ended.err and "Traceback" not in ended.err


@pytest.mark.parametrize("final", ["best", "last"])
def test_without_a_test_split_the_valid_one_is_scored_and_that_is_said(run: Path, final: str) -> None:
    recipe = run / "recipe.toml"
    lines = [line for line in recipe.read_text("utf-8").splitlines() if not line.startswith("test = ")]
    recipe.write_text("\n".join(lines).replace('final = "last"', f'final = "{final}"') + "\n", "utf-8")
    assert f'final = "{final}"' in recipe.read_text("utf-8")
    info = json.loads((run / "run.json").read_text("utf-8"))
    info["recipe_sha256"] = hashlib.sha256(recipe.read_bytes()).hexdigest() if "recipe_sha256" in info else None
    (run / "run.json").write_text(json.dumps({key: value for key, value in info.items() if value is not None}), "utf-8")
    home = run.parent.parent
    ended = mallang("evaluate", run, "--json", cwd=home)
    assert ended.code == 0, ended.err
    assert "has no test split: this is the valid split" in ended.err
    assert ("which chose the best weights" in ended.err) == (final == "best")
    named = mallang("evaluate", run, "--split", "valid", "--json", cwd=home)
    assert named.out == ended.out and "has no test split" not in named.err
    assert (run / "outputs" / "valid.txt").is_file() and not (run / "outputs" / "test.txt").exists()
    assert mallang("evaluate", run, "--split", "test", cwd=home).code == 2


@pytest.mark.parametrize("kind", ["trained", "writer"])
def test_a_run_in_a_folder_that_nobody_may_write_to_is_scored(kind: str, request: pytest.FixtureRequest) -> None:
    """A translation model and a language model: scores as ever, a note, and no file."""
    run: Path = request.getfixturevalue(kind)
    home = Path(tempfile.mkdtemp())  # not below the folders of pytest, which are for their owner alone
    try:
        shutil.copytree(run.parent.parent, home / "home")
        own = home / "home" / "runs" / run.name
        for name in ("outputs", "scores"):
            shutil.rmtree(own / name, ignore_errors=True)
        for path in (*home.rglob("*"), home):
            path.chmod(0o555 if path.is_dir() else 0o444)
        (cache := Path(tempfile.mkdtemp())).chmod(0o777)
        before = sorted(home.rglob("*"))
        ended = mallang(
            "evaluate", own, "--split", "valid", cwd=home / "home", env={"MALLANG_CACHE": str(cache)}, nobody=True
        )
        assert ended.code == 0, ended.err
        assert ("BLEU" if kind == "trained" else "perplexity per word") in ended.out
        note = f"note: {own} is read-only: outputs and scores of valid were not kept"
        assert note in ended.err.splitlines() and sorted(home.rglob("*")) == before
    finally:
        for path in (home, *home.rglob("*")):
            path.chmod(0o755)
        shutil.rmtree(home)
