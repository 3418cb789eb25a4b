"""Text cut at morphemes comes back; with Kiwi itself where it is installed, else with an analyzer that cuts by rule."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from mallang import errors
from mallang.errors import UserError
from mallang.loading import load
from mallang.recipe import read
from mallang.text import morphemes
from mallang.text.analyzed import Analyzer
from mallang.text.morphemes import chunks
from mallang.text.tokenizer import Config, Tokenizer
from mallang.training.train import Options, train

NFC = normalizers.NFC()
LINES = [
    "나는 학교에서 책을 읽었다.",
    "그녀는 LibreOffice의 (파일)을 열었다…",
    "먹었습니까? 갔다, 했다!",
    "I read a book, didn't I?",
]
PARTS = [
    *" ".join(LINES).split(),
    "<s>",
    "<",
    " ",
    "\n",
    "👨‍👩‍👧",
    "각\u11a8",
    "ㅋㅋㅋ",
    "https://a.kr/가",
    "\0",
    "①",
    "x\u0301가",
]
TEXTS = st.one_of(
    st.lists(st.sampled_from(PARTS), max_size=8).map(" ".join),
    st.lists(st.sampled_from(PARTS), max_size=8).map("".join),
    st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=20),
)


class Everywhere:
    """Says that a morpheme ends after every character, and beyond."""

    name = "everywhere==1"

    def cuts(self, texts: Sequence[str]) -> list[range]:
        return [range(-2, len(text) + 3) for text in texts]


class Counting(Everywhere):
    """Remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def cuts(self, texts: Sequence[str]) -> list[range]:
        self.asked += texts
        return super().cuts(texts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("먹었다.", [" 먹", "었", "다", "."]),
        ("집에 가", [" 집", "에 가"]),
        ("Writer는 좋다", [" Writer", "는 좋", "다"]),
        ("it's 3.14", [" it's 3.14"]),
        ("a\n가", [" a\n", "가"]),
        (" 가", ["  가"]),
        ("", []),
        (" ", ["  "]),
    ],
)
def test_where_a_text_may_be_cut(text: str, expected: list[str]) -> None:
    assert chunks([text], NFC, Everywhere()) == [expected]


def test_only_korean_is_analyzed() -> None:
    analyzer = Counting()
    texts = ["plain English", unicodedata.normalize("NFD", "한글"), "日本", "섞인 text"]
    found = chunks(texts, NFC, analyzer)
    assert analyzer.asked == ["한글", "섞인 text"], "normalized, in order"
    assert found == [[" plain English"], [" 한", "글"], [" 日本"], [" 섞", "인 text"]]


@settings(deadline=None)
@given(texts=st.lists(TEXTS, max_size=5))
def test_chunks_are_the_text(texts: list[str]) -> None:
    for text, parts in zip(texts, chunks(texts, NFC, Everywhere()), strict=True):
        assert "".join(parts) == (" " + unicodedata.normalize("NFC", text) if text else "")
        assert all(parts), "none is empty"


def test_pieces_never_cross_a_morpheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(morphemes, "analyzer", Everywhere)
    tokenizer = Tokenizer.train(["학교에서 the school"] * 20, Config(unit="morpheme", vocabulary=100))
    assert tokenizer.encode("학교에서 the school").tokens == ["▁학", "교", "에", "서", "▁the", "▁school"]


def test_text_json_names_the_analyzer_and_another_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.train(LINES * 3, Config(unit="morpheme", vocabulary=200))
    tokenizer.save(tmp_path)
    assert json.loads((tmp_path / "text.json").read_text("utf-8"))["analyzer"] == "stub==1"
    ids = Tokenizer.load(tmp_path).encode(LINES[0]).ids
    monkeypatch.setattr(morphemes, "analyzer", Everywhere)
    other = Tokenizer.load(tmp_path)
    assert other.decode(ids) == LINES[0], "reading needs no analyzer"
    with pytest.warns(UserWarning, match=r"learned with stub==1, but everywhere==1 is here.*pip install stub==1"):
        other.encode_batch(LINES)
    other.encode(LINES[0])  # told once


