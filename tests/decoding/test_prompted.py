"""Going on from a prompt: every search finds after it what the model itself says follows it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from contracts.test_decoding import KINDS, same
from contracts.toy_models import tiny_vocabulary
from mallang.decoding import prompted
from mallang.decoding.contract import Config, Hypothesis, inference
from mallang.decoding.prompted import Prompted, prompt_batch
from mallang.decoding.ranking import hypothesis, ranked
from mallang.decoding.scoring import score, with_labels
from mallang.decoding.search import search

LANGUAGE = {name: kind for name, kind in KINDS.items() if not (kind.reads_source or kind.reads_images)}
every_model = pytest.mark.parametrize("kind", LANGUAGE.values(), ids=LANGUAGE.keys())
SEARCHES = {
    "greedy": Config(method="greedy", max_length=6),
    "beam": Config(beam=4, nbest=3, max_length=6),
    "sampling": Config(method="sampling", nbest=2, max_length=6),
    "best-first": Config(method="best-first", nbest=2, max_length=4),
}


def after(model: Any, prompt: list[int], config: Config, number: int = 0) -> list[Hypothesis]:
    (found,) = search(Prompted(model), prompt_batch([prompt]), config, [number])
    return found


def scores_after(model: Any, prompt: list[int], labels: list[list[int]]) -> list[list[float]]:
    """What one forward pass over prompt and labels says of the labels: an oracle that knows no cache."""
    whole = [[*prompt[1:], *row] for row in labels]
    batch = with_labels(prompt_batch([[2]] * len(labels)), whole, model.vocabulary)
    return [row[len(prompt) - 1 :] for row in score(model, batch)]


@every_model
@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES.keys())
@pytest.mark.parametrize("prompt", [[], [4, 5], [6, 4, 4, 7]], ids=len)
def test_scores_are_those_of_the_model_after_the_prompt(kind: Any, config: Config, prompt: list[int]) -> None:
    model = kind.build(tiny_vocabulary(4), 7 + len(prompt))
    found = after(model, [2, *prompt], config)
    expected = scores_after(model, [2, *prompt], [list(one.labels(3)) for one in found])
    for one, each in zip(found, expected, strict=True):
        assert list(one.token_scores) == pytest.approx(each, abs=1e-4)
        assert one.score == pytest.approx(sum(each), abs=1e-4)


@every_model
@pytest.mark.parametrize("prompt", [[], [4, 5], [5, 4, 4]], ids=len)
def test_exact_searches_find_the_best_continuation(kind: Any, prompt: list[int]) -> None:
    model, prompt = kind.build(tiny_vocabulary(2), 7 + len(prompt)), [2, *prompt]
    config = Config(method="exhaustive", max_length=3, nbest=3)
    every = [[*said, 3] for length in range(3) for said in itertools.product([1, 4, 5], repeat=length)]
    pairs = zip(every, scores_after(model, prompt, every), strict=True)
    expected = ranked([hypothesis(*pair, model.vocabulary, config) for pair in pairs])[:3]
    same([after(model, prompt, config)], [expected])
    same([after(model, prompt, Config(method="best-first", beam=1, max_length=3, nbest=3))], [expected])
    same([after(model, prompt, Config(beam=40, max_length=3, nbest=3))], [expected])


@every_model
@pytest.mark.parametrize("config", [SEARCHES["beam"], SEARCHES["sampling"]], ids=["beam", "sampling"])
def test_together_and_alone_are_the_same(kind: Any, config: Config) -> None:
    model = kind.build(tiny_vocabulary(4), 1)
    prompts = [[2, 4, 5], [2, 5, 5], [2, 6, 4]]
    together = search(Prompted(model), prompt_batch(prompts), config, [5, 6, 7])
    same(together, [after(model, prompt, config, 5 + place) for place, prompt in enumerate(prompts)])


@every_model
def test_without_a_prompt_it_is_the_model(kind: Any) -> None:
    model, config = kind.build(tiny_vocabulary(4), 2), Config(beam=3, max_length=6)
    same([after(model, [2], config)], search(model, prompt_batch([[2]]), config))


@every_model
def test_the_prompt_is_read_in_one_step(kind: Any) -> None:
    model, steps = kind.build(tiny_vocabulary(4), 2), []
    own = model.step

    def counted(tokens: Any, state: Any) -> Any:
        steps.append(tokens.shape[1])
        return own(tokens, state)

    model.step = counted
    with inference(model):
        after(model, [2, 4, 5, 6, 4], Config(method="greedy", max_length=3, min_length=3))
    assert steps == [4, 1, 1, 1]


@every_model
def test_a_long_prompt_is_read_in_pieces_and_means_the_same(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = kind.build(tiny_vocabulary(4), 2), [[2, 4, 5, 6, 4, 7], [2, 5, 5, 4, 7, 6]]
    config, steps, own = SEARCHES["beam"], [], model.step
    expected = search(Prompted(model), prompt_batch(rows), config)

    def counted(tokens: Any, state: Any) -> Any:
        steps.append(tuple(tokens.shape))
        return own(tokens, state)

    model.step = counted
    for most, pieces in ((2 * 8 * 2 + 1, [(2, 2), (2, 2), (2, 1)]), (1, [(2, 1)] * 5)):
        steps.clear()
        monkeypatch.setattr(prompted, "LOGITS", most)
        same(search(Prompted(model), prompt_batch(rows), config), expected)
        assert steps[: len(pieces)] == pieces


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_model
@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES.keys())
def test_a_gpu_finds_the_same(kind: Any, config: Config) -> None:
    model = kind.build(tiny_vocabulary(4), 1)
    prompts = [[2, 4, 5], [2, 5, 5], [2, 6, 4]]
    expected = search(Prompted(model), prompt_batch(prompts), config)
    rough = Prompted(model.cuda())
    for _ in range(3):  # at first, captured, replayed
        same(search(rough, prompt_batch(prompts).to("cuda"), Config(**{**vars(config), "precision": "fp32"})), expected)
