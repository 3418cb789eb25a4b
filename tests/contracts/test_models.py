"""Checks that every file of mallang/models gets for nothing: a new model is found by its name and tested here.

A model gives its smallest shape as SIZES["tiny"]. What it is asked follows from what it declares: `reads_source`, and
the protocols Autoregressive, Encoder, Classifier and Fitted. test_encoders.py asks encoders and classifiers for labels,
test_protocols.py checks the smaller protocols.
"""

import ast
import inspect
import re
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass, replace
from itertools import pairwise
from math import isfinite

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from contracts.tiny_models import CLASSIFIERS, ENCODERS, FITTED, NAMES, build, pictures
from mallang.data.batch import Batch, pad_rows
from mallang.decoding.contract import Autoregressive
from mallang.find import find
from mallang.layers.attention import record_attention
from mallang.layers.spans import CoreferenceScorer
from mallang.models.contract import Classifier, TripleScorer, WordVectors
from mallang.tasks.bidirectional_language_modeling import Bidirectional
from mallang.text.vocabulary import BOS, EOS, PAD, SPECIALS

AUTOREGRESSIVE = [name for name in NAMES if isinstance(build(name, 8), Autoregressive)]
LABELED = ("classification", "tagging", "mention_classification", "graph_choice", "semantic_roles")
LABELING = [name for name in NAMES if find("models", name).TASK in LABELED]
"""What they learn, and that they learn it, is asked in test_encoders.py: they predict nothing of the text itself."""

GRAPHS = [name for name in NAMES if issubclass(find("models", name).Model, TripleScorer)]
"""They learn triples of a graph; that they do is asked in tests of their own."""

COREFERENCE = [name for name in NAMES if issubclass(find("models", name).Model, CoreferenceScorer)]
"""They learn which spans of a document mean the same; that they do is asked in tests of their own."""

WORD_VECTORS = [name for name in NAMES if issubclass(find("models", name).Model, WordVectors)]
"""They predict nothing but the words around a word, by a loss of their own."""

every_model = pytest.mark.parametrize("name", NAMES)
every_autoregressive = pytest.mark.parametrize("name", AUTOREGRESSIVE)
every_trained = pytest.mark.parametrize(
    "name", [name for name in NAMES if name not in {*FITTED, *LABELING, *GRAPHS, *COREFERENCE}]
)
every_fitted = pytest.mark.parametrize("name", [name for name in FITTED if name not in {*LABELING, *WORD_VECTORS}])
tiny = settings(deadline=None, max_examples=10)


@dataclass(frozen=True)
class Text:
    """Sentences of unequal length, to be padded together or read one by one."""

    words: int
    sources: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[int, ...], ...]

    def batch(self, padding=0, filler=PAD):
        """All of them as one rectangle, with more columns of padding than needed and any ids in it."""
        source, source_lengths = pad_rows([[*row, EOS] + [filler] * padding for row in self.sources], filler)
        tokens, lengths = pad_rows([[BOS, *row] + [filler] * padding for row in self.targets], filler)
        labels, _ = pad_rows([[*row, EOS] for row in self.targets])
        return Batch(
            tokens=tokens,
            lengths=lengths - padding,
            labels=labels,
            source=source,
            source_lengths=source_lengths - padding,
            images=pictures(self.sources),
        )

    def one(self, i):
        return Text(self.words, self.sources[i : i + 1], self.targets[i : i + 1]).batch()

    def __len__(self):
        return len(self.targets)


@st.composite
def texts(draw, equal_targets=False):
    words = draw(st.integers(6, 40))
    count = draw(st.integers(1, 4))
    token = st.integers(4, words - 1)
    length = draw(st.integers(1, 8)) if equal_targets else None
    source = st.lists(token, min_size=0, max_size=8).map(tuple)
    target = st.lists(token, min_size=length or 0, max_size=length or 8).map(tuple)
    rows = [draw(st.tuples(source, target)) for _ in range(count)]
    return Text(words, tuple(row[0] for row in rows), tuple(row[1] for row in rows))


def some_text(words=13, count=4, seed=5):
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 7, (2, count), generator=random).tolist()
    rows = [
        [tuple(torch.randint(4, words, (length,), generator=random).tolist()) for length in side] for side in lengths
    ]
    return Text(words, tuple(rows[0]), tuple(rows[1]))


def answer(model, batch):
    """All that a model says about a batch: the logits of words or of classes, else what it makes of the text."""
    if isinstance(model, Classifier):
        return model.classify(batch)
    hidden = model(batch)
    return model.output(hidden) if isinstance(model, Autoregressive) else hidden


