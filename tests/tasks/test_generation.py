"""Writing with a language model: prompts, lines, stop strings and text as it grows, whatever the model and the unit."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from contracts.toy_models import Table
from mallang.data.batch import Batch
from mallang.decoding.contract import Config, State
from mallang.decoding.sampling import WIDTH
from mallang.errors import UserError
from mallang.evaluation.minimal_pairs import Preference
from mallang.find import find
from mallang.tasks import generation, language_modeling
from mallang.tasks.generation import Verbs
from mallang.tasks.surprisal import ContextMode, Lines, line_log_probs
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, EOS

LINES = ["나는 사과를 먹었다.", "그는 책을 읽었다.", "Minsu ate an apple.", "She read a book."]
UNITS = ["word", "space", "char", "syllable", "jamo", "byte", "bpe", "byte-bpe", "wordpiece", "unigram"]


@cache
def tokenizer_of(unit: str = "char") -> Tokenizer:
    return Tokenizer.train(LINES, TextConfig(unit=unit, vocabulary=320 if "byte" in unit else 80))  # type: ignore[arg-type]


def verbs_of(model: Any, tokenizer: Tokenizer, layout: str = "stream", **options: Any) -> Verbs:
    context = {} if layout == "sentences" else {"context": 8, "order": "shuffled"}
    task = language_modeling.Task(language_modeling.Config(layout=layout, **context), {"text": tokenizer})  # type: ignore[arg-type]
    return Verbs(task, model, Config(**{"method": "sampling", "max_length": 12, **options}), 0)


class Unbounded(Table):
    """The toy table as a model that can go on: what it carries does not matter to what is tested."""

    def forward_stateful(self, batch: Any, carry: Any) -> Any:
        raise AssertionError("a text is written by steps")


def table(tokenizer: Tokenizer, seed: int = 1, sharpness: float = 2.0) -> Table:
    """A bigram that never says `<unk>`."""
    generator = torch.Generator().manual_seed(seed)
    size = len(tokenizer.vocabulary)
    logits = torch.randn(size, size, generator=generator) * sharpness
    logits[:, 1] = -30.0
    return Unbounded(tokenizer.vocabulary, logits.expand(size, size, size))


def gpt(tokenizer: Tokenizer, seed: int = 1, **shape: Any) -> Any:
    module = find("models", "gpt")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = module.Model(module.Config(**{**module.SIZES["tiny"], **shape}), tokenizer.vocabulary)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


CHARS = tokenizer_of("char")


@given(
    prompts=st.lists(st.sampled_from(["", "나는", "그", "Minsu", "She read", "She read a"]), min_size=1, max_size=6),
    method=st.sampled_from(["greedy", "sampling", "beam", "best-first"]),
    seed=st.integers(0, 100),
)
@settings(deadline=None, max_examples=3)
def test_many_prompts_of_any_length_are_each_alone(prompts: list[str], method: str, seed: int) -> None:
    verbs = verbs_of(gpt(CHARS, seed), CHARS)
    options: dict[str, Any] = {"method": method, "max_tokens": 9}
    options |= {"max_expansions": 20, "max_tokens": 4} if method == "best-first" else {}
    together = verbs.generate(prompts, **options)
    for place, (prompt, one) in enumerate(zip(prompts, together, strict=True)):
        # The place of a prompt is what its random numbers belong to.
        *_, alone = verbs.generate([""] * place + [prompt], **options)
        assert one.text == alone.text and one.tokens == alone.tokens
        assert one.score == pytest.approx(alone.score, abs=1e-4)


def test_the_score_is_that_of_what_was_written() -> None:
    verbs = verbs_of(gpt(CHARS), CHARS, "sentences")
    for result in verbs.generate(["", "나는 ", "Minsu"], nbest=3, max_tokens=6):
        whole, prompt = verbs.score(result.text), verbs.score(result.input)
        given_tokens = len(prompt.tokens) - 1
        said = whole.token_scores[given_tokens : given_tokens + len(result.tokens)]
        if not result.is_cut:
            said += whole.token_scores[-1:]
        assert result.score == pytest.approx(sum(said), abs=1e-4)
        assert result.nbest[0][0] == result.output and len(result.nbest) == len(result.texts) == 3
        assert [result.input + output for output, *_ in result.nbest] == list(result.texts)


def test_samples_do_not_depend_on_how_many_there_are() -> None:
    verbs = verbs_of(table(CHARS), CHARS)
    few, many = (verbs.generate("나", nbest=count, seed=3, lines=2) for count in (2, 5))
    assert few.nbest == many.nbest[:2]
    assert few.text == verbs.generate("나", seed=3, lines=2).text != verbs.generate("나", seed=4, lines=2).text
    assert len({output for output, *_ in many.nbest}) > 1


def test_many_samples_of_a_prompt_cost_what_as_many_prompts_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few of them share a cache, and no more tokens are written at once than of several prompts; they stay the same."""
    verbs, asked = verbs_of(gpt(CHARS, max_length=32), CHARS, "sentences"), []
    alone = [verbs.generate("나는", nbest=count, seed=3, max_tokens=9).nbest for count in (1, 2, WIDTH)]
    search = generation.search

    def watched(model: Any, batch: Any, config: Config, *rest: Any) -> Any:
        asked.append((len(batch), config.nbest))
        return search(model, batch, config, *rest)

    monkeypatch.setattr(generation, "search", watched)
    monkeypatch.setattr(generation, "BATCH_TOKENS", {"cpu": 400})
    many = verbs.generate(["나는", "그"], nbest=50, seed=3, max_tokens=9)[0]
    for few in alone:
        assert [text for text, *_ in few] == [text for text, *_ in many.nbest[: len(few)]]
        assert [score for _, score, _ in few] == pytest.approx(
            [score for _, score, _ in many.nbest[: len(few)]], abs=1e-4
        )
    assert len(many.nbest) == len(many.texts) == 50 and len(set(many.texts)) > 40
    assert sum(rows * samples for rows, samples in asked) == 100
    assert all(samples <= WIDTH and rows * samples * (3 + 9) <= 400 for rows, samples in asked)


