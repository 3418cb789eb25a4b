"""Tokenizers without a tokenizer.json: vocab.txt, vocab.json with merges.txt, and models of SentencePiece."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from interop.test_huggingface_bert import TEXTS, byte_level, unigram, wordpiece
from mallang.errors import UserError
from mallang.interop.huggingface_tokenizer import BERT, ROBERTA, read_tokenizer
from mallang.interop.huggingface_vocabularies import from_sentencepiece
from mallang.interop.sentencepiece_model import read_pieces

transformers = pytest.importorskip("transformers")
MARKS = ("<", "[", "\ufffd")
"""What may begin a special token, which a text can spell there and not here."""
ADVERSARIAL = [
    "", " ", "a\u2028b\x85c\x0bd", "e\u0301é", "\u1112\u1161\u11ab 한", "\u200b\u200dcat\ufeff", "中文cat中文",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467\U0001f3fd", "\ufb01①Ⅷ", "\t\r\n the  cat\u3000sat\xa0on ", "ıİ ß ſ",
    "a\u0000b\u0007", "don't...!?", "\uff26\uff35\uff2c\uff2c\u3000\uff57", "\ud7ff\ue000\U0010ffff", "x" * 120,
]  # fmt: skip
texts = st.one_of(
    st.text(max_size=30), st.text(alphabet="thecatsonmuf \u0301한글가나éÉ中🎉'.,-\n\t\u3000", max_size=40)
)
many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def is_plain(text: str) -> bool:
    return not any(mark in text for mark in MARKS)


@pytest.fixture(scope="module")
def words_only(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    folder, vocabulary = tmp_path_factory.mktemp("words"), wordpiece().get_vocab()
    words = [
        *sorted(vocabulary, key=vocabulary.__getitem__),
        "\u2028",
        "##\x85",
        "中",
        "한",
        "##글",
        "e",
        "é",
        "##\u0301",
    ]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(words)) + "\n", "utf-8")
    return folder, read_tokenizer(folder, BERT, "bert")


@many
@given(text=texts)
@pytest.mark.parametrize("cased", [False, True])
def test_a_list_of_words_gives_the_tokens_of_transformers(words_only: Any, cased: bool, text: str) -> None:
    folder, ours = words_only
    if not is_plain(text):
        return
    if cased:
        (folder / "tokenizer_config.json").write_text('{"do_lower_case": false, "tokenize_chinese_chars": false}')
        ours = read_tokenizer(folder, BERT, "bert")
        (folder / "tokenizer_config.json").unlink()
    theirs = words_tokenizer(str(folder), cased)
    assert ours.encode(text).ids == theirs(text, add_special_tokens=False)["input_ids"]
    assert ours.encode_batch([text]) == [ours.encode(text).ids]


CACHE: dict[Any, Any] = {}


def words_tokenizer(folder: str, cased: bool) -> Any:
    if (folder, cased) not in CACHE:
        CACHE[folder, cased] = transformers.BertTokenizer(
            vocab=f"{folder}/vocab.txt", do_lower_case=not cased, tokenize_chinese_chars=not cased
        )
    return CACHE[folder, cased]


@pytest.mark.parametrize("text", [*ADVERSARIAL, *TEXTS])
def test_adversarial_texts_as_words_and_as_bytes(text: str, words_only: Any, bytes_only: Any) -> None:
    text = "".join(character for character in text if character not in MARKS)
    folder, ours = words_only
    assert ours.encode(text).ids == words_tokenizer(str(folder), False)(text, add_special_tokens=False)["input_ids"]
    folder, ours, theirs = bytes_only
    assert ours.encode(text).ids == theirs(text, add_special_tokens=False)["input_ids"]
    assert ours.decode(ours.encode(text).ids) == text


@pytest.fixture(scope="module")
def bytes_only(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any, Any]:
    folder = tmp_path_factory.mktemp("bytes")
    byte_level().model.save(str(folder))
    assert {path.name for path in folder.iterdir()} == {"vocab.json", "merges.txt"}
    theirs = transformers.RobertaTokenizer(vocab=f"{folder}/vocab.json", merges=f"{folder}/merges.txt")
    return folder, read_tokenizer(folder, ROBERTA, "roberta"), theirs


@many
@given(text=texts)
@example(text="a  b\n\n c")
def test_merges_give_the_tokens_of_transformers(bytes_only: Any, text: str) -> None:
    _, ours, theirs = bytes_only
    if is_plain(text):
        assert ours.encode(text).ids == theirs(text, add_special_tokens=False)["input_ids"]


def test_pairs_are_framed_as_in_transformers(bytes_only: Any, words_only: Any) -> None:
    for folder, ours in (bytes_only[:2], words_only):
        theirs = bytes_only[2] if folder == bytes_only[0] else words_tokenizer(str(folder), False)
        backend = Tokenizer.from_str(ours.files[0])
        for pair in ((), ("the mat",)):
            assert backend.encode("a cat", *pair).ids == theirs("a cat", *pair)["input_ids"]
        assert (
            backend.encode("a cat", "the mat").type_ids
            == theirs("a cat", "the mat", return_token_type_ids=True)["token_type_ids"]
        )


def test_words_and_merges_that_do_not_fit_are_refused(tmp_path: Path, bytes_only: Any) -> None:
    folder = bytes_only[0]
    (tmp_path / "vocab.json").write_text((folder / "vocab.json").read_text())
    (tmp_path / "merges.txt").write_text("#version: 0.2\nx yz nothing\n")
    with pytest.raises(UserError, match="are no vocabulary with its merges"):
        read_tokenizer(tmp_path, ROBERTA, "roberta")
    (tmp_path / "merges.txt").write_text("#version: 0.2\nqqq zzz\n")
    with pytest.raises(UserError, match=r"merges.txt does not fit vocab.json"):
        read_tokenizer(tmp_path, ROBERTA, "roberta")


# ---- SentencePiece ----


def field(number: int, value: bytes | int) -> bytes:
    """One field of a protocol buffer."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def model_file(pieces: list[tuple[str, float, int]], kind: int = 1) -> bytes:
    """A model of SentencePiece without a normalization."""
    made = b""
    for word, score, sort in pieces:
        packed = varint(2 << 3 | 5) + struct.pack("<f", score)
        made += field(1, field(1, word.encode()) + packed + (field(3, sort) if sort != 1 else b""))
    return made + field(2, field(3, kind)) + field(3, field(3, 1) + field(4, 1))


