"""Words from characters: against a loop over words, filters and places."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from mallang.layers.characters import Characters, Highway, character_features
from mallang.layers.spelling import BEGIN, END, NOTHING, spelled
from mallang.text.vocabulary import SPECIALS, Vocabulary

WORDS = Vocabulary((*SPECIALS, "a", "cat", "cats", "먹었다", "supercalifragilistic"))


def by_hand(characters: Characters, word: int) -> Tensor:
    """Every filter at every place of a word that it fits, or at its beginning if it fits nowhere."""
    letters = [characters.letters.weight[i] for i in characters.spelling[word] if i != NOTHING]
    zeros, found, bias = torch.zeros(characters.letters.embedding_dim), [], iter(characters.bias)
    for (width, _), weights in zip(characters.widths(), characters.weights, strict=True):
        padded = letters + [zeros] * max(0, width - len(letters))
        for weight in weights:
            b = next(bias)
            answers = [
                torch.tanh(weight @ torch.cat(padded[place : place + width]) + b)
                for place in range(len(padded) - width + 1)
            ]
            found.append(max(answers))
    return torch.stack(found)


@pytest.mark.parametrize("filters", [(3, 2, 0, 4), (2,), (0, 0, 0, 0, 0, 0, 0, 3)])
@torch.no_grad()
def test_a_word_is_the_largest_answer_of_every_filter(filters: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    characters = Characters(WORDS, 5, filters)
    characters.init_weights(0.5)
    words = torch.tensor([[4, 5, 6], [7, 8, 3]])
    found = characters(words)
    assert found.shape == (2, 3, sum(filters))
    for row in range(2):
        for place in range(3):
            expected = by_hand(characters, int(words[row, place]))
            torch.testing.assert_close(found[row, place], expected, atol=1e-6, rtol=1e-5)


@torch.no_grad()
def test_longer_words_in_the_vocabulary_change_nothing() -> None:
    short, long = Vocabulary(WORDS.tokens[:-1]), WORDS
    torch.manual_seed(1)
    ours = Characters(long, 4, (2, 3, 4))
    ours.init_weights(0.5)
    other = Characters(short, 4, (2, 3, 4))
    count = END + 1 + len(spelled(short, 65, False)[2])
    places = sorted({letter for token in short.tokens[4:] for letter in token} | set(SPECIALS))
    everyone = sorted({letter for token in long.tokens[4:] for letter in token} | set(SPECIALS))
    chosen = [NOTHING, BEGIN, END, *(END + 1 + everyone.index(letter) for letter in places)]
    assert len(chosen) == count
    other.letters.weight.copy_(ours.letters.weight[chosen])
    for own, its in zip(other.weights, ours.weights, strict=True):
        own.copy_(its)
    other.bias.copy_(ours.bias)
    words = torch.arange(len(short))[None]
    torch.testing.assert_close(other(words), ours(words))


def test_specials_are_characters_hangul_is_syllables_or_jamo_and_long_words_are_cut() -> None:
    table, lengths, letters = spelled(WORDS, 65, jamo=False)
    assert table[0, :3].tolist()[0] == BEGIN and table[0, 2] == END and lengths[:4].tolist() == [3, 3, 3, 3]
    assert len({int(row[1]) for row in table[:4]}) == 4
    assert lengths.tolist()[4:] == [3, 5, 6, 5, 22]
    assert table.max() == END + len(letters) == max(letters.values())
    _, spelled_out, _ = spelled(WORDS, 65, jamo=True)
    assert spelled_out.tolist()[7] == 2 + 8  # ㅁㅓㄱ ㅇㅓㅆ ㄷㅏ
    cut, lengths, _ = spelled(WORDS, 5, jamo=False)
    assert cut.shape[1] == 5 and lengths.tolist()[4:] == [3, 5, 5, 5, 5] and cut[8, 4] == END


def test_nothing_is_learned_about_padding() -> None:
    characters = Characters(WORDS, 3, (2, 2))
    characters.init_weights(0.5)
    characters(torch.tensor([[4, 5]])).sum().backward()
    assert not characters.letters.weight[NOTHING].any()
    assert characters.letters.weight.grad is not None and not characters.letters.weight.grad[NOTHING].any()


@torch.no_grad()
def test_a_highway_is_its_formula_and_nearly_closed_at_first() -> None:
    torch.manual_seed(1)
    highway, x = Highway(4), torch.randn(3, 2, 4)
    highway.init_weights(0.05)
    w, v = highway.both.weight.chunk(2)
    b, c = highway.both.bias.chunk(2)
    assert (c == -2).all()
    t = torch.sigmoid(x @ v.T + c)
    torch.testing.assert_close(highway(x), t * torch.relu(x @ w.T + b) + (1 - t) * x)
    assert 0.1 < float(t.mean()) < 0.14


@pytest.mark.parametrize("size", [1, 4, 10])
def test_features_have_the_size_that_is_asked_for_in_filters_of_four_widths(size: int) -> None:
    made = character_features(Vocabulary((*SPECIALS, "cat", "고양이")), size, jamo=False)
    assert made is not None
    assert made.dim == made(torch.tensor([[4, 5]])).shape[2] == size
    assert made.filters[0] == 0
    assert max(made.filters[1:]) - min(made.filters[1:]) <= 1
    assert character_features(Vocabulary(SPECIALS), 0, jamo=False) is None