def real(said, batch):
    """What is said at real positions; all of it where a model says one thing of the whole text."""
    return said[batch.mask] if said.ndim == 3 else said


def test_no_model_is_left_out():
    """Each one steps, encodes, classifies or gives vectors of words, so that each meets eight examples in a test."""
    assert set(NAMES) == {*AUTOREGRESSIVE, *ENCODERS, *CLASSIFIERS, *WORD_VECTORS, *GRAPHS, *COREFERENCE} and set(
        FITTED
    ) < set(NAMES)
    assert set(LABELING) <= {*ENCODERS, *CLASSIFIERS} and not set(LABELING) & set(AUTOREGRESSIVE)


def close(found, expected, tolerance=1e-5):
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@every_model
@tiny
@given(text=texts(), padding=st.integers(1, 4), data=st.data())
@torch.no_grad()
def test_padding_changes_nothing(name, text, padding, data):
    """No model is excused: what is said of a text depends neither on padding nor on what is in the batch beside it."""
    model = build(name, text.words)
    batch = text.batch()
    filler = data.draw(st.integers(0, text.words - 1))
    said = answer(model, batch)
    padded = answer(model, text.batch(padding, filler))
    assert padded.isfinite().all()
    close(real(padded[:, : said.shape[1]], batch), real(said, batch))
    for i in range(len(text)):
        alone = answer(model, text.one(i))
        close(said[i, : alone.shape[1]], alone[0])


@every_autoregressive
@tiny
@given(text=texts(), data=st.data())
@torch.no_grad()
def test_the_future_does_not_leak(name, text, data):
    model = build(name, text.words)
    batch = text.batch()
    cut = data.draw(st.integers(0, batch.tokens.shape[1] - 1))
    changed = batch.tokens.clone()
    changed[:, cut + 1 :] = (changed[:, cut + 1 :] + 1) % text.words
    close(
        answer(model, replace(batch, tokens=changed, labels=None))[:, : cut + 1],
        answer(model, batch)[:, : cut + 1],
        1e-6,
    )


@every_autoregressive
@tiny
@given(text=texts(equal_targets=True), data=st.data())
@torch.no_grad()
def test_steps_equal_forward_one_or_many_at_a_time(name, text, data):
    model = build(name, text.words)
    batch = text.batch()
    expected = answer(model, batch)
    time = batch.tokens.shape[1]
    cuts = sorted({0, time, *data.draw(st.sets(st.integers(1, time)))})
    for places in (range(time + 1), cuts, (0, time)):
        state, found = model.start(batch), []
        for start, end in pairwise(places):
            logits, state = model.step(batch.tokens[:, start:end], state)
            found.append(logits)
        close(torch.cat(found, dim=1), expected)


@every_autoregressive
@tiny
@given(text=texts(equal_targets=True))
@torch.no_grad()
def test_cached_equals_uncached(name, text):
    model = build(name, text.words)
    batch = text.batch()
    state = model.start(batch)
    for end in range(1, batch.tokens.shape[1] + 1):
        cached, state = model.step(batch.tokens[:, end - 1 : end], state)
        uncached, _ = model.step(batch.tokens[:, :end], model.start(batch))
        close(cached[:, -1], uncached[:, -1])


@every_autoregressive
@tiny
@given(text=texts(), width=st.integers(1, 4), data=st.data())
@torch.no_grad()
def test_a_width_of_hypotheses_equals_stepping_each_by_itself(name, text, width, data):
    model = build(name, text.words)
    sentences = len(text)
    token = st.integers(2, text.words - 1)
    drawn = [data.draw(st.lists(token, min_size=3, max_size=3)) for _ in range(sentences * width)]
    rows = torch.tensor(drawn)
    _, state = model.step(torch.full((sentences, 1), BOS), model.start(text.batch()))
    first, state = model.step(rows[:, :2], state.widen(width))
    kept = data.draw(st.sets(st.integers(0, sentences - 1), min_size=1).map(sorted))
    order = torch.tensor([i * width + data.draw(st.integers(0, width - 1)) for i in kept for _ in range(width)])
    second, _ = model.step(rows[order, 2:], state.keep(torch.tensor(kept), order))
    for i in range(sentences):
        for row in range(i * width, (i + 1) * width):
            _, alone = model.step(torch.tensor([[BOS]]), model.start(text.one(i)))
            logits, alone = model.step(rows[row : row + 1, :2], alone)
            close(first[row], logits[0])
            logits, _ = model.step(rows[row : row + 1, 2:], alone)
            for place in (order == row).nonzero()[:, 0].tolist():
                close(second[place], logits[0])


