import copy
import json
import pickle
import random
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import get_args

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from mallang.errors import UserError
from mallang.text.pieces import Unit
from mallang.text.tokenizer import Config, Encoding, Tokenizer
from mallang.text.unicode import Form, normalize
from mallang.text.vocabulary import SPECIALS, UNK

UNITS: tuple[Unit, ...] = get_args(Unit)
LOSSLESS = tuple(unit for unit in UNITS if unit not in ("wordpiece", "space"))
LEARNED = tuple(unit for unit in UNITS if unit != "byte")

KOREAN = ["나는", "학교에서", "사과를", "먹었다.", "한글은", "아름답다!", "우리", "집에", "가자?", "좋은", "날이다."]
ENGLISH = ["the", "quick,", "brown", "fox", "jumps", "(over)", "a", "lazy", "dog.", "It's", "3.14", "newest", "lowest"]
AWKWARD = ["<s>", "</s>", "<pad>", "<unk>", "▁", "▁ ▁", "  ", "\t", "\n", "\r\n", "\0", "<", "##"]
GRAPHEMES = [
    "👨‍👩‍👧",
    "🇰🇷🇺🇸",
    "👍🏽",
    "é",
    "e\u0301\u0323",
    "ﬁ",
    "①㈜",
    "İ",
    "Σας",
    "\u113c\u119e\u11eb",
    "각\u11a8",
    "漢字",
]
DECOMPOSED = [unicodedata.normalize("NFD", word) for word in KOREAN]

# Unassigned code points are left out: a newer Unicode than Python's may already give them a decomposition.
CHARACTERS = st.characters(exclude_categories=["Cs", "Cn"])
TEXTS = st.one_of(
    st.text(CHARACTERS, max_size=40),
    st.lists(st.sampled_from([*KOREAN, *ENGLISH, *AWKWARD, *GRAPHEMES, *DECOMPOSED, " "]), max_size=20).map("".join),
    st.lists(st.one_of(st.text(CHARACTERS, max_size=3), st.sampled_from(AWKWARD + GRAPHEMES))).map(" ".join),
)


def lines(count: int = 300, seed: int = 1) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(KOREAN + ENGLISH, k=8)) for _ in range(count)]


@cache
def trained(unit: Unit) -> Tokenizer:
    return Tokenizer.train(lines(), Config(unit=unit, vocabulary=400))


def check_offsets(text: str, encoding: Encoding) -> None:
    """Spans lie in order and leave nothing out."""
    assert len(encoding.ids) == len(encoding.tokens) == len(encoding.offsets)
    assert all(0 <= start <= end <= len(text) for start, end in encoding.offsets)
    assert all(left[0] <= right[0] <= left[1] for left, right in pairwise(encoding.offsets))
    if text:
        assert encoding.offsets[0][0] == 0
        assert max(end for _, end in encoding.offsets) == len(text)


@pytest.mark.parametrize("unit", LOSSLESS)
@settings(deadline=None, max_examples=60)
@given(text=TEXTS, form=st.sampled_from(get_args(Form)))
def test_text_whose_tokens_are_known_comes_back(unit: Unit, text: str, form: Form) -> None:
    if unit == "jamo" and form == "none":
        form = "NFC"
    tokenizer = Tokenizer.train([text, "a"], Config(unit=unit, vocabulary=5000, normalization=form))
    encoding = tokenizer.encode(text)
    assert tokenizer.decode(encoding.ids) == normalize(text, form)
    assert not set(encoding.ids) & set(range(len(SPECIALS)))
    assert encoding.tokens == [tokenizer.vocabulary.tokens[number] for number in encoding.ids]
    assert tokenizer.encode_batch([text, ""]) == [encoding.ids, []]
    check_offsets(text, encoding)


@pytest.mark.parametrize("unit", ["byte", "byte-bpe"])
@settings(deadline=None)
@given(text=TEXTS)
def test_bytes_know_every_text(unit: Unit, text: str) -> None:
    tokenizer = trained(unit)
    encoding = tokenizer.encode(text)
    assert UNK not in encoding.ids
    assert tokenizer.decode(encoding.ids) == normalize(text)
    check_offsets(text, encoding)


