"""Words outside the vocabulary: read from their characters by a model that spells, `<unk>` wherever they are labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from mallang.data.prepared import Prepared
from mallang.data.streams import lines_batch
from mallang.decoding.contract import Config
from mallang.decoding.precision import at_precision
from mallang.errors import UserError
from mallang.find import find
from mallang.layers import spelling
from mallang.models.contract import Encoder
from mallang.tasks import bidirectional_language_modeling, language_modeling
from mallang.tasks.generation import Verbs
from mallang.tasks.prompting import Prompter
from mallang.tasks.surprisal import Lines, line_log_probs
from mallang.tasks.templates import Template
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import UNK

LINES = ["the cat sat on the mat .", "나는 책을 읽었다 .", "an <unk> cat sat"]


def made(unit: str = "space", name: str = "char_aware", layout: str = "sentences", **options: Any) -> Verbs:
    tokenizer = Tokenizer.train(LINES, TextConfig(unit=unit, vocabulary=60))  # type: ignore[arg-type]
    context = {} if layout == "sentences" else {"context": 8}
    task = language_modeling.Task(language_modeling.Config(layout=layout, **context), {"text": tokenizer})  # type: ignore[arg-type]
    module = find("models", name)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = module.Model(module.Config(**{**module.SIZES["tiny"], **options}), tokenizer.vocabulary)
    return Verbs(task, model.eval(), Config(method="greedy", max_length=6), 0)


@pytest.mark.parametrize("unit", ["space", "word"])
@pytest.mark.parametrize("jamo", [False, True])
def test_an_unseen_word_is_read_from_its_characters_and_scored_as_unk(unit: str, jamo: bool) -> None:
    verbs = made(unit, jamo=jamo)
    plain, unseen, other, strange = verbs.score(["the cat sat", "the tac sat", "the nat sat", "the 쀍 sat"])
    assert unseen.tokens == other.tokens == strange.tokens == (plain.tokens[0], "<unk>", *plain.tokens[2:])
    assert unseen.token_scores[:2] == pytest.approx(strange.token_scores[:2], abs=1e-6)  # what is said is closed
    for one, two in ((unseen, strange), (unseen, other)):  # what is read is not
        assert abs(np.subtract(one.token_scores, two.token_scores))[2:].min() > 1e-6
    assert unseen.unknown == ("tac",)
    with torch.no_grad():  # a word that the model knows, read by its spelling alone, is the same word
        known = verbs.tokenizer.words("the cat")[1]
        ids = torch.tensor([[verbs.tokenizer.vocabulary.id(known), *verbs.model.ids_of_oov([known])]])
        vectors = verbs.model.word_vectors(ids)[0]
    assert ids[0, 1] >= len(verbs.tokenizer.vocabulary) and ids[0, 0] != UNK
    torch.testing.assert_close(vectors[0], vectors[1])


@pytest.mark.parametrize("layout", ["sentences", "stream"])
def test_unk_in_a_text_stays_unk_and_perplexity_agrees_with_score(layout: str) -> None:
    """The Penn Treebank spells `<unk>`: numbers on such text are those of the vocabulary alone."""
    verbs = made(layout=layout)
    ids = [verbs.tokenizer.encode(line).ids for line in LINES]
    assert ids[2][1] == UNK
    expected = [
        float(row.sum()) for row in line_log_probs(verbs.model, Lines(ids), verbs.task.context_mode(verbs.model))
    ]
    assert verbs.task.perplexity(verbs.model, LINES)[1] == expected and not verbs.model.characters.oov_ids
    texts = ["the tac sat", "an <unk> tac"]
    sums = verbs.task.perplexity(verbs.model, texts)[1]
    if layout == "sentences":
        assert sums == pytest.approx([each.score for each in verbs.score(texts)], abs=1e-5)
    assert verbs.task.perplexity(verbs.model, ["the 쀍 sat", "an <unk> 쀍"])[1] != sums


class Corpus(Lines, Prepared):
    """Lines of ids in place of a prepared split."""

    __len__, __getitem__ = Lines.__len__, Lines.__getitem__


@pytest.mark.parametrize("layout", ["sentences", "stream"])
def test_validation_reads_unseen_words_as_evaluate_does_and_leaves_the_model_as_it_was(layout: str) -> None:
    verbs = made(layout=layout)
    texts = ["the tac sat", "an <unk> tac", "나는 책을 nat"]
    corpus = Corpus([np.array(verbs.tokenizer.encode(text).ids) for text in texts])
    table = verbs.model.characters.spelling
    with torch.inference_mode():
        (score,) = verbs.task.validate(verbs.model, corpus, [(text,) for text in texts], "loss")
    assert verbs.model.characters.spelling is table and not verbs.model.characters.oov_ids
    rows = language_modeling.VALIDATION_ROWS if layout == "stream" else 1
    sums = verbs.task.perplexity(verbs.model, texts, rows=rows)[1]
    assert score.value == pytest.approx(-sum(sums) / score.count, rel=1e-5)
    mode = verbs.task.context_mode(verbs.model, rows)
    as_unk = -np.concatenate(line_log_probs(verbs.model, corpus, mode)).mean()
    assert abs(score.value - as_unk) > 1e-6


def test_a_model_of_both_directions_is_validated_in_the_same_way() -> None:
    tokenizer = Tokenizer.train(LINES, TextConfig(unit="space", vocabulary=60))
    task = bidirectional_language_modeling.Task(bidirectional_language_modeling.Config(), {"text": tokenizer})
    elmo = find("models", "elmo")
    torch.manual_seed(1)
    model = elmo.Model(elmo.Config(**elmo.SIZES["tiny"]), tokenizer.vocabulary).eval()
    texts = ["the tac sat", "an nat tac"]
    ids = tokenizer.encode_batch(texts)
    rows, corpus = [(text,) for text in texts], Corpus([np.array(line) for line in ids])
    found = {score.name: score.value for score in task.validate(model, corpus, rows, "loss")}
    scores, _ = bidirectional_language_modeling.Verbs(task, model, None, 100).evaluate(rows)
    evaluated = {score.name: score.value for score in scores}
    as_unk = task.line_losses(model, ids)
    for side in ("forward", "backward"):
        assert np.exp(found[side]) == pytest.approx(evaluated[f"{side} perplexity per token"], rel=1e-5)
        assert abs(found[side] - as_unk[side].sum() / 8) > 1e-6


def test_a_prompt_is_read_from_its_characters() -> None:
    verbs = made()
    unseen, strange = verbs.generate(["the tac", "the 쀍"], nbest=1)
    assert unseen.note == "" and "read as <unk>: '쀍'" in strange.note and unseen.text.startswith("the tac")
    assert unseen.score != pytest.approx(strange.score, abs=1e-6)
    ids = verbs.reader.prompt("the tac").ids
    said = [verbs.tokenizer.vocabulary.id(token) for token in unseen.tokens]
    batch = lines_batch([[*ids[1:], *said]])
    with torch.no_grad():
        told = verbs.model.output(verbs.model(batch)).log_softmax(-1)[0, len(ids) - 1 :]
    ended = [*said, 3][: len(told)]
    found = sum(float(told[place, token]) for place, token in enumerate(ended[:6]))
    assert unseen.score == pytest.approx(found, abs=1e-4)
    assert "".join(verbs.write("the tac")) == unseen.text


def test_labels_of_prompts_must_be_words_that_can_be_said() -> None:
    verbs = made()
    found = Prompter(verbs, Template(shot="{text} {label}"), ["cat", "mat"]).choose(["the tac"])[0]
    assert found.label in ("cat", "mat") and found.unknown == ()
    with pytest.raises(UserError, match="no token for the label 'tac'"):
        Prompter(verbs, Template(shot="{text} {label}"), ["cat", "tac"]).choose(["the"])


def test_words_that_were_never_seen_have_vectors() -> None:
    verbs = made()
    vectors = verbs.embed(["cat", "tac", "cat tac"], words=True)
    np.testing.assert_allclose(vectors[2], (vectors[0] + vectors[1]) / 2, atol=1e-6)
    assert abs(vectors[0] - vectors[1]).max() > 1e-3
    with pytest.raises(UserError, match="knows nothing of '쀍'"):
        verbs.embed("쀍", words=True)


def test_copies_follow_and_many_words_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    verbs = made()
    rough: Any = at_precision(verbs.model, Config(precision="bf16"))
    ids = torch.tensor([verbs.model.ids_of_oov(["tac", "tam"])])
    assert at_precision(verbs.model, Config(precision="bf16")) is rough
    torch.testing.assert_close(rough.word_vectors(ids).float(), verbs.model.word_vectors(ids), atol=0.02, rtol=0.02)
    before = verbs.score("the tac sat").score
    monkeypatch.setattr(spelling, "MOST_OOV", 1)
    assert verbs.score("the nat sat").score != before
    assert list(verbs.model.characters.oov_ids) == ["nat"] and verbs.score("the tac sat").score == before


def test_writing_forgets_many_words_too(monkeypatch: pytest.MonkeyPatch) -> None:
    verbs = made()
    monkeypatch.setattr(spelling, "MOST_OOV", 1)
    for prompt in ("tac", "tam tas", "nat"):
        "".join(verbs.write(prompt))
    assert list(verbs.model.characters.oov_ids) == ["nat"]


@pytest.mark.parametrize("layout", ["sentences", "stream"])
def test_the_words_of_all_texts_of_a_call_are_spelled_at_once(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verbs, asked = made(layout=layout), list[list[str]]()
    spell = verbs.model.ids_of_oov
    monkeypatch.setattr(verbs.model, "ids_of_oov", lambda words: (asked.append(list(words)), spell(words))[1])
    texts = ["the tac", "cat\nnat <unk>" if layout == "stream" else "nat <unk>", "the cat", "tac 쀍"]
    apart = [verbs.reader.prompt(text) for text in texts]
    for call in (verbs.score, verbs.generate, verbs.reader.prompts, lambda some: verbs.embed(some[:2], words=True)):
        asked.clear()
        found = call(texts)
        assert len(asked) == 1 and asked[0][:2] == ["tac", "nat"], call
        if call == verbs.reader.prompts:
            assert found == apart


LANGUAGE_MODELS = ["rnn_lm", "gpt", "modern_gpt", "nplm", "conv_lm", "char_aware"]


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_language_models_have_word_vectors(name: str) -> None:
    verbs = made(name=name)
    vectors = verbs.embed(["cat", "mat", "the cat"], words=True)
    assert vectors.shape[0] == 3 and vectors.shape == verbs.embed(["cat"] * 3, words=True).shape
    np.testing.assert_allclose(vectors[2], (vectors[0] + verbs.embed("the", words=True)) / 2, atol=1e-6)
    assert verbs.embed([], words=True).shape == (0, vectors.shape[1])
    if isinstance(verbs.model, Encoder):
        assert verbs.embed("cat").shape == (verbs.model.encoder_dims().pooled,)
    else:
        with pytest.raises(UserError, match="keeps no single vector"):
            verbs.embed("cat")


def test_ngrams_have_none() -> None:
    module = find("models", "ngram")
    verbs = made()
    with pytest.raises(UserError, match="NGram has no word vectors"):
        Verbs(verbs.task, module.Model(module.Config(), verbs.tokenizer.vocabulary), verbs.config, 0).embed(
            "cat", words=True
        )