@pytest.mark.parametrize("lines", [1, 2])
def test_many_samples_come_in_parts(monkeypatch: pytest.MonkeyPatch, lines: int) -> None:
    verbs = verbs_of(table(CHARS), CHARS)
    whole = verbs.generate("나", nbest=11, seed=3, lines=lines)
    monkeypatch.setattr(generation, "CHUNK", 4)
    parts = list(verbs.stream(iter(["나"]), parts=True, nbest=11, seed=3, lines=lines))
    assert [(part.first, len(part.nbest)) for part in parts] == [(0, 4), (4, 4), (8, 3)]
    assert tuple(text for part in parts for text in part.texts) == whole.texts
    one, other = verbs.stream(iter(["나", "그"]), nbest=11, seed=3, lines=lines)
    assert one == whole and other.input == "그" and len(other.nbest) == 11


@pytest.mark.parametrize("unit", UNITS)
@given(
    seed=st.integers(0, 1000),
    prompt=st.sampled_from(["", "나는", "그는 책", "Minsu ate", "나는\n그는"]),
    lines=st.integers(1, 3),
    stop=st.sampled_from([(), ("다",), ("을 ", "e"), ("a b",), ("가",)]),
)
@settings(deadline=None, max_examples=5)
def test_what_is_told_as_it_grows_is_the_text(
    unit: str, seed: int, prompt: str, lines: int, stop: tuple[str, ...]
) -> None:
    tokenizer = tokenizer_of(unit)
    verbs = verbs_of(table(tokenizer, seed), tokenizer)
    try:
        expected = verbs.generate(prompt, lines=lines, stop=stop, seed=seed, max_tokens=10)
    except UserError as error:
        assert "cannot spell" in str(error)
        return
    writing, bits = verbs.write(prompt, lines=lines, stop=stop, seed=seed, max_tokens=10), []
    while True:
        try:
            bits.append(next(writing))
        except StopIteration as ended:
            result = ended.value
            break
    assert "".join(bits) == expected.text
    assert all(bits)
    assert replace(result, nbest=(), score=0.0) == replace(expected, nbest=(), score=0.0)
    assert result.score == pytest.approx(expected.score, abs=1e-4)
    assert not any(each in expected.output for each in stop)
    assert "".join(verbs.write(prompt, echo=False, lines=lines, stop=stop, seed=seed, max_tokens=10)) == expected.output


