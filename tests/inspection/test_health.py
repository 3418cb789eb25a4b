"""Every finding has a case that must bring it about and a similar one that must not."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallang.inspection import health
from mallang.inspection.health import Finding, Outputs, Training
from mallang.text.tokenizer import Config, Tokenizer

NAMES = {
    "민수": "Minsu", "지영": "Jiyeong", "유나": "Yuna", "소라": "Sora", "지호": "Jiho", "하늘": "Haneul",
    "바다": "Bada", "나무": "Namu", "보라": "Bora", "가람": "Garam", "다솜": "Dasom", "라온": "Raon",
}  # fmt: skip
THINGS = {"사과를": "an apple", "책을": "a book", "물을": "water"}
ROWS = [
    (f"{name}는 {thing} 샀다.", f"{person} bought {other}.")
    for name, person in NAMES.items()
    for thing, other in THINGS.items()
]
SOURCES, REFERENCES = [row[0] for row in ROWS], [row[1] for row in ROWS]
COUNT = len(ROWS)


def outputs(said: Sequence[str], **changes: Sequence[str]) -> Outputs:
    return Outputs(**{"sources": SOURCES, "references": REFERENCES, "outputs": said, **changes})  # type: ignore[arg-type]


def but_first(said: str | None, count: int) -> Outputs:
    """The references, but another output for the first few."""
    return outputs([(said or SOURCES[i]) if i < count else REFERENCES[i] for i in range(COUNT)])


def names_of(findings: Sequence[Finding]) -> list[str]:
    return [finding.name for finding in findings]


@pytest.fixture(scope="module")
def training() -> Training:
    return Training.of(ROWS)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train((text for row in ROWS for text in row), Config(unit="bpe", vocabulary=300))


def test_a_perfect_model_has_no_findings(training: Training, tokenizer: Tokenizer) -> None:
    assert health.examine(outputs(REFERENCES), training) == []
    assert health.examine_text("source", SOURCES, tokenizer, training) == []
    assert health.examine_text("target", REFERENCES, tokenizer, training) == []


def test_one_output_for_all() -> None:
    found = health.one_output(outputs(["I am here."] * COUNT))
    assert found is not None and found.serious
    assert (found.count, found.of, found.example) == (COUNT, COUNT, "i am here.")
    some = health.one_output(but_first("I am here.", COUNT // 2))
    assert some is not None and f"{COUNT // 2} of {COUNT}" in some.what
    assert health.one_output(but_first("I am here.", 4)) is None
    same = outputs(["Yes."] * COUNT, references=["Yes."] * COUNT)
    assert health.one_output(same) is None, "where one answer is right for all it is no finding"
    repeated = Outputs(SOURCES[:1] * 50, ["a"] * 50, ["b"] * 50)
    assert health.one_output(repeated) is None, "equal texts get equal outputs"


def test_few_outputs() -> None:
    found = health.one_output(outputs([REFERENCES[i % 8] for i in range(COUNT)]))
    assert found is not None and "only 8 different outputs" in found.what
    assert health.one_output(outputs([REFERENCES[i % 30] for i in range(COUNT)])) is None


def test_empty_outputs() -> None:
    found = health.empty(outputs(["", " ", *REFERENCES[2:]]))
    assert found is not None and (found.count, found.serious) == (2, False)
    assert found.example.endswith("→ (nothing)")
    assert health.empty(outputs(["", *REFERENCES[1:]], sources=["", *SOURCES[1:]])) is None


def test_outputs_that_were_cut_off() -> None:
    cut = [i < 5 for i in range(COUNT)]
    found = health.cut_off(Outputs(SOURCES, REFERENCES, REFERENCES, cut))
    assert found is not None and (found.count, found.serious) == (5, True)
    assert health.cut_off(Outputs(SOURCES, REFERENCES, REFERENCES, [False] * COUNT)) is None
    assert health.cut_off(outputs(REFERENCES)) is None


@pytest.mark.parametrize(
    "text",
    [
        "the the the the the cat",
        "He saw a dog and a dog and a dog and a dog.",
        "물을 물을 물을 물을 마신다",
        "ㅋㅋㅋㅋㅋㅋㅋㅋㅋㅋㅋㅋㅋ",
        "나는 학교에 갔다 나는 학교에 갔다 나는 학교에 갔다",
    ],
)
def test_loops(text: str) -> None:
    found = health.loops(but_first(text, 2))
    assert found is not None and found.count == 2
    told = outputs([text, *REFERENCES[1:]], references=[text, *REFERENCES[1:]])
    assert health.loops(told) is None, "what is wanted is no loop"


@pytest.mark.parametrize("text", ["bye bye bye", "하하하 웃었다", "1000000000", "very very good", "no, no, no!"])
def test_what_is_no_loop(text: str) -> None:
    assert health.loops(but_first(text, 2)) is None


def test_copied_source() -> None:
    found = health.copied(but_first(None, 3))
    assert found is not None and found.count == 3
    nearly = health.copied(outputs(["Der Hund läuft im Park !", *REFERENCES[1:]],
                                   sources=["Der Hund läuft im Park .", *SOURCES[1:]]))  # fmt: skip
    assert nearly is not None and nearly.count == 1
    names = outputs(["Angela Merkel Berlin 2017", *REFERENCES[1:]],
                    sources=["Angela Merkel Berlin 2017", *SOURCES[1:]],
                    references=["Angela Merkel Berlin 2017", *REFERENCES[1:]])  # fmt: skip
    assert health.copied(names) is None, "what stays the same in translation is not copied"


@pytest.mark.parametrize(
    ("output", "reference", "expected"),
    [
        ("a b c d e", "v w x y z", True),
        ("a b c d x", "v w x y z", True),  # four of five words are the source's: enough
        ("a b c x y", "v w x y z", False),  # three of five are not
        ("a b c d", "a b x y", False),  # half of the reference stands in the source as well
        ("a b c d", "a v x y z", True),
        ("a b", "v w x y z", False),  # too short to tell
        ("a b c", "v w x y z", True),
        ("a a a a a", "v w x y z", False),  # each word counts as often as it is there
    ],
)
def test_what_counts_as_copied(output: str, reference: str, expected: bool) -> None:
    assert health.is_copied("a b c d e", output, reference) is expected


def test_length_drift(training: Training) -> None:
    short = health.length_drift(outputs([text[:4] for text in REFERENCES]), training.ratio)
    assert short is not None and short.serious and "stop early" in short.remedy
    long = health.length_drift(outputs([f"{text} And so on." for text in REFERENCES]), training.ratio)
    assert long is not None and not long.serious and "run on" in long.remedy
    assert health.length_drift(outputs(REFERENCES), training.ratio) is None
    assert health.length_drift(outputs(REFERENCES), 3 * training.ratio) is None, "the references are as long"
    for size, told in ((25, False), (35, True)):
        wanted = ["a" * 100] * COUNT
        said = outputs(["a" * (100 + size)] * COUNT, references=wanted)
        assert (health.length_drift(said, training.ratio) is not None) == told, "1.3 times the references"


def test_memorized_lines(training: Training) -> None:
    new = [f"{text} 정말" for text in SOURCES]
    turned = [*REFERENCES[1:], REFERENCES[0]]
    found = health.memorized(outputs(turned, sources=new), training)
    assert found is not None and found.serious
    assert found.count == sum(len(text.split()) > 3 for text in turned), "a line of three words may be chance"
    assert health.memorized(outputs(REFERENCES, sources=new), training) is None, "the right line may be a known one"
    assert health.memorized(outputs([f"Oh, {text}" for text in turned], sources=new), training) is None
    assert health.memorized(outputs(turned), training) is None, "a source of the training has an answer of its own"


def test_unknown_tokens(tokenizer: Tokenizer) -> None:
    found = health.unknown("source", ["漢字 민수", "漢 물을", *SOURCES[:8]], tokenizer)
    assert found is not None and found.example.startswith("most often '漢'")
    assert found.count / found.of > 0.01
    assert health.unknown("source", SOURCES, tokenizer) is None
    many = health.unknown("source", ["漢字漢字"] * 10, tokenizer)
    assert many is not None and many.serious
    bytes_ = Tokenizer.train(SOURCES, Config(unit="byte-bpe", vocabulary=300))
    assert health.unknown("source", ["漢字漢字"] * 10, bytes_) is None


def test_text_that_comes_back_changed(tokenizer: Tokenizer) -> None:
    lower = Tokenizer.train(REFERENCES, Config(unit="wordpiece", vocabulary=200, lowercase=True))
    for good in (tokenizer, lower):
        assert health.changed("target", REFERENCES, good) is None
    pipeline, about = Tokenizer.train(SOURCES, Config(unit="byte-bpe", vocabulary=300)).files
    without_decoder = json.dumps({**json.loads(pipeline), "decoder": None})
    found = health.changed("source", SOURCES, Tokenizer(without_decoder, about))
    assert found is not None and found.serious and found.count == COUNT


def test_another_script(training: Training) -> None:
    found = health.other_script("source", REFERENCES, training.scripts["source"])
    assert (
        found is not None and "100% of the letters of the source are Latin, in training they were Hangul" in found.what
    )
    assert health.other_script("source", SOURCES, training.scripts["source"]) is None
    mixed = [f"{text} OK" for text in SOURCES]
    assert health.other_script("source", mixed, training.scripts["source"]) is None
    assert health.other_script("source", ["123 !?"] * 10, training.scripts["source"]) is None
    said = health.examine(outputs([f"{text} 그리고" for text in SOURCES]), training)
    assert "other script" in names_of(said)


def test_fragmented_text(tokenizer: Tokenizer) -> None:
    strange = ["xylophone quartz jukebox", "wizards vexed"] * 6
    known = Tokenizer.train([*SOURCES, *REFERENCES, *strange[:2]] * 3, Config(unit="bpe", vocabulary=120))
    assert health.fragmented("target", strange, known, REFERENCES) is not None
    assert health.fragmented("target", REFERENCES, known, REFERENCES) is None
    assert health.fragmented("target", strange[:2], known, REFERENCES) is None, "two texts prove nothing"


@pytest.mark.parametrize(("count", "told"), [(9, False), (10, True)])
def test_shares_are_judged_from_ten_texts_on(count: int, told: bool, training: Training, tokenizer: Tokenizer) -> None:
    pipeline, about = Tokenizer.train(SOURCES, Config(unit="byte-bpe", vocabulary=300)).files
    broken = Tokenizer(json.dumps({**json.loads(pipeline), "decoder": None}), about)
    new, wanted = [f"{text} 정말" for text in SOURCES[:count]], REFERENCES[:count]
    found = [
        health.empty(Outputs(new, [""] * count, wanted)),
        health.cut_off(Outputs(new, wanted, wanted, [True] * count)),
        health.loops(Outputs(new, ["the the the the the cat"] * count, wanted)),
        health.copied(Outputs(new, new, wanted)),
        health.memorized(Outputs(new, [REFERENCES[-2]] * count, wanted), training),
        health.length_drift(Outputs(new, ["a"] * count, wanted), training.ratio),
        health.unknown("source", ["漢字 민수"] * count, tokenizer),
        health.changed("source", SOURCES[:count], broken),
        health.other_script("source", wanted, training.scripts["source"]),
    ]
    assert [finding is not None for finding in found] == [told] * len(found)
    blank = health.other_script("source", [*wanted[:9], *[" "] * 5], training.scripts["source"])
    assert blank is None, "blank texts do not count"


LETTERS = Tokenizer.train(["abc"], Config(unit="char", vocabulary=20))
texts = st.lists(st.text(max_size=30), min_size=1, max_size=15)


@given(texts, st.data())
def test_no_text_is_too_strange_to_examine(sources: list[str], data: st.DataObject) -> None:
    said, wanted = (
        data.draw(st.lists(st.text(max_size=30), min_size=len(sources), max_size=len(sources))) for _ in range(2)
    )
    training = Training.of(zip(sources, wanted, strict=True))
    for finding in health.examine(Outputs(sources, said, wanted), training):
        assert finding.what and finding.remedy and "\n" not in finding.example
        assert finding.to_json()["name"] == finding.name
    assert isinstance(health.examine_text("source", sources, LETTERS, training), list)


def test_a_search_for_loops_takes_no_time() -> None:
    import time

    text = " ".join(f"{i % 7}{i % 11}{i % 13}" for i in range(2000))
    begun = time.process_time()
    assert health.loops(Outputs(["a"], [text], ["b"])) is None
    assert time.process_time() - begun < 2.0
