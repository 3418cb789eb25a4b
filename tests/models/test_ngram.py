"""N-grams against counting by hand, slowly: what each smoothing is by its definition."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.batch import Batch
from mallang.data.streams import Stream, lines_batch, windows_batch
from mallang.decoding.scoring import score
from mallang.errors import UserError
from mallang.models.ngram import Config, NGram
from mallang.runs.weights import own_weights, set_weights
from mallang.tasks.surprisal import Lines
from mallang.text.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Vocabulary

WORDS = 5
VOCABULARY = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(4, 4 + WORDS))))
SAID = [number for number in range(len(VOCABULARY)) if number not in (PAD, BOS)]
CORPUS = [[4, 5, 6], [4, 5, 7, 4, 5, 6], [8], [], [4, 4, 5, 6, 7], [5, 6, 4, 5], [6, 6, 6, 7]]

Line = tuple[int, ...]
Probability = Callable[[int, Line], float]

texts = st.lists(st.lists(st.sampled_from([UNK, 4, 4, 4, 5, 5, 6, 7, 8]), max_size=7), min_size=1, max_size=12)
few = settings(deadline=None, max_examples=25)


def fitted(corpus: Sequence[Sequence[int]], **options: Any) -> NGram:
    model = NGram(Config(**options), VOCABULARY)
    half = len(corpus) // 2  # two batches, since a text comes in many
    batches = [lines_batch(list(part)) for part in (corpus[:half], corpus[half:]) if part]
    list(model.fit(batches))
    return model


def every_history(order: int) -> list[Line]:
    """All that can come before a word, `<pad>` where there is nothing: what was seen and what was not."""
    past = max(1, order - 1)
    words = [UNK, 4, 5, 6, 8]
    inside = [line for length in range(past + 1) for line in itertools.product(words, repeat=length)]
    begun = [(BOS, *line) for line in inside if len(line) < past]
    return [(PAD,) * (past - len(line)) + line for line in (*inside, *begun)]


def probabilities(model: NGram, histories: Sequence[Line]) -> torch.Tensor:
    return model.output(torch.tensor(histories).float()).double().exp()


def ngram_counts(corpus: Sequence[Sequence[int]], order: int, begin: bool = True) -> list[Counter[Line]]:
    """How often each n-gram occurs, of lengths 0 up; `<s>` is never said."""
    counts: list[Counter[Line]] = [Counter() for _ in range(order + 1)]
    for words in corpus:
        line = (BOS, *words, EOS) if begin else (*words, EOS)
        for length in range(1, order + 1):
            for start in range(len(line) - length + 1):
                if (gram := line[start : start + length]) != (BOS,):
                    counts[length][gram] += 1
    return counts


def went_on(counts: Counter[Line], history: Line) -> dict[int, int]:
    return {gram[-1]: number for gram, number in counts.items() if gram[:-1] == history and number}


def kneser_ney(corpus: Sequence[Sequence[int]], order: int, least: Sequence[int], begin: bool = True) -> Probability:
    """Chen and Goodman 1998, section 3.6, with the discounts, ends and cut-offs of lmplz."""
    raw = ngram_counts(corpus, order, begin)
    adjusted = list(raw)
    for length in range(1, order):
        before: dict[Line, set[int | None]] = defaultdict(set)
        for gram in raw[length + 1]:
            before[gram[1:]].add(gram[0])
        for words in [] if begin else corpus:
            before[tuple((*words, EOS)[:length])].add(None)
        adjusted[length] = Counter(
            {gram: number if gram[0] == BOS else len(before[gram]) for gram, number in raw[length].items()}
        )
    discounts = [[0.0] * 4]
    for length in range(1, order + 1):
        n = Counter(adjusted[length].values())
        found = [0.0, 0.5, 1.0, 1.5]
        if n[1] and n[2] and n[3]:
            y = n[1] / (n[1] + 2 * n[2])
            own = [0.0, *(i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3))]
            found = own if all(0 <= d <= i for i, d in enumerate(own)) else found
        discounts.append(found)

    def probability(word: int, history: Line) -> float:
        length = len(history) + 1
        shorter = probability(word, history[1:]) if history else 1 / len(SAID)
        seen = went_on(adjusted[length], history)
        if not seen:
            return shorter
        total, told, left = sum(seen.values()), 0.0, 0.0
        for other, number in seen.items():
            is_kept = length == 1 or raw[length][(*history, other)] >= least[length - 1]
            discount = discounts[length][min(number, 3)]
            left += discount if is_kept else number
            if other == word and is_kept:
                told = number - discount
        return told / total + left / total * shorter

    return probability


def katz(corpus: Sequence[Sequence[int]], order: int, least: Sequence[int], most: int) -> Probability:
    """Katz 1987, with what SRILM does where Good-Turing has nothing to say."""
    counts = ngram_counts(corpus, order)

    def discount(number: int, length: int) -> float:
        n, k = Counter(counts[length].values()), most
        while k and not n[k + 1]:
            k -= 1
        if length == 1 or number > k or not n[1]:
            return 1.0
        beyond = (k + 1) * n[k + 1] / n[1]
        ratio = (number + 1) * n[number + 1] / (number * n[number])
        found = (ratio - beyond) / (1 - beyond) if beyond != 1 else 0.0
        return found if 3e-6 < found <= 1 and ratio <= 1 else 1.0

    def probability(word: int, history: Line) -> float:
        length = len(history) + 1
        every = went_on(counts[length], history)
        seen = {other: number for other, number in every.items() if length == 1 or number >= least[length - 1]}
        if not every:
            return probability(word, history[1:]) if history else 1 / len(SAID)
        total = sum(every.values())
        told = {other: number * discount(number, length) for other, number in seen.items()}
        if sum(told.values()) > (1 - 3e-6) * total and len(seen) < len(SAID):
            total += 1
        left = 1 - sum(told.values()) / total
        if not history:
            unseen = len(SAID) - len(seen)
            return told[word] / total if word in told else left / unseen
        shorter = {other: probability(other, history[1:]) for other in SAID}
        rest = 1 - sum(shorter[other] for other in seen)
        if rest < 3e-6:
            return told.get(word, 0.0) / sum(told.values())
        return told[word] / total if word in told else left / rest * shorter[word]

    return probability


def check_equal(model: NGram, expected: Probability) -> None:
    histories = every_history(model.config.order)
    found = probabilities(model, histories)
    for row, padded in zip(found.tolist(), histories, strict=True):
        history = tuple(word for word in padded if word != PAD)
        history = history[-(model.config.order - 1) :] if model.config.order > 1 else ()
        for word in SAID:
            assert row[word] == pytest.approx(expected(word, history), rel=2e-5, abs=1e-7), (history, word)


@few
@given(corpus=texts, order=st.integers(1, 3), least=st.sampled_from([(1, 1, 1), (1, 1, 2), (1, 2, 2)]))
def test_kneser_ney_is_its_definition(corpus: list[list[int]], order: int, least: tuple[int, ...]) -> None:
    model = fitted(corpus, order=order, min_counts=least[:order])
    check_equal(model, kneser_ney(corpus, order, least))


@few
@given(corpus=texts)
def test_kneser_ney_without_a_beginning_counts_it_as_one_word_before(corpus: list[list[int]]) -> None:
    expected = kneser_ney(corpus, 3, (1, 1, 1), begin=False)
    model = fitted(corpus, begin=False)
    check_equal(model, lambda word, history: expected(word, history if BOS not in history else history[1:]))


@few
@given(
    corpus=texts,
    order=st.integers(1, 3),
    most=st.integers(1, 7),
    least=st.sampled_from([(1, 1, 1), (1, 1, 2), (1, 2, 3)]),
)
def test_katz_is_its_definition(corpus: list[list[int]], order: int, most: int, least: tuple[int, ...]) -> None:
    model = fitted(corpus, order=order, smoothing="katz", good_turing=most, min_counts=least[:order])
    check_equal(model, katz(corpus, order, least, most))


@few
@given(corpus=texts, order=st.integers(1, 3), alpha=st.sampled_from([0.01, 1.0, 5.0]))
def test_add_k_is_its_definition(corpus: list[list[int]], order: int, alpha: float) -> None:
    """Where a text begins h is short; what is short within a text, as only without `<s>`, tells nothing."""
    counts = ngram_counts(corpus, order)

    def expected(word: int, history: Line) -> float:
        is_whole = len(history) == order - 1 or history[:1] == (BOS,)
        seen = went_on(counts[len(history) + 1], history) if is_whole else {}
        return (seen.get(word, 0) + alpha) / (sum(seen.values()) + alpha * len(SAID))

    check_equal(fitted(corpus, order=order, smoothing="add-k", alpha=alpha), expected)


@pytest.mark.parametrize("order", [2, 3, 4])
def test_add_k_counts_how_texts_begin(order: int) -> None:
    model = fitted([[4, 5, 6]] * 50, order=order, smoothing="add-k", alpha=0.01)
    (found,) = score(model, lines_batch([[4, 5, 6]]))
    assert found == pytest.approx([math.log(50.01 / (50 + 0.01 * len(SAID)))] * 4, abs=1e-5)
    bare = fitted([[4, 5, 6]] * 50, order=order, smoothing="add-k", alpha=0.01, begin=False)
    (found,) = score(bare, lines_batch([[4, 5, 6]]))
    assert found[: order - 1] == pytest.approx([-math.log(len(SAID))] * (order - 1), abs=1e-5)


@few
@given(corpus=texts, weights=st.sampled_from([(0.1, 0.2, 0.3, 0.4), (0.0, 0.0, 0.4, 0.6), (0.5, 0.5, 0.0, 0.0)]))
def test_interpolation_is_its_definition(corpus: list[list[int]], weights: tuple[float, ...]) -> None:
    """Orders whose history was never seen say nothing, and the others share their weight."""
    counts = ngram_counts(corpus, 3)

    def expected(word: int, history: Line) -> float:
        told = [1 / len(SAID)]
        for length in range(1, len(history) + 2):
            seen = went_on(counts[length], history[len(history) - length + 1 :])
            if seen:
                told.append(seen.get(word, 0) / sum(seen.values()))
        known = weights[: len(told)]
        if not sum(known):
            return told[-1]
        return sum(weight * number for weight, number in zip(known, told, strict=True)) / sum(known)

    check_equal(fitted(corpus, smoothing="interpolation", weights=weights), expected)


@few
@given(corpus=texts, order=st.integers(1, 3))
def test_maximum_likelihood_is_its_definition(corpus: list[list[int]], order: int) -> None:
    counts = ngram_counts(corpus, order)

    def expected(word: int, history: Line) -> float:
        seen = went_on(counts[len(history) + 1], history)
        return seen.get(word, 0) / sum(seen.values()) if seen else expected(word, history[1:])

    check_equal(fitted(corpus, order=order, smoothing="mle"), expected)


@few
@given(corpus=texts, threshold=st.integers(0, 2))
def test_plain_back_off_is_its_definition(corpus: list[list[int]], threshold: int) -> None:
    counts = ngram_counts(corpus, 3)

    def expected(word: int, history: Line) -> float:
        seen = went_on(counts[len(history) + 1], history)
        if history and seen.get(word, 0) <= threshold:
            return expected(word, history[1:])
        return seen.get(word, 0) / sum(seen.values())

    check_equal(fitted(corpus, smoothing="back-off", threshold=threshold), expected)


@few
@given(corpus=texts, penalty=st.sampled_from([0.4, 0.9]))
def test_stupid_back_off_is_its_definition(corpus: list[list[int]], penalty: float) -> None:
    counts = ngram_counts(corpus, 3)

    def expected(word: int, history: Line) -> float:
        seen = went_on(counts[len(history) + 1], history)
        if history and not seen.get(word):
            return penalty * expected(word, history[1:])
        return seen.get(word, 0) / sum(seen.values())

    model = fitted(corpus, smoothing="stupid-back-off", penalty=penalty)
    check_equal(model, expected)
    line = [4, 8, 6, 5, 5]
    (found,) = score(model, lines_batch([line]))
    read = [BOS, *line]
    told = [expected(word, tuple(read[max(0, i - 1) : i + 1])) for i, word in enumerate([*line, EOS])]
    assert found == pytest.approx([math.log(number) if number else -math.inf for number in told], rel=1e-4)


NORMAL: dict[str, dict[str, Any]] = {
    "mle": {},
    "add-k": {"alpha": 0.5},
    "interpolation": {"weights": (0.1, 0.2, 0.3, 0.2, 0.2)},
    "katz": {"min_counts": (1, 1, 2)},
    "kneser-ney": {"min_counts": (1, 1, 2)},
}


@pytest.mark.parametrize("begin", [True, False], ids=["begun", "bare"])
@pytest.mark.parametrize("smoothing", NORMAL)
@few
@given(corpus=texts)
def test_probabilities_sum_to_one_for_every_history(smoothing: Any, begin: bool, corpus: list[list[int]]) -> None:
    model = fitted(corpus, order=4, smoothing=smoothing, begin=begin, **NORMAL[smoothing])
    found = probabilities(model, every_history(4))
    assert (found >= 0).all()
    assert found.sum(dim=1).tolist() == pytest.approx([1.0] * len(found), abs=1e-5)


@few
@given(corpus=texts, line=st.lists(st.sampled_from([UNK, 4, 5, 6, 7, 8]), max_size=9), begin=st.booleans())
def test_a_text_at_once_is_its_words_one_by_one(corpus: list[list[int]], line: list[int], begin: bool) -> None:
    """The walk along a text, and the lookup of all words after one history, are written apart."""
    model = fitted(corpus, order=4, smoothing="interpolation", weights=(0.2,) * 5, begin=begin)
    batch = lines_batch([line, [4, 5], []])
    logits = model.output(model(batch))
    found = model.token_log_probs(batch)
    asked = batch.labels != PAD
    expected = logits.gather(2, batch.labels[:, :, None])[:, :, 0]
    torch.testing.assert_close(found[asked], expected[asked], rtol=1e-5, atol=1e-5)
    assert (found[~asked] == 0).all()


def test_windows_of_a_stream_are_lines_wherever_they_are_cut_between_them() -> None:
    """A boundary is read as `<s>` and said as `</s>`; what begins within a line begins a text without `<s>`."""
    stream = Stream(Lines(CORPUS))
    whole = windows_batch([stream.window(0, len(stream))])
    model, other = NGram(Config(), VOCABULARY), fitted(CORPUS)
    list(model.fit([whole]))
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name
    by_lines = [number for line in score(other, lines_batch(CORPUS)) for number in line]
    assert score(other, whole)[0] == pytest.approx(by_lines)


def test_an_unfinished_line_is_scored_from_what_is_known() -> None:
    """Labels that are not asked for are read all the same, as sliding windows need it."""
    model = fitted(CORPUS)
    batch = lines_batch([[4, 5, 6]])
    every = score(model, batch)[0]
    batch.labels[0, :2] = PAD
    assert score(model, batch)[0] == pytest.approx(every[2:])


def test_weights_are_fitted_to_held_out_text() -> None:
    """Expectation and maximization never make it less likely, and no other weights on a grid make it likelier."""
    random = torch.Generator().manual_seed(1)
    corpus = [torch.randint(4, 9, (6,), generator=random).tolist() for _ in range(60)]
    model = NGram(Config(order=2, smoothing="interpolation", held_out=0.25), VOCABULARY)
    told = list(model.fit([lines_batch(corpus)]))
    losses = [each["held_out_loss"] for each in told[:-1]]
    assert len(losses) > 2 and all(after <= before for before, after in itertools.pairwise(losses))
    weights = [told[-1][f"weight_{order}"] for order in range(3)]
    assert sum(weights) == pytest.approx(1) and min(weights) >= 0
    held_out = [line for number, line in enumerate(corpus, start=1) if number % 4 == 0]
    rest = [line for number, line in enumerate(corpus, start=1) if number % 4]
    for tried in itertools.product((0.02, 0.3, 0.6), repeat=2):
        other = fitted(
            rest, order=2, smoothing="interpolation", weights=(1 - sum(tried) / 1.3, *(t / 1.3 for t in tried))
        )
        found = [number for line in score(other, lines_batch(held_out)) for number in line]
        assert -sum(found) / len(found) >= losses[-1] - 1e-4


def test_a_saved_table_is_used_where_it_lies(tmp_path: Any) -> None:
    """Tables of any length: the arrays of a run are as long as its text made them."""
    model = fitted(CORPUS, order=4)
    safetensors.torch.save_file(own_weights(model), tmp_path / "model.safetensors")
    saved = safetensors.torch.load_file(tmp_path / "model.safetensors")
    other = NGram(Config(order=4), VOCABULARY)
    set_weights(other, saved, tmp_path)
    assert other.table.keys.data_ptr() == saved["table.keys"].data_ptr()
    batch = lines_batch(CORPUS)
    assert torch.equal(other.token_log_probs(batch), model.token_log_probs(batch))
    for config, words in ((Config(order=3), "order"), (Config(order=4), "sizes")):
        broken = {
            name: tensor[:-1] if words == "sizes" and "keys" in name else tensor for name, tensor in saved.items()
        }
        with pytest.raises(UserError, match=f"do not fit.*{words}"):
            set_weights(NGram(config, VOCABULARY), broken, tmp_path)
    with pytest.raises(UserError, match="do not fit"):
        set_weights(other, {"table.keys": saved["table.keys"]}, tmp_path)


def test_a_table_is_moved_but_never_rounded() -> None:
    model = fitted(CORPUS)
    before = model.token_log_probs(lines_batch(CORPUS))
    assert torch.equal(model.to(torch.bfloat16).token_log_probs(lines_batch(CORPUS)), before)
    assert model.table.log_probs.dtype == torch.float32


def test_scorers_and_probabilities_say_which_they_are() -> None:
    for smoothing in ("mle", "katz", "kneser-ney"):
        assert NGram(Config(smoothing=smoothing), VOCABULARY).is_probability
    for smoothing in ("back-off", "stupid-back-off"):
        assert not NGram(Config(smoothing=smoothing), VOCABULARY).is_probability
    model = NGram(Config(order=5, smoothing="katz", min_counts=(1, 1, 2), begin=False), VOCABULARY)
    assert model.signature == "ngram:5|smoothing:katz|least:1-1-2|begin:none"


def test_there_must_be_a_text_to_count_in() -> None:
    empty = Batch(tokens=torch.empty(0, 1, dtype=torch.long), lengths=torch.empty(0, dtype=torch.long), labels=None)
    with pytest.raises(UserError, match="no text"):
        list(NGram(Config(), VOCABULARY).fit([]))
    with pytest.raises(UserError, match="held_out"):
        list(NGram(Config(smoothing="interpolation"), VOCABULARY).fit([lines_batch([[4]])]))
    with pytest.raises(UserError, match="mallang import"):
        list(NGram(Config(smoothing="imported"), VOCABULARY).fit([empty]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": 0}, "order"),
        ({"alpha": 2.0}, "alpha = 2.0 has no effect"),
        ({"smoothing": "add-k", "alpha": 0.0}, "alpha must be above 0"),
        ({"smoothing": "mle", "min_counts": (1, 2)}, "min_counts"),
        ({"min_counts": (2, 2)}, "begin with 1"),
        ({"min_counts": (1, 3, 2)}, "never decrease"),
        ({"min_counts": (1, 1, 1, 2)}, "more than the order"),
        ({"smoothing": "interpolation", "weights": (0.5, 0.5)}, "must be 4 numbers"),
        ({"smoothing": "interpolation", "weights": (0.5, 0.5, 0.5, 0.5)}, "sum to 1"),
        ({"smoothing": "interpolation", "weights": (-0.5, 0.5, 0.5, 0.5)}, "not be negative"),
        ({"smoothing": "interpolation", "weights": (0.25,) * 4, "held_out": 0.2}, "held_out = 0.2 has no effect"),
        ({"smoothing": "interpolation", "held_out": 1.0}, "held_out must be"),
        ({"smoothing": "back-off", "threshold": -1}, "threshold"),
        ({"smoothing": "stupid-back-off", "penalty": 0.0}, "penalty"),
        ({"smoothing": "katz", "good_turing": 0}, "good_turing"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Config(**options)