def test_half_a_character_is_named_with_its_line() -> None:
    with pytest.raises(UserError, match=r"U\+DC80") as caught:
        Tokenizer.train([*LINES, "가\udc80"], Config(unit="morpheme"))
    assert caught.value.where is not None and "line 5" in caught.value.where
    tokenizer = Tokenizer.train(LINES, Config(unit="morpheme"))
    for encode in (tokenizer.encode, lambda text: tokenizer.encode_batch(["fine", text])):
        with pytest.raises(UserError, match=r"U\+DC80"):
            encode("가\udc80")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_module(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(errors.importlib, "import_module", no_module)
    with pytest.raises(UserError, match="kiwipiepy") as caught:
        morphemes.Kiwi()
    assert caught.value.todo == "pip install -e '.[ko]'"


@pytest.fixture(scope="module")
def kiwi() -> Analyzer:
    pytest.importorskip("kiwipiepy")
    return morphemes.Kiwi()


@pytest.fixture
def with_kiwi(kiwi: Analyzer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Tokenizer]:
    monkeypatch.setattr(morphemes, "analyzer", lambda: kiwi)
    return Tokenizer.train


def test_kiwi_cuts_between_morphemes(kiwi: Analyzer) -> None:
    assert "kiwipiepy==" in kiwi.name and "kiwipiepy_model==" in kiwi.name
    found = chunks(["나는 학교에서 책을 읽었다.", "그녀는 🙂 갔다"], NFC, kiwi)
    assert found[0] == [" 나", "는 학교", "에서 책", "을 읽", "었", "다", "."]
    assert found[1] == [" 그녀", "는 🙂 갔", "다"], "a contracted syllable stays whole, an emoji counts as one"


def test_kiwi_answers_alike_alone_and_together(with_kiwi: Callable[..., Tokenizer]) -> None:
    tokenizer = with_kiwi(LINES * 3, Config(unit="morpheme", vocabulary=300))
    assert tokenizer.encode_batch(LINES * 50) == [tokenizer.encode(line).ids for line in LINES] * 50


@settings(deadline=None, max_examples=60)
@given(text=TEXTS)
def test_kiwi_gives_text_back(kiwi: Analyzer, text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(morphemes, "analyzer", lambda: kiwi)
        tokenizer = Tokenizer.train([text, "a"], Config(unit="morpheme", vocabulary=5000))
        encoding = tokenizer.encode(text)
        assert tokenizer.decode(encoding.ids) == unicodedata.normalize("NFC", text)
        assert tokenizer.encode_batch([text]) == [encoding.ids]
        assert max((end for _, end in encoding.offsets), default=0) == len(text)


def test_a_classifier_reads_morphemes(tmp_path: Path, kiwi: Analyzer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained, saved and loaded with the analyzer itself; the unit is kept in the run folder."""
    monkeypatch.setattr(morphemes, "analyzer", lambda: kiwi)
    words = {"좋음": ("재미있는", "훌륭한"), "나쁨": ("지루한", "엉성한")}
    rows = [f"{word} 영화를 보았다 {n}\t{label}\n" for label, both in words.items() for word in both for n in range(8)]
    (tmp_path / "rows.tsv").write_text("".join(rows), "utf-8")
    files = [f"data.{split}={tmp_path / 'rows.tsv'}" for split in ("train", "valid")]
    sizes = [
        "text.unit=morpheme",
        "task.bpe_dropout=0",
        "text.vocabulary=200",
        "model.size=tiny",
        "train.batch_sentences=8",
    ]
    learning = [
        "train.steps=60",
        "train.batch_sentences=8",
        "model.characters=0",
        "model.jamo=false",
        "train.workers=0",
        "train.ema_decay=0",
        "optimizer.learning_rate=0.02",
    ]
    recipe = read("cnn-nsmc", [*files, *sizes, *learning, "data.corpus=none", "train.epochs=none"]).build()
    run = train(recipe, Options(folder=tmp_path / "run", device="cpu", quiet=True))
    model = load(run.folder, device="cpu")
    assert [found.label for found in model.classify(["훌륭한 영화를 보았다", "지루한 영화를 보았다"])] == [
        "좋음",
        "나쁨",
    ]
    assert model.task.text.encode("영화를 보았다").tokens == ["▁영화", "를", "▁보", "았", "다"]