def unigram_pieces() -> list[tuple[str, float, int]]:
    vocabulary = json.loads(unigram().to_str())["model"]["vocab"]
    special = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    pieces = [(word, struct.unpack("<f", struct.pack("<f", score))[0], 1) for word, score in vocabulary]
    return [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), *(each for each in pieces if each[0] not in special)]


def test_a_model_of_sentencepiece_is_read_as_the_unigram_that_it_holds(tmp_path: Path) -> None:
    pieces = unigram_pieces()
    (tmp_path / "sentencepiece.bpe.model").write_bytes(model_file(pieces))
    ours = read_tokenizer(tmp_path, ROBERTA, "xlm-roberta")
    words = ["<s>", "<pad>", "</s>", "<unk>", *(word for word, _, _ in pieces[3:]), "<mask>"]
    assert list(ours.vocabulary.tokens) == words and ours.vocabulary.frame == (0, 2) and ours.vocabulary.pad == 1
    backend = Tokenizer(models.Unigram([(word, score) for word, score, _ in pieces], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    for text in ("The cat sat on the mat.", "나는 물을 마신다.", "zzz", " the  mats "):
        expected = backend.encode(" ".join(text.split())).ids
        assert ours.encode(text).ids == [number + 1 if number else 3 for number in expected]


def test_models_that_are_damaged_or_of_another_type_are_refused(tmp_path: Path) -> None:
    path, whole = tmp_path / "spiece.model", model_file(unigram_pieces())
    for content, message in (
        (whole[:-3], "is damaged"), (b"", "is damaged"), (b"\xff" * 40, "is damaged"), (b"{}", "is damaged"),
        (model_file(unigram_pieces(), kind=2), "of type BPE is not supported, only unigram"),
    ):  # fmt: skip
        path.write_bytes(content)
        with pytest.raises(UserError, match=message):
            read_tokenizer(tmp_path, ROBERTA, "xlm-roberta")


ALBERT = {
    "pad": "<pad>",
    "unk": "<unk>",
    "cls": "[CLS]",
    "sep": "[SEP]",
    "mask": "[MASK]",
    "bos": "[CLS]",
    "eos": "[SEP]",
}
KOREAN = [
    "나는 물을 마신다.",
    "고양이가 매트 위에 앉았다.",
    "the cat sat on the mat",
    "unaffable mats, cats & hats!",
    "①②③ ﬁ ｆｕｌｌ",
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A model that the package itself has trained, with its normalization, and the package's reader of it."""
    package = pytest.importorskip("sentencepiece", reason="needs the package sentencepiece as an oracle")
    made = io.BytesIO()
    package.SentencePieceTrainer.train(
        sentence_iterator=iter(KOREAN * 20), model_writer=made, vocab_size=90, model_type="unigram",
        hard_vocab_limit=False, normalization_rule_name="nmt_nfkc", minloglevel=3,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("sentencepiece")
    (folder / "sentencepiece.bpe.model").write_bytes(made.getvalue())
    return folder, package.SentencePieceProcessor(model_proto=made.getvalue())


@many
@given(text=texts)
@example(text="  the\u3000cat \t sat\n")
def test_tokens_are_those_of_sentencepiece(trained: Any, text: str) -> None:
    folder, theirs = trained
    ours = CACHE.setdefault(folder, read_tokenizer(folder, ROBERTA, "xlm-roberta"))
    if is_plain(text):
        expected = [number + 1 if number else 3 for number in theirs.encode(text)]
        assert ours.encode(text).ids == expected


def test_pieces_scores_and_types_are_those_of_sentencepiece(trained: Any) -> None:
    folder, theirs = trained
    found = read_pieces(folder / "sentencepiece.bpe.model")
    assert len(found.pieces) == len(theirs) and found.charsmap and found.begins_with_space and found.remove_extra_spaces
    for number, (word, score, sort) in enumerate(found.pieces):
        assert (word, score) == (theirs.id_to_piece(number), theirs.get_score(number))
        assert (sort == 2, sort == 3) == (theirs.is_unknown(number), theirs.is_control(number))


def test_pieces_of_albert_keep_their_ids_and_are_read_without_case_and_accents(trained: Any, tmp_path: Path) -> None:
    path = trained[0] / "sentencepiece.bpe.model"
    pipeline = from_sentencepiece(path, {}, ALBERT, "albert")
    backend = Tokenizer.from_str(json.dumps(pipeline))
    assert backend.token_to_id("<s>") == 1 and backend.encode("a").ids[0] == backend.token_to_id("[CLS]")
    assert backend.encode("THE CÁT").ids == backend.encode("the cat").ids
