"""The recurrent tagger: its states are those of torch's own bidirectional layers, sentence by sentence."""

import pytest
import torch
from torch import nn

from mallang.data.batch import Batch, pad_rows
from mallang.models.rnn_tagger import Config, RNNTagger
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(9))))
ROWS = [[4, 5, 6, 7, 8, 3], [9, 3], [4, 4, 12, 11, 10, 9, 8, 3]]


def made(**options):
    torch.manual_seed(1)
    return RNNTagger(Config(**{"embedding_dim": 5, "dim": 4, **options}), WORDS).eval()


def batch_of(rows):
    tokens, lengths = pad_rows(rows)
    return Batch(tokens=tokens, lengths=lengths)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@torch.no_grad()
def test_its_states_are_torchs(cell, layers):
    model = made(cell=cell, layers=layers)
    other = {"lstm": nn.LSTM, "gru": nn.GRU}[cell](5, 4, layers, bidirectional=True, batch_first=True)
    theirs = dict(other.named_parameters())
    for side, suffix in ((model.rnn.forwards, ""), (model.rnn.backwards, "_reverse")):
        for number, layer in enumerate(side):
            for name, weight in layer.named_parameters():
                theirs[name.replace("l0", f"l{number}") + suffix].copy_(weight)
    encoded = model.encode(batch_of(ROWS))
    for place, row in enumerate(ROWS):
        expected, _ = other(model.embedding(torch.tensor([row])))
        torch.testing.assert_close(encoded.layers[-1][place, : len(row)], expected[0], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(encoded.pooled[place], torch.cat((expected[0, -1, :4], expected[0, 0, 4:])))
    assert encoded.mask.sum(dim=1).tolist() == [len(row) for row in ROWS]


def test_dropout_hides_the_same_numbers_of_all_words_of_a_sentence():
    model = made(dropout=0.5, embedding_dim=50).train()
    seen = []
    model.rnn.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach()))
    model(batch_of([[4, 4, 4, 4]] * 8))
    (words,) = seen
    assert torch.equal(words, words[:, :1].expand_as(words)) and not torch.equal(words[0], words[1])
    assert 0.3 < float((words == 0).float().mean()) < 0.7


@pytest.mark.parametrize("wrong", [{"dim": 0}, {"layers": 0}, {"embedding_dim": 0}, {"dropout": 1.0}])
def test_impossible_sizes_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Config(**wrong)
