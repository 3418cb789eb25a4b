"""Token attribution: against the closed form of a linear model and against finite differences along the line."""

import json
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from mallang.data.columns import LabelSet
from mallang.errors import UserError
from mallang.find import find
from mallang.layers.quantization import quantize
from mallang.tasks import attribution, classification, classifier, tagger, tagging
from mallang.tasks.attribution import AttributedRow, Attribution, baseline_token, relative_error
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer

TEXT, SENTENCE = "a c b", "aba c bcc"


def classifier_of(name="bag_of_means", labels=("bad", "fine", "good"), seed=1, scale=1.0, **config):
    """An untrained classifier of characters."""
    tokenizer = Tokenizer.train(["a b c d"], Text(unit="space", vocabulary=50))
    kind = "labels" if config.get("kind") == "multi" else "label"
    task = classification.Task(
        classification.Config(**config), {"text": tokenizer}, {"label": LabelSet(labels, kind, (1,) * len(labels))}
    )
    return classifier.Verbs(task, built(task, name, seed, scale), None, 0)


def test_a_bag_of_n_grams_has_no_attribution_and_says_why():
    with pytest.raises(UserError, match="BagOfWords has none: it counts n-grams") as caught:
        classifier_of("bag_of_words").attribution("a b")
    assert "cnn" in str(caught.value.todo) and "--scores" in str(caught.value.todo)


def tagger_of(name="lstm_crf", longest=None, **config):
    """An untrained tagger of words, each of one to three characters."""
    tokenizer = Tokenizer.train(["a b c d"], Text(unit="char", vocabulary=50))
    labels = LabelSet.learn(["O\tB-PER", "O\tI-PER\tB-LOC"], "tags", "tags")
    task = tagging.Task(tagging.Config(**config), {"words": tokenizer}, {"tags": labels})
    options = {} if longest is None else {"positions": "learned", "max_length": longest}
    return tagger.Verbs(task, built(task, name, 1, 1.5, **options), None, 0)


def built(task, name, seed, scale, **options):
    torch.manual_seed(seed)
    module = find("models", name)
    model = task.build(module, module.Config(**module.SIZES["tiny"] | options)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.4 * scale)
    return model


@contextmanager
def vectors_of_tokens(embedding, vectors):
    """Every token reads these vectors, whatever its id."""
    own, embedding.forward = embedding.forward, lambda tokens: vectors
    try:
        yield
    finally:
        embedding.forward = own


def along_the_line(score, embedding, tokens, baseline, points=20, step=0.02):
    """The integral of the derivative in the direction of one token after the other: midpoints, central differences."""
    start, end = (embedding.weight.detach()[ids][None] for ids in (baseline, tokens))
    found = np.zeros(len(tokens))
    for middle in (np.arange(points) + 0.5) / points:
        for place in range(len(tokens)):
            move = torch.zeros_like(start)
            move[0, place] = (end - start)[0, place]
            values = []
            for sign in (1, -1):
                with vectors_of_tokens(embedding, start + middle * (end - start) + sign * step * move):
                    values.append(score())
            found[place] += (values[0] - values[1]) / (2 * step) / points
    return found


def logits_of(verbs, text):
    batch = verbs.task.collate(verbs.examples([text]))
    with torch.no_grad():
        return verbs.task.logits(verbs.model, batch)[0][0]


