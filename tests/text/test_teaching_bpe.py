import importlib.util
import json
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest
from tokenizers import Tokenizer, models, trainers

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "teaching_bpe.py"
KOREAN = "나는 학교에 간다 너는 학교에서 온다 우리는 학교를 본다 그는 집에서 온다 집은 학교에서 멀다"
ENGLISH = "low lower lowest new newer newest wide wider widest slow slower slowest the thin thing"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("teaching_bpe", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def random_words(seed: int) -> dict[str, int]:
    """Words without a letter twice in a row: there the library counts overlapping pairs in its own way."""
    chance = random.Random(seed)
    words: Counter[str] = Counter()
    while len(words) < 60:
        letters = [chance.choice("가나다라ab") for _ in range(chance.randint(1, 6))]
        if all(left != right for left, right in pairwise(letters)):
            words["".join(letters)] += chance.randint(1, 9)
    return dict(words)


@pytest.mark.parametrize(
    "words", [Counter(KOREAN.split()), Counter((KOREAN + " " + ENGLISH).split()), random_words(1), random_words(2)]
)
def test_the_example_learns_and_uses_the_merges_of_the_library(example: ModuleType, words: dict[str, int]) -> None:
    letters = len(set("".join(words)))
    library = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=letters + 25, show_progress=False)
    library.train_from_iterator(([word] * count for word, count in words.items()), trainer)
    pairs = [tuple(pair) for pair in json.loads(library.to_str())["model"]["merges"]]
    assert len(pairs) > 10
    assert example.learn(words, len(pairs)) == pairs
    for word in [*words, "학교에서는", "newlower"]:
        if set(word) <= set("".join(words)):
            assert example.encode(word, pairs) == library.encode(word).tokens


def test_the_example_fits_on_a_page() -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) <= 60
