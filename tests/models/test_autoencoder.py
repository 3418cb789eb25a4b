"""The vector autoencoder: what it reads, and what it can and cannot keep."""

import pytest
import torch
import torch.nn.functional as F

from mallang.data.batch import Batch, pad_rows
from mallang.models.autoencoder import Autoencoder, Config
from mallang.text.vocabulary import EOS, SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, *"abcdefgh"))


def make(seed=1, **options):
    torch.manual_seed(seed)
    return Autoencoder(Config(**{"hidden_dims": [32], "dim": 4, **options}), WORDS, WORDS)


def read(*rows):
    source, lengths = pad_rows(rows, end=EOS)
    return Batch(tokens=source, lengths=lengths, source=source, source_lengths=lengths)


def test_order_is_not_seen_and_padding_neither():
    model = make()
    code = model.encode(read([4, 5, 6])).pooled
    assert code.shape == (1, 4)
    torch.testing.assert_close(model.encode(read([6, 4, 5], [7] * 6)).pooled[:1], code)
    assert not torch.allclose(model.encode(read([4, 5, 7])).pooled, code)


def test_how_often_a_word_occurs_is_seen_where_it_is_counted():
    once, twice = read([4, 5]), read([4, 4, 5])
    counting, asking = make(), make(inputs="binary")
    assert not torch.allclose(counting.encode(once).pooled, counting.encode(twice).pooled)
    assert torch.equal(asking.encode(once).pooled, asking.encode(twice).pooled)


def test_the_decoder_mirrors_the_encoder():
    model = make(hidden_dims=[9, 7], dim=3, activation="tanh")
    sizes = [tuple(part.weight.shape) for part in model.modules() if isinstance(part, torch.nn.Linear)]
    assert sizes == [(9, 12), (7, 9), (3, 7), (7, 3), (9, 7), (12, 9)]


def test_without_hidden_layers_it_spans_what_principal_components_span():
    """Bourlard and Kamp 1988: a linear autoencoder with squared error finds the space of PCA."""
    model = make(hidden_dims=[], dim=2, inputs="binary")
    random = torch.Generator().manual_seed(0)
    mixed = torch.randn(2, 12, generator=random)
    data = torch.randn(200, 2, generator=random) @ mixed + 0.05 * torch.randn(200, 12, generator=random)
    data = data - data.mean(dim=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        F.mse_loss(model.decoder(model.encoder(data)), data).backward()
        optimizer.step()
    directions = torch.linalg.svd(data)[2][:2]
    found = torch.linalg.qr(model.decoder[0].weight.detach())[0].T
    overlap = torch.linalg.svdvals(found @ directions.T)
    torch.testing.assert_close(overlap, torch.ones(2), rtol=0.0, atol=1e-3)


@pytest.mark.parametrize("options", [{"dim": 0}, {"hidden_dims": [3, 0]}])
def test_impossible_shapes_are_refused(options):
    with pytest.raises(ValueError, match="at least 1"):
        Config(**options)
