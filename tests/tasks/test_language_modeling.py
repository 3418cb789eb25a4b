"""Language modeling: three layouts, a loss that goes on, and perplexities as an explicit loop gives them."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.batch import Batch
from mallang.data.corpus import Config as Data
from mallang.data.prepared import Prepared
from mallang.decoding.contract import Config as Search
from mallang.decoding.ensemble import ensemble_of
from mallang.errors import UserError
from mallang.layers.stateful import Stateful
from mallang.models import gpt, rnn_lm, transformer
from mallang.tasks import surprisal
from mallang.tasks.language_modeling import Config, Task, Verbs
from mallang.tasks.surprisal import ContextMode, line_log_probs, windows_of
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, EOS, PAD

TEXTS = ["the cat sees a dog", "a bird", "", "the dog is here and sings a song", "a cat sings", "birds"] * 3
RECURRENT = {"layers": 2, "embedding_dim": 12, "dim": 16, "dropout": 0.0}


class Corpus(Prepared):
    """Lines of ids in memory."""

    flat = None

    def __init__(self, lines):
        self.lines = lines

    @property
    def lengths(self):
        return np.array([[len(line)] for line in self.lines], dtype=np.int32)

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, number):
        return (self.lines[number],)


def make(module=rnn_lm, shape=None, **options):
    tokenizer = Tokenizer.train(TEXTS, Text(unit="space", vocabulary=60))
    task = Task(Config(**options), {"text": tokenizer})
    torch.manual_seed(5)
    shapes = {rnn_lm: RECURRENT, gpt: {**gpt.SIZES["tiny"], "max_length": 16}}
    return task, task.build(module, module.Config(**(shape or shapes.get(module, {})))).eval()


def corpus_of(task, texts=TEXTS):
    return Corpus([np.array(ids) for ids in task.text.encode_batch(list(texts))])


def batches_of(task, corpus, tokens=24, epoch=0, **more):
    plan = task.plan(corpus, tokens=tokens, seed=1, epoch=epoch, **more)
    examples = task.examples(corpus, 1, epoch)
    gather = getattr(examples, "gather", lambda rows: [tuple(examples[i] for i in row) for row in rows])
    return [task.prepare(gather(plan[k]), np.random.default_rng(0)) for k in range(len(plan))]


@torch.no_grad()
def one_by_one(model, inputs, labels):
    """The log-probability of every label, from steps of one token."""
    state, found = model.start(Batch(tokens=torch.tensor([[BOS]]), lengths=torch.ones(1, dtype=torch.long))), []
    for token, label in zip(inputs, labels, strict=True):
        logits, state = model.step(torch.tensor([[token]]), state)
        found.append(float(logits[0, 0].log_softmax(dim=0)[label]))
    return found


def streams_of(corpus):
    labels = [int(token) for (line,) in (corpus[i] for i in range(len(corpus))) for token in [*line, EOS]]
    return [BOS, *(BOS if token == EOS else token for token in labels[:-1])], labels


@pytest.mark.parametrize(
    ("options", "module"),
    [
        ({}, rnn_lm),
        ({"layout": "stream", "context": 5}, rnn_lm),
        ({"layout": "stream", "context": 6, "jitter": True}, rnn_lm),
        ({"layout": "stream", "context": 6, "order": "shuffled"}, gpt),
        ({"layout": "packed", "context": 8}, gpt),
    ],
)
def test_every_token_is_asked_for_once_an_epoch(options, module):
    task, model = make(module, **options)
    corpus = corpus_of(task)
    for epoch in range(2):
        batches = batches_of(task, corpus, epoch=epoch)
        counts = sum(task.counts(batch)["loss"] for batch in batches)
        said = sorted(int(label) for batch in batches for label in batch.labels.flatten() if label != PAD)
        assert counts == len(said) and said == sorted(streams_of(corpus)[1])
    assert all(task.loss(model, batch, None).sums["loss"].isfinite() for batch in batches)


@pytest.mark.parametrize("streams", [1, 2])
def test_carried_windows_equal_one_long_reading(streams):
    """The loss of all windows, each continuing from the last, is that of a reading of every whole row."""
    task, model = make(layout="stream", context=4)
    corpus = corpus_of(task)
    carries, total = [None] * streams, 0.0
    for number, batch in enumerate(batches_of(task, corpus, tokens=8, streams=streams)):
        loss = task.loss(model, batch, carries[number % streams])
        carries[number % streams] = loss.carry
        total += float(loss.sums["loss"].detach())
        assert not any(leaf.requires_grad for memory in loss.carry for leaf in memory if leaf is not None)
    inputs, labels = streams_of(corpus)
    rows, expected = 2 * streams, 0.0
    for row in range(rows):
        begin, end = row * len(labels) // rows, (row + 1) * len(labels) // rows
        expected -= sum(one_by_one(model, inputs[begin:end], labels[begin:end]))
    assert total == pytest.approx(expected, rel=1e-5)


def test_truncation_ends_at_the_window():
    """Nothing of an earlier window gets a gradient; within one, everything does."""
    task, model = make(layout="stream", context=4)
    first, second, *_ = batches_of(task, corpus_of(task), tokens=4)
    carry = task.loss(model, first, None).carry
    model.zero_grad()
    task.loss(model, second, carry).sums["loss"].backward()
    moved = model.embedding.weight.grad.abs().sum(dim=1) > 0
    assert set(moved.nonzero()[:, 0].tolist()) == set(second.tokens[0].tolist())


def test_jitter_scales_the_rate_with_the_width_and_leaves_the_loss():
    task, model = make(layout="stream", context=6, jitter=True)
    plain, _ = make(layout="stream", context=6)
    batches = batches_of(task, corpus_of(task), tokens=12)
    assert len({batch.tokens.shape[1] for batch in batches}) > 1
    for batch in batches:
        assert task.rate_factor(batch) == batch.tokens.shape[1] / 6 and plain.rate_factor(batch) == 1.0
        found, usual = task.loss(model, batch, None), plain.loss(model, batch, None)
        assert torch.equal(found.sums["loss"], usual.sums["loss"])


def test_penalties_are_part_of_the_loss_in_training_alone():
    task, model = make(shape={**RECURRENT, "ar": 2.0, "tar": 1.0})
    batch = batches_of(task, corpus_of(task))[0]
    loss = task.loss(model.train(), batch, None)
    assert {"nll", "ar", "tar"} == set(loss.report) and float(loss.report["ar"]) > 0
    assert float(loss.sums["loss"].detach()) == pytest.approx(
        sum(float(value) for value in loss.report.values()), rel=1e-5
    )
    assert set(task.loss(model.eval(), batch, None).report) == {"nll"}


@torch.no_grad()
def test_packed_documents_do_not_see_each_other():
    task, model = make(gpt, layout="packed", context=16)
    alone, _ = make(gpt)
    batches = batches_of(task, corpus_of(task), tokens=32)
    assert any(int(batch.segments.max()) > 1 for batch in batches)
    corpus = corpus_of(task)
    together = sum(float(task.loss(model, batch, None).sums["loss"]) for batch in batches)
    apart = sum(float(alone.loss(model, batch, None).sums["loss"]) for batch in batches_of(alone, corpus, tokens=40))
    assert together == pytest.approx(apart, rel=1e-5)


# Whole texts


@settings(deadline=None, max_examples=15)
@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=6), st.integers(1, 4))
def test_a_carried_text_is_read_token_by_token(texts, rows):
    task, model = make(layout="stream", context=5)
    corpus = corpus_of(task, texts)
    inputs, labels = streams_of(corpus)
    expected, parts = [], min(rows, len(labels))
    for row in range(parts):
        begin, end = row * len(labels) // parts, (row + 1) * len(labels) // parts
        expected += one_by_one(model, inputs[begin:end], labels[begin:end])
    found = line_log_probs(model, corpus, ContextMode("carried", rows=rows))
    assert [len(line) for line in found] == [len(text.split()) + 1 for text in texts]
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-4, atol=1e-5)


def test_an_ensemble_of_carried_models_is_carried(monkeypatch):
    """Its perplexity is that of steps of one token, however the text is cut, and its prompts may be of any length."""
    monkeypatch.setattr(surprisal, "STEP", 4)
    task, model = make(layout="stream", context=5)
    other = make(shape={**RECURRENT, "layers": 1, "dim": 24}, layout="stream", context=5)[1]
    alone = [Verbs(task, each, Search(), 0) for each in (model, other)]
    both = alone[0].ensemble(alone[1:])
    expected = one_by_one(both.model, *streams_of(corpus_of(task)))
    (token, *_), _ = both.evaluate([(text,) for text in TEXTS])
    assert "|context:carried|" in token.signature
    assert math.log(token.value) == pytest.approx(-sum(expected) / len(expected), rel=1e-5)
    assert math.log(token.value) != pytest.approx(math.log(alone[0].evaluate([(t,) for t in TEXTS])[0][0].value))
    assert both.reader.context is None, "all of a prompt is read"
    with pytest.raises(UserError, match="a stride is for windows"):
        both.evaluate([("a cat",)], stride=2)


def test_an_ensemble_carries_what_all_of_its_models_carry():
    _, carrying = make(layout="stream", context=5)
    task, limited = make(gpt, layout="stream", context=5, order="shuffled")
    assert isinstance(ensemble_of([carrying, carrying]), Stateful)
    mixed = ensemble_of([carrying, limited])
    assert not isinstance(mixed, Stateful) and task.context_mode(mixed) == ContextMode("sliding", 5)


@settings(deadline=None, max_examples=15)
@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=6), st.integers(1, 9), st.data())
def test_sliding_windows_see_as_much_as_fits(texts, context, data):
    stride = data.draw(st.none() | st.integers(1, context))
    task, model = make(gpt, layout="stream", context=context, order="shuffled", stride=stride)
    corpus = corpus_of(task, texts)
    inputs, labels = streams_of(corpus)
    expected, done = [], 0
    while done < len(labels):
        begin = 0 if not done else done + (stride or context) - context
        end = min(len(labels), begin + context)
        expected += one_by_one(model, inputs[begin:end], labels[begin:end])[done - begin :]
        done = end
    found = np.concatenate(line_log_probs(model, corpus, task.context_mode(model)))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@given(st.integers(1, 60), st.integers(1, 12), st.data())
def test_windows_predict_every_label_once(labels, context, data):
    stride = data.draw(st.integers(1, context))
    windows = windows_of(labels, context, stride)
    assert [place for _, fresh, end in windows for place in range(fresh, end)] == list(range(labels))
    assert all(0 <= begin <= fresh < end for begin, fresh, end in windows)
    assert all(end - begin == context for begin, _, end in windows[:-1])
    assert [begin for begin, _, _ in windows] == [stride * number for number in range(len(windows))]


@pytest.mark.parametrize(("module", "longest"), [(rnn_lm, None), (gpt, 6)])
def test_lines_are_judged_by_themselves(module, longest):
    task, model = make(module, shape=None if longest is None else {**gpt.SIZES["tiny"], "max_length": longest})
    corpus = corpus_of(task)
    context_mode = task.context_mode(model)
    assert context_mode == ContextMode("lines", longest)
    for number, found in enumerate(line_log_probs(model, corpus, context_mode)):
        inputs, labels = streams_of(Corpus([corpus[number][0]]))
        pieces = range(0, len(labels), longest or len(labels))
        expected = [
            value
            for begin in pieces
            for value in one_by_one(model, *(part[begin : begin + (longest or 99)] for part in (inputs, labels)))
        ]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


class Table(torch.nn.Module):
    """Says log-probabilities at once, as n-grams do."""

    def __init__(self, vocabulary):
        super().__init__()
        self.vocabulary = vocabulary
        self.table = torch.nn.Parameter(torch.randn(len(vocabulary), len(vocabulary)).log_softmax(dim=1))

    def token_log_probs(self, batch):
        return self.table[batch.tokens, batch.labels]


@torch.no_grad()
def test_a_model_may_give_log_probabilities_at_once():
    task, _ = make()
    model = Table(task.text.vocabulary)
    scores, sums = task.perplexity(model, TEXTS)
    inputs, labels = streams_of(corpus_of(task))
    total = float(sum(model.table[i, j] for i, j in zip(inputs, labels, strict=True)))
    assert sum(sums) == pytest.approx(total, rel=1e-5)
    assert scores[1].value == pytest.approx(math.exp(-total / len(labels)), rel=1e-5)


@pytest.mark.parametrize(
    ("module", "options", "signature"),
    [
        (rnn_lm, {}, "layout:lines|context:line|stride:none"),
        (rnn_lm, {"layout": "stream", "context": 5}, "layout:stream|context:carried|stride:none|rows:1"),
        (gpt, {"layout": "stream", "context": 8, "order": "shuffled"}, "layout:stream|context:8|stride:8"),
        (gpt, {"layout": "stream", "context": 8, "order": "shuffled", "stride": 3}, "layout:stream|context:8|stride:3"),
        (gpt, {"layout": "packed", "context": 9, "stride": 4}, "layout:lines|context:9|stride:4"),
    ],
)
def test_perplexities_come_together_and_say_how_the_text_was_read(module, options, signature):
    task, model = make(module, **options)
    token, word, byte = task.perplexity(model, TEXTS)[0]
    assert all(f"|tok:space|{signature}|" in score.signature for score in (token, word, byte))
    assert token.value == pytest.approx(word.value), "here words are tokens"
    context_mode = task.context_mode(model)
    total = -sum(float(line.sum()) for line in line_log_probs(model, corpus_of(task), context_mode))
    words = sum(len(text.split()) + 1 for text in TEXTS)
    assert word.value == pytest.approx(math.exp(total / words))
    assert byte.value == pytest.approx(total / math.log(2) / sum(len(text.encode()) + 1 for text in TEXTS))
    (loss,) = task.validate(model, corpus_of(task), [], "loss")
    if context_mode.kind != "carried":
        assert loss.value == pytest.approx(math.log(token.value))
    assert loss.count == words


def test_rows_are_kept_as_the_layout_needs():
    task, _ = make(layout="stream", context=5)
    train, held_out = task.filters(Data())
    assert train == held_out and train.max_length == 0 and not train.drop_empty, "one text: nothing is left out"
    assert task.filters(Data(drop_duplicates=True))[0].drop_duplicates
    with pytest.raises(UserError, match="max_length = 3 has no effect"):
        task.filters(Data(max_length=3))
    task, _ = make()
    train, held_out = task.filters(Data(max_length=3))
    assert train.max_length == 3 and train.drop_empty
    assert held_out.max_length == 0, "perplexity is that of the whole text"
    assert not task.filters(Data(min_length=0))[0].drop_empty


# What is refused


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"context": 8}, "no effect on sentences"),
        ({"layout": "stream"}, "needs context"),
        ({"layout": "packed", "context": 8, "order": "shuffled"}, "no effect on packed"),
        ({"jitter": True}, "sequential stream"),
        ({"layout": "stream", "context": 8, "order": "shuffled", "jitter": True}, "sequential stream"),
        ({"layout": "stream", "context": 8, "stride": 9}, "leave out tokens"),
        ({"layout": "stream", "context": 0}, "at least 1"),
    ],
)
def test_what_means_nothing_is_refused(options, told):
    with pytest.raises(ValueError, match=told):
        Config(**options)


@pytest.mark.parametrize(
    ("module", "options", "told"),
    [
        (transformer, {}, "no language model"),
        (gpt, {"layout": "stream", "context": 8}, "order=shuffled"),
        (rnn_lm, {"layout": "packed", "context": 8}, "read them as one"),
        (gpt, {"layout": "stream", "context": 17, "order": "shuffled"}, "16 tokens"),
        (rnn_lm, {"stride": 4}, "without windows"),
        (gpt, {"stride": 17}, "task.stride must lie between 1 and the context, 16"),
        (rnn_lm, {"layout": "stream", "context": 8, "stride": 4}, "without windows"),
    ],
)
def test_what_a_model_cannot_do_is_refused(module, options, told):
    with pytest.raises(UserError) as caught:
        make(module, **options)
    assert told in f"{caught.value.what} {caught.value.todo}"


def test_a_stride_may_be_as_wide_as_the_context_of_the_model():
    task, model = make(gpt, stride=16)
    long = corpus_of(task, [" ".join(TEXTS)])
    assert task.validate(model, long, [], "loss")[0].count == len(" ".join(TEXTS).split()) + 1


def test_an_ensemble_that_reads_less_than_a_stride_is_refused():
    task, model = make(gpt, stride=16)
    _, narrow = make(gpt, shape={**gpt.SIZES["tiny"], "max_length": 8})
    with pytest.raises(UserError, match=r"task\.stride must lie between 1 and the context, 8"):
        task.perplexity(ensemble_of([model, narrow]), TEXTS)


def test_a_window_must_fit_into_a_batch():
    task, _ = make(layout="stream", context=30)
    with pytest.raises(UserError, match="30 tokens does not fit into a batch of 24"):
        batches_of(task, corpus_of(task))