class Script(torch.nn.Module):
    """Says one text in every line, whatever was read: after `<s>` its first token, at its end `</s>`."""

    def __init__(self, tokenizer: Tokenizer, says: str) -> None:
        super().__init__()
        self.vocabulary = tokenizer.vocabulary
        self.says = torch.tensor([*tokenizer.encode(says).ids, 3, 3])
        self.read: list[list[int]] = []

    def forward_stateful(self, batch: Any, carry: Any) -> Any:
        raise AssertionError("a text is written by steps")

    def forward(self, batch: Any) -> Tensor:
        return self.step(batch.tokens, self.start(batch))[0]

    def output(self, hidden: Tensor) -> Tensor:
        return hidden

    def start(self, batch: Any) -> State:
        return State(fixed=None, moving=torch.zeros(len(batch), dtype=torch.long))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        self.read.append(tokens[0].tolist())
        place, logits = state.moving, torch.full((*tokens.shape, len(self.vocabulary)), -20.0)
        for time, read in enumerate(tokens.unbind(1)):
            place = torch.where(read == 2, 0, place + 1)  # tokens since the line began
            logits[torch.arange(len(tokens)), time, self.says[place.clamp(max=len(self.says) - 1)]] = 0.0
        return logits, State(None, place)


@pytest.mark.parametrize("unit", ["char", "jamo", "byte-bpe"])
@pytest.mark.parametrize("method", ["greedy", "sampling", "beam", "best-first"])
@pytest.mark.parametrize(
    ("stop", "output"),
    [("다.", "나는 사과를 먹었"), ("를 먹", "나는 사과"), (["는", "과"], "나"), ("나", ""), ("없", None)],
)
def test_stop_strings_end_the_text(unit: str, method: str, stop: Any, output: str | None) -> None:
    text = "나는 사과를 먹었다."
    tokenizer = Tokenizer.train([text, "없다"], TextConfig(unit=unit, vocabulary=320))  # type: ignore[arg-type]
    verbs = verbs_of(Script(tokenizer, text), tokenizer, method=method, max_length=40)
    result = verbs.generate("", stop=stop)
    assert result.output == (text if output is None else output)
    assert result.score == pytest.approx(0.0, abs=1e-3)
    assert not result.is_cut


def test_a_syllable_that_grows_is_no_stop_string() -> None:
    """In jamo 나 is half of 난; the text must hold the stop string, not its letters."""
    tokenizer = Tokenizer.train(["난 가다"], TextConfig(unit="jamo", vocabulary=60))
    verbs = verbs_of(Script(tokenizer, "난 다"), tokenizer, method="greedy")
    assert verbs.generate("", stop="나").output == "난 다"
    assert "".join(verbs.write("", stop="나")) == "난 다"
    assert verbs.generate("", stop="다").output == "난 "
    assert "".join(verbs.write("", stop="다")) == "난 "


def test_jamo_join_the_last_syllable_of_the_prompt() -> None:
    tokenizer = Tokenizer.train(["난 간다"], TextConfig(unit="jamo", vocabulary=60))
    verbs = verbs_of(Script(tokenizer, "난"), tokenizer, method="greedy")
    result = verbs.generate("나")
    assert result.text == str(result) == "난" == "".join(verbs.write("나"))
    assert result.output == "난"  # the syllable changed, so it is new


