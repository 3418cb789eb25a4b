"""Batches: every field says how it is padded, so that nothing that handles batches has a list of names."""

from dataclasses import fields

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mallang.data.batch import (
    DOUBLED,
    IGNORE,
    STEPPED,
    VARYING,
    Batch,
    Shapes,
    pad_pairs,
    rectangles,
    stepped,
)
from mallang.text.vocabulary import SPECIALS, Vocabulary

AXES = {"batch", "examples", "classes", "ends", "facts", *VARYING, *DOUBLED, *STEPPED}
AXES |= {"height", "width", "colors", "regions", "region_dim", "alternatives", "statement", "place", "languages"}


def full(rows=3, time=5, words=2, documents=None, sentences=2):
    """A batch with every field; of documents where their number is given."""
    examples = rows if documents is None else documents
    return Batch(
        tokens=torch.ones(rows, time, dtype=torch.long),
        lengths=torch.full((rows,), time),
        labels=torch.ones(rows, time, dtype=torch.long),
        source=torch.ones(rows, time + 1, dtype=torch.long),
        source_lengths=torch.full((rows,), time + 1),
        segments=torch.ones(rows, time, dtype=torch.long),
        token_types=torch.ones(rows, time, dtype=torch.long),
        masked=torch.ones(rows, 3, dtype=torch.long),
        classes=torch.zeros(examples, dtype=torch.long),
        class_sets=torch.zeros(examples, 4),
        numbers=torch.zeros(examples),
        words=torch.zeros(rows, words, dtype=torch.long),
        tags=torch.zeros(rows, words, dtype=torch.long),
        sentences=None if documents is None else torch.zeros(documents, sentences, dtype=torch.long),
        candidates=torch.ones(rows, time, dtype=torch.bool),
        answers=torch.zeros(rows, 2, dtype=torch.long),
        choices=None if documents is None else torch.zeros(documents, sentences, dtype=torch.long),
        ngrams=torch.ones(examples, 7, dtype=torch.long),
        feature_tokens=torch.ones(examples, time + 3, dtype=torch.long),
        feature_lengths=torch.full((examples,), time + 3),
        second_feature_tokens=torch.ones(examples, time + 2, dtype=torch.long),
        second_feature_lengths=torch.full((examples,), time + 2),
        feature_words=torch.zeros(examples, words, dtype=torch.long),
        images=torch.zeros(rows, 4, 4, 3, dtype=torch.uint8),
        regions=torch.zeros(rows, 2, 6),
        asked=torch.zeros(rows, dtype=torch.long),
        lemmas=torch.zeros(rows, dtype=torch.long),
        marks=torch.zeros(rows, words, dtype=torch.long),
        concepts=torch.zeros(rows, 4, dtype=torch.long),
        paths=torch.zeros(5, 8, dtype=torch.long),
        pairs=torch.zeros(rows, 3, 2, dtype=torch.long),
        statements=torch.zeros(rows, 6),
        entities=torch.zeros(rows, 2, dtype=torch.long),
        entity_places=torch.zeros(rows, 2, dtype=torch.long),
        entity_labels=torch.zeros(rows, 2, dtype=torch.long),
        distinct_entities=torch.zeros(3, dtype=torch.long),
        document_words=torch.zeros(examples, 4, 2, dtype=torch.long),
        document_sentences=torch.zeros(examples, 4, dtype=torch.long),
        mentions=torch.zeros(examples, 2, 3, dtype=torch.long),
        texts=torch.ones(rows, 2, time, dtype=torch.long),
        text_lengths=torch.full((rows, 2), time),
        noisy=torch.ones(rows, 2, time, dtype=torch.long),
        noisy_lengths=torch.full((rows, 2), time),
        translated=torch.ones(rows, 2, time, dtype=torch.long),
        translated_lengths=torch.full((rows, 2), time),
    )


@pytest.mark.parametrize("each", fields(Batch), ids=lambda each: each.name)
def test_every_field_declares_axes_and_fill(each):
    assert set(each.metadata["axes"]) <= AXES
    assert "fill" in each.metadata


@given(
    rows=st.integers(1, 4), time=st.integers(1, 20), words=st.integers(1, 9), documents=st.none() | st.integers(1, 3)
)
def test_filling_keeps_what_was_there_and_marks_what_was_not(rows, time, words, documents):
    batch = full(rows, time, words, documents)
    filled = Shapes(200, multiple=8).fill(batch)
    for each in fields(Batch):
        before, after = getattr(batch, each.name), getattr(filled, each.name)
        if before is None:
            assert after is None
            continue
        assert after[tuple(slice(size) for size in before.shape)].equal(before)
        added = torch.ones_like(after, dtype=torch.bool)
        added[tuple(slice(size) for size in before.shape)] = False
        expected = torch.full_like(after, each.metadata["fill"])[added]
        assert torch.equal(after[added].nan_to_num(7.0), expected.nan_to_num(7.0)), each.name
    assert all(value.shape[1] % 8 == 0 for _, value in rectangles(filled))


