"""Source words in the place of unknown ones: where attention is given, the result is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mallang.data.batch import Batch
from mallang.decoding.contract import Config as Search
from mallang.decoding.contract import Hypothesis
from mallang.errors import UserError
from mallang.layers.cache import State
from mallang.tasks.translation import Config, Task, Verbs
from mallang.tasks.unknown import UnknownWords, read_lexicon, word_at
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import Vocabulary

SOURCE = ["Hans sieht Berlin, und Anna schläft.", "Hans und Anna"]
TARGET = ["he sees it, and she sleeps.", "he and she"]


class Cross(nn.Module):
    def __init__(self, looks: list[int]) -> None:
        super().__init__()
        self.looks, self.recorders = looks, []

    def forward(self, batch: Batch) -> None:
        assert batch.source is not None
        weights = torch.zeros(len(batch), 2, batch.tokens.shape[1], batch.source.shape[1])
        for query, key in enumerate(self.looks[: batch.tokens.shape[1]]):
            weights[:, :, query, key] = 1.0
        for recorder in self.recorders:
            recorder(weights, weights)


class Reciter(nn.Module):
    """Says the same words whatever it reads, and looks where it is told."""

    def __init__(self, vocabulary: Vocabulary, labels: list[int], looks: list[int]) -> None:
        super().__init__()
        self.vocabulary, self.cross_attention = vocabulary, Cross(looks)
        self.labels = nn.Parameter(torch.nn.functional.one_hot(torch.tensor(labels), len(vocabulary)) * 9.0)

    def forward(self, batch: Batch) -> Tensor:
        self.cross_attention(batch)
        return self.labels[: batch.tokens.shape[1]].expand(len(batch), -1, -1)

    def output(self, hidden: Tensor) -> Tensor:
        return hidden

    def start(self, batch: Batch) -> State:
        return State(None, torch.zeros(len(batch), dtype=torch.long))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        places = state.moving[:, None] + torch.arange(tokens.shape[1])
        return self.labels[places], State(None, state.moving + tokens.shape[1])


def tokenizers(unit: str = "word", source_unit: str = "word") -> dict[str, Tokenizer]:
    return {
        "source": Tokenizer.train(SOURCE, TextConfig(unit=source_unit, vocabulary=60)),
        "target": Tokenizer.train(TARGET, TextConfig(unit=unit, vocabulary=60)),
    }


def reciting(text: str, looks: list[int], sides: dict[str, Tokenizer] | None = None) -> Verbs:
    task = Task(Config(), sides or tokenizers())
    labels = [*task.target.encode(text).ids, 3, 3, 3]
    return Verbs(task, Reciter(task.target.vocabulary, labels, looks), Search(method="greedy", max_length=20), 50)


def test_an_unknown_word_is_left_out_or_replaced() -> None:
    """ "Hans sees Berlin, and Anna sleeps." in a vocabulary without names; tokens: Hans sieht Berlin , und Anna …"""
    verbs = reciting("Hans sees Berlin, and Anna sleeps.", [0, 1, 2, 3, 4, 5, 6, 7])
    plain = verbs.translate(SOURCE[0])
    assert str(plain) == "sees, and sleeps." and plain.note == "unknown tokens left out: 3"
    filled = verbs.translate(SOURCE[0], replace_unknown=True)
    assert str(filled) == "Hans sees Berlin, and Anna sleeps." and filled.note == "unknown tokens replaced: 3"
    assert filled.tokens == plain.tokens and filled.tokens[0] == "<unk>" and filled.score == plain.score
    lexicon = {"Hans": "John", "anna": "Ann"}
    assert str(verbs.translate(SOURCE[0], replace_unknown=True, lexicon=lexicon)) == "John sees Berlin, and Ann sleeps."
    assert filled.nbest[0][0] == str(filled)


def test_the_end_of_the_source_is_never_copied() -> None:
    verbs = reciting("Hans sees", [2, 0])  # the source has two tokens and </s>, which is looked at most
    assert str(verbs.translate("Hans und", replace_unknown=True)) == "Hans sees"


def test_a_word_of_several_tokens_is_copied_whole() -> None:
    sides = tokenizers(source_unit="char")
    place = sides["source"].encode("Hans und Anna").tokens.index("A") + 2
    verbs = reciting("Hans sees", [place, 0], sides)
    assert str(verbs.translate("Hans und Anna", replace_unknown=True)) == "Anna sees"


def test_word_pieces() -> None:
    verbs = reciting("he sees Zürich, and", [0, 1, 2, 3, 4], tokenizers("wordpiece"))
    assert str(verbs.translate("er sieht Basel, und", replace_unknown=True)) == "he sees Basel, and"


def test_the_tag_of_a_domain_is_no_word() -> None:
    task = Task(Config(), tokenizers())
    unknown = UnknownWords(task, Reciter(task.target.vocabulary, [1, 3], [3, 0]), torch.device("cpu"), {})
    output = Hypothesis((1,), -1.0, -1.0, True, (-0.5, -0.5))
    assert unknown.spell("Hans und Anna", [9], output) == "Anna"


@pytest.mark.parametrize(
    ("text", "span", "word"),
    [
        ("ein Haus.", (3, 8), "Haus"),
        ("ein Haus.", (8, 9), "."),
        ("ein Haus.", (5, 6), "Haus"),
        ("a  b", (1, 2), ""),
        ("", (0, 0), ""),
    ],
)
def test_the_word_around_a_token(text: str, span: tuple[int, int], word: str) -> None:
    assert word_at(text, span) == word


def test_a_lexicon_is_a_file_or_a_dictionary(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_text("Haus\thouse\nhund\tdog\n", encoding="utf-8")
    assert read_lexicon(path) == read_lexicon(str(path)) == {"Haus": "house", "hund": "dog"}
    path.write_text("source\ttarget\nHaus\thome\nHaus\tNew York\n", encoding="utf-8")
    assert read_lexicon(path) == {"Haus": "New York"}, "a table may have a header; the last line of a word holds"
    path.write_text("Haus house\n", encoding="utf-8")
    with pytest.raises(UserError, match="has 1 column, but 2 are needed"):
        read_lexicon(path)
    path = tmp_path / "words.txt"
    path.write_text("Haus house\nhund\n", encoding="utf-8")
    with pytest.raises(UserError, match="a line must hold a source word") as caught:
        read_lexicon(path)
    assert caught.value.where == f"{path}, line 2"
    assert read_lexicon(None) == {}


@pytest.mark.parametrize("unit", ["byte", "char"])
def test_units_without_unknown_words_are_refused(unit: Any) -> None:
    task = Task(
        Config(), dict.fromkeys(("source", "target"), Tokenizer.train(SOURCE, TextConfig(unit=unit, vocabulary=300)))
    )
    model = Reciter(task.target.vocabulary, [3, 3, 3], [])
    with pytest.raises(UserError, match=f"has no effect on the unit {unit}"):
        Verbs(task, model, Search(), 50).translate("Hans", replace_unknown=True)
