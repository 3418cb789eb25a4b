"""Backward language models: the mirror of a forward one; and the states of both, joined."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from mallang.data.prepared import Prepared
from mallang.decoding.contract import Config as Search
from mallang.errors import UserError
from mallang.models.gpt import GPT
from mallang.models.gpt import SIZES as GPT_SIZES
from mallang.models.gpt import Config as GPTConfig
from mallang.models.rnn_lm import RNNLM, SIZES, Config
from mallang.tasks import backward_language_modeling, language_modeling
from mallang.tasks.embedding import TokenVectors, token_vectors
from mallang.tasks.surprisal import ContextMode, Lines, line_log_probs
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, EOS

LINES = ["나는 책을 읽는다.", "그는 물을 마신다.", "우리는 학교에 간다."]
TOKENIZER = Tokenizer.train(LINES, Text(unit="word", vocabulary=60))


def verbs(module, model=None, **changes):
    task = module.Task(module.Config(), {"text": TOKENIZER})
    torch.manual_seed(1)
    model = model or RNNLM(Config(**{**SIZES["tiny"], **changes}), TOKENIZER.vocabulary)
    kind = module.Verbs
    return kind(task, model.eval(), Search(), 256)


class Corpus(Prepared):
    """Lines of ids that lie in memory."""

    def __init__(self, lines):
        self.lines = lines

    @property
    def lengths(self):
        return np.array([[len(line)] for line in self.lines])

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, place):
        return (self.lines[place],)


def gpt(longest):
    torch.manual_seed(1)
    return GPT(GPTConfig(**{**GPT_SIZES["tiny"], "max_length": longest}), TOKENIZER.vocabulary).eval()


def test_it_reads_lines_from_their_ends():
    task = verbs(backward_language_modeling).task
    batch = task.prepare([(([4, 5, 6],),), (([7],),)], np.random.default_rng(0))
    assert batch.tokens.tolist() == [[BOS, 6, 5, 4], [BOS, 7, 0, 0]]
    assert batch.labels.tolist() == [[6, 5, 4, EOS], [7, EOS, 0, 0]]


@torch.no_grad()
def test_validation_is_the_loss_of_training_and_slides_over_long_lines():
    task = verbs(backward_language_modeling).task
    lines = [np.arange(4, 9), np.array([5]), np.array([], dtype=np.int64), np.tile(np.arange(4, 12), 5)]
    for model in (RNNLM(Config(**SIZES["tiny"]), TOKENIZER.vocabulary), gpt(64)):
        batch = task.prepare([((line,),) for line in lines], np.random.default_rng(0))
        expected = float(task.loss(model.eval(), batch, None).report["nll"])
        (score,) = task.validate(model, Corpus(lines), [], "loss")
        assert score.count == sum(len(line) + 1 for line in lines)
        assert score.value * score.count == pytest.approx(expected, rel=1e-5)
        assert score.signature.endswith("|backward")
    limited = gpt(16)
    (score,) = task.validate(limited, Corpus(lines), [], "loss")
    mirror = Lines([line[::-1] for line in lines])
    found = np.concatenate(line_log_probs(limited, mirror, ContextMode("lines", 16)))
    assert score.count == len(found) and score.value == pytest.approx(-found.mean())


@pytest.mark.parametrize("cell", ["lstm", "gru", "elman"])
@pytest.mark.parametrize("tie_weights", [False, True])
@torch.no_grad()
def test_the_states_of_every_layer_are_torchs(cell, tie_weights):
    model = RNNLM(
        Config(layers=3, embedding_dim=6, dim=8, tie_weights=tie_weights, cell=cell, dropout=0.2), TOKENIZER.vocabulary
    ).eval()
    tokens = torch.randint(4, 9, (2, 5))
    x, expected = model.embedding(tokens), [model.embedding(tokens)]
    for stack in model.stacks:
        for layer in range(stack.num_layers):
            kind = {"lstm": nn.LSTM, "gru": nn.GRU, "elman": nn.RNN}[cell]
            alone = kind(x.shape[-1], stack.hidden_size, batch_first=True)
            for name, weight in alone.named_parameters():
                weight.copy_(getattr(stack, name.replace("l0", f"l{layer}")))
            x = alone(x)[0]
            expected.append(x)
    found = model.hidden_states(tokens)
    assert len(found) == 4
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(found[-1], model.read(tokens, None)[0])


@torch.no_grad()
def test_a_backward_model_sees_what_follows_and_a_forward_one_what_came_before():
    forward, backward = verbs(language_modeling), verbs(backward_language_modeling)
    texts = ["나는 책을 읽는다.", "나는 물을 읽는다."]
    ahead, behind = (token_vectors(each, texts) for each in (forward, backward))
    first, middle, last = 0, ahead[0].tokens.index(next(a for a in ahead[0].tokens if a not in ahead[1].tokens)), -1
    for layer in (1, 2):
        assert np.array_equal(ahead[0].layers[layer][first], ahead[1].layers[layer][first])
        assert not np.allclose(ahead[0].layers[layer][last], ahead[1].layers[layer][last])
        assert np.array_equal(behind[0].layers[layer][last], behind[1].layers[layer][last])
        assert not np.allclose(behind[0].layers[layer][first], behind[1].layers[layer][first])
        joined = ahead[0].join(behind[0]).layers[layer]
        assert np.array_equal(
            joined[middle], np.concatenate((ahead[0].layers[layer][middle], behind[0].layers[layer][middle]))
        )
    assert np.array_equal(ahead[0].layers[0], behind[0].layers[0])  # one seed: the same table


def test_a_mirrored_text_is_read_alike():
    """The same weights, forward over a text and backward over its mirror."""
    forward, backward = verbs(language_modeling), verbs(backward_language_modeling)
    (one,), (other,) = token_vectors(forward, ["나는 책을"]), token_vectors(backward, ["책을 나는"])
    assert one.tokens == other.tokens[::-1]
    for ours, theirs in zip(one.layers, other.layers, strict=True):
        np.testing.assert_allclose(ours, theirs[::-1], rtol=1e-6)


def test_what_does_not_fit_is_refused():
    with pytest.raises(UserError, match="tokenize the text differently"):
        TokenVectors(("a",), ()).join(TokenVectors(("b",), ()))
    with pytest.raises(UserError, match="have 1 and 0 layers"):
        rows = np.zeros((1, 2), np.float32)
        TokenVectors(("a",), (rows, rows)).join(TokenVectors(("a",), (rows,)))
    with pytest.raises(UserError, match="GPT has no states per layer"):
        token_vectors(verbs(language_modeling, GPT(GPTConfig(**GPT_SIZES["tiny"]), TOKENIZER.vocabulary)), LINES)
    with pytest.raises(ValueError, match="reads each line by itself"):
        backward_language_modeling.Config(layout="stream", context=8)


def test_the_vector_of_a_text_is_the_last_state_after_its_first_token():
    backward, forward = verbs(backward_language_modeling), verbs(language_modeling)
    for line, vector in zip(LINES, backward.embed(LINES), strict=True):
        ids = [*TOKENIZER.encode(line).ids[::-1], EOS]
        with torch.no_grad():
            states = backward.model.hidden_states(torch.tensor([[BOS, *ids]]))[-1]
        np.testing.assert_allclose(vector, states[0, -1].numpy(), atol=1e-6)
    assert not np.allclose(backward.embed(LINES), forward.embed(LINES), atol=1e-3)
