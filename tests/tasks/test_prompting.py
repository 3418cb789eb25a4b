"""Prompting, against the probabilities of whole texts and against a model whose every number is known."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.decoding import contract as decoding
from mallang.decoding.contract import State
from mallang.errors import UserError
from mallang.models import gpt
from mallang.tasks.generation import Verbs
from mallang.tasks.language_modeling import Config, Task
from mallang.tasks.prompting import Answer, Example, Prompter, accuracy, common_prefix
from mallang.tasks.templates import TEMPLATES, Template, read_template
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer

LINES = (
    "그는 빵을 먹었다. → 푸비 음식 / 유나는 배를 탔다. → 다카 탈것",
    "good film → yes / bad film → no / dull → nope",
    "물 = water / 빵 = bread",
)
SHOTS = [
    Example("good film", "yes"),
    Example("bad film", "no"),
    Example("dull", "no"),
    Example("그는 빵을 먹었다.", "yes"),
]
PLAIN = Template(shot="{text} → {label}", separator=" / ")


@cache
def verbs(unit: str = "word", longest: int = 64, layout: str = "sentences") -> Verbs:
    """An untrained GPT: it finds some texts more probable than others, and that is all that is needed."""
    tokenizer = Tokenizer.train(LINES, TextConfig(unit=unit, vocabulary=400))  # type: ignore[arg-type]
    context = {"context": longest, "order": "shuffled"} if layout == "stream" else {}
    task = Task(Config(layout=layout, **context), {"text": tokenizer})  # type: ignore[arg-type]
    torch.manual_seed(1)
    shape = gpt.Config(layers=1, dim=16, heads=2, max_length=longest)
    model = gpt.GPT(shape, tokenizer.vocabulary).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(8)  # begun so small, every word would be as probable as another
    return Verbs(task, model, decoding.Config(), longest)


def whole(model: Verbs, text: str) -> float:
    """The log-probability of a text without its end."""
    scored = model.score(text)
    return math.fsum(scored.token_scores[:-1])


@pytest.mark.parametrize("unit", ["word", "bpe", "char"])
def test_a_label_is_ranked_by_the_probability_of_the_whole_text(unit: str) -> None:
    model = verbs(unit, 200)
    prompter = Prompter(model, PLAIN, ("yes", "no", "nope"))
    for text, count in (("dull film", 0), ("good bad", 2), ("그는 배를 탔다.", 3)):
        found = prompter.choose([text], SHOTS, count)[0]
        assert found.prompt.endswith(f"{text} → ") and found.shots == count and found.prompt.count(" / ") == count
        totals = {label: whole(model, found.prompt + label) for label in ("yes", "no", "nope")}
        for label in totals:
            assert found.scores[label] - found.scores["no"] == pytest.approx(totals[label] - totals["no"], abs=1e-4)
        assert found.label == str(found) == max(totals, key=totals.__getitem__)


def test_many_texts_together_are_answered_as_one_by_one() -> None:
    prompter = Prompter(verbs(), PLAIN, ("yes", "no"))
    texts = ["good", "그는 빵을 먹었다. 그는 배를 탔다.", "bad film bad film", "film"]
    together = prompter.choose(texts, SHOTS, 2)
    for number, (text, found) in enumerate(zip(texts, together, strict=True)):
        question = prompter.ask(number, text, SHOTS, 2)
        (alone,) = prompter.rank([question])
        assert found.scores == pytest.approx(alone, abs=1e-4)


def test_calibrations() -> None:
    model = verbs("char", 200)
    plain, by_length, prior = (
        Prompter(model, PLAIN, ("yes", "no"), calibration=how) for how in ("none", "length", "prior")
    )
    found = plain.choose(["bad film"], SHOTS, 1)[0]
    assert by_length.choose(["bad film"], SHOTS, 1)[0].scores == pytest.approx(
        {"yes": found.scores["yes"] / 3, "no": found.scores["no"] / 2}
    )
    empty = found.prompt.removesuffix("bad film → ") + " → "
    offset = whole(model, empty + "yes") - whole(model, empty + "no")
    scores = prior.choose(["bad film"], SHOTS, 1)[0].scores
    assert scores["yes"] - scores["no"] == pytest.approx(found.scores["yes"] - found.scores["no"] - offset, abs=1e-4)


class Cache:
    """A model that finds a token as probable as it was frequent so far: nothing about it needs to be learned."""

    longest = None

    def __init__(self, vocabulary: Any) -> None:
        self.vocabulary = vocabulary

    def token_log_probs(self, batch: Any) -> torch.Tensor:
        assert batch.labels is not None
        found = torch.zeros(batch.labels.shape)
        for row, (tokens, labels) in enumerate(zip(batch.tokens.tolist(), batch.labels.tolist(), strict=True)):
            for place, label in enumerate(labels):
                seen = Counter(tokens[: place + 1])
                found[row, place] = math.log((seen[label] + 1) / (place + 1 + len(self.vocabulary)))
        return found


@settings(deadline=None, max_examples=30)
@given(labels=st.lists(st.sampled_from(["yes", "no"]), min_size=1, max_size=9), seed=st.integers(0, 5))
def test_a_model_that_counts_chooses_the_label_it_saw_most(labels: list[str], seed: int) -> None:
    model = verbs()
    counting = Verbs(model.task, Cache(model.tokenizer.vocabulary), model.config, 64)
    shots = [Example("film", label) for label in labels]
    prompter = Prompter(counting, PLAIN, ("yes", "no"), seed=seed)
    found = prompter.choose(["good"], shots, len(shots))[0]
    expected = {label: math.log(labels.count(label) + 1) for label in ("yes", "no")}
    assert found.scores["yes"] - found.scores["no"] == pytest.approx(expected["yes"] - expected["no"], abs=1e-5)


def test_examples_are_drawn_by_the_seed_and_fewer_are_the_first_of_more() -> None:
    prompter = Prompter(verbs(), PLAIN, ("yes", "no"), seed=3)
    few, many = (prompter.ask(7, "film", SHOTS, count).shots for count in (2, 4))
    assert many[:2] == few and len(set(many)) == 4
    assert prompter.ask(7, "film", SHOTS, 4).shots == many
    drawn = {Prompter(verbs(), PLAIN, ("yes", "no"), seed=seed).ask(0, "film", SHOTS, 2).shots for seed in range(12)}
    assert len(drawn) > 3
    for number in range(6):  # what is asked is never among the examples
        assert not any("dull" in shot for shot in prompter.ask(number, "dull", SHOTS, 3).shots)
    with pytest.raises(UserError, match="4 examples are asked for, but there are 3"):
        prompter.ask(0, "dull", SHOTS, 4)


def test_other_words_for_labels_are_drawn_anew_for_every_text() -> None:
    words = ("푸비", "다카", "water")
    template = Template(shot="{text} → {label} {name}", separator=" / ")
    prompter = Prompter(verbs(), template, ("yes", "no"), relabel=words)
    answers = prompter.choose(["good", "bad", "film", "dull film"] * 6, SHOTS, 3)
    assert len({tuple(answer.words.items()) for answer in answers}) == 6
    for answer in answers:
        assert set(answer.words) == {"yes", "no"} == set(answer.scores) and answer.label in ("yes", "no")
        for shot in answer.prompt.split(" / ")[:-1]:
            _, _, told = shot.partition(" → ")
            word, name = told.split()
            assert answer.words[name] == word
    with pytest.raises(UserError, match="2 labels need as many other words"):
        Prompter(verbs(), template, ("yes", "no"), relabel=("푸비",))


def test_examples_that_do_not_fit_are_left_out_and_told() -> None:
    prompter = Prompter(verbs("word", 16), PLAIN, ("yes", "no"))
    found = prompter.choose(["film"], SHOTS[:3] * 4, 12)[0]
    assert found.dropped and found.shots + found.dropped == 12 and found.shots
    whole_prompt = Prompter(verbs(), PLAIN, ("yes", "no")).ask(0, "film", SHOTS[:3] * 4, 12)
    assert found.prompt == PLAIN.joined(whole_prompt.shots[-found.shots :], "film → ")
    ids = len(verbs("word", 16).reader.prompt(found.prompt + "yes").ids)
    assert ids - 1 <= 16 < len(verbs("word", 16).reader.prompt(whole_prompt.shots[-1] + " / " + found.prompt).ids)
    with pytest.raises(UserError, match="the model reads 16"):
        prompter.choose(["film " * 20], SHOTS, 1)


def test_lines_of_a_stream_are_told_apart() -> None:
    model = verbs("word", 64, "stream")
    prompter = Prompter(model, TEMPLATES["plain"], ("yes", "no"))
    found = prompter.choose(["film"], SHOTS, 2)[0]
    assert found.prompt.count("\n") == 2
    assert model.reader.prompt(found.prompt).ids.count(model.tokenizer.vocabulary.bos) == 3


def test_an_answer_is_written_up_to_the_next_example() -> None:
    model = verbs()
    prompter = Prompter(model, Template(shot="{text} = {label}", separator=" / ", answer="write"))
    found = prompter.write(["물", "빵"], [Example("bad", "no")], 1, max_tokens=6)
    assert [answer.prompt for answer in found] == ["bad = no / 물 = ", "bad = no / 빵 = "]
    for answer in found:
        assert "/" not in answer.label and answer.label == answer.label.strip() and not answer.scores
        expected = model.generate(answer.prompt.rstrip(), method="greedy", stop="/", max_tokens=6).output
        assert answer.label == expected.strip()
    with pytest.raises(UserError, match="relabel has no effect"):
        Prompter(model, PLAIN, relabel=("푸비",)).write(["물"])


class Script(torch.nn.Module):
    """Says one text after every prompt, then `</s>`: of a prompt all but the last token are read in a first step."""

    longest = None

    def __init__(self, tokenizer: Tokenizer, says: str) -> None:
        super().__init__()
        self.vocabulary, self.says = tokenizer.vocabulary, [*tokenizer.encode(says).ids, 3, 3]

    def forward(self, batch: Any) -> torch.Tensor:
        return self.step(batch.tokens, self.start(batch))[0]

    def start(self, batch: Any) -> State:
        return State(fixed=None, moving=torch.zeros(len(batch), dtype=torch.long))

    def step(self, tokens: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        logits = torch.full((*tokens.shape, len(self.vocabulary)), -20.0)
        for row, place in enumerate(state.moving.tolist()):
            logits[row, -1, self.says[min(max(place - 1, 0), len(self.says) - 1)]] = 0.0
        return logits, State(None, state.moving + 1)


@pytest.mark.parametrize(
    ("unit", "layout", "separator", "says", "written"),
    [
        ("byte-bpe", "sentences", "\n", " water\n빵 = bread", "water"),
        ("byte-bpe", "sentences", "\n\n", " water\nbread\n\n빵 =", "water\nbread"),
        ("byte-bpe", "sentences", " / ", " water / 빵 = bread", "water"),
        ("byte-bpe", "stream", "\n", " water", "water"),
        ("word", "sentences", "\n", " water bread", "water bread"),
    ],
)
def test_an_answer_ends_where_the_next_example_begins(
    unit: str, layout: str, separator: str, says: str, written: str
) -> None:
    """A line end is what some models say, what ends the text of others, and what some have no token for."""
    tokenizer = verbs(unit, layout=layout).tokenizer
    scripted = Verbs(verbs(unit, layout=layout).task, Script(tokenizer, says), decoding.Config(), 64)
    prompter = Prompter(scripted, Template(shot="{text} = {label}", separator=separator, answer="write"))
    (found,) = prompter.write(["물"], [Example("bad", "no")], 1, max_tokens=40)
    assert found.prompt == f"bad = no{separator}물 = " and found.label == written


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (("yes", "unheard"), "no token for the label 'unheard'"),
        (("yes", "yes "), "the same as another"),
        (("yes",), "two labels"),
        ((), "two labels"),
    ],
)
def test_labels_that_cannot_be_chosen(labels: tuple[str, ...], words: str) -> None:
    model = verbs()
    if labels == ("yes", "yes "):
        template = Template(shot="{text} → {label}", separator=" / ", labels={"a": "yes", "b": "yes"})
        prompter = Prompter(model, template, ("a", "b"))
    else:
        prompter = Prompter(model, PLAIN, labels)
    with pytest.raises(UserError, match=words):
        prompter.choose(["film"])


def test_accuracy_counts() -> None:
    answers = [Answer("", label, "", 0, 0, {}, {}) for label in ("a", "b", "a", "a")]
    score = accuracy(answers, ["a", "b", "b", "a"], "shots:0")
    assert score.value == 75.0 and score.count == 4 and score.signature.startswith("shots:0|bs:")
    assert score.low is not None and score.high is not None and score.low < 75.0 < score.high


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=1, max_size=4))
def test_the_common_prefix(rows: list[list[int]]) -> None:
    length = common_prefix(rows)
    assert all(row[:length] == rows[0][:length] and len(row) > length for row in rows)
    longer = [row[: length + 1] for row in rows]
    assert len({tuple(row) for row in longer}) > 1 or min(map(len, rows)) == length + 1


def test_templates(tmp_path: Any) -> None:
    assert read_template("plain") is TEMPLATES["plain"]
    changed = read_template("{text}? {label}", separator="\\n", instruction="Answer.")
    assert changed.joined([changed.shot_of("가", "b", "b")], changed.question("{나}")) == "Answer.\n가? b\n{나}? "
    assert read_template("Q: {text} A: {label} ({name})", " / ").stops == ["(", "/"]
    braces = read_template("{{label}} name: {text} -> {label}}} {name}")
    assert braces.question("{가}") == "{label} name: {가} -> " and braces.stops == ["}", "\n"]
    assert braces.shot_of("가", "b", "c") == "{label} name: 가 -> b} c"
    path = tmp_path / "mine.toml"
    path.write_text('shot = "문장: {text} 느낌: {label}"\nanswer = "choose"\n[labels]\n0 = "나쁘다"\n', "utf-8")
    mine = read_template(str(path))
    assert (mine.called("0"), mine.called("1"), mine.separator) == ("나쁘다", "1", "\n")


@pytest.mark.parametrize(
    ("given_text", "words"),
    [
        ("plian", "did you mean plain"),
        ("{text}", "and, after it, {label} once"),
        ("{label} {text}", "and, after it, {label} once"),
        ("{text} {label} {label}", "and, after it, {label} once"),
        ("{text} {name} {label}", "and, after it, {label} once"),
        ("{text} {lable}", "has no {lable}"),
        ("{text} {label!r}", "has no {label}"),
        ("{text} {label", "is no template"),
        ("nowhere.toml", "cannot read"),
    ],
)
def test_templates_that_are_none(given_text: str, words: str) -> None:
    with pytest.raises(UserError) as raised:
        read_template(given_text)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("shot = ", "is not TOML"),
        ('shop = "{text} {label}"', "did you mean shot"),
        ('separator = " / "', "has no shot"),
        ('shot = "{text} {label}"\nanswer = "sing"', "choose or write"),
        ('shot = "{text} {label}"\nseparator = ""', "separator"),
    ],
)
def test_template_files_that_are_wrong(content: str, words: str, tmp_path: Any) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(content, "utf-8")
    with pytest.raises(UserError) as raised:
        read_template(str(path))
    assert words in str(raised.value) and "mine.toml" in str(raised.value)
