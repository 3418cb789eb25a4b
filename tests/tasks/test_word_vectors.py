"""The task of word vectors: neighbors and analogies equal a ranking in numpy; unknown words, lists, errors."""

import numpy as np
import pytest
import torch

from mallang.errors import UserError
from mallang.evaluation import score
from mallang.models import fasttext, transformer, word2vec
from mallang.tasks import word_vectors as module
from mallang.tasks.word_vectors import Config, Task, Verbs
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer

WORDS = ["king", "queen", "man", "woman", "Paris", "paris", "한국", "서울"]


def verbs(model=word2vec, unit="space", **config):
    """A model with random vectors."""
    tokenizer = Tokenizer.train([" ".join(WORDS)] * 3, TextConfig(unit=unit, vocabulary=100))
    task = Task(Config(), {"text": tokenizer})
    torch.manual_seed(1)
    return Verbs(task, task.build(model, model.Config(**{"dim": 6, **config})), None, 0)


def ranking(found, target, without):
    """All other words by their cosine with a vector."""
    names, vectors = found.lookup.names, found.lookup.vectors.numpy().astype(np.float64)
    rows = [
        (float(vector @ target / np.linalg.norm(vector) / np.linalg.norm(target)), name)
        for number, (name, vector) in enumerate(zip(names, vectors, strict=True))
        if name not in without and number not in found.lookup.specials
    ]
    return sorted(rows, reverse=True)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("count", [1, 3, 50])
def test_neighbors_are_those_of_a_ranking(word, count):
    made = verbs()
    found = made.neighbors(word, count)
    wanted = ranking(made, made.embed(word).astype(np.float64), [word])[:count]
    assert [name for name, _ in found.neighbors] == [name for _, name in wanted]
    assert [cosine for _, cosine in found.neighbors] == pytest.approx([cosine for cosine, _ in wanted], abs=1e-6)
    assert len(found.neighbors) == min(count, len(WORDS) - 1)
    assert str(found).splitlines()[0] == f"{wanted[0][1]} {wanted[0][0]:.4f}"


def test_analogies_are_those_of_a_ranking():
    made = verbs()
    found = made.analogy("king", "man", "woman", 3)
    scaled = [made.embed(word) / np.linalg.norm(made.embed(word)) for word in ("king", "man", "woman")]
    wanted = ranking(made, scaled[0] - scaled[1] + scaled[2], ["king", "man", "woman"])[:3]
    assert [name for name, _ in found.neighbors] == [name for _, name in wanted]
    assert found.input == "king − man + woman"


def test_several_words_have_the_mean_of_their_vectors():
    made = verbs()
    np.testing.assert_allclose(made.embed("king queen"), (made.embed("king") + made.embed("queen")) / 2, rtol=1e-6)
    assert made.embed(["king", "man"]).shape == (2, 6) and made.embed([]).shape == (0, 6)


def test_an_unknown_word_names_the_nearest_known_one():
    with pytest.raises(UserError, match="(?s)no vector of 'quen'.*queen"):
        verbs().neighbors("quen")


def test_fasttext_spells_unknown_words():
    made = verbs(fasttext, buckets=50)
    wanted = made.model.spelled_vectors(["kingdom"])[0].numpy()
    np.testing.assert_array_equal(made.embed("kingdom"), wanted)
    assert made.neighbors("kingdom", 2).neighbors


def test_similarity_ignores_case_and_counts_what_it_knows(monkeypatch):
    monkeypatch.setattr(score, "RESAMPLES", 40)
    made = verbs()
    rows = [("KING", "Queen", 9.0), ("man", "woman", 8.0), ("PARIS", "king", 1.0), ("unseen", "king", 5.0)]
    scored, cosines = made.similarity("ws", rows)
    assert scored.count == 3 and cosines[3] is None
    one, other = made.embed("king"), made.embed("queen")
    assert cosines[0] == pytest.approx(float(one @ other / np.linalg.norm(one) / np.linalg.norm(other)), abs=1e-6)
    one, other = made.embed("Paris"), made.embed("king")  # the first spelling, which is the more frequent one
    assert cosines[2] == pytest.approx(float(one @ other / np.linalg.norm(one) / np.linalg.norm(other)), abs=1e-6)


def test_solved_analogies_are_counted(monkeypatch):
    made = verbs()
    best = made.analogy("queen", "king", "man", 1).neighbors[0][0]
    rows = [("king", "queen", "man", best.upper()), ("king", "queen", "unseen", "man")]
    solved = made.analogies("google", rows)
    assert solved.value == 100 and solved.count == 1
    wrong = next(word for word in ("woman", "서울", "한국") if word != best)
    assert made.analogies("google", [("king", "queen", "man", wrong)]).value == 0


def test_evaluate_gives_the_loss_and_the_lists_that_are_known(monkeypatch):
    monkeypatch.setattr(score, "RESAMPLES", 40)
    known = [(one, other, float(at)) for at, (one, other) in enumerate(zip(WORDS * 2, WORDS[1:] * 2, strict=False))]
    lists = [("ws", known), ("far", [(f"x{number}", "y", 1.0) for number in range(30)])]
    questions = [("king", "queen", "man", "woman")] * 12
    monkeypatch.setattr(module, "similarity_lists", lambda: iter(lists))
    monkeypatch.setattr(module, "analogy_lists", lambda: iter([("analogies en", questions)]))
    made = verbs()
    for _ in made.model.fit([made.task.prepare([((row,),) for row in made.task.text.encode_batch(["king queen man"])],
                                               np.random.default_rng(1))]):  # fmt: skip
        pass
    scores, lines = made.evaluate([("king queen",)])
    assert [each.name for each in scores] == ["loss", "ws", "analogies en"]
    assert len(lines) == len(known) and lines[0].startswith("ws\tking\tqueen\t0.0\t")
    with pytest.raises(UserError, match="beam has no effect"):
        made.evaluate([("king",)], beam=3)


def test_a_model_without_vectors_of_words_is_refused():
    tokenizer = Tokenizer.train(["a b"], TextConfig(unit="space", vocabulary=20))
    with pytest.raises(UserError, match="transformer learns no vectors"):
        Task(Config(), {"text": tokenizer}).build(transformer, transformer.Config())