@every_model
@torch.no_grad()
def test_saving_and_loading_is_exact(name, tmp_path):
    text = some_text()
    model, other = build(name, text.words, seed=1), build(name, text.words, seed=2)
    assert not torch.equal(answer(model, text.batch()), answer(other, text.batch()))
    safetensors.torch.save_file(model.state_dict(), tmp_path / "model.safetensors")  # refuses weights saved twice
    other.load_state_dict(safetensors.torch.load_file(tmp_path / "model.safetensors"))
    assert torch.equal(answer(model, text.batch()), answer(other, text.batch()))


@every_model
def test_the_same_seed_gives_the_same_output(name):
    text = some_text()
    runs = []
    for seed in (1, 1, 2):
        model = build(name, text.words, seed).train()
        torch.manual_seed(3)
        runs.append(answer(model, text.batch()))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


@every_trained
def test_it_overfits_eight_examples(name):
    text = some_text(words=20, count=8)
    model, batch = build(name, text.words), text.batch()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(20):
        model.train()
        for _ in range(15):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            if loss_of(model, batch) < 0.1:
                return
    pytest.fail(f"after 300 steps the loss is still {loss_of(model, batch):.2f}")


def loss_of(model, batch):
    """Of what comes next, where a model steps; else, with a logit a word, of which words are in the source.

    Of what comes before, too, where a model has both directions.
    """
    if isinstance(model, Bidirectional):
        there, back = (model.shared_projection()(hidden).flatten(0, 1) for hidden in model.directions(batch))
        known = foreseeable(batch)
        after = batch.labels.masked_fill(~known | (batch.labels == EOS), PAD).flatten()
        mirrored = [row[:size].flip(0).tolist() for row, size in zip(batch.tokens, batch.lengths, strict=True)]
        tokens, _ = pad_rows([row[:-1] for row in mirrored])
        labels, _ = pad_rows([row[1:] for row in mirrored])
        sure = foreseeable(Batch(tokens=tokens, lengths=batch.lengths, labels=labels))
        before = torch.full_like(batch.tokens, PAD)
        for row, size in enumerate(batch.lengths.tolist()):
            wanted = labels[row].masked_fill(~sure[row], PAD)[: size - 1]
            before[row, 1:size] = wanted.flip(0)
        return sum(F.cross_entropy(*pair, ignore_index=PAD) for pair in ((there, after), (back, before.flatten())))
    said = answer(model, batch)
    if isinstance(model, Autoregressive):
        labels = batch.labels.clone()
        if not model.reads_source:
            labels[~foreseeable(batch)] = PAD  # nothing tells a language model which of the sentences goes on
        return F.cross_entropy(said.flatten(0, 1), labels.flatten(), ignore_index=PAD)
    assert said.shape == (len(batch), len(model.vocabulary)), "a new kind of output needs its loss here"
    present = torch.stack([said.new_zeros(said.shape[1]).index_fill(0, row, 1.0) for row in batch.source])
    real_words = torch.arange(said.shape[1]) >= len(SPECIALS)
    return F.binary_cross_entropy_with_logits(said[:, real_words], present[:, real_words])


def foreseeable(batch):
    """Where all sentences that begin alike go on alike."""
    alike = (batch.tokens[:, None] == batch.tokens[None]).cumprod(dim=-1).bool()
    return ~(alike & (batch.labels[:, None] != batch.labels[None])).any(dim=1)


@every_fitted
def test_it_is_fitted_to_eight_examples(name):
    """The same text gives the same model, whatever it was before, and one that finds the text likelier."""
    text = some_text(words=20, count=8)
    batch = text.batch()
    labels = batch.labels.flatten()
    losses, weights = [], []
    for seed in (1, 2):
        model = build(name, text.words, seed)
        losses.append(F.cross_entropy(answer(model, batch).flatten(0, 1), labels, ignore_index=PAD))
        measured = list(model.fit([text.one(i) for i in range(len(text))]))
        assert measured and all(isfinite(value) for each in measured for value in each.values())
        losses.append(F.cross_entropy(answer(model, batch).flatten(0, 1), labels, ignore_index=PAD))
        weights.append(model.state_dict())
    assert losses[1] == losses[3] < min(losses[0], losses[2])
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


