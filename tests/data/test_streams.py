"""A stream says every token of the text once, and reads before each what stands before it; packed rows do too."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.sampler import Packed, Shuffled, Streams
from mallang.data.streams import Pieces, Stream, lines_batch, packed_batch, windows_batch
from mallang.text.vocabulary import BOS, EOS, PAD


class Corpus:
    """Lines of ids, as prepared text gives them."""

    def __init__(self, lines, is_flat=False):
        self.flat = np.array([token for line in lines for token in line], dtype=np.uint16) if is_flat else None
        self.lines = [np.array(line, dtype=np.int64) for line in lines]
        self.lengths = np.array([[len(line)] for line in lines], dtype=np.int32)

    def __getitem__(self, number):
        return (self.lines[number],)


some_lines = st.lists(st.lists(st.integers(4, 20), max_size=9), min_size=1, max_size=12)


def whole(lines):
    """The two streams, written down naively."""
    labels = [token for line in lines for token in [*line, EOS]]
    return [BOS, *(BOS if token == EOS else token for token in labels[:-1])], labels


@settings(deadline=None)
@given(some_lines, st.booleans(), st.data())
def test_a_window_is_a_part_of_the_stream(lines, is_flat, data):
    stream = Stream(Corpus(lines, is_flat))
    inputs, labels = whole(lines)
    assert len(stream) == len(labels)
    begin = data.draw(st.integers(0, len(labels)))
    end = data.draw(st.integers(begin, len(labels)))
    read, said = stream.window(begin, end)
    assert read.tolist() == inputs[begin:end] and said.tolist() == labels[begin:end]


@settings(deadline=None)
@given(some_lines, st.integers(1, 4), st.integers(1, 9), st.booleans())
def test_batches_of_windows_say_every_token_once(lines, rows, width, shuffled):
    stream = Stream(Corpus(lines))
    inputs, labels = whole(lines)
    rows = min(rows, len(labels))
    plan = (
        Shuffled(len(stream), rows=rows, width=width, seed=1, epoch=0)
        if shuffled
        else Streams(len(stream), rows=rows, width=width)
    )
    found = []
    for k in range(len(plan)):
        batch = windows_batch([window for (window,) in stream.gather(plan[k])])
        assert batch.labels.shape == batch.tokens.shape
        for place, (tokens, said) in zip(plan[k], zip(batch.tokens, batch.labels, strict=True), strict=True):
            asked = said != PAD
            found += zip(range(*place), tokens[asked].tolist(), said[asked].tolist(), strict=True)
    assert sorted(found) == list(zip(range(len(labels)), inputs, labels, strict=True))


@settings(deadline=None)
@given(some_lines, st.integers(1, 12), st.integers(1, 3))
def test_packed_rows_hold_every_token_once_and_tell_documents_apart(lines, width, rows):
    pieces = Pieces(Corpus(lines), width)
    lengths = pieces.lengths
    assert len(lengths) == len(pieces) and lengths.min() >= 1 and lengths.max() <= width
    plan = Packed(lengths, width=width, rows=rows, seed=1, epoch=0)
    said, read = [], []
    for k in range(len(plan)):
        batch = packed_batch([[pieces[i] for i in row] for row in plan[k]])
        assert batch.tokens.shape[1] <= width
        assert ((batch.segments > 0) == batch.mask).all()
        for row, numbers in enumerate(plan[k]):
            for place, number in enumerate(numbers):
                mine = batch.segments[row] == place + 1
                assert batch.tokens[row][mine].tolist() == pieces[number][0].tolist()
                assert batch.labels[row][mine].tolist() == pieces[number][1].tolist()
                said += batch.labels[row][mine].tolist()
                read += batch.tokens[row][mine].tolist()
    assert sorted(said) == sorted(whole(lines)[1])
    assert sorted(read) == sorted(whole(lines)[0])


def test_a_long_document_goes_on_in_its_next_piece():
    pieces = Pieces(Corpus([[5, 6, 7, 8], [9]]), 3)
    assert [(read.tolist(), said.tolist()) for read, said in (pieces[i] for i in range(3))] == [
        ([BOS, 5, 6], [5, 6, 7]),
        ([7, 8], [8, EOS]),
        ([BOS, 9], [9, EOS]),
    ]


def test_lines_by_themselves():
    batch = lines_batch([[5, 6], []])
    assert batch.tokens.tolist() == [[BOS, 5, 6], [BOS, PAD, PAD]]
    assert batch.labels.tolist() == [[5, 6, EOS], [EOS, PAD, PAD]]
    assert batch.lengths.tolist() == [3, 1]
