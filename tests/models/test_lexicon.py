"""The lexicon: IBM model 1 against sums over all alignments, and reading the table off word by word."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.batch import Batch, pad_rows
from mallang.errors import UserError
from mallang.layers.attention import record_attention
from mallang.models import lexicon
from mallang.models.lexicon import Config, Lexicon
from mallang.text.vocabulary import BOS, EOS, SPECIALS, UNK, Vocabulary

SOURCE = Vocabulary((*SPECIALS, "▁das", "▁haus", "▁buch", "▁ein", "."))
TARGET = Vocabulary((*SPECIALS, "▁the", "▁house", "▁book", "▁a", "▁House", "."))
WORD = st.integers(4, 8)
PAIRS = st.lists(
    st.tuples(st.lists(WORD, min_size=0, max_size=3), st.lists(WORD, min_size=1, max_size=3)), min_size=1, max_size=4
)


def build(**changes):
    return Lexicon(Config(**changes), TARGET, SOURCE).eval()


def batches(pairs, size=2):
    """Pairs of sentences, some at a time, as training makes them."""
    made = []
    for begin in range(0, len(pairs), size):
        sources, targets = zip(*pairs[begin : begin + size], strict=True)
        source, source_lengths = pad_rows(sources, end=EOS)
        tokens, lengths = pad_rows(targets, begin=BOS)
        labels, _ = pad_rows(targets, end=EOS)
        made.append(Batch(tokens=tokens, lengths=lengths, labels=labels, source=source, source_lengths=source_lengths))
    return made


def brute_force(pairs, passes):
    """Expectation-maximization over every alignment of every sentence; the table, and the loss before each pass."""
    pairs = [([*source, EOS], target) for source, target in pairs]
    table = {}
    for source, target in pairs:
        table |= {(s, t): 1.0 for s in source for t in target}
    losses = []
    for number in range(passes + 1):
        sums = {s: sum(p for (left, _), p in table.items() if left == s) for s, _ in table}
        table = {(s, t): p / sums[s] if sums[s] else 0.0 for (s, t), p in table.items()}
        if number == passes:
            return table, losses
        counts, likelihood, said = dict.fromkeys(table, 0.0), 0.0, 0
        for source, target in pairs:
            alignments = list(itertools.product(source, repeat=len(target)))
            joint = [
                math.prod(table[s, t] for s, t in zip(chosen, target, strict=True)) / len(source) ** len(target)
                for chosen in alignments
            ]
            for chosen, probability in zip(alignments, joint, strict=True):
                for s, t in zip(chosen, target, strict=True):
                    counts[s, t] += probability / sum(joint)
            likelihood, said = likelihood + math.log(sum(joint)), said + len(target)
        losses.append(-likelihood / said)
        table = counts
    raise AssertionError


def table_of(model):
    """What was fitted, as t(target | source) of all pairs above zero."""
    return {
        (s, int(t)): float(p)
        for s in range(len(SOURCE))
        for t, p in zip(model.candidates[s], model.probabilities[s], strict=True)
        if p > 0
    }


@settings(deadline=None, max_examples=40)
@given(pairs=PAIRS, passes=st.integers(1, 4))
def test_model_1_is_expectation_over_all_alignments(pairs, passes):
    model = build(passes=passes)
    measured = list(model.fit(batches(pairs)))
    table, losses = brute_force(pairs, passes)
    assert [each["loss"] for each in measured] == pytest.approx(losses, abs=1e-9)
    found = table_of(model)
    for (s, t), probability in table.items():
        if s != EOS:  # the empty word of the paper makes words, but none of the output
            assert found.get((s, t), 0.0) == pytest.approx(probability, abs=1e-6)


@settings(deadline=None, max_examples=40)
@given(pairs=PAIRS)
def test_the_likelihood_never_falls(pairs):
    losses = [each["loss"] for each in build(passes=8).fit(batches(pairs))]
    assert len(losses) == 8
    assert all(after <= before + 1e-12 for before, after in itertools.pairwise(losses))


@settings(deadline=None, max_examples=10)
@given(pairs=PAIRS)
def test_how_the_text_is_cut_into_batches_changes_nothing(pairs):
    tables = []
    for size in (1, 4):
        model = build(passes=3)
        list(model.fit(batches(pairs, size)))
        tables.append(table_of(model))
    assert tables[0] == pytest.approx(tables[1], abs=1e-6)


def test_what_is_not_remembered_is_looked_up_again(monkeypatch):
    pairs = [([4, 5], [4, 5]), ([4, 6], [4, 6]), ([7, 6], [7, 6, 5])]
    tables = []
    for most, pending in ((2**20, 2**20), (8, 0), (0, 3)):
        monkeypatch.setattr(lexicon, "REMEMBERED", most)
        monkeypatch.setattr(lexicon, "PENDING", pending)
        model = build(passes=3)
        list(model.fit(batches(pairs, 1)))
        tables.append(table_of(model))
    assert tables[0] == tables[1] == tables[2]


def fitted(**changes):
    """The example of Koehn's textbook: das Haus, das Buch, ein Buch."""
    model = build(passes=20, **changes)
    list(model.fit(batches([([4, 5], [4, 5]), ([4, 6], [4, 6]), ([7, 6], [7, 6])])))
    return model


