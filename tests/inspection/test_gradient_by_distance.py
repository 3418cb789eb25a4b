"""Gradient by distance: finite differences, and the exact law of a linear recurrence."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from mallang.data.batch import Batch, pad_rows
from mallang.errors import UserError
from mallang.find import find, names
from mallang.inspection.gradient_by_distance import (
    GradientCurve,
    batches_of,
    by_distance,
    draw_gradients,
    gradient_norms,
)
from mallang.tasks import backward_language_modeling
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, EOS, SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, *"abcdefg"))
LANGUAGE = ["rnn_lm", "nplm", "conv_lm", "gpt", "modern_gpt"]
TRANSLATION = ["transformer", "sutskever", "cho", "bahdanau", "luong", "convs2s"]


def build(name, **changes):
    module = find("models", name)
    torch.manual_seed(1)
    config = module.Config(**{**module.SIZES["tiny"], **changes})
    given = [WORDS, WORDS] if name in TRANSLATION else [WORDS]
    return module.Model(config, *given).double().eval()


def a_batch(sourced):
    targets, sources = [[4, 5, 6, 7], [8, 4]], [[9, 10, 5], [6, 7, 8, 4]]
    tokens, lengths = pad_rows(targets, begin=BOS)
    labels, _ = pad_rows(targets, end=EOS)
    batch = Batch(tokens=tokens, lengths=lengths, labels=labels)
    if not sourced:
        return batch
    source, source_lengths = pad_rows(sources, end=EOS)
    return replace(batch, source=source, source_lengths=source_lengths)


def looked_up(model, batch, change):
    """The log-probabilities of the labels when the vectors of tokens are changed where they are looked up."""
    hooks, calls = [], []

    def add(module, given, output):
        calls.append((given[0], output.shape[-1]))
        return change(len(calls) - 1, output)

    for module in model.modules():
        if isinstance(module, nn.Embedding):
            hooks.append(module.register_forward_hook(add))
    with torch.no_grad():
        said = model.output(model(batch)).log_softmax(-1).gather(2, batch.labels[..., None])[..., 0]
    for hook in hooks:
        hook.remove()
    return said, calls


@pytest.mark.parametrize("name", [*LANGUAGE, *TRANSLATION])
def test_gradients_are_finite_differences(name):
    model, batch, step = build(name), a_batch(name in TRANSLATION), 1e-6
    norms = gradient_norms(model, batch)
    assert set(norms) == ({"source", "tokens"} if name in TRANSLATION else {"tokens"})
    plain, calls = looked_up(model, batch, lambda call, output: output)
    sides = {"tokens": batch.tokens, "source": batch.source}
    for side in set(norms) - ({"source"} if name == "convs2s" else set()):  # it scales what goes back to its encoder
        ids, place = sides[side], 1
        call = next(number for number, (given, _) in enumerate(calls) if torch.equal(given[:, -ids.shape[1] :], ids))
        squares = torch.zeros_like(plain)
        for part in range(calls[call][1]):

            def nudge(number, output, call=call, part=part, place=place - ids.shape[1]):
                if number != call:
                    return output
                output = output.clone()
                output[:, place, part] += step
                return output

            squares += ((looked_up(model, batch, nudge)[0] - plain) / step).square()
        expected = squares.sqrt()[batch.mask].float()
        torch.testing.assert_close(norms[side][:, :, place][batch.mask], expected, rtol=1e-3, atol=1e-4)


def test_no_model_that_reads_words_is_left_out():
    models = [find("models", name).Model for name in names("models")]
    trained = [model for model in models if hasattr(model, "step") and not hasattr(model, "fit")]
    others = {"CharAware", "ShowAttendTell"}  # they read characters and images, not vectors of words alone
    others |= {"Artetxe", "Lample", "UnsupervisedTransformer"}  # read by what `between` gives for a direction
    assert len({model.__name__ for model in trained} - others) == len(LANGUAGE) + len(TRANSLATION)


class Decaying(nn.Module):
    """h_t = 0.5 h_{t−1} + e_t, and logits that are linear in h: the gradient halves with every step back."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(len(WORDS), 3).double()

    def forward(self, batch):
        states, h = [], 0.0
        for vector in self.embedding(batch.tokens).unbind(1):
            h = 0.5 * h + vector
            states.append(h)
        return torch.stack(states, dim=1)

    def output(self, hidden):
        return hidden @ self.embedding.weight.T