@pytest.mark.parametrize("unit", LOSSLESS)
@settings(deadline=None, max_examples=30)
@given(text=TEXTS)
def test_unknown_tokens_are_left_out_and_keep_their_place(unit: Unit, text: str) -> None:
    tokenizer = trained(unit)
    encoding = tokenizer.encode(text)
    check_offsets(text, encoding)
    decoded = tokenizer.decode(encoding.ids)
    assert len(decoded) <= len(unicodedata.normalize("NFC", text))
    known = [number for number in encoding.ids if number != UNK]
    assert tokenizer.decode(known) == decoded
    assert tokenizer.encode_batch([text]) == [encoding.ids]


@pytest.mark.parametrize("unit", ["wordpiece", "space"])
@settings(deadline=None, max_examples=60)
@given(text=TEXTS)
def test_some_leave_out_white_space_alone(unit: Unit, text: str) -> None:
    encoding = trained(unit).encode(text)
    covered = {place for start, end in encoding.offsets for place in range(start, end)}
    assert all(text[place].isspace() for place in set(range(len(text))) - covered)
    assert all(left[1] <= right[1] and left[0] <= right[0] for left, right in pairwise(encoding.offsets))


@pytest.mark.parametrize("unit", UNITS)
@settings(deadline=None, max_examples=20)
@given(text=TEXTS)
def test_small_letters_stay_as_they_are(unit: Unit, text: str) -> None:
    tokenizer = Tokenizer.train([text, "a"], Config(unit=unit, vocabulary=5000, lowercase=True))
    once = tokenizer.decode(tokenizer.encode(text).ids)
    assert tokenizer.decode(tokenizer.encode(once).ids) == once
    assert not any("A" <= character <= "Z" for character in once)


@pytest.mark.parametrize(
    ("unit", "text", "tokens", "offsets"),
    [
        (
            "word",
            "the dog. (a)",
            ["▁the", "▁dog", ".", "▁(", "<unk>", ")"],
            [(0, 3), (3, 7), (7, 8), (8, 10), (10, 11), (11, 12)],
        ),
        ("space", " the  dog. (a) ", ["the", "dog.", "<unk>"], [(1, 4), (6, 10), (11, 14)]),
        ("char", "집 a", ["집", " ", "a"], [(0, 1), (1, 2), (2, 3)]),
        ("syllable", "집\u1112\u1161\u11ab", ["집", "한"], [(0, 1), (1, 4)]),
        ("jamo", "집a", ["\u110c", "\u1175", "\u11b8", "a"], [(0, 1), (0, 1), (0, 1), (1, 2)]),
        ("jamo", "\u110c\u1175", ["\u110c", "\u1175"], [(0, 1), (1, 2)]),
        ("byte", "집a", ["ì", "§", "ĳ", "a"], [(0, 1), (0, 1), (0, 1), (1, 2)]),
        ("byte", "\u1112\u1161\u11aba", ["í", "ķ", "ľ", "a"], [(0, 3), (0, 3), (0, 3), (3, 4)]),
        ("bpe", "the dog.", ["▁the", "▁dog", "."], [(0, 3), (3, 7), (7, 8)]),
        ("bpe", "  the", ["▁", "▁", "▁the"], [(0, 0), (0, 1), (1, 5)]),
        ("byte-bpe", "the dog.", ["the", "Ġdog", "."], [(0, 3), (3, 7), (7, 8)]),
        ("wordpiece", " the  dog.", ["the", "dog", "."], [(1, 4), (6, 9), (9, 10)]),
        ("unigram", "the dog.", ["▁the", "▁dog", "."], [(0, 3), (3, 7), (7, 8)]),
    ],
)
def test_what_a_token_is(unit: Unit, text: str, tokens: list[str], offsets: list[tuple[int, int]]) -> None:
    tokenizer = trained(unit)
    encoding = tokenizer.encode(text)
    assert encoding.tokens == tokens
    assert encoding.offsets == offsets
    assert encoding.ids == [tokenizer.vocabulary.id(token) for token in tokens]