class Counting(torch.nn.Module):
    """Says how many tokens it has in sight, up to nine: a model whose context can be seen."""

    longest = 6

    def __init__(self, vocabulary: Any) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.numbers = [vocabulary.id(digit) for digit in "0123456789"]
        self.read: list[list[int]] = []

    def start(self, batch: Any) -> State:
        return State(fixed=None, moving=torch.zeros(len(batch), 0, dtype=torch.long))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        seen = torch.cat([state.moving, tokens], dim=1)
        assert seen.shape[1] <= self.longest
        self.read.append(seen[0].tolist())
        logits = torch.full((*tokens.shape, len(self.vocabulary)), -20.0)
        for place in range(tokens.shape[1]):
            logits[:, place, self.numbers[state.moving.shape[1] + place + 1]] = 0.0
        return logits, State(None, seen)


DIGITS = Tokenizer.train(["0123456789 ab"], TextConfig(unit="char", vocabulary=40))


@pytest.mark.parametrize("layout", ["stream", "sentences"])
def test_a_text_may_be_longer_than_the_context(layout: str) -> None:
    """Each time the context is full, half of it is read again; a model of sentences keeps `<s>` at the front."""
    model = Counting(DIGITS.vocabulary)
    verbs = verbs_of(model, DIGITS, layout, method="greedy", max_length=14)
    result = verbs.generate("ab")
    # <s> a b fills three of six places; then four are read again, and for the last token alone all six.
    assert result.output == "3456" + "456" * 3 + "6"
    assert "".join(verbs.write("ab")) == result.text == "ab" + result.output
    assert result.is_cut and not result.note
    assert all(row[0] == 2 for row in model.read) == (layout == "sentences")


def test_a_prompt_longer_than_the_context_is_cut_from_the_left() -> None:
    model = Counting(DIGITS.vocabulary)
    verbs = verbs_of(model, DIGITS, method="greedy")
    result = verbs.generate("ab" * 5, max_tokens=2)
    assert result.text == "ab" * 5 + "56"
    assert "11 tokens" in result.note and "cut off" in result.note


def test_lines_follow_each_other() -> None:
    model = Script(DIGITS, "012")
    verbs = verbs_of(model, DIGITS, method="greedy")
    result = verbs.generate("", lines=3)
    assert result.output == result.text == "012\n012\n012"
    assert result.tokens == ("0", "1", "2", "</s>", "0", "1", "2", "</s>", "0", "1", "2")
    assert verbs.generate("ab\n0", lines=2).text == "ab\n012\n012"
    assert verbs.generate("0", lines=2, method="beam").text == "012\n012"
    assert verbs.generate("", lines=3, stop="2\n0").output == "01"
    model.read.clear()
    verbs.generate("", lines=2)
    # The text so far is read in one step, its boundary as `<s>`, and the `<s>` of the search is that boundary.
    assert [2, *map(DIGITS.vocabulary.id, "012")] in model.read and [2, 2] not in model.read


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lines": 2}, "single lines"),
        ({"max_tokens": 3, "max_length": 3}, "mean the same"),
        ({"coverage": 0.2, "method": "beam"}, "no source"),
        ({"max_ratio": 1.0}, "no source"),
        ({"lines": 0}, "from 1"),
        ({"temperature": 0.5, "method": "beam"}, "has no effect"),
        ({"beem": 3}, "did you mean beam"),
        ({"stop": ""}, "must be a text"),
        ({"stop": "漢"}, "cannot spell"),
    ],
)
def test_what_has_no_effect_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        verbs_of(table(CHARS), CHARS, "sentences").generate("나는", **options)


def test_several_beams_of_lines_are_refused() -> None:
    with pytest.raises(UserError, match="can be sampled"):
        verbs_of(table(CHARS), CHARS).generate("", lines=2, nbest=2, method="beam")


def test_what_the_model_does_not_know_is_told() -> None:
    verbs = verbs_of(table(CHARS), CHARS)
    result = verbs.generate("나漢는")
    assert result.note == "unknown to the model, and read as <unk>: '漢'"
    assert result.text.startswith("나漢는")
    assert verbs.score("나漢").unknown == ("漢",)
    words = tokenizer_of("word")
    assert "ends with a space" in verbs_of(table(words), words).generate("나는 ").note


