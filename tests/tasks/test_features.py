"""Features of a given encoder: the vector of every word whatever its tokens are, joined to the model's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from mallang.data.batch import Batch, Shapes
from mallang.data.columns import LabelSet
from mallang.errors import UserError
from mallang.find import find
from mallang.layers.head import Headed
from mallang.models.contract import Tagger
from mallang.runs.given import Given
from mallang.tasks import classification, tagging
from mallang.tasks.tag_reading import examples_of
from mallang.tasks.tagger import Verbs
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import EOS
from mallang.training.step import Step

WORDS = ("EU", "rejects", "Germany", "민수는", "서울", ".", "don't")
LABELS = {"tags": LabelSet(("B-LOC", "B-PER", "O"), "tags", scheme="iob2"), "label": LabelSet(("no", "yes"))}
ENCODERS = ("elmo", "rnn_lm", "rnn_classifier", "transformer_encoder", "lstm_crf", "sutskever")
SENTENCES = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6), min_size=1, max_size=4)
few = settings(deadline=None, max_examples=15)


def given(name: str = "rnn_lm", unit: Any = "char", task: str = "language_modeling", **options: Any) -> Given:
    """A model that was trained on nothing, with a tokenizer of its own."""
    module = find("models", name)
    tokenizer = Tokenizer.train([" ".join(WORDS)], Text(unit=unit, vocabulary=300))
    torch.manual_seed(3)
    vocabularies = [tokenizer.vocabulary] * (2 if module.Model.reads_source else 1)
    model = module.Model(module.Config(**module.SIZES["tiny"] | options), *vocabularies).eval()
    return Given("features", Path("runs/x"), model, tokenizer, task, "sum")


def tagger(features: Given, model: str = "rnn_tagger", **config: Any) -> tuple[tagging.Task, Any]:
    """A tagger of words with these features."""
    tokenizer = Tokenizer.train([" ".join(WORDS)], Text(unit="space", vocabulary=50))
    task = tagging.Task(tagging.Config(**config), {"words": tokenizer}, LABELS, given={"features": features})
    module = find("models", model)
    torch.manual_seed(1)
    return task, task.build(module, module.Config(**module.SIZES["tiny"])).eval()


def classifier(features: Given, model: str = "rnn_classifier", **config: Any) -> tuple[classification.Task, Any]:
    """A classifier of texts with these features."""
    tokenizer = Tokenizer.train([" ".join(WORDS)], Text(unit="space", vocabulary=50))
    task = classification.Task(
        classification.Config(**config), {"text": tokenizer}, LABELS, given={"features": features}
    )
    module = find("models", model)
    torch.manual_seed(1)
    return task, task.build(module, module.Config(**module.SIZES["tiny"])).eval()


def rows(task: Any, texts: list[str]) -> list[tuple[Any, ...]]:
    """Examples as a prepared corpus has them."""
    tags = ["\t".join(["O"] * len(text.split("\t"))) for text in texts]
    cells = [texts, tags if isinstance(task, tagging.Task) else ["yes"] * len(texts)]
    columns = [each.encoder.encode_batch(cells[each.place]) for each in task.arrays()]
    return [tuple(np.array(ids, dtype=np.int64) for ids in row) for row in zip(*columns, strict=True)]


@torch.no_grad()
def by_hand(features: Given, words: list[str]) -> list[torch.Tensor]:
    """The vector of each word of one sentence: the tokens of its words one after the other, the first of each."""
    pieces = [features.tokenizer.encode(word).ids or [1] for word in words]
    tokens = torch.tensor([[*(token for piece in pieces for token in piece), EOS]])
    lengths, encoder = torch.tensor([tokens.shape[1]]), features.model
    batch = Batch(tokens=tokens, lengths=lengths)
    if encoder.reads_source:
        batch = Batch(tokens=tokens, lengths=lengths, source=tokens, source_lengths=lengths)
    vectors = encoder.encode(batch).layers[-1][0]
    return [vectors[sum(map(len, pieces[:place]))] for place in range(len(words))]


@pytest.mark.parametrize("unit", ["char", "bpe", "wordpiece", "byte", "space", "jamo"])
@few
@drawn(SENTENCES)
@torch.no_grad()
def test_a_word_has_the_vector_of_its_first_token_in_any_unit(unit: str, sentences: list[list[str]]) -> None:
    features = given(unit=unit)
    task, model = tagger(features)
    batch = Shapes(tokens=64, multiple=8).fill(task.collate(rows(task, ["\t".join(each) for each in sentences])))
    assert batch.words is not None and task.features is not None
    own = torch.zeros(*batch.words.shape, 2)
    joined = task.features.join(own, model.features, batch)
    assert joined.shape[-1] == 2 + features.model.encoder_dims().token
    for row, words in enumerate(sentences):
        for place, vector in enumerate(by_hand(features, words)):
            torch.testing.assert_close(joined[row, place, 2:], vector, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ENCODERS)
@torch.no_grad()
def test_any_encoder_gives_features_of_words_and_of_texts(name: str) -> None:
    features = given(name)
    task, model = tagger(features) if name != "sutskever" else classifier(features)
    texts = ["EU\trejects\tGermany", "서울", "don't\t.\t.\t."]
    batch = task.collate(rows(task, texts))
    read = task.emissions if isinstance(task, tagging.Task) else task.logits
    together = read(model, batch)[0]
    assert together.isfinite().all()
    for place, text in enumerate(texts):
        alone = read(model, task.collate(rows(task, [text])))[0][0]
        torch.testing.assert_close(together[place][: len(alone)], alone, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_vector_of_a_text_is_the_one_that_the_encoder_pools() -> None:
    features = given("rnn_classifier", unit="bpe")
    task, model = classifier(features)
    texts = ["EU rejects Germany", "서울 .", ""]
    joined = task.features.join(torch.zeros(3, 1), model.features, task.collate(rows(task, texts)))
    for place, text in enumerate(texts):
        tokens = torch.tensor([[*features.tokenizer.encode(text).ids, EOS]])
        alone = features.model.encode(Batch(tokens=tokens, lengths=torch.tensor([tokens.shape[1]]))).pooled[0]
        torch.testing.assert_close(joined[place, 1:], alone, rtol=1e-5, atol=1e-5)


def test_prediction_reads_the_same_features_as_training() -> None:
    task, model = tagger(given(unit="bpe"))
    sentences = [["EU", "rejects", "unseen-word"], ["민수는"], ["서울", "."]]
    trained = rows(task, ["\t".join(each) for each in sentences])
    for example, row in zip(examples_of(task, model, sentences), trained, strict=True):
        assert len(example.row) == len(row) == 5
        assert all(np.array_equal(one, other) for one, other in zip(example.row, row, strict=True) if one is not row[1])
    tagged = Verbs(task, model, None, 100).tag([" ".join(each) for each in sentences], pretokenized=True)
    for each, words in zip(tagged, sentences, strict=True):
        alone = Verbs(task, model, None, 100).tag(" ".join(words), pretokenized=True)
        assert each.tags == alone.tags and each.probabilities == pytest.approx(alone.probabilities, abs=1e-5)


@torch.no_grad()
def test_a_backward_language_model_reads_from_the_end() -> None:
    features, words = given(unit="char", task="backward_language_modeling"), ["EU", "rejects", "서울"]
    task, model = tagger(features)
    joined = task.features.join(torch.zeros(1, 3, 1), model.features, task.collate(rows(task, ["\t".join(words)])))
    ids = [token for word in words for token in features.tokenizer.encode(word).ids]
    tokens = torch.tensor([[*ids[::-1], EOS]])
    vectors = features.model.encode(Batch(tokens=tokens, lengths=torch.tensor([len(ids) + 1]))).layers[-1][0]
    for place, start in enumerate((0, 2, 9)):
        torch.testing.assert_close(joined[0, place, 1:], vectors[len(ids) - 1 - start], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_words_beyond_the_maximum_length_of_the_encoder_have_zeros() -> None:
    features = given("transformer_encoder", unit="char", positions="learned", max_length=8)
    task, model = tagger(features)
    words = ["EU", "rejects", "서울", "."]
    long, short = ("\t".join(each) for each in (words, words[:1]))
    joined = task.features.join(torch.zeros(2, 4, 1), model.features, task.collate(rows(task, [long, short])))
    assert [bool(joined[0, place, 1:].any()) for place in range(4)] == [True, True, False, False]
    assert joined[1, 0, 1:].any()
    text_task, text_model = classifier(features)
    assert text_task.logits(text_model, text_task.collate(rows(text_task, [" ".join(words * 9)])))[0].isfinite().all()


@torch.no_grad()
@pytest.mark.parametrize(("make", "text"), [(tagger, "\t".join(WORDS)), (classifier, " ".join(WORDS))])
def test_padding_may_be_wider_than_what_the_encoder_can_read(make: Any, text: str) -> None:
    """Shapes are few, so that a batch of 12 tokens is padded to 16."""
    task, model = make(given("transformer_encoder", unit="char", positions="learned", max_length=12))
    batch = task.collate(rows(task, [text, text]))
    filled = Shapes(64).fill(batch)
    assert batch.feature_tokens.shape[1] == 12 < filled.feature_tokens.shape[1]
    both = [task.loss(model, each, None).sums["loss"] for each in (batch, filled)]
    torch.testing.assert_close(*both)


def test_what_the_model_cannot_see_is_learned_from_the_features() -> None:
    """The tagger knows no word; what tells the classes apart comes from the given encoder alone."""
    features = given("transformer_encoder", unit="word")
    tokenizer = Tokenizer.train(["x"], Text(unit="space", vocabulary=5))
    texts, found = ["\t".join(("EU", ".")), "\t".join(("서울", "."))], {}
    for name, more in {"without": {}, "with": {"features": features}}.items():
        task = tagging.Task(tagging.Config(), {"words": tokenizer}, LABELS, given=more)
        module = find("models", "rnn_tagger")
        torch.manual_seed(1)
        model: Any = task.build(module, module.Config(**module.SIZES["tiny"])).train()
        (one, two), wanted = rows(task, texts), (np.array([1, 2]), np.array([0, 2]))
        examples = [(one[0], wanted[0], *one[2:]), (two[0], wanted[1], *two[2:])]
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        before = [each.clone() for each in features.model.parameters()]
        for _ in range(40):
            optimizer.zero_grad()
            loss = task.loss(model, task.collate(examples), None).sums["loss"]
            loss.backward()
            optimizer.step()
        found[name] = float(loss.detach())
        assert all(one.equal(other) for one, other in zip(before, features.model.parameters(), strict=True))
        assert all(each.grad is None for each in features.model.parameters())
    assert found["with"] < 0.1 and found["without"] > 1.0  # two words that look alike: 2 · log 2 at best


def test_a_tagger_with_its_own_crf_gets_the_crf_of_the_head() -> None:
    _, model = tagger(given(), model="lstm_crf")
    assert isinstance(model, Headed) and not isinstance(model, Tagger) and model.head.crf is not None
    assert model.model.crf is None
    _, model = tagger(given(), model="lstm_crf", head="softmax")
    assert model.head.crf is None
    _, model = tagger(given(), model="rnn_tagger")
    assert model.head.crf is None
    with pytest.raises(UserError, match="constraints is about a CRF"):
        tagger(given(), constraints=False)
    tagger(given(), model="lstm_crf", constraints=False)


def test_documents_are_read_as_a_whole() -> None:
    task, model = classifier(given("rnn_classifier", unit="word"), model="han", documents=True)
    texts = ["EU rejects Germany.\n서울.", "서울 ."]
    batch = Shapes(tokens=64, multiple=8).fill(task.collate(rows(task, texts)))
    with torch.no_grad():
        together = task.logits(model, batch)[0]
        for place, text in enumerate(texts):
            alone = task.logits(model, task.collate(rows(task, [text])))[0]
            torch.testing.assert_close(together[place], alone[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "name", "says"),
    [
        (tagger, "ngram", "given.features = runs/x: NGram.* encodes no text"),
        (classifier, "modern_gpt", "given.features = runs/x: .* encodes no text"),
        (classifier, "han", "given.features = runs/x: .* reads documents in sentences"),
        (tagger, "autoencoder", "given.features = runs/x: .* has no vector for a single word"),
    ],
)
def test_what_gives_no_such_vectors_is_refused(make: Any, name: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        make(given(name))


def test_a_classifier_without_a_head_has_no_place_for_them() -> None:
    with pytest.raises(UserError, match="given.features are read by a head, and bag_of_words has none"):
        classifier(given(), model="bag_of_words")


def test_the_vectors_keep_the_float_type_of_the_model() -> None:
    task, model = classifier(given("rnn_classifier"))
    batch = task.collate(rows(task, ["EU"]))
    assert task.features.join(torch.zeros(1, 2, dtype=torch.bfloat16), model.features, batch).dtype == torch.bfloat16


@torch.no_grad()
def test_a_mix_is_the_weighted_sum_of_all_layers_of_each_word() -> None:
    """Beside an explicit loop over words and layers."""
    features = given("elmo", unit="char", task="bidirectional_language_modeling")
    task, model = tagger(features, features_mix=True)
    model.head.features_mix.scores.copy_(torch.tensor([0.5, -1.0, 0.2]))
    model.head.features_mix.scale.fill_(1.3)
    words = ["EU", "rejects", "서울"]
    batch = Shapes(tokens=64, multiple=8).fill(task.collate(rows(task, ["\t".join(words), "민수는"])))
    emissions = task.emissions(model, batch)[0]
    own = model.model.encode(Batch(tokens=batch.tokens, lengths=batch.lengths)).layers[-1]
    pieces = [features.tokenizer.encode(word).ids for word in words]
    tokens = torch.tensor([[*(token for piece in pieces for token in piece), EOS]])
    layers = features.model.encode(Batch(tokens=tokens, lengths=torch.tensor([tokens.shape[1]]))).layers
    raw = [2.718281828459045**weight for weight in (0.5, -1.0, 0.2)]
    for place in range(len(words)):
        at = sum(map(len, pieces[:place]))
        mixed = sum(1.3 * share / sum(raw) * layer[0, at] for share, layer in zip(raw, layers, strict=True))
        expected = model.head.scores.linear(torch.cat((own[0, place], mixed)))
        torch.testing.assert_close(emissions[0, place], expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_mix_of_a_text_is_the_mean_over_its_words() -> None:
    features = given("elmo", unit="space", task="bidirectional_language_modeling")
    task, model = classifier(features, features_mix=True)
    model.head.features_mix.scores.copy_(torch.tensor([0.0, 1.0, 2.0]))
    joined = task.features.join(
        torch.zeros(2, 1), model.features, task.collate(rows(task, ["EU rejects Germany", "서울"])), model.features_mix
    )
    for place, text in enumerate(("EU rejects Germany", "서울")):
        tokens = torch.tensor([[*features.tokenizer.encode(text).ids, EOS]])
        layers = features.model.encode(Batch(tokens=tokens, lengths=torch.tensor([tokens.shape[1]]))).layers
        means = torch.stack([layer[0].mean(dim=0) for layer in layers])
        expected = torch.tensor([0.0, 1.0, 2.0]).softmax(0) @ means
        torch.testing.assert_close(joined[place, 1:], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [tagger, classifier])
def test_the_mix_is_learned_and_saved_with_the_head_and_the_encoder_stays_bit_equal(make: Any) -> None:
    features = given("elmo", unit="space", task="bidirectional_language_modeling")
    task, model = make(features, features_mix=True, features_l2=0.01)
    assert {"head.features_mix.scores", "head.features_mix.scale"} <= set(model.state_dict())
    assert not any(name.startswith("features") for name in model.state_dict())
    before = [each.clone() for each in features.model.parameters()]
    batch = task.collate(rows(task, ["EU\trejects", "서울"] if make is tagger else ["EU rejects", "서울"]))
    optimizer = torch.optim.Adam([part for group in task.updates(model) for _, part in group.parameters], lr=0.05)
    for _ in range(5):
        model.train()
        optimizer.zero_grad()
        loss = task.loss(model, batch, None)
        assert float(loss.report["features_l2"]) == pytest.approx(
            2 * 0.01 * float(model.features_mix.scores.detach().square().sum())
        )
        loss.sums["loss"].backward()
        optimizer.step()
    assert model.features_mix.scores.abs().min() > 0 and float(model.features_mix.scale.detach()) != 1.0
    assert all(one.equal(other) for one, other in zip(before, features.model.parameters(), strict=True))


@pytest.mark.parametrize("make", [tagger, classifier])
def test_words_that_the_encoder_does_not_know_are_read_from_their_characters(make: Any) -> None:
    """Those of the task's own vocabulary, and of taggers any others."""
    features = given("elmo", unit="space", task="bidirectional_language_modeling")
    tokenizer = Tokenizer.train([" ".join(WORDS[:3])], Text(unit="space", vocabulary=50))
    features = Given("features", Path("runs/x"), find("models", "elmo").Model(
        features.model.config, tokenizer.vocabulary), tokenizer, features.task, "sum")  # fmt: skip
    features.model.eval()
    task, model = make(features)
    known = len(tokenizer.vocabulary)
    text = "EU don't .".replace(" ", "\t" if make is tagger else " ")
    batch = task.collate(rows(task, [text]))
    assert batch.feature_tokens[0, 0] < known <= batch.feature_tokens[0, 1]
    assert batch.feature_tokens[0, 2] == tokenizer.vocabulary.unk  # no character of "." is known
    if make is tagger:
        sentences = [["EU", "Germans", "don't"]]
        (example,) = examples_of(task, model, sentences)
        assert example.row[3][1] > batch.feature_tokens[0, 1] == example.row[3][2]
        assert len(Verbs(task, model, None, 100).tag("EU Germans don't", pretokenized=True).tags) == 3
        task.features.forget()
        assert task.features.ids_of([["don't"]]) == [[[int(batch.feature_tokens[0, 1])]]]