@given(width=st.integers(1, 40), longest=st.integers(1, 40), multiple=st.sampled_from([1, 8, 16]))
def test_no_width_is_rounded_up_beyond_the_positions_of_a_model(width, longest, multiple):
    found = Shapes(200, multiple=multiple, longest=longest).rounded(width)
    assert width <= found <= max(width + multiple - 1, multiple)
    if width <= longest:
        assert found <= longest and (found % multiple == 0 or found == longest)
    else:  # the other side of a pair, which need not have this limit
        assert found % multiple == 0
    assert Shapes(24, longest=12).fill(full(rows=1, time=10, words=10)).tokens.shape == (2, 12)


def test_class_zero_is_a_class_and_added_rows_have_none():
    filled = Shapes(64, multiple=8).fill(full(rows=2, time=5))
    assert len(filled) == 8
    assert filled.classes.tolist() == [0, 0] + [IGNORE] * 6
    assert (filled.tags[:2, :2] == 0).all() and (filled.tags != IGNORE).sum() == 4
    assert filled.numbers.isnan().tolist() == [False] * 2 + [True] * 6


def test_documents_are_filled_apart_from_their_sentences():
    filled = Shapes(80, multiple=8).fill(full(rows=5, time=5, documents=2, sentences=3))
    assert filled.tokens.shape == (10, 8)
    assert filled.sentences.shape == (8, 8) and filled.classes.shape == (8,)


def test_choices_are_filled_apart_from_their_questions():
    ones = torch.ones(5, 6, dtype=torch.long)
    choices = torch.tensor([[0, 1, 2], [3, 4, -1]])
    batch = Batch(tokens=ones, lengths=torch.full((5,), 6), choices=choices, classes=torch.tensor([2, 0]))
    filled = Shapes(80, multiple=8).fill(batch)
    assert filled.tokens.shape == (10, 8) and filled.choices.shape == (8, 8)
    assert filled.choices[1].tolist() == [3, 4, *[-1] * 6] and filled.classes.tolist() == [2, 0, *[IGNORE] * 6]


def test_moving_and_sending_keep_every_field():
    batch = full(documents=2)
    moved = batch.to("cpu")
    build, arguments = batch.__reduce__()
    for copy in (moved, build(*arguments)):
        for each in fields(Batch):
            assert torch.equal(getattr(copy, each.name), getattr(batch, each.name)), each.name


def test_numbers_of_masked_tokens_are_rounded_up_to_a_short_list():
    assert [stepped(size) for size in (0, 1, 8, 9, 64, 65, 100, 128, 129, 2458)] == [
        8, 8, 8, 16, 64, 72, 104, 128, 144, 2560,
    ]  # fmt: skip
    sizes = range(64, 20_000)
    assert all(size <= stepped(size) <= 1.125 * size for size in sizes) and len({*map(stepped, sizes)}) < 70


GPT1 = Vocabulary(
    (*SPECIALS, "<start>", "<delimiter>", "<extract>"), optional=(("start", 4), ("delimiter", 5), ("extract", 6))
)


@pytest.mark.parametrize(
    ("vocabulary", "row", "types"),
    [
        (
            Vocabulary((*SPECIALS, "<cls>", "<sep>"), optional=(("cls", 4), ("sep", 5))),
            [4, 7, 8, 5, 9, 5],
            [0, 0, 0, 0, 1, 1],
        ),
        (
            Vocabulary((*SPECIALS, "<cls>", "<sep>"), optional=(("cls", 4), ("sep", 5)), pair_separators=2),
            [4, 7, 8, 5, 5, 9, 5],
            [0, 0, 0, 0, 0, 1, 1],
        ),
        (Vocabulary(SPECIALS), [7, 8, 3, 9, 3], [0, 0, 0, 1, 1]),
        (GPT1, [4, 7, 8, 5, 9, 6], [0, 0, 0, 0, 1, 1]),
        (
            Vocabulary((*GPT1.tokens, "<cls>", "<sep>"), optional=(*GPT1.optional, ("cls", 10), ("sep", 11))),
            [10, 7, 8, 11, 9, 11],
            [0, 0, 0, 0, 1, 1],
        ),
    ],
    ids=["BERT", "RoBERTa", "without cls", "GPT-1", "both"],
)
def test_the_texts_of_a_pair_are_joined_with_the_segment_of_every_token(vocabulary, row, types):
    tokens, lengths, segments = pad_pairs([[7, 8], [7]], [[9], []], vocabulary)
    assert tokens[0].tolist() == row
    assert segments[0].tolist() == types
    short = [each for each in row if each not in (8, 9)]
    assert tokens[1].tolist() == [*short, 0, 0]
    assert segments[1].tolist() == [*[0] * (len(short) - 1), 1, 0, 0]
    assert lengths.tolist() == [len(row), len(row) - 2] == [2 + 1 + vocabulary.pair_frame_length, len(short)]