@pytest.mark.parametrize("name", WORD_VECTORS)
def test_vectors_of_words_are_fitted_to_a_text(name):
    """The same seed and text give the same vectors, and all that is measured is finite."""
    text = some_text(words=20, count=200)  # of eight sentences subsampling would leave nothing
    found = []
    for _ in range(2):
        model, stream = build(name, text.words), [text.one(i) for i in range(len(text))]
        before = model.vectors().clone()
        torch.manual_seed(4)
        measured = list(model.fit(stream))
        assert measured and all(isfinite(value) for each in measured for value in each.values())
        assert not torch.equal(model.vectors(), before) and model.vectors().isfinite().all()
        total, count = model.held_out_loss(stream)
        assert isfinite(total) and count > 0
        found.append(model.vectors())
    assert torch.equal(*found) and len(found[0]) == text.words


@every_trained
@torch.no_grad()
def test_bfloat16_is_close_to_float32(name):
    text = some_text()
    model, batch = build(name, text.words), text.batch()
    exact = answer(model, batch)
    with torch.autocast("cpu", torch.bfloat16):
        rough = answer(model, batch)
    assert rough.dtype == torch.bfloat16
    error = real(rough.float() - exact, batch).norm() / real(exact, batch).norm()
    assert 0 < error < 0.03


@every_autoregressive
@torch.no_grad()
def test_stepping_in_bfloat16_is_close_to_float32(name):
    text = some_text()
    model, batch = build(name, text.words), text.batch()
    exact, _ = model.step(batch.tokens[:, :2], model.start(batch))
    with torch.autocast("cpu", torch.bfloat16):
        _, state = model.step(batch.tokens[:, :1], model.start(batch))
        rough, _ = model.step(batch.tokens[:, 1:2], state)
    assert (rough[:, 0].float() - exact[:, 1]).norm() / exact[:, 1].norm() < 0.03


@every_model
@tiny
@given(text=texts())
@torch.no_grad()
def test_recording_attention_changes_nothing(name, text):
    model, batch = build(name, text.words), text.batch()
    expected = answer(model, batch)
    with record_attention(model, scores=True) as maps:
        found = answer(model, batch)
    close(real(found, batch), real(expected, batch))
    for kept, weights in maps.items():
        assert weights.ndim == 4 and len(weights) == len(text), kept
        if not kept.endswith(".scores"):
            assert f"{kept}.scores" in maps
            close(weights.sum(dim=-1), torch.ones(weights.shape[:3]))
    assert torch.equal(answer(model, batch), expected)  # and the fused path is back


@every_model
def test_the_docstring_names_the_paper(name):
    text = find("models", name).__doc__ or ""
    assert re.search(r"arXiv:\d{4}\.\d{4,5}|doi:10\.\d+|[A-Z][a-z]+ (and [A-Z][a-z]+ |et al\. )?(19|20)\d\d", text)


@every_model
def test_it_exports_its_config_and_its_model(name):
    module = find("models", name)
    assert {"Config", "Model", "SIZES"} <= set(module.__all__)
    others = set(module.__all__) - {"Config", "Model", "SIZES", "HF_NAMES"}
    assert all(getattr(module, other).__module__ == module.__name__ for other in others)
    assert module.Model.__name__ in others and module.Model.__name__ != "Model"
    assert re.sub(r"\W|_", "", name) == module.Model.__name__.lower()


@every_model
def test_its_config_is_small_checked_data(name):
    module = find("models", name)
    assert is_dataclass(module.Config) and len(fields(module.Config)) <= 15
    default = module.Config()
    with pytest.raises(FrozenInstanceError):
        setattr(default, fields(module.Config)[0].name, None)
    with pytest.raises(TypeError):
        module.Config(1)
    tree = ast.parse(inspect.getsource(module))
    body = next(part.body for part in tree.body if isinstance(part, ast.ClassDef) and part.name == "Config")
    for part, following in pairwise(body):
        if isinstance(part, ast.AnnAssign):
            told = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            assert told and "\n" not in following.value.value, f"{ast.unparse(part.target)} lacks its one line"
    for size in module.SIZES.values():
        module.Config(**size)


@every_model
def test_its_forward_fits_on_a_screen(name):
    lines = inspect.getsource(find("models", name).Model.forward).splitlines()
    assert len(lines) <= 25


@pytest.mark.slow
@every_model
def test_it_compiles(name):
    """Apart from the rest, since shapes in signatures are checked here and a compiler cannot look through that."""
    done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def check_compiled(name):
    """One graph, no breaks, the same output and gradients."""
    text = some_text()
    model, batch = build(name, text.words), text.batch()
    compiled = torch.compile(model, fullgraph=True)
    gradients = []
    for run in (model, compiled):
        model.zero_grad()
        output = run(batch)
        if output.requires_grad:
            output.square().mean().backward()
        gradients.append([output.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    for eager, fast in zip(*gradients, strict=True):
        close(fast, eager, 1e-4)


if __name__ == "__main__":
    check_compiled(sys.argv[1])
