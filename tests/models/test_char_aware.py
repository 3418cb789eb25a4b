"""The character-aware model: its sizes, its carry, and words that are spelled alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mallang.data.batch import Batch
from mallang.models.char_aware import SIZES, CharAware, Config
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, "먹다", "먹었다", "먹는다", "cat", "looked", "looking"))


def make(vocabulary: Vocabulary = WORDS, **options: Any) -> CharAware:
    torch.manual_seed(1)
    return CharAware(Config(**{**SIZES["tiny"], **options}), vocabulary)


@pytest.mark.parametrize(("size", "filters"), [("small", 525), ("large", 1100)])
def test_the_sizes_are_those_of_the_paper(size: str, filters: int) -> None:
    words = Vocabulary((*SPECIALS, *(f"w{number}" for number in range(9996))))
    model = CharAware(Config(**SIZES[size]), words)
    assert model.characters.dim == filters
    inside = sum(parameter.numel() for name, parameter in model.named_parameters() if not name.startswith("head"))
    outside = sum(parameter.numel() for name, parameter in model.named_parameters() if name.startswith("head"))
    assert round((inside + outside) / 1e6) == {"small": 5, "large": 19}[size]  # millions, as table 3 says


@torch.no_grad()
def test_windows_that_go_on_are_one_long_text() -> None:
    model = make().eval()
    tokens = torch.randint(2, len(WORDS), (3, 10), generator=torch.Generator().manual_seed(2))
    whole = model(Batch(tokens=tokens, lengths=torch.full((3,), 10)))
    first = model.forward_stateful(Batch(tokens=tokens[:, :4], lengths=torch.full((3,), 4)), None)
    second = model.forward_stateful(Batch(tokens=tokens[:, 4:], lengths=torch.full((3,), 6)), first.carry)
    torch.testing.assert_close(torch.cat((first.hidden, second.hidden), dim=1), whole)
    assert not first.carry.hidden.requires_grad


@torch.no_grad()
def test_words_of_the_same_jamo_are_nearer_than_others() -> None:
    """먹다 and 먹는다 have all their jamo but three in common, 먹다 and cat none: that alone brings them near."""
    model = make(jamo=True)
    vectors = model.characters(torch.arange(len(WORDS))[None])[0]
    near = torch.nn.functional.cosine_similarity(vectors[4], vectors[6], dim=0)
    far = torch.nn.functional.cosine_similarity(vectors[4], vectors[7], dim=0)
    assert near > far
    assert len(make(jamo=True).characters.letters.weight) != len(make().characters.letters.weight)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"filters": ()}, "filters"),
        ({"filters": (0, 0)}, "filters"),
        ({"filters": (3, -1)}, "filters"),
        ({"highways": -1}, "highways"),
        ({"longest_word": 2}, "longest_word"),
        ({"dim": 0}, "dim"),
        ({"init": 0.0}, "init"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Config(**options)
