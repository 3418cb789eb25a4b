"""N-grams from the command line: trained, scored, written to ARPA files, read from them, and what is refused."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from commands.running import clauses, mallang
from mallang import load as mallang_load
from mallang.interop.arpa_words import spaced

FILES = ("data.train=train.txt", "data.valid=valid.txt", "data.test=valid.txt", "text.unit=space", "text.vocabulary=60")
TEXT = "지호는 책을 본다."


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus and a trained run."""
    home, draw = tmp_path_factory.mktemp("ngram"), random.Random(1)
    for name, count in (("train.txt", 200), ("valid.txt", 20)):
        lines = (clauses(draw, draw.randint(1, 2))[0] for _ in range(count))
        home.joinpath(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    ended = mallang("train", "ngram-miniworld", *FILES, "--name", "own", cwd=home)
    assert ended.code == 0, ended.err
    return home


def test_what_is_written_and_imported_says_the_same(home: Path, tmp_path: Path) -> None:
    ended = mallang("export", "runs/own", "--to", "arpa", "-o", str(tmp_path / "a.arpa.gz"), cwd=home)
    assert (ended.code, ended.err) == (0, "") and "KenLM" in ended.out
    ended = mallang("import", "a.arpa.gz", cwd=tmp_path)
    assert (ended.code, ended.out) == (0, "the run is in runs/a\n"), ended.err
    told = [mallang("score", run, "--total", TEXT, cwd=home) for run in ("runs/own", tmp_path / "runs" / "a")]
    assert told[0].code == 0 and told[0].out == told[1].out
    ended = mallang("evaluate", str(tmp_path / "runs" / "a"), "--data", "valid.txt", cwd=home)
    assert ended.code == 0 and "smoothing:imported|begin:<s>" in ended.out
    for words in (["evaluate", "runs/a"], ["novelty", "--run", "runs/a", "--samples", "1"]):
        ended = mallang(*words, cwd=tmp_path)
        assert ended.code == 2 and "was imported" in ended.err and "FILE" in ended.err
    assert [ended.code for _ in range(2) if (ended := mallang("import", "a.arpa.gz", cwd=tmp_path))] == [2, 2]
    assert "finished" in ended.err and "--name" in ended.err
    assert mallang("import", "a.arpa.gz", "--fresh", "-q", cwd=tmp_path).code == 0


SAID = """\
She said: "this is it, isn't it?"
This isn't late (he said), and this is it.
"지호야," 하고 그가 말했다. 책(冊)을 본다!
나는 물을 마신다; 그는 don't 하고 말했다.
"""
HEARD = ['"This is it," she said. (isn\'t it late?)', "그가 말했다: 물을 마신다!", "this zebra is 冊", ""]


@pytest.mark.parametrize("options", [("text.unit=word",), ("text.unit=word", "text.lowercase=true")])
def test_words_are_written_as_kenlm_is_asked_for_them(options: tuple[str, ...], home: Path, tmp_path: Path) -> None:
    kenlm = pytest.importorskip("kenlm", reason="kenlm is not there: it has no wheel, and building it needs g++")
    tmp_path.joinpath("said.txt").write_text(SAID, encoding="utf-8")
    files = [f"data.{split}=said.txt" for split in ("train", "valid", "test")]
    ended = mallang("train", "ngram-miniworld", *files, *options, "text.vocabulary=44", "--name", "a", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert mallang("export", "runs/a", "--to", "arpa", "-o", "b.arpa", cwd=tmp_path).code == 0
    assert mallang("import", "b.arpa", cwd=tmp_path).code == 0
    written = {line.split("\t")[1] for line in (tmp_path / "b.arpa").read_text("utf-8").splitlines() if "\t" in line}
    assert {"this", "물을", ",", '▁"', "￭t"} <= written and not {"▁this", "￭,"} & written
    ours, again = mallang_load(tmp_path / "runs" / "a"), mallang_load(tmp_path / "runs" / "b")
    theirs = kenlm.Model(str(tmp_path / "b.arpa"))
    assert spaced(ours.tokenizer, "This is late, don't.").lower() == "this is late , don ' ￭t ."
    lines = [*SAID.splitlines(), *HEARD]
    for line, left, right in zip(lines, ours.score(lines), again.score(lines), strict=True):
        assert right.score == pytest.approx(left.score, abs=1e-4), line
        assert right.tokens == left.tokens, line
        told = theirs.score(spaced(ours.tokenizer, line)) * math.log(10)
        assert told == pytest.approx(left.score, abs=1e-3), line
        assert spaced(again.tokenizer, line) == spaced(ours.tokenizer, line)


def test_files_without_our_comment_are_cut_at_spaces_and_damaged_comments_are_refused(
    home: Path, tmp_path: Path
) -> None:
    """As versions before wrote them: ▁ before words, and nothing that says how text is tokenized."""
    old = "\\data\\\nngram 1=4\n\n\\1-grams:\n-99 <s>\n-0.5 </s>\n-0.5 ▁this\n-1 this\n\n\\end\\\n"
    tmp_path.joinpath("old.arpa").write_text(f"some words of another tool\n{old}", encoding="utf-8")
    assert mallang("import", "old.arpa", cwd=tmp_path).code == 0
    scored = mallang_load(tmp_path / "runs" / "old").score(["▁this this"])[0]
    assert scored.tokens == ("▁this", "this", "</s>") and scored.score == pytest.approx(-2 * math.log(10), abs=1e-6)
    for comment, words in (
        ('{"unit": "bpe"}', "does not say how text is tokenized"),
        ('{"unit": "word", "vocabulary": 9}', "does not say how text is tokenized"),
        ("{", "does not say how text is tokenized"),
        ('{"unit": "word"}', "'▁this' and 'this' are the same word"),
    ):
        tmp_path.joinpath("new.arpa").write_text(f"# mallang text {comment}\n{old}", encoding="utf-8")
        ended = mallang("import", "new.arpa", cwd=tmp_path)
        assert ended.code == 2 and words in ended.err and "Traceback" not in ended.err, ended.err


def test_what_is_impossible_is_no_better_than_what_is_too(home: Path) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    bad, worse = "본다. 본다. 지호는", "본다. 본다. 본다. 지호는"
    mle = ("model.smoothing=mle", "model.order=2", "--name", "mle")
    home.joinpath("impossible.txt").write_text(f"{bad}\n{worse}\n", encoding="utf-8")
    home.joinpath("impossible.tsv").write_text(f"{bad}\t{worse}\n{TEXT}\t{bad}\n", encoding="utf-8")
    ended = mallang("train", "ngram-miniworld", *FILES, *mle, "data.valid=impossible.txt", cwd=home)
    assert ended.code == 0, ended.err
    for line in (home / "runs" / "mle" / "metrics.jsonl").read_text("utf-8").splitlines():
        json.loads(line, parse_constant=refuse)
    info = json.loads((home / "runs" / "mle" / "run.json").read_text("utf-8"), parse_constant=refuse)
    assert info["best"] == {"step": 1, "loss": None}
    for by in ("total", "token"):
        ended = mallang("score", "runs/mle", bad, worse, "--compare", "--by", by, cwd=home)
        assert ended.code == 0 and ended.out.splitlines()[-1] == "both are equally probable", ended.err
        ended = mallang("score", "runs/mle", bad, worse, "--compare", "--by", by, "--json", cwd=home)
        line = json.loads(ended.out, parse_constant=refuse)
        assert line["scores"] == [None, None] and line["better"] is None
    ended = mallang("score", "runs/mle", bad, TEXT, "--compare", cwd=home)
    assert ended.out.splitlines()[-1] == f"better formed: {TEXT}  (by inf nats)"
    ended = mallang("score", "runs/mle", bad, TEXT, "--json", cwd=home)
    first, second = (json.loads(line, parse_constant=refuse) for line in ended.out.splitlines())
    assert first["score"] is None and first["bits"] is None and None in first["token_scores"]
    assert second["score"] < 0
    ended = mallang("score", "runs/mle", "--pairs", "impossible.tsv", "--json", cwd=home)
    pairs = [json.loads(line, parse_constant=refuse) for line in ended.out.splitlines()]
    assert [pair["right"] for pair in pairs[:-1]] == [False, True]


def test_what_is_impossible_is_so_for_generate_as_for_score(home: Path) -> None:
    """After a full stop every line of the corpus ends: whatever is made to follow it has the probability 0."""
    mle = ("model.smoothing=mle", "model.order=2", "--name", "impossible")
    assert mallang("train", "ngram-miniworld", *FILES, *mle, cwd=home).code == 0
    model = mallang_load(home / "runs" / "impossible")
    for method in ("greedy", "beam"):
        made = model.generate("본다.", method=method, min_length=3, max_tokens=4)
        words, said = len(model.tokenizer.encode("본다.").ids), len(made.token_scores)
        assert list(made.token_scores) == list(model.score(made.text).token_scores[words : words + said])
        assert made.score == -math.inf == made.nbest[0][1]
    usual = model.generate("", seed=3)
    assert usual.score == pytest.approx(model.score(usual.text).score, abs=1e-4) and usual.score > -100
    asked = ("generate", "runs/impossible", "본다.", "--method", "beam", "--search", "min_length=3", "--scores")
    ended = mallang(*asked, cwd=home)
    assert ended.code == 0 and ended.out.startswith("-inf\t"), ended.err
    found = json.loads(mallang(*asked, "--json", cwd=home).out, parse_constant=pytest.fail)
    assert found["score"] is None and None in found["token_scores"]


def test_seeds_whose_loss_is_infinite_have_no_mean(home: Path) -> None:
    home.joinpath("endless.txt").write_text("본다. 본다. 지호는\n", encoding="utf-8")
    train = ["train", "ngram-miniworld", *FILES, "model.smoothing=mle", "model.order=2", "--seeds", "1,2"]
    train += ["data.valid=endless.txt", "--name", "endless"]
    ended = mallang(*train, cwd=home)
    assert ended.code == 0, ended.err
    assert "validation loss over 2 seeds: infinite for 2 of them, so there is no mean, in runs/" in ended.err
    names, file = ["runs/endless-seed1", "runs/endless-seed2"], home / "runs" / "endless-seeds.json"
    nothing = {"metric": "loss", "runs": dict.fromkeys(names), "mean": None, "standard_deviation": None}
    assert json.loads(file.read_text("utf-8"), parse_constant=pytest.fail) == nothing
    # Whether run.json says it by the name that older versions wrote or by null, it is the same.
    for best in (None, float("inf"), 1.5):
        path = home / names[0] / "run.json"
        info = json.loads(path.read_text("utf-8"))
        path.write_text(json.dumps({**info, "best": {"step": 1, "loss": best}}), encoding="utf-8")
        ended = mallang(*train, cwd=home)
        told = json.loads(file.read_text("utf-8"), parse_constant=pytest.fail)
        assert ended.code == 0 and told["mean"] is None, ended.err
        assert told["runs"] == {names[0]: 1.5 if best == 1.5 else None, names[1]: None}
    assert "infinite for 1 of them" in ended.err
    assert mallang("score", names[0], TEXT, cwd=home).code == 0


def test_scores_that_are_no_probabilities_have_no_perplexity(home: Path) -> None:
    ended = mallang("train", "ngram-miniworld", *FILES, "model.smoothing=stupid-back-off", "--name", "stupid", cwd=home)
    assert ended.code == 0, ended.err
    ended = mallang("score", "runs/stupid", TEXT, "지호는 본다 책을", cwd=home)
    assert ended.code == 0 and "perplexity" not in ended.out
    for arguments, words in (
        (["evaluate", "runs/stupid"], "no perplexity"),
        (["export", "runs/stupid", "--to", "arpa"], "ARPA files hold probabilities"),
    ):
        ended = mallang(*arguments, cwd=home)
        assert ended.code == 2 and words in ended.err and "Traceback" not in ended.err, ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["import", "none.arpa"], ["there is no file none.arpa"]),
        (["import", "valid.txt"], ["is no number that a vector can have"]),
        (["import", "broken.arpa"], ["no line \\data\\", "broken.arpa, line 1"]),
        (["export", "runs/own", "--to", "arpa", "--int8"], ["--int8 has no effect on --to arpa"]),
        (["export", "runs/own", "--to", "arpa", "-o", "valid.txt"], ["valid.txt is there already"]),
        (["export", "runs/own", "--to", "onnx"], ["language modeling"]),
        (["generate", "runs/own", "--int8", "--device", "cpu"], ["int8 weights have no effect", "leave int8 out"]),
        (["train", "ngram-miniworld", *FILES, "model.alpha=2"], ["alpha = 2.0 has no effect", "add-k"]),
        (["train", "ngram-miniworld", *FILES, "model.min_counts=[2]"], ["begin with 1"]),
        (["train", "ngram-miniworld", *FILES, "train.epochs=2"], ["no effect: train.epochs = 2"]),
        (["train", "ngram-miniworld", *FILES, "model.smoothing=imported"], ["mallang import"]),
        (["train", "ngram-miniworld", *FILES, "task.layout=stream", "task.context=9"], ["task.order=shuffled"]),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) and len(value) > 1 else None,
)
def test_bad_input_is_one_message(arguments: list[str], words: list[str], home: Path) -> None:
    (home / "broken.arpa").write_text("this is no ARPA file\n", "utf-8")
    ended = mallang(*arguments, cwd=home)
    assert ended.code == 2 and "Traceback" not in ended.err, ended.err
    assert all(word in ended.err for word in words), ended.err
