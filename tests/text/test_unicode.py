import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.text.unicode import normalize, split_sentences

FRAGMENTS = st.sampled_from(
    [
        "한글",
        " ",
        "  ",
        "\n",
        "\r\n",
        "\t",
        ".",
        "...",
        "…",
        "!",
        "?",
        "。",
        '"',
        "’",
        ")",
        "Mr",
        "U.S",
        "3",
        "a",
        "B",
        "다",
        "요",
    ]
)


@pytest.mark.parametrize(
    ("text", "form", "result"),
    [
        ("\u1112\u1161\u11ab ①", "NFC", "한 ①"),
        ("\u1112\u1161\u11ab ①㈜Ａ", "NFKC", "한 1(주)A"),
        ("\u1112\u1161\u11ab ①", "none", "\u1112\u1161\u11ab ①"),
    ],
)
def test_normal_forms(text: str, form: str, result: str) -> None:
    assert normalize(text, form) == result  # type: ignore[arg-type]


@settings(deadline=None)
@given(st.one_of(st.text(), st.lists(FRAGMENTS).map("".join)))
def test_sentences_together_are_the_text(text: str) -> None:
    sentences = split_sentences(text)
    assert "".join(sentences) == text
    assert all(sentences)
    assert not any(sentence.isspace() for sentence in sentences[1:])


@pytest.mark.parametrize(
    "sentences",
    [
        [],
        ["   "],
        ["나는 학교에 간다. ", "너는 집에 있어요! ", "정말? ", "응… ", "그래."],
        ["갔다.", "그리고 왔어요!", "정말?"],
        ["Mr. Smith paid 3.14 dollars to Dr. Lee. ", "He left."],
        ["See e.g. Fig. 3 or No. 5. ", "No. ", "Yes."],
        ["The U.S. Army and J. Smith came at 5 a.m. ", "Then they left."],
        ["Apples, pears etc. are fruit. ", "So are plums, etc. ", "That is all."],
        ['"Stop!" he said. ', '"Why?" ', "Nobody knew. ", "(He did.) ", "The end."],
        ["2024. 3. 15. 발표했다. ", "좋다."],
        ["1. 첫째 항목이다. ", "2. 둘째 항목이다."],
        ["첫 줄\n\n  ", "둘째 줄\r\n", "셋째 줄"],
        ["\n 앞의 빈 줄\n", "뒤"],
        ["これは文です。", "次の文！", "「はい。」", "終わり"],
        ["Version 2.0 runs at example.com/a.b?c=d now."],
    ],
)
def test_where_sentences_end(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences)) == sentences


@pytest.mark.parametrize("unit", [".", "a. ", " ", '."', "1. ", "\n ", "다.", "A. ", "?!", "\u3002"])
def test_long_runs_take_no_more_than_linear_time(unit: str) -> None:
    text = unit * 30_000 + "x"
    assert "".join(split_sentences(text)) == text
