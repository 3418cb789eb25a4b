import json
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
import tokenizers

from mallang.errors import UserError
from mallang.text.pieces import Unit
from mallang.text.tokenizer import Config, Tokenizer
from mallang.text.vocabulary import SPECIALS

LINES = ["나는 학교에서 사과를 먹었다.", "한글은 아름답다!", "the quick, brown fox", "It's a lazy dog. 3.14"]


@cache
def trained(unit: Unit) -> Tokenizer:
    return Tokenizer.train(LINES * 3, Config(unit=unit, vocabulary=400))


@pytest.mark.parametrize("name", ["tokenizer", "tokenizer.source"])
@pytest.mark.parametrize("unit", get_args(Unit))
def test_a_saved_tokenizer_is_the_same_when_loaded(unit: Unit, name: str, tmp_path: Path) -> None:
    tokenizer = trained(unit)
    tokenizer.save(tmp_path, name)
    about = "text.json" if name == "tokenizer" else "tokenizer.source.text.json"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f"{name}.json", about])
    facts = json.loads((tmp_path / about).read_text(encoding="utf-8"))
    assert facts["unit"] == unit and facts["format"] == 1 and facts["tokenizers"] == tokenizers.__version__
    assert {"normalization", "lowercase", "detokenizing"} <= set(facts)

    loaded = Tokenizer.load(tmp_path, name)
    assert loaded.fingerprint == tokenizer.fingerprint
    assert (loaded.config, loaded.vocabulary) == (tokenizer.config, tokenizer.vocabulary)
    for text in (*LINES, *SPECIALS, "▁ a"):
        assert loaded.encode(text) == tokenizer.encode(text)
    assert tokenizers.Tokenizer.from_file(str(tmp_path / f"{name}.json")).get_vocab() == tokenizer.backend.get_vocab()


@pytest.mark.parametrize("missing", ["tokenizer.json", "text.json"])
def test_a_missing_file_is_named(missing: str, tmp_path: Path) -> None:
    trained("char").save(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(UserError) as caught:
        Tokenizer.load(tmp_path)
    assert caught.value.where == str(tmp_path / missing)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("tokenizer.json", '"model"', '"muddle"'),
        ("tokenizer.json", "}", ""),
        ("tokenizer.json", "<pad>", "<mad>"),
        ("text.json", '"unit"', '"knit"'),
        ("text.json", "{", ""),
        ("text.json", '"format": 1', '"format": "x"'),
        ("text.json", '"format": 1', '"format": 2'),
        ("text.json", '"sample": 1000000', '"sample": 0'),
    ],
)
def test_a_damaged_file_is_named(file: str, old: str, new: str, tmp_path: Path) -> None:
    trained("char").save(tmp_path)
    content = (tmp_path / file).read_text(encoding="utf-8")
    assert old in content
    (tmp_path / file).write_text(content.replace(old, new), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        Tokenizer.load(tmp_path)
    assert caught.value.where == str(tmp_path / file)


def test_a_file_of_a_newer_version_is_told_apart(tmp_path: Path) -> None:
    trained("char").save(tmp_path)
    path = tmp_path / "text.json"
    path.write_text(path.read_text(encoding="utf-8").replace('"format": 1', '"format": 2'), encoding="utf-8")
    with pytest.raises(UserError, match="format 2") as caught:
        Tokenizer.load(tmp_path)
    assert caught.value.todo == "git pull && pip install -e ."


def test_a_cut_file_is_named(tmp_path: Path) -> None:
    trained("bpe").save(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = path.read_bytes()
    for size in (0, 1, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(UserError, match="damaged"):
            Tokenizer.load(tmp_path)