@pytest.mark.parametrize("label", [None, "bad", "fine", "good"])
def test_a_linear_score_has_the_weights_of_its_formula(label):
    verbs = classifier_of()
    found = verbs.attribution(TEXT, label=label)
    ids = verbs.task.collate(verbs.examples([TEXT])).tokens[0].tolist()
    logits = logits_of(verbs, TEXT)
    chosen = int(logits.argmax()) if label is None else ("bad", "fine", "good").index(label)
    table, (linear,) = verbs.encoder.embedding.weight.detach(), [
        each for each in verbs.model.head.modules() if isinstance(each, torch.nn.Linear)
    ]  # fmt: skip
    vocabulary = verbs.task.text.vocabulary
    row = linear.weight.detach()[chosen] / len(ids)
    special = [token in vocabulary.specials for token in ids]
    expected = [
        0.0 if own else float(row @ (table[i] - table[vocabulary.pad])) for i, own in zip(ids, special, strict=True)
    ]
    assert found.weights == pytest.approx(expected, abs=1e-6) and found.steps == 2 * attribution.FEWEST
    assert found.label == ("bad", "fine", "good")[chosen] and found.score == pytest.approx(float(logits[chosen]))
    assert found.probability == pytest.approx(float(logits.softmax(0)[chosen]), abs=1e-6)
    assert sum(found.weights) == pytest.approx(found.score - found.baseline_score, abs=1e-5)
    assert found.score_name == f"the logit of {found.label}" and found.input == TEXT and found.constant == ()
    assert found.tokens == tuple(vocabulary.tokens[i] for i in ids) and found.baseline == "<pad>"
    assert set(found.kept) == {token for token, own in zip(found.tokens, special, strict=True) if own}
    simple = verbs.attribution(TEXT, method="gradient", label=label)
    assert simple.weights == pytest.approx([float(row @ table[i]) for i in ids], abs=1e-6)
    assert (simple.baseline_score, simple.difference, simple.error, simple.steps) == (None, None, None, 1)
    assert simple.score == pytest.approx(found.score)


@pytest.mark.parametrize("name", ["cnn", "rnn_classifier", "bert"])
def test_integrated_gradients_are_those_of_finite_differences(name):
    verbs = classifier_of(name, seed=3, scale=0.7)
    found = verbs.attribution("a c", label="fine")
    vocabulary = verbs.task.text.vocabulary
    tokens = verbs.task.collate(verbs.examples(["a c"])).tokens[0]
    (embedding,) = attribution.token_lookups(verbs.encoder)
    specials = torch.tensor(sorted(vocabulary.specials - {vocabulary.unk}))
    baseline = torch.where(torch.isin(tokens, specials), tokens, baseline_token(vocabulary))
    expected = along_the_line(lambda: float(logits_of(verbs, "a c")[1]), embedding, tokens, baseline)
    assert np.abs(expected).max() > 0.01, "the model must not be constant"
    assert found.weights == pytest.approx(expected.tolist(), abs=0.03 * np.abs(expected).sum())
    assert found.error <= attribution.TOLERANCE and sum(found.weights) == pytest.approx(found.difference, rel=0.011)


def test_the_baseline_is_of_masks_where_there_are_any_and_special_tokens_are_kept():
    verbs = classifier_of()
    vocabulary = verbs.task.text.vocabulary
    assert vocabulary.tokens[baseline_token(vocabulary)] == "<pad>"
    tokens = torch.tensor([[vocabulary.unk, vocabulary.pad, vocabulary.eos, len(vocabulary) - 1]])
    assert attribution.is_kept(tokens, vocabulary).tolist() == [[False, True, True, False]]
    masked = Tokenizer.train(["a b"], Text(unit="space", vocabulary=50), special=("mask",)).vocabulary
    assert masked.tokens[baseline_token(masked)] == "<mask>"


def test_steps_are_doubled_until_the_sum_is_right_and_the_weights_settle():
    class Curve:
        """A line whose integral has an error that falls with the number of steps."""

        def __init__(self, error):
            self.error, self.tried = error, []

        def integral(self, steps):
            self.tried.append(steps)
            return np.array([[1.0 + self.error(steps), 1.0]])

    for error, last in (
        (lambda steps: 0.0, 32),  # one more, to see that nothing changes
        (lambda steps: 1.0 if steps < 100 else 0.0, 256),
        (lambda steps: 1.0, 1024),  # settled at what is wrong
        (lambda steps: (-1.0) ** steps.bit_length(), 1024),  # never settled
    ):
        line = Curve(error)
        weights, steps = attribution.integrate(line, 2.0)
        assert steps == last == line.tried[-1] and weights.sum() == pytest.approx(2.0 + error(last))
        assert line.tried == [16 * 2**k for k in range(len(line.tried))]


