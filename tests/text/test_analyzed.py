"""Analyzed text from a file in place of the analyzer: the same tokens, and a clear message where text is missing."""

import gzip
import json

import pytest

from mallang.errors import UserError
from mallang.text import analyzed, morphemes
from mallang.text.analyzed import Analyzed, write
from mallang.text.morphemes import analyzer as chosen_analyzer
from mallang.text.tokenizer import Config, Tokenizer, normalizer_of

LINES = ["나는 학교에서 책을 읽었다.", "그녀는 Kiwi의 파일을 열었다", "no Hangul at all", "나는 학교에서 책을 읽었다."]
MORPHEME = Config(unit="morpheme", vocabulary=80)


@pytest.fixture(params=["kept.json", "kept.gz"])
def kept(tmp_path, request, analyzer):
    path = tmp_path / request.param
    assert write(path, LINES, normalizer_of(MORPHEME), analyzer) == 2  # each once, and only what is Korean
    return path


def test_offsets_are_those_of_the_analyzer(kept, analyzer):
    found = Analyzed(kept)
    assert found.name == analyzer.name
    assert list(found.cuts(LINES[:2])) == [set(places) for places in analyzer.cuts(LINES[:2])]
    content = kept.read_bytes()
    lines = (gzip.decompress(content) if kept.suffix == ".gz" else content).decode().splitlines()
    assert json.loads(lines[0]) == {"analyzer": "stub==1"} and len(lines) == 3


def test_a_tokenizer_learns_and_encodes_the_same_without_the_analyzer(kept, monkeypatch):
    ours = Tokenizer.train(LINES, MORPHEME)
    monkeypatch.setattr(morphemes, "analyzer", lambda: Analyzed(kept))
    theirs = Tokenizer.train(LINES, MORPHEME)
    assert theirs.encode_batch(LINES) == ours.encode_batch(LINES) and theirs.files == ours.files
    with pytest.raises(UserError, match="has no analysis of '처음 보는 글'"):
        theirs.encode_batch(["처음 보는 글"])
    assert theirs.encode_batch(["new English"]) == ours.encode_batch(["new English"])


def test_text_in_lower_case_is_analyzed_as_such(tmp_path, analyzer):
    lower = Config(unit="morpheme", lowercase=True)
    write(tmp_path / "kept", LINES, normalizer_of(lower), analyzer)
    (places,) = Analyzed(tmp_path / "kept").cuts(["그녀는 kiwi의 파일을 열었다"])
    assert places == set(*analyzer.cuts([LINES[1]]))


def test_the_environment_names_the_file_while_it_is_set(kept, analyzer, monkeypatch):
    monkeypatch.setattr(morphemes, "kiwi", lambda: analyzer)
    assert chosen_analyzer() is analyzer
    monkeypatch.setenv(analyzed.VARIABLE, str(kept))
    found = chosen_analyzer()
    assert isinstance(found, Analyzed) and found.path == kept and chosen_analyzer() is found
    monkeypatch.delenv(analyzed.VARIABLE)
    assert chosen_analyzer() is analyzer


@pytest.mark.parametrize("content", ["", "no JSON", "[]", '{"analyzer": "x"}\n["text"]'])
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / "file").write_text(content)
    with pytest.raises(UserError, match=r"holds no analyzed text(.|\n)*mallang data analyze"):
        Analyzed(tmp_path / "file")
    with pytest.raises(UserError, match="holds no analyzed text"):
        Analyzed(tmp_path / "none")
