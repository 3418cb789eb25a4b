"""Scoring saved translations: by the protocol of the papers, and by sacreBLEU."""

import html
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the benchmarks are not installed
from benchmarks import protocols  # noqa: E402
from benchmarks.protocols import Reference, moses_tokens, read_reference, score_all  # noqa: E402

from mallang.errors import UserError  # noqa: E402
from mallang.evaluation.translation import bleu  # noqa: E402
from mallang.recipe import read  # noqa: E402

GERMAN = ["Ein Mann rasiert seinen Bart.", "Zwei Hunde spielen im Schnee, sagt sie.", "Er ruft: „Los!“"]


def multi30k(texts, split="made-up"):
    return Reference("multi30k", split, "de", texts)


def test_text_is_cut_as_the_authors_of_multi30k_did():
    pytest.importorskip("sacremoses")
    # "Bart." is an abbreviation (baronet) to Moses, "bart." is not: small letters must come first.
    assert moses_tokens(GERMAN, "de") == [
        "ein mann rasiert seinen bart .",
        "zwei hunde spielen im schnee , sagt sie .",
        "er ruft : &quot; los ! &quot;",
    ]
    assert moses_tokens(["L’homme d'à côté, un t-shirt."], "fr") == ["l&apos; homme d&apos; à côté , un t-shirt ."]
    assert moses_tokens(["A man's hat isn't - well-known…"], "en") == ["a man &apos;s hat isn &apos;t - well-known ..."]


def test_case_and_quotes_count_in_one_protocol_only():
    pytest.importorskip("sacremoses")
    shouted = ["EIN MANN RASIERT SEINEN BART.", "Zwei Hunde spielen im Schnee, sagt sie.", 'Er ruft: "Los!"']
    scores = score_all(shouted, multi30k(GERMAN))
    assert list(scores) == ["moses-lc-tok", "sacrebleu"]
    (tokenized,), (raw, characters) = scores["moses-lc-tok"], scores["sacrebleu"]
    assert tokenized.value == pytest.approx(100)
    assert raw.value < 90 and characters.value < 90
    assert (tokenized.name, raw.name, characters.name) == ("BLEU", "BLEU", "chrF2")
    assert "tok:none" in tokenized.signature and "pre:lc.norm.tok-de|sacremoses:" in tokenized.signature
    assert tokenized.signature.endswith("|ref-words:22")
    assert "tok:13a" in raw.signature and "nc:6" in characters.signature


def test_escaped_marks_change_no_number():
    pytest.importorskip("sacremoses")
    references = ["l'homme dit \"oui\" & s'en va [là-bas] .", "d'un côté à l'autre"]
    hypotheses = ["l'homme dit \"non\" et s'en va [là-bas] .", "d'un côté & de l'autre"]
    escaped = score_all(hypotheses, Reference("multi30k", "made-up", "fr", references))["moses-lc-tok"][0]
    plain = [[html.unescape(text) for text in moses_tokens(side, "fr")] for side in (hypotheses, references)]
    assert 0 < escaped.value < 100
    assert bleu(*plain, tokenize="none").value == escaped.value


def test_a_reference_of_another_length_is_refused(monkeypatch):
    pytest.importorskip("sacremoses")
    monkeypatch.setattr(protocols, "WORDS", {("multi30k", "made-up", "de"): 22})
    score_all(GERMAN, multi30k(GERMAN))
    monkeypatch.setattr(protocols, "WORDS", {("multi30k", "made-up", "de"): 23})
    with pytest.raises(UserError, match="has 22 words, but 23 in published tables"):
        score_all(GERMAN, multi30k(GERMAN))


def test_lines_that_do_not_pair_are_refused():
    with pytest.raises(UserError, match="there are 2 hypotheses, but multi30k made-up has 3 lines"):
        score_all(GERMAN[:2], multi30k(GERMAN))


def test_other_corpora_are_scored_as_raw_text():
    assert list(score_all(GERMAN, Reference("miniworld", "test", "en", GERMAN))) == ["sacrebleu"]


def command(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["protocols", *map(str, words)])
    protocols.main()


def test_the_command_scores_files_and_run_folders(tmp_path, monkeypatch, capsys):
    english = read_reference("miniworld", "test", "en")
    assert len(english.texts) == 1000
    file = tmp_path / "mine.txt"
    file.write_text("".join(f"{line}\n" for line in english.texts), "utf-8")
    command(monkeypatch, file, "--corpus", "miniworld", "--split", "test", "--target", "en")
    head, first, second = capsys.readouterr().out.splitlines()
    assert head == str(file)
    assert first.split()[:3] == ["sacrebleu", "BLEU", "100.00"] and second.split()[:3] == [
        "sacrebleu",
        "chrF2",
        "100.00",
    ]

    run = tmp_path / "run"
    (run / "outputs").mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"format": 1, "status": "finished", "task": "translation"}), "utf-8")
    (run / "recipe.toml").write_text(read("transformer-miniworld").to_toml(), "utf-8")
    for name in ("test", "data-mine"):  # the second is of a file that only its owner has
        (run / "outputs" / f"{name}.txt").write_bytes(file.read_bytes())
    command(monkeypatch, run)
    head, *scores = capsys.readouterr().out.splitlines()
    assert head == str(run / "outputs" / "test.txt")
    assert scores == [first, second]


def test_the_command_says_what_is_missing(tmp_path, monkeypatch):
    (tmp_path / "mine.txt").write_text("a\n", "utf-8")
    with pytest.raises(SystemExit, match="needs --target"):
        command(monkeypatch, tmp_path / "mine.txt", "--corpus", "miniworld", "--split", "test")
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, "status": "finished", "task": "translation"}), "utf-8")
    (tmp_path / "recipe.toml").write_text(read("transformer-miniworld").to_toml(), "utf-8")
    with pytest.raises(SystemExit, match="holds no outputs"):
        command(monkeypatch, tmp_path)