def test_copies_are_scored_in_batches_of_bounded_size(monkeypatch):
    verbs, sizes = classifier_of("cnn"), []
    whole = verbs.attribution(TEXT)
    own = verbs.task.collate
    monkeypatch.setattr(verbs.task, "collate", lambda rows: sizes.append(len(rows)) or own(rows))
    monkeypatch.setattr(attribution, "BATCH_TOKENS", 3 * len(whole.tokens))
    assert verbs.attribution(TEXT).weights == pytest.approx(whole.weights, abs=1e-5)
    assert max(sizes) == 3
    monkeypatch.setattr(attribution, "BATCH_TOKENS", 1)
    assert verbs.attribution(TEXT).weights == pytest.approx(whole.weights, abs=1e-5)


def test_relative_errors():
    assert relative_error(1.1, 1.0) == pytest.approx(0.1) and relative_error(0.9, 1.0) == pytest.approx(0.1)
    assert relative_error(-2.0, -1.0) == pytest.approx(1.0)
    assert relative_error(0.00009, 0.0) == 0.0 and relative_error(0.001, 0.0) == pytest.approx(10.0)


def test_notes_and_json_say_what_is_needed_to_read_the_numbers():
    common = {"input": "a b", "label": "good", "probability": 0.75, "score_name": "the logit of good", "score": 2.0,
              "baseline": "<pad>", "kept": ("</s>",), "rows": (AttributedRow(("a", "b"), (1.5, -0.5)),)}  # fmt: skip
    found = Attribution(**common, method="integrated", baseline_score=1.0, steps=32)
    assert str(found) == "a[+1.500] b[-0.500]" and found.difference == 1.0 and found.error == 0.0
    first, second, third = found.notes()
    assert (
        first == "integrated gradients of the logit of good, 2.000; 1.000 for the baseline, where every token is <pad>"
    )
    assert second == "32 steps: the weights sum to the difference, +1.000, with an error of 0.00%"
    assert third.endswith(": </s>")
    wrong = Attribution(**common, method="integrated", baseline_score=1.5, steps=1024, constant=("the bag of n-grams",))
    assert "1024 steps: too few, the weights do not sum" in wrong.notes()[1] and "100.00%" in wrong.notes()[1]
    assert wrong.notes()[-1] == "not attributed, and the same for the baseline: the bag of n-grams"
    plain = json.loads(json.dumps(wrong.to_json()))
    assert (plain["baseline"], plain["baseline_value"], plain["value"], plain["error"]) == ("<pad>", 1.5, 2.0, 1.0)
    assert (plain["output"], plain["score"], plain["steps"], "word" in plain) == ("good", 0.75, 1024, False)
    simple = Attribution(**common, method="gradient", baseline_score=None, steps=1, word="a")
    assert simple.notes() == ["gradient × input of the logit of good, 2.000"]
    assert (simple.to_json()["baseline"], simple.to_json()["word"]) == (None, "a")


def test_several_texts_and_an_ordinal_scale():
    verbs = classifier_of(kind="ordinal")
    found = verbs.attribution([TEXT, "d"])
    assert [each.input for each in found] == [TEXT, "d"] and len(found[1].tokens) < len(found[0].tokens)
    assert found[0].weights == pytest.approx(verbs.attribution(TEXT).weights, abs=1e-6)
    assert {each.score_name for each in found} == {"the scale of the ratings"}
    assert found[0].score == pytest.approx(float(logits_of(verbs, TEXT)[0]))
    with pytest.raises(UserError, match="ratings lie on one scale"):
        verbs.attribution(TEXT, label="good")