def test_what_cannot_be_mixed_is_refused() -> None:
    with pytest.raises(UserError, match="given.features = runs/x: RNNLM does not have several layers"):
        tagger(given("rnn_lm"), features_mix=True)
    with pytest.raises(UserError, match="features_mix has no effect without features"):
        tokenizer = Tokenizer.train(["x"], Text(unit="space", vocabulary=5))
        tagging.Task(tagging.Config(features_mix=True), {"words": tokenizer}, LABELS)
    for kind in (tagging.Config, classification.Config):
        with pytest.raises(ValueError, match="features_l2 has no effect without"):
            kind(features_l2=0.1)
        with pytest.raises(ValueError, match="features_l2 must not be negative"):
            kind(features_mix=True, features_l2=-1.0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("make", [tagger, classifier])
@pytest.mark.parametrize("name", ["rnn_lm", "transformer_encoder"])
def test_captured_graphs_compute_the_same_features(make: Any, name: str) -> None:
    """Also after a longer batch, for which a table of positions grows."""
    device, texts = torch.device("cuda"), ["EU\trejects\tGermany", "서울", "don't\t."]
    long = ["\t".join(WORDS * 30)] * 3
    found = []
    for engine in ("eager", "cuda-graphs"):
        task, model = make(given(name))
        model.to(device)
        step = Step(task, model, device, "fp32", engine)
        batches = [Shapes(tokens=64, multiple=8).fill(task.collate(rows(task, each))) for each in (texts, long)]
        losses = [float(step.run(batches[place], [3]).sums["loss"]) for place in (0, 0, 1, 1, 0, 1)]
        found.append((losses, model.head.state_dict().keys(), [p.grad.cpu() for p in model.head.parameters()]))
    (eager, names, gradients), (replayed, others, same) = found
    assert eager == pytest.approx(replayed, rel=1e-4) and names == others
    for one, other in zip(gradients, same, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("documents", [False, True])
def test_features_stand_beside_a_bag_of_ngrams(documents: bool) -> None:
    """Both are arrays of an example, and each is read from its own place."""
    config = {"bag_buckets": 64, "documents": documents}
    features = given("rnn_classifier", unit="char")
    task, model = classifier(features, model="han" if documents else "rnn_classifier", **config)
    texts = ["EU rejects Germany.", "서울 ."]
    batch = task.collate(rows(task, texts))
    assert batch.ngrams is not None and batch.feature_tokens is not None
    for place, text in enumerate(texts):
        length = int(batch.feature_lengths[place])
        assert batch.feature_tokens[place, :length].tolist() == [*features.tokenizer.encode(text).ids, EOS]
    assert task.logits(model, batch)[0].shape == (2, 2)
