"""`mallang lexicon`: a lexicon or its precision from two files of vectors, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands.running import mallang, ran
from evaluation.test_lexicon_induction import COUNT, GOLD, languages
from mallang.data.word_vectors import Vectors


def write(vectors: Vectors, path: Path) -> Path:
    rows = [
        f"{word} {' '.join(f'{x:.5f}' for x in row)}" for word, row in zip(vectors.words, vectors.values, strict=True)
    ]
    path.write_text(f"{len(vectors)} {vectors.values.shape[1]}\n" + "\n".join(rows) + "\n", "utf-8")
    return path


def test_the_command_prints_a_lexicon_or_a_score(tmp_path: Path) -> None:
    one, other = (write(each, tmp_path / name) for each, name in zip(languages(), ("a.vec", "b.vec"), strict=True))
    found = ran("lexicon", one, other, "--word", "a20", "--count", "2", cwd=tmp_path)
    first, second = (line.split("\t") for line in found.out.splitlines())
    assert (first[:2], second[0]) == (["a20", "b20"], "a20") and float(first[2]) > float(second[2])
    assert len(ran("lexicon", one, other, "-q", cwd=tmp_path).out.splitlines()) == COUNT
    gold = tmp_path / "gold.tsv"
    gold.write_text("".join(f"{a}\t{b}\n" for a, b in GOLD), "utf-8")
    score = json.loads(ran("lexicon", one, other, "--gold", gold, "--json", "-q", cwd=tmp_path).out)
    assert score["name"] == "P@1" and score["value"] > 90
    supervised = ran("lexicon", one, other, "--by", "supervised", "--pairs", gold, "--gold", gold, "-q", cwd=tmp_path)
    assert supervised.out.startswith("P@1") and "supervised|pairs:188" in supervised.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--by", "magic"], "--by 'magic' is not known"),
        (["--by", "supervised"], "need each other"),
        (["--pairs", "gold.tsv"], "need each other"),
        (["--gold", "nothing.tsv"], "there is no lexicon nothing.tsv"),
        (["--word", "unheard"], "'unheard' has no vector"),
    ],
)
def test_bad_input_is_one_message(options: list[str], message: str, tmp_path: Path) -> None:
    one, other = (write(each, tmp_path / name) for each, name in zip(languages(), ("a.vec", "b.vec"), strict=True))
    failed = mallang("lexicon", one, other, *options, cwd=tmp_path)
    assert failed.code == 2 and message in failed.err