def test_a_bag_is_not_attributed_and_named():
    verbs = classifier_of(bag_buckets=64)
    found = verbs.attribution(TEXT)
    assert found.constant == ("the bag of n-grams",) and found.error <= attribution.TOLERANCE


def test_what_cannot_be_attributed_is_refused():
    verbs = classifier_of("cnn")
    with pytest.raises(UserError, match="no label 'god'") as caught:
        verbs.attribution(TEXT, label="god")
    assert "good" in caught.value.todo
    with pytest.raises(UserError, match="no attribution 'gradent'"):
        attribution.check_method("gradent")
    quantize(verbs.model)
    with pytest.raises(UserError, match="int8 weights have no gradients"):
        verbs.attribution(TEXT)


@pytest.mark.parametrize("method", ["integrated", "gradient"])
def test_every_word_of_a_sentence_has_an_attribution_of_its_tag(method):
    verbs = tagger_of()
    found = verbs.attribution(SENTENCE, method=method)
    said = verbs.tag(SENTENCE)
    assert [each.word for each in found] == ["aba", "c", "bcc"] and [each.label for each in found] == list(said.tags)
    assert [each.probability for each in found] == pytest.approx(list(said.probabilities))
    (example,) = tagger.examples_of(verbs.task, verbs.model, [SENTENCE.split()])
    batch = verbs.task.collate([example.row])
    with torch.no_grad():
        emissions = verbs.task.emissions(verbs.model, batch)[0][0]
    for place, each in enumerate(found):
        # Of a CRF the score is the emission of the best tag, which the tag of the data may be written otherwise.
        name = each.score_name.removeprefix("the score of ")
        assert each.score == pytest.approx(float(emissions[place, verbs.task.tags.names.index(name)]), abs=1e-5)
        assert set(each.tokens) - set(each.kept) == {"aba", "c", "bcc"}, "the tokens of a word are one"
        assert len(each.weights) == len(each.tokens) and each.constant == ()
    if method == "integrated":
        assert all(each.error <= attribution.TOLERANCE for each in found)
        assert all(
            sum(each.weights) == pytest.approx(each.difference, abs=0.02 * abs(each.difference)) for each in found
        )
    assert found[0].weights != found[2].weights
    assert verbs.attribution([SENTENCE, "a"])[1][0].word == "a"
    with pytest.raises(UserError, match="every word has a tag of its own"):
        verbs.attribution(SENTENCE, label="O")


def test_a_word_has_the_sum_of_its_tokens():
    verbs = tagger_of("rnn_tagger", head="softmax")
    (first, *_) = verbs.attribution(SENTENCE)
    vocabulary = verbs.task.text.vocabulary
    (example,) = tagger.examples_of(verbs.task, verbs.model, [SENTENCE.split()])
    tokens = verbs.task.collate([example.row]).tokens[0]
    place = verbs.task.tags.names.index(first.score_name.removeprefix("the score of "))

    def score():
        with torch.no_grad():
            return float(verbs.task.emissions(verbs.model, verbs.task.collate([example.row]))[0][0, 0, place])

    (embedding,) = attribution.token_lookups(verbs.model.model)
    specials = torch.tensor(sorted(vocabulary.specials - {vocabulary.unk}))
    baseline = torch.where(torch.isin(tokens, specials), tokens, baseline_token(vocabulary))
    expected = along_the_line(score, embedding, tokens, baseline)
    sums = [expected[:3].sum(), expected[3], expected[4:7].sum(), expected[7:].sum()]
    assert first.weights == pytest.approx(sums, abs=0.03 * np.abs(expected).sum())


def test_a_long_sentence_is_attributed_in_parts():
    verbs = tagger_of("transformer_encoder", longest=5, head="softmax")
    found = verbs.attribution("aba c bcc d")
    assert [each.word for each in found] == ["aba", "c", "bcc", "d"]
    assert [each.label for each in found] == list(verbs.tag("aba c bcc d").tags)
    assert all(len(each.tokens) <= 5 for each in found)