def test_what_readers_see_as_one_character_is_one_syllable() -> None:
    clusters = ["한", "👨‍👩‍👧", "🇰🇷", "🇺🇸", "\u113c\u119e\u11eb", "e\u0323\u0302\u0301", "\r\n", "👍🏽"]
    tokenizer = Tokenizer.train(clusters, Config(unit="syllable", normalization="none"))
    assert tokenizer.encode("".join(clusters)).tokens == clusters


@settings(deadline=None, max_examples=60)
@given(text=st.text("ab <>/sunkpad\t", max_size=30) | TEXTS)
def test_what_stands_between_spaces_is_a_token(text: str) -> None:
    tokenizer = Tokenizer.train([text, "a"], Config(unit="space", vocabulary=5000))
    words = normalize(text).split()  # python and the library agree on what a space is, but for control characters
    if any(unicodedata.category(character) == "Cc" for character in text if character not in "\t\n\r"):
        return
    encoding = tokenizer.encode(text)
    assert encoding.tokens == ["<unk>" if word in SPECIALS else word for word in words]
    assert tokenizer.decode(encoding.ids) == " ".join(encoding.tokens)
    assert tokenizer.encode_batch([text]) == [encoding.ids]


def test_the_unknown_word_of_a_tokenized_text_is_the_unknown_token() -> None:
    tokenizer = Tokenizer.train([" the <unk> sat ", "the N"], Config(unit="space", vocabulary=100))
    assert tokenizer.vocabulary.tokens == (*SPECIALS, "the", "N", "sat")
    encoding = tokenizer.encode(" the <unk> never <s> ")
    assert encoding.ids == [4, UNK, UNK, UNK]
    assert encoding.offsets == [(1, 4), (5, 10), (11, 16), (17, 20)]
    assert tokenizer.decode([2, *encoding.ids, 3]) == "the <unk> <unk> <unk>"