def written(model, source):
    """Greedy outputs, and the probability of each."""
    batch = batches([(source, [4])])[0]
    state, tokens, said = model.start(batch), torch.tensor([[BOS]]), []
    for _ in range(len(source) + 3):
        logits, state = model.step(tokens, state)
        tokens = logits[:, -1:].argmax(dim=-1)
        said.append(int(tokens))
    return said


def test_the_textbook_example_comes_out():
    model = fitted()
    assert written(model, [4, 5]) == [4, 5, EOS, EOS, EOS]
    assert written(model, [6, 7, 4]) == [6, 7, 4, EOS, EOS, EOS]
    assert table_of(model)[6, 6] > 0.99  # buch is book, though it was seen beside the and a as often


def test_words_without_a_translation_stand_for_themselves_or_are_unknown():
    model = fitted()
    assert written(model, [8, UNK]) == [TARGET.id("."), UNK, EOS, EOS, EOS]
    unseen = build(passes=1)
    list(unseen.fit(batches([([4], [4])])))
    assert written(unseen, [5]) == [UNK, EOS, EOS, EOS]


def test_probabilities_are_the_tables_and_a_little_for_all():
    model = fitted(smoothing=0.1)
    logits = model.output(torch.tensor([[6.0]]))[0]
    expected = torch.full((len(TARGET),), 0.1 / len(TARGET))
    for (s, t), probability in table_of(model).items():
        expected[t] += 0.9 * probability if s == 6 else 0.0
    torch.testing.assert_close(logits.exp(), expected)
    torch.testing.assert_close(logits.exp().sum(), torch.tensor(1.0))


def test_only_the_likeliest_are_kept_and_of_equals_the_first():
    model = build(passes=1, candidates=2)
    list(model.fit(batches([([4], [9, 8, 5, 5])])))
    assert model.candidates[4].tolist() == [5, 8]
    assert model.probabilities[4].tolist() == pytest.approx([0.5, 0.25])


def test_each_output_attends_to_its_word():
    model, batch = fitted(), batches([([4, 5], [4, 5]), ([6], [6])])[0]
    with record_attention(model) as maps:
        model(batch)
    assert list(maps) == ["cross"]
    assert maps["cross"][:, 0].argmax(dim=-1).tolist() == [[0, 1, 2], [0, 1, 1]]


def test_a_lexicon_from_a_file(tmp_path):
    path = tmp_path / "de-en.txt"
    path.write_text("Haus house\nbuch\tbook\nbuch a\nunbekannt unknown\n", "utf-8")
    model = build(file=str(path))
    (told,) = model.fit(batches([([4], [4])]))
    assert told == {"entries": 4, "pairs": 4, "source_words": 2}
    assert table_of(model)[5, 5] == table_of(model)[5, 8] == 0.5  # ▁house and ▁House
    assert written(model, [5, 6, 4, 8]) == [5, 6, UNK, TARGET.id("."), EOS, EOS, EOS]  # das stands in no line


def test_a_copy_in_bfloat16_computes_in_float32():
    """Only the table is rounded: to 8 bits, half a percent of a probability."""
    model, batch = fitted(smoothing=0.001), batches([([4, 6], [4])])[0]
    exact = model.output(model(batch))
    rough = model.to(torch.bfloat16)
    found = rough.output(rough(batch))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, exact, rtol=0, atol=0.005)
    torch.testing.assert_close(found.exp().sum(dim=-1), torch.ones(found.shape[:-1]), rtol=0, atol=0.005)


def test_a_lexicon_of_other_words_is_refused(tmp_path):
    path = tmp_path / "lexicon.txt"
    path.write_text("house haus\n", "utf-8")
    with pytest.raises(UserError, match="none of the 1 entries has both its words"):
        list(build(file=str(path)).fit([]))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"passes": 0}, "passes must be at least 1, but is 0"),
        ({"candidates": 0}, "candidates must be at least 1"),
        ({"smoothing": 0.0}, "smoothing must be between 0 and 1"),
        ({"file": "a.txt", "passes": 3}, "passes = 3 has no effect on a lexicon from a file"),
    ],
)
def test_impossible_shapes_are_refused(changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        Config(**changes)