def test_scores_add_up_and_long_texts_have_them_too() -> None:
    verbs = verbs_of(gpt(CHARS), CHARS, "sentences")
    long = "나는 사과를 먹었다. " * 3
    both = verbs.score(["나는", long])
    assert [len(each.tokens) for each in both] == [3, len(long) + 1]
    for each in both:
        assert each.tokens[-1] == "</s>" and each.score == pytest.approx(sum(each.token_scores))
        assert each.surprisals == pytest.approx([-score / math.log(2) for score in each.token_scores])
        assert verbs.score(each.text).score == pytest.approx(each.score, abs=1e-4)
    windowed = verbs_of(gpt(CHARS, max_length=8), CHARS, "sentences")
    assert len(windowed.score(long).token_scores) == len(long) + 1


def test_a_line_of_any_length_is_read_once() -> None:
    """Its windows are cut from it, whatever their number, and say what they say one by one."""

    class Line(list[int]):
        reads = 0

        def __iter__(self) -> Any:
            for token in super().__iter__():
                self.reads += 1
                yield token

        def __getitem__(self, place: Any) -> Any:
            self.reads += 1
            return super().__getitem__(place)

        def __array__(self, *args: Any, **options: Any) -> Any:
            self.reads += len(self)
            return np.array(list(super().__iter__()), *args)

    model = gpt(CHARS, max_length=8)
    line = Line(CHARS.encode("나는 사과를 먹었다. " * 40).ids)
    [found] = line_log_probs(model, Lines([line]), ContextMode("lines", 8, 4))
    assert line.reads <= 2 * len(line)
    ids = [*list.__iter__(line), EOS]
    for begin, first in ((0, 0), (4, 8), (200, 204)):  # the windows that predict these and the next few
        inputs = torch.tensor([[BOS, *ids][begin : begin + 8]])
        batch = Batch(tokens=inputs, lengths=torch.tensor([8]))
        log_probs = model.output(model(batch)).log_softmax(-1)[0].detach()
        expected = [float(log_probs[place - begin, ids[place]]) for place in range(first, begin + 8)]
        assert found[first : begin + 8] == pytest.approx(expected, abs=1e-4)


def test_a_model_prefers_what_it_finds_more_probable() -> None:
    verbs = verbs_of(Script(DIGITS, "012"), DIGITS)
    right, wrong = verbs.prefer([("012", "021"), ("02", "012")])
    assert right.is_right and right.margin > 10 and not wrong.is_right
    assert isinstance(right, Preference)
    found = verbs.accuracy([("012", "021"), ("02", "012")])
    assert found.value == 50.0 and "by:total" in found.signature and (found.low, found.high) == (0.0, 100.0)
    # A long text has a lower probability, but perhaps not a token: twice as much of what is just as surprising.
    flat = Unbounded(DIGITS.vocabulary, torch.zeros((len(DIGITS.vocabulary),) * 3))
    even = verbs_of(flat, DIGITS)
    assert even.accuracy([("0", "01")]).value == 100.0
    assert even.prefer([("0", "01")], by="token")[0].margin == pytest.approx(0.0, abs=1e-6)


def test_perplexity_of_texts() -> None:
    flat = Unbounded(DIGITS.vocabulary, torch.zeros((len(DIGITS.vocabulary),) * 3))
    found = verbs_of(flat, DIGITS, "sentences").perplexity(["01 2", "3"])
    assert set(found) == {"token", "word", "byte"}
    assert found["token"].value == pytest.approx(len(DIGITS.vocabulary), rel=1e-4)
    assert found["byte"].value == pytest.approx(math.log2(len(DIGITS.vocabulary)), rel=1e-4)


def test_models_that_cut_texts_alike_write_together() -> None:
    one, other = verbs_of(table(CHARS, 1), CHARS), verbs_of(table(CHARS, 2), CHARS)
    both = one.ensemble([other])
    assert both.generate("나", method="greedy").text not in ("", one.generate("나", method="greedy").text)
    with pytest.raises(UserError, match="tokenizers differ"):
        one.ensemble([verbs_of(table(DIGITS), DIGITS)])