@pytest.mark.parametrize("unit", [unit for unit in UNITS if unit != "space"])
@pytest.mark.parametrize("carry", [lambda it: it, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_text_cannot_spell_special_tokens(unit: Unit, carry: Callable[[Tokenizer], Tokenizer]) -> None:
    samples = ["<s> a</s><pad>x <unk></s> <s><s>", *SPECIALS, *(f" {token}" for token in SPECIALS)]
    tokenizer = carry(Tokenizer.train(samples * 100, Config(unit=unit, vocabulary=400)))
    for sample in samples:
        ids = tokenizer.encode(sample).ids
        assert not set(ids) & set(range(len(SPECIALS)))
        assert tokenizer.encode_batch([sample]) == [ids]
        if unit != "wordpiece":
            assert tokenizer.decode(ids) == sample


@pytest.mark.parametrize("unit", UNITS)
def test_special_tokens_are_left_out_of_decoded_text(unit: Unit) -> None:
    tokenizer = trained(unit)
    ids = tokenizer.encode("the dog.").ids
    assert tokenizer.decode([2, *ids, 3, 0, 0]) == "the dog."
    assert tokenizer.decode([]) == tokenizer.decode([0, 2, 3]) == ""
    assert tokenizer.decode([UNK]) == ("<unk>" if unit == "space" else "")


def test_broken_bytes_decode_to_a_replacement_character() -> None:
    tokenizer = trained("byte")
    assert tokenizer.decode(tokenizer.encode("집").ids[:2]) == "\ufffd"


@pytest.mark.parametrize("unit", UNITS)
def test_the_vocabulary_keeps_its_bound(unit: Unit) -> None:
    for size in (260, 300):
        vocabulary = Tokenizer.train(lines(), Config(unit=unit, vocabulary=size)).vocabulary
        assert len(vocabulary) <= size
        assert vocabulary.tokens[:4] == SPECIALS
        assert len(set(vocabulary.tokens)) == len(vocabulary)
    few = {"char": 10, "syllable": 10, "jamo": 10, "word": 10}.get(unit)
    if few is not None:
        assert len(Tokenizer.train(lines(), Config(unit=unit, vocabulary=few)).vocabulary) == few


@pytest.mark.parametrize("unit", LEARNED)
def test_rare_pieces_are_no_tokens(unit: Unit) -> None:
    text = ["common words common words", "common words", "rare rare ẞ"]
    loose = set(Tokenizer.train(text, Config(unit=unit, vocabulary=400)).vocabulary.tokens)
    strict = set(Tokenizer.train(text, Config(unit=unit, vocabulary=400, min_count=3)).vocabulary.tokens)
    assert strict < loose
    if unit != "byte-bpe":
        assert any("ẞ" in token for token in loose) and not any("ẞ" in token for token in strict)
    if unit not in ("char", "syllable", "jamo"):
        assert any("common" in token for token in strict)
        assert any("rare" in token for token in loose) and not any("rare" in token for token in strict)


@pytest.mark.parametrize("unit", UNITS)
def test_the_same_lines_give_the_same_tokenizer(unit: Unit) -> None:
    config = Config(unit=unit, vocabulary=300)
    text = lines()
    first = Tokenizer.train(text, config)
    assert Tokenizer.train(iter(text), config).fingerprint == first.fingerprint
    assert Tokenizer.train(reversed(text), config).fingerprint == first.fingerprint
    if unit != "byte":
        assert Tokenizer.train([*text, "새 줄 하나"], config).fingerprint != first.fingerprint


def test_another_process_learns_the_same() -> None:
    program = (
        "import json, sys\nfrom mallang.text.tokenizer import Config, Tokenizer\ntext = json.load(sys.stdin)\n"
        "for unit in sys.argv[1:]:\n    print(Tokenizer.train(text, Config(unit=unit, vocabulary=300)).fingerprint)"
    )
    units = ["bpe", "wordpiece", "unigram"]
    done = subprocess.run(
        [sys.executable, "-c", program, *units], input=json.dumps(lines()), capture_output=True, text=True, check=True
    )
    ours = [Tokenizer.train(lines(), Config(unit=unit, vocabulary=300)).fingerprint for unit in units]  # type: ignore[arg-type]
    assert done.stdout.split() == ours


def by_hand(model: models.Model, pre_tokenizer: pre_tokenizers.PreTokenizer) -> tokenizers.Tokenizer:
    pipeline = tokenizers.Tokenizer(model)
    pipeline.normalizer = normalizers.NFC()
    pipeline.pre_tokenizer = pre_tokenizer
    return pipeline


def test_bpe_is_that_of_a_pipeline_built_by_hand() -> None:
    text = lines()
    oracle = by_hand(models.BPE(unk_token="<unk>"), pre_tokenizers.Split(Regex(r" ?\w+| ?\W"), "isolated"))
    oracle.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Prepend(" ")])
    oracle.train_from_iterator(
        text, trainers.BpeTrainer(vocab_size=300, special_tokens=list(SPECIALS), show_progress=False)
    )
    ours = Tokenizer.train(text, Config(unit="bpe", vocabulary=300))
    assert ours.backend.get_vocab() == oracle.get_vocab()
    for line in [*lines(50, seed=2), "없는 글자 ẞ", *DECOMPOSED]:
        encoded = oracle.encode(line)
        assert ours.encode(line).ids == encoded.ids
        assert ours.encode(line).tokens == [token.replace(" ", "▁") for token in encoded.tokens]


def test_bpe_pieces_are_those_of_metaspace() -> None:
    ours = trained("bpe")
    model = json.loads(ours.files[0])["model"]
    merges = [(left.replace(" ", "▁"), right.replace(" ", "▁")) for left, right in model["merges"]]
    oracle = by_hand(models.BPE(ours.vocabulary.ids, merges, unk_token="<unk>"), pre_tokenizers.Metaspace())
    oracle.decoder = decoders.Metaspace()
    for line in lines(50, seed=3):
        assert ours.encode(line).tokens == oracle.encode(line).tokens
        assert oracle.decode(ours.encode(line).ids) == line


def test_byte_bpe_is_that_of_a_pipeline_built_by_hand() -> None:
    oracle = by_hand(models.BPE(), pre_tokenizers.ByteLevel(add_prefix_space=False))
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    oracle.train_from_iterator(lines(), trainer)
    ours = trained("byte-bpe")
    assert ours.backend.get_vocab() == oracle.get_vocab()
    for line in lines(50, seed=4):
        assert ours.encode(line).ids == oracle.encode(line).ids