def test_a_linear_recurrence_falls_off_as_it_decays():
    model, batch = Decaying(), a_batch(False)
    curve = GradientCurve(*by_distance(gradient_norms(model, batch), batch))
    assert curve.counts.tolist() == [8, 6, 4, 2, 1]  # rows of 5 and 3 tokens: 5 + 3, 4 + 2, 3 + 1, 2, 1
    assert [curve.relative(distance) for distance in range(5)] == pytest.approx([1, 0.5, 0.25, 0.125, 0.0625])
    assert math.isnan(curve.relative(5)) and curve.ranges() == [(0, 0), (1, 1), (2, 3), (4, 4)]


def test_a_source_is_as_far_away_as_a_recurrence_would_carry_it():
    batch = a_batch(True)
    own, source = torch.ones(2, 5, 5), torch.arange(50.0).view(2, 5, 5)
    norms = {"source": source, "tokens": own}
    curve = GradientCurve(*by_distance(norms, batch))
    # The last token of the source is at distance 1 of the first output: [row, output 0, source length − 1].
    assert curve.norms[1] == source[0, 0, 3] + source[1, 0, 4] and curve.counts[0] == 8 and curve.counts[1] == 2
    assert len(curve.counts) == 9  # the fifth output and the first of four: 4 + 4


def test_attention_reads_far_tokens_where_an_elman_state_forgets():
    """Untrained, over 24 tokens: the recurrence loses orders of magnitude, attention does not."""
    tokens, lengths = pad_rows(
        [torch.randint(4, 11, (23,), generator=torch.Generator().manual_seed(1)).tolist()], begin=BOS
    )
    labels = torch.cat((tokens[:, 1:], torch.tensor([[EOS]])), dim=1)
    batch = Batch(tokens=tokens, lengths=lengths, labels=labels)
    far = {}
    for name, changes in (("rnn_lm", {"cell": "elman", "layers": 1}), ("gpt", {})):
        model = build(name, **changes)
        far[name] = GradientCurve(*by_distance(gradient_norms(model, batch), batch)).relative(16, 23)
    assert far["rnn_lm"] < 0.01 * far["gpt"]


def test_a_model_without_vectors_of_words_says_so():
    model = find("models", "char_aware")
    module = model.Model(model.Config(**model.SIZES["tiny"]), WORDS).eval()
    with pytest.raises(UserError, match="no vector per token"):
        gradient_norms(module, a_batch(False))


def test_numbers_and_a_figure(tmp_path):
    curve = GradientCurve(np.array([2.0, 0.0, 0.5]), np.array([2.0, 0.0, 1.0]), np.array([2.0, 0.0, 1.0]))
    assert curve.to_json() == {"count": [2, 0, 1], "gradient": [1.0, None, 0.5], "relative": [1.0, None, 0.5]}
    assert draw_gradients(tmp_path / "curve.png", {"한 $x": curve}).stat().st_size > 5_000
    with pytest.raises(UserError, match="cannot be written as"):
        draw_gradients(tmp_path / "curve.gif", {"a": curve})


def test_a_backward_model_reads_a_line_from_its_end_as_in_training():
    lines = ["나는 책을 읽는다.", "물을 마신다."]
    tokenizer = Tokenizer.train(lines, Text(unit="jamo", vocabulary=60))
    task = backward_language_modeling.Task(backward_language_modeling.Config(), {"text": tokenizer})
    model = find("models", "rnn_lm")
    built = model.Model(model.Config(**model.SIZES["tiny"]), tokenizer.vocabulary)
    verbs = backward_language_modeling.Verbs(task, built, None, 64)
    (found,) = batches_of(verbs, [(line,) for line in lines])
    trained = task.prepare([((tokenizer.encode(line).ids,),) for line in lines], np.random.default_rng(0))
    assert torch.equal(found.tokens, trained.tokens) and torch.equal(found.labels, trained.labels)
