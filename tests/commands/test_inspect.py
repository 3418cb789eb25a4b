"""`mallang inspect` and `mallang align`: pictures, pages, numbers and links, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands.running import Ended, mallang
from inspection.test_page import read_page

SENTENCE, OTHER = "민수는 물을 산다.", "지호는 책을 본다."
ENGLISH = "Minsu buys water."


def refused(ended: Ended, *words: str) -> None:
    assert ended.code == 2 and "Traceback" not in ended.err, ended.err
    for word in words:
        assert word in ended.err


def test_a_page_is_written_into_the_run_unless_a_place_is_named(run: Path) -> None:
    ended = mallang("inspect", run, SENTENCE, OTHER, cwd=run.parent)
    assert (ended.code, ended.err) == (0, "")
    page = run / "inspect.html"
    assert ended.out == f"{page}\n" and SENTENCE in page.read_text("utf-8") and OTHER in page.read_text("utf-8")


def test_a_page_without_a_text_shows_the_run_and_several_runs_read_the_same_texts(
    trained: Path, writer: Path, tmp_path: Path
) -> None:
    ended = mallang("inspect", trained, "--out", "run.html", cwd=tmp_path)
    assert ended.code == 0, ended.err
    (alone,) = read_page(tmp_path / "run.html")["runs"]
    assert alone["texts"] == [] and alone["curves"]["train"]["loss"].shape[0] == 2
    assert alone["positions"]["kind"] == "sinusoidal" and alone["positions"]["table"].shape == (50, 32)
    ended = mallang("inspect", trained, SENTENCE, "--with", writer, "--with", trained, "--out", "a.html", cwd=tmp_path)
    assert ended.code == 0, ended.err
    first, other, again = read_page(tmp_path / "a.html")["runs"]
    assert first["texts"][0]["maps"] and other["texts"][0]["prompt"] > 0 and other["name"] == "gpt"
    assert again["texts"][0]["output"] == first["texts"][0]["output"]
    refused(mallang("inspect", trained, SENTENCE, "--with", writer, "--json", cwd=tmp_path), "--with compares runs")


def test_pictures_of_every_layer_go_into_a_folder(trained: Path, tmp_path: Path) -> None:
    ended = mallang("inspect", trained, SENTENCE, "--out", "new/pictures", "--words", "-q", cwd=tmp_path)
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    names = [path.name for path in sorted((tmp_path / "new" / "pictures").iterdir())]
    assert names == ["1-decoder.0.cross.png", "1-decoder.0.self.png", "1-encoder.0.self.png"]


def test_one_picture_shows_the_layer_that_is_asked_for(trained: Path, tmp_path: Path) -> None:
    options = ("--layer", "encoder.0.self", "--head", "mean", "--target", "Sora")
    ended = mallang("inspect", trained, SENTENCE, "--out", "a.svg", *options, cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "<svg" in (tmp_path / "a.svg").read_text("utf-8")


def test_numbers_are_those_of_the_output_that_translate_prints(trained: Path, tmp_path: Path) -> None:
    search = ("--search", "beam=2")
    (tmp_path / "in.txt").write_text(f"{SENTENCE}\n\n{OTHER}\n", "utf-8")
    ended = mallang("inspect", trained, "--file", "in.txt", "--json", *search, cwd=tmp_path)
    assert ended.code == 0, ended.err
    seen = [json.loads(line) for line in ended.out.splitlines()]
    made = mallang("translate", trained, SENTENCE, OTHER, "--json", *search, cwd=tmp_path).out.splitlines()
    for one, line in zip(seen, made, strict=True):
        other = json.loads(line)
        assert one["output"] == other["output"] and one["score"] == pytest.approx(other["score"], abs=1e-3)
        cross = next(each for each in one["maps"] if each["name"] == "decoder.0.cross")
        assert cross["queries"] == [*other["tokens"], "</s>"]
        for head in cross["weights"]:
            assert all(sum(row) == pytest.approx(1.0, abs=1e-3) for row in head)
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]  # nothing was drawn


def test_attention_is_printed_step_by_step(trained: Path, tmp_path: Path) -> None:
    asked = ("inspect", trained, SENTENCE, "--numbers", "--layer", "decoder.0.cross", "--head", "2")
    ended = mallang(*asked, cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert ended.out.startswith("decoder.0.cross, head 2 of 4") and "K = M Wk, head 2" in ended.out
    told = json.loads(mallang(*asked, "--json", cwd=tmp_path).out)
    steps = {each["step"]: each["values"] for each in told["steps"]}
    assert all(sum(row) == pytest.approx(1.0, abs=1e-5) for row in steps["softmax"]) and told["input"] == SENTENCE
    assert not list(tmp_path.iterdir())
    ended = mallang("inspect", trained, SENTENCE, "--numbers", "--start", "2", "--out", "a.html", "-q", cwd=tmp_path)
    assert ended.code == 0 and "X Xᵀ" in ended.out, ended.err
    (text,) = read_page(tmp_path / "a.html")["runs"][0]["texts"]
    assert len(text["numbers"]) == 3 and text["window"]["start"] == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--numbers", "--head", "mean"], ["--head mean has no effect on --numbers"]),
        (["--numbers", "--words"], ["--words has no effect on --numbers"]),
        (["--numbers", "--layer", "decoder.0.cros"], ["no layer 'decoder.0.cros' with Q, K and V", "decoder.0.cross"]),
        (["--numbers", "--head", "9"], ["there is no head 9 in a layer of 4"]),
        (["--numbers", "--out", "a.png"], ["--out has no effect as a picture of --numbers"]),
        (["--start", "2", "--out", "a.png"], ["--start has no effect but on a page"]),
        (["--numbers", "--tree"], ["--numbers has no effect on a search tree"]),
        (["--out", "a.doc"], ["a.doc names no kind of picture", ".svg"]),
        (["--out", "a.png", OTHER], ["one picture cannot show 2 texts", "--out FOLDER"]),
        (["--out", "a.png", "--layer", "a", "--layer", "b"], ["one picture cannot show 2 layers"]),
        (["--out", "file.txt/a.png"], ["file.txt is not a folder"]),
        (["--layer", "decoder.0.cros"], ["no layer 'decoder.0.cros'", "decoder.0.cross"]),
        (["--head", "9"], ["no head '9' in a layer of 4"]),
        (["--target", "a", OTHER], ["--target is the output of one text, but 2"]),
        (["--target", "a", "--search", "beam=2"], ["no effect on a given target"]),
        (["--search", "bean=2"], ["bean", "beam"]),
        (["--domain", "bible"], ["bible"]),
        (["--file", "file.txt"], ["texts and --file were both given"]),
    ],
)
def test_what_cannot_be_shown_is_told(trained: Path, tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    (tmp_path / "file.txt").write_text("a\n")
    out = [] if "--out" in arguments or "--numbers" in arguments else ["--out", "a.html"]
    refused(mallang("inspect", trained, SENTENCE, *out, *arguments, cwd=tmp_path), *words)
    assert not (tmp_path / "a.html").exists()


def test_no_text_at_all_is_told(trained: Path, tmp_path: Path) -> None:
    refused(mallang("inspect", trained, "--json", cwd=tmp_path, text="\n"), "no text to inspect")
    (tmp_path / "in.jsonl").write_text('{"text": "a", "require": ["b"]}\n')
    refused(mallang("inspect", trained, "--file", "in.jsonl", cwd=tmp_path), "in.jsonl has constraints")
    refused(mallang("inspect", tmp_path / "nowhere", SENTENCE, cwd=tmp_path), "there is no run folder")


def test_links_between_words_are_printed(trained: Path, tmp_path: Path) -> None:
    ended = mallang("align", trained, SENTENCE, ENGLISH, cwd=tmp_path)
    assert ended.code == 0, ended.err
    links = [tuple(map(int, link.split("-"))) for link in ended.out.split()]
    assert sorted(target for _, target in links) == [0, 1, 2] and {source for source, _ in links} <= {0, 1, 2}
    told = json.loads(mallang("align", trained, SENTENCE, ENGLISH, "--json", cwd=tmp_path).out)
    assert [tuple(link) for link in told["links"]] == links
    (tmp_path / "pairs.tsv").write_text(f"{SENTENCE}\t{ENGLISH}\n" * 2, "utf-8")
    (tmp_path / "links.txt").write_text(f"{ended.out}0-0 1?0\n")
    scored = mallang("align", trained, "--file", "pairs.tsv", "--gold", "links.txt", cwd=tmp_path)
    assert scored.code == 0 and scored.out.startswith("AER ") and "sure and possible" in scored.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--split", "test"], ["was not trained on miniworld", "--gold"]),
        (["--split", "test", "--head", "1"], ["give --split alone"]),
        ([SENTENCE], ["a pair is two texts"]),
        ([SENTENCE, ENGLISH, "--gold", "links.txt"], ["--gold has a line for each pair", "--file"]),
        ([SENTENCE, ENGLISH, "--head", "9"], ["no head 9 in a layer of 4"]),
        ([SENTENCE, ENGLISH, "--head", "first"], ["no head 'first'"]),
        ([SENTENCE, ENGLISH, "--layer", "decoder.cross"], ["no layer 'decoder.cross'", "decoder.0.cross"]),
        (["--file", "pairs.tsv", "--gold", "links.txt"], ["1 pairs, but 2 lines"]),
        (["--file", "pairs.tsv", "--gold", "far.txt"], ["0-9 names a word that is not there", "far.txt, line 1"]),
    ],
)
def test_what_cannot_be_aligned_is_told(trained: Path, tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    (tmp_path / "pairs.tsv").write_text(f"{SENTENCE}\t{ENGLISH}\n", "utf-8")
    (tmp_path / "links.txt").write_text("0-0\n1-1\n")
    (tmp_path / "far.txt").write_text("0-9\n")
    refused(mallang("align", trained, *arguments, cwd=tmp_path), *words)


def test_language_models_go_on_from_a_prompt(writer: Path, tmp_path: Path) -> None:
    asked = ("민수는", "--search", "method=greedy", "--json")
    made = json.loads(mallang("generate", writer, "민수는", "--method", "greedy", "--json", cwd=tmp_path).out)
    ended = mallang("inspect", writer, *asked, "--words", "--out", "page.html", cwd=tmp_path)
    assert ended.code == 0, ended.err
    seen = json.loads(ended.out)
    assert seen["output"] == made["output"] and "민수는" in seen["maps"][0]["keys"]
    assert (tmp_path / "page.html").stat().st_size > 1000
    ended = mallang("inspect", writer, *asked, "--tree", cwd=tmp_path)
    assert ended.code == 0, ended.err
    tree = json.loads(ended.out)
    assert tree["nodes"][tree["outputs"][0]]["total"] == pytest.approx(made["score"], abs=1e-3)