def test_wordpiece_takes_the_longest_piece_first() -> None:
    ours = trained("wordpiece")
    for word in ["학교에서", "newest", "lowdog", "나는사과를", "ẞ", "dogẞ"]:
        pieces: list[str] = []
        rest = word
        while rest:
            ends = [
                end for end in range(len(rest), 0, -1) if ("##" if pieces else "") + rest[:end] in ours.vocabulary.ids
            ]
            if not ends:
                pieces = ["<unk>"]
                break
            pieces.append(("##" if pieces else "") + rest[: ends[0]])
            rest = rest[ends[0] :]
        assert ours.encode(word).tokens == pieces


def test_unigram_takes_the_likeliest_way() -> None:
    ours = trained("unigram")
    scores = dict(json.loads(ours.files[0])["model"]["vocab"])
    for word in ["학교에서", "newest", "lowlazy", "나는사과를"]:
        best: list[tuple[float, list[str]]] = [(0.0, [])]
        text = " " + word
        for end in range(1, len(text) + 1):
            ways = [
                (best[start][0] + scores[text[start:end]], [*best[start][1], text[start:end]])
                for start in range(end)
                if text[start:end] in scores
            ]
            best.append(max(ways))
        assert ours.encode(word).tokens == [piece.replace(" ", "▁") for piece in best[-1][1]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit": "byte", "vocabulary": 259}, "259 .* 260"),
        ({"unit": "byte-bpe", "vocabulary": 100}, "100 .* 260"),
        ({"unit": "char", "vocabulary": 4}, "4 .* 5"),
        ({"unit": "byte", "min_count": 2}, "min_count = 2"),
        ({"min_count": 0}, "min_count = 0"),
        ({"sample": 0}, "sample = 0"),
        ({"unit": "jamo", "normalization": "none"}, "jamo"),
    ],
)
def test_impossible_settings_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Config(**options)  # type: ignore[arg-type]


def test_no_text_is_nothing_to_learn_from() -> None:
    with pytest.raises(UserError, match="no text"):
        Tokenizer.train(["", ""], Config())
    assert len(Tokenizer.train([], Config(unit="byte")).vocabulary) == 260


def test_half_characters_are_refused() -> None:
    tokenizer = trained("bpe")
    with pytest.raises(UserError, match=r"U\+DC80"):
        tokenizer.encode("a\udc80")
    with pytest.raises(UserError, match=r"U\+DC80") as caught:
        tokenizer.encode_batch(["fine", "a\udc80"])
    assert caught.value.where is not None and "text 2" in caught.value.where


@pytest.mark.parametrize("unit", UNITS)
def test_long_text_is_no_trouble(unit: Unit) -> None:
    tokenizer = trained(unit)
    text = "학교에서" * 5000 + " the" * 5000
    ids = tokenizer.encode(text).ids
    assert unit in ("word", "space", "wordpiece") or tokenizer.decode(ids) == text
    assert tokenizer.encode_batch([text]) == [ids]


def test_each_side_may_have_its_own_unit() -> None:
    config = Config(shared=False, source_unit="syllable")
    assert (config.side("source").unit, config.side("target").unit) == ("syllable", "bpe")
    assert config.side("source") == Config(shared=False, unit="syllable")
    assert config.side("text").unit == "bpe", "a column that is neither"
    plain = Config(unit="jamo")
    assert plain.side("source") is plain
    tokenizer = Tokenizer.train(lines(), config.side("source"))
    assert tokenizer.config.unit == "syllable"
    assert not {"source_unit", "target_unit"} & set(json.loads(tokenizer.files[1]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source_unit": "syllable"}, "source_unit = 'syllable' needs two tokenizers"),
        ({"target_unit": "bpe"}, "target_unit = 'bpe' needs two tokenizers"),
        ({"shared": False, "target_unit": "byte", "vocabulary": 100}, "100 .* byte needs at least 260"),
        ({"shared": False, "source_unit": "jamo", "normalization": "none"}, "jamo"),
    ],
)
def test_impossible_sides_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Config(**options)  # type: ignore[arg-type]
