"""Tagging: tags beside their subwords, losses against formulas, spans in the text, and what wrong input gets."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.batch import IGNORE, Shapes
from mallang.data.columns import LabelSet
from mallang.data.corpus import Rows
from mallang.data.filters import Filters
from mallang.data.mixture import Mixture, Part
from mallang.data.prepared import prepare
from mallang.errors import UserError
from mallang.evaluation.spans import read_spans
from mallang.find import find
from mallang.layers.head import Headed
from mallang.tasks.tag_reading import examples_of, parts
from mallang.tasks.tagger import Verbs
from mallang.tasks.tagging import Config, Task
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer

SENTENCES = [
    ("EU rejects German call", "I-ORG O I-MISC O"),
    ("Peter Blackburn", "I-PER I-PER"),
    ("민수는 서울 에서 🎉 봤다 .", "I-PER I-LOC O O O O"),
    ("New York Boston won", "I-LOC I-LOC B-LOC O"),
    ("no names", "O O"),
]
ROWS = [(words.replace(" ", "\t"), tags.replace(" ", "\t")) for words, tags in SENTENCES]
UNITS = ("space", "word", "char", "syllable", "jamo", "byte", "bpe", "byte-bpe", "wordpiece", "unigram")
MODELS = {"rnn_tagger": {}, "lstm_crf": {}, "transformer_encoder": {}}


def task(unit="space", rows=ROWS, vocabulary=400, **config):
    text = [words.replace("\t", " ") for words, _ in rows]
    tokenizer = Tokenizer.train(text, Text(unit=unit, vocabulary=vocabulary))
    labels = LabelSet.learn((tags for _, tags in rows), "tags", "tags")
    return Task(Config(**config), {"words": tokenizer}, {"tags": labels})


def model_of(the_task, name="rnn_tagger", seed=1, **options):
    torch.manual_seed(seed)
    module = find("models", name)
    return the_task.build(module, module.Config(**module.SIZES["tiny"] | options)).eval()


def examples(the_task, rows=ROWS):
    columns = [[each.encoder.encode_batch([row[each.place]])[0] for row in rows] for each in the_task.arrays()]
    return [tuple(np.array(ids, dtype=np.int64) for ids in row) for row in zip(*columns, strict=True)]


def validate(the_task, model, rows, folder):
    corpus = prepare(Rows.of(rows, ("words", "tags")), the_task.arrays(), Filters(), folder)
    return the_task.validate(model, corpus, rows, "f1")


def learn(the_task, model, steps=60):
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], lr=0.02)
    random, rows = np.random.default_rng(0), [(each,) for each in examples(the_task)]
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        the_task.loss(model, the_task.prepare(rows, random), None).sums["loss"].backward()
        optimizer.step()
    return model.eval()


WORD = st.text(
    st.one_of(st.sampled_from("abcA.-한국가각👨‍👩‍👧🎉é\u0301"), st.characters(categories=["L", "S", "P"])),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("unit", UNITS)
@settings(max_examples=30, deadline=None)
@given(words=st.lists(WORD.filter(lambda word: not any(map(str.isspace, word))), min_size=1, max_size=6))
def test_every_word_has_a_first_token_and_its_own_tag(known, unit, words):
    """Whatever the unit: as many positions as words, each where the tokens of the words before it end."""
    the_task = known[unit]
    tags = [("O", "I-PER", "I-LOC")[number % 3] for number in range(len(words))]
    (example,) = examples(the_task, [("\t".join(words), "\t".join(tags))])
    batch = the_task.collate([example])
    lengths = [max(1, len(ids)) for ids in the_task.text.encode_batch(words)]
    assert batch.words[0].tolist() == [0, *itertools.accumulate(lengths)][:-1]
    assert int(batch.lengths[0]) == sum(lengths) + 1
    assert the_task.tags.decode(batch.tags[0].tolist()) == tags


@pytest.fixture(scope="module")
def known():
    return {unit: task(unit) for unit in UNITS}


@pytest.mark.parametrize(
    ("scheme", "first"), [("same", "I-LOC B-LOC"), ("iob2", "B-LOC B-LOC"), ("bioes", "S-LOC S-LOC")]
)
def test_spans_are_learned_in_one_scheme_and_written_in_that_of_the_data(scheme, first):
    the_task = task(scheme=scheme)
    assert the_task.tags.labels.scheme == "iob1" and the_task.tags.scheme == ("iob1" if scheme == "same" else scheme)
    ids = the_task.tags.encode(["I-LOC", "B-LOC", "O"])
    assert " ".join(the_task.tags.names[number] for number in ids[:2]) == first
    assert the_task.tags.decode(ids) == ["I-LOC", "B-LOC", "O"]
    # B-PER is in no sentence, but follows from what PER and the scheme are.
    assert the_task.tags.decode(the_task.tags.encode(["I-PER", "B-PER"])) == ["I-PER", "B-PER"]


def test_tags_that_are_no_spans_stay_as_they_are():
    rows = [("the\tcat\tsat", "DT\tNN\tVBD"), ("a\tB", "DT\tNN")]
    the_task = task(rows=rows)
    assert the_task.tags.scheme is None and the_task.tags.names == ("DT", "NN", "VBD")
    model = learn_rows(the_task, rows)
    verbs = Verbs(the_task, model, None, 0)
    assert verbs.tag("the cat sat").tags == ("DT", "NN", "VBD") and verbs.tag("the cat").spans == ()
    scores, outputs = verbs.evaluate(rows)
    assert outputs == ["DT NN VBD", "DT NN"] and {score.value for score in scores} == {100.0}
    assert [score.name for score in scores] == ["tag accuracy", *["tag F1"] * 3]


def learn_rows(the_task, rows):
    model = model_of(the_task)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(40):
        optimizer.zero_grad()
        the_task.loss(model, the_task.collate(examples(the_task, rows)), None).sums["loss"].backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("head", [None, "softmax", "crf"])
def test_the_loss_is_the_sum_over_sentences_and_padding_adds_nothing(name, head):
    the_task = task("bpe", head=head)
    model = model_of(the_task, name)
    rows = examples(the_task)
    batch = the_task.collate(rows)
    whole = the_task.loss(model, batch, None)
    alone = [the_task.loss(model, the_task.collate([row]), None).sums["loss"] for row in rows]
    torch.testing.assert_close(whole.sums["loss"], torch.stack(alone).sum(), rtol=1e-4, atol=1e-4)
    filled = Shapes(tokens=512, multiple=16).fill(batch)
    assert len(filled) > len(batch) and filled.tags[-1].tolist() == [IGNORE] * filled.tags.shape[1]
    again = the_task.loss(model, filled, None).sums["loss"]
    torch.testing.assert_close(again, whole.sums["loss"], rtol=1e-4, atol=1e-4)
    assert the_task.counts(filled)["loss"] == the_task.counts(batch)["loss"] == sum(len(row[1]) for row in rows)


def test_softmax_is_the_cross_entropy_of_every_word():
    the_task = task("bpe", head="softmax")
    model, rows = model_of(the_task), examples(the_task)
    found = the_task.loss(model, the_task.collate(rows), None)
    expected, right = 0.0, 0
    with torch.no_grad():
        for ids, tags, starts in rows:
            batch = the_task.collate([(ids, tags, starts)])
            states = model.model.encode(batch).layers[-1][0]
            for tag, start in zip(tags, starts, strict=True):
                logits = model.head(states[start])
                expected -= float(logits.log_softmax(0)[tag])
                right += int(logits.argmax()) == tag
    assert found.sums["loss"].item() == pytest.approx(expected, rel=1e-5)
    assert int(found.report["accuracy"]) == right


@torch.no_grad()
def test_the_penalty_of_an_encoder_is_the_sum_over_sentences_of_any_length():
    the_task = task()
    model, rows = model_of(the_task, "self_attentive", penalty=0.5), examples(the_task)
    alone = [the_task.loss(model, the_task.collate([row]), None) for row in rows]
    penalties = [float(each.report["penalty"]) for each in alone]
    assert len({len(row[1]) for row in rows}) > 1 and min(penalties) > 0
    for batch in (the_task.collate(rows), Shapes(tokens=128, multiple=8).fill(the_task.collate(rows))):
        together = the_task.loss(model, batch, None)
        assert float(together.report["penalty"]) == pytest.approx(sum(penalties), rel=1e-5)
        assert float(together.sums["loss"]) == pytest.approx(sum(float(each.sums["loss"]) for each in alone), rel=1e-5)


@pytest.mark.parametrize(
    ("name", "head", "own"), [("lstm_crf", None, True), ("lstm_crf", "softmax", False), ("rnn_tagger", "crf", False)]
)
def test_a_model_with_a_crf_of_its_own_has_no_head_unless_one_is_asked_for(name, head, own):
    the_task = task(head=head)
    model = model_of(the_task, name)
    assert isinstance(model, Headed) != own
    emissions, crf, _ = the_task.emissions(model, the_task.collate(examples(the_task)))
    assert emissions.shape[2] == len(the_task.tags) and (crf is None) == (head == "softmax")


@pytest.mark.parametrize("name", MODELS)
def test_tags_of_a_batch_are_those_of_single_sentences(name):
    the_task = task("bpe", head="crf")
    verbs = Verbs(the_task, model_of(the_task, name), None, 0)
    texts = [words for words, _ in SENTENCES] + ["", "Kim"]
    together = verbs.tag(texts, nbest=3)
    for text, found in zip(texts, together, strict=True):
        alone = verbs.tag(text, nbest=3)
        assert alone.tags == found.tags and alone.words == found.words
        assert alone.probabilities == pytest.approx(found.probabilities, abs=1e-4)
        assert [span.confidence for span in alone.spans] == pytest.approx([s.confidence for s in found.spans], abs=1e-4)
        assert [share for _, share in alone.nbest] == pytest.approx([share for _, share in found.nbest], abs=1e-4)


@pytest.mark.parametrize(("name", "head"), [("lstm_crf", None), ("rnn_tagger", "softmax"), ("rnn_tagger", "crf")])
def test_spans_are_where_they_are_in_the_text(name, head):
    the_task = task(head=head)
    verbs = Verbs(the_task, learn(the_task, model_of(the_task, name)), None, 0)
    text = "  민수는 서울 에서 🎉 봤다. "
    found = verbs.tag(text)
    assert found.input == text and str(found).startswith("민수는/I-PER 서울/I-LOC")
    assert [(span.type, span.text, span.start, span.end) for span in found.spans] == [
        ("PER", "민수는", 2, 5), ("LOC", "서울", 6, 8),
    ]  # fmt: skip
    assert all(text[begin:end] == word for word, (begin, end) in zip(found.words, found.offsets, strict=True))
    assert all(0.5 < share <= 1 for share in found.probabilities)
    assert all(0.5 < span.confidence <= 1 for span in found.spans)
    assert all(span.confidence <= max(found.probabilities) + 1e-6 for span in found.spans)
    given, split = verbs.tag([["New", "York", "Boston", "won"]])[0], verbs.tag("New York Boston won", pretokenized=True)
    assert given.tags == split.tags == ("I-LOC", "I-LOC", "B-LOC", "O") and given.input == split.input
    assert [(span.text, span.start) for span in given.spans] == [("New York", 0), ("Boston", 9)]


def test_probabilities_and_n_best_are_those_of_all_tag_sequences():
    """By enumeration: every tagging of three words that the scheme allows."""
    the_task = task(head="crf")
    model = model_of(the_task)
    with torch.no_grad():
        model.head.crf.transitions.normal_()
    verbs = Verbs(the_task, model, None, 0)
    found = verbs.tag("Peter rejects Boston", nbest=5)
    (example,) = examples_of(the_task, model, [found.words])
    with torch.no_grad():
        emissions, crf, _ = the_task.emissions(model, the_task.collate([example.row]))
        paths = list(itertools.product(range(len(the_task.tags)), repeat=3))
        mask = torch.ones(1, 3, dtype=torch.bool)
        scores = torch.stack([crf.score(emissions, torch.tensor([path]), mask)[0] for path in paths]).double()
    shares = scores.softmax(0)
    ordered = sorted(zip(shares.tolist(), paths, strict=True), reverse=True)[:5]
    assert [share for _, share in found.nbest] == pytest.approx([share for share, _ in ordered], rel=1e-3)
    assert [list(tags) for tags, _ in found.nbest] == [the_task.tags.decode(path) for _, path in ordered]
    assert list(found.tags) == the_task.tags.decode(ordered[0][1])
    names = [[the_task.tags.names[number].replace("S-", "B-").replace("E-", "I-") for number in path] for path in paths]
    best = names[paths.index(ordered[0][1])]
    for place in range(3):
        alike = [share for share, path in zip(shares.tolist(), names, strict=True) if path[place] == best[place]]
        assert found.probabilities[place] == pytest.approx(sum(alike), abs=1e-4)
    for span, (kind, first, after) in zip(found.spans, read_spans(found.tags), strict=True):
        having = [(kind, first, after) in read_spans(path) for path in names]
        assert span.confidence == pytest.approx(float(shares[torch.tensor(having)].sum()), abs=1e-4)


def test_there_are_no_more_n_best_than_tag_sequences():
    """One word has as many taggings as the scheme allows for it; the impossible ones are left out."""
    the_task = task(head="crf")
    verbs = Verbs(the_task, model_of(the_task), None, 0)
    found = verbs.tag("Peter", nbest=4 * len(the_task.tags))
    possible = [name for name in the_task.tags.names if name == "O" or name.startswith("S-")]
    assert len(found.nbest) == len(possible) < len(the_task.tags)
    assert all(share > 0 for _, share in found.nbest)
    assert sum(share for _, share in found.nbest) == pytest.approx(1.0, abs=1e-5)


@settings(deadline=None, max_examples=60)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12), longest=st.integers(2, 12))
def test_parts_of_a_sentence_are_as_long_as_they_can_be(lengths, longest):
    """No part is empty; a part that is too long is a single word; no word of the next part would still fit."""
    found = parts(lengths, longest)
    assert [place for begin, end in found for place in range(begin, end)] == list(range(len(lengths)))
    for begin, end in found:
        assert begin < end and (sum(lengths[begin:end]) < longest or end == begin + 1)
        assert end == len(lengths) or sum(lengths[begin : end + 1]) >= longest


def test_a_sentence_longer_than_the_model_is_tagged_in_parts():
    assert parts([2, 2, 2, 5], 5) == [(0, 2), (2, 3), (3, 4)] and parts([], 5) == [] and parts([9, 9], None) == [(0, 2)]
    the_task = task(head="crf")
    model = model_of(the_task, "transformer_encoder", positions="learned", max_length=5)
    assert the_task.longest(model) == 5
    verbs = Verbs(the_task, model, None, 0)
    words = [word for sentence in (0, 3, 4) for word in SENTENCES[sentence][0].split()][:9]
    found = verbs.tag([words], nbest=2)[0]
    pieces = [verbs.tag([words[begin : begin + 4]])[0] for begin in (0, 4, 8)]
    assert found.tags == sum((piece.tags for piece in pieces), ()) and found.nbest == ()
    assert len(found.spans) == sum(len(piece.spans) for piece in pieces)
    assert all(found.input[span.start : span.end] == span.text for span in found.spans)


@pytest.mark.parametrize("name", ["rnn_tagger", "lstm_crf"])
def test_a_frozen_encoder_stays_as_it_is(name):
    the_task = task(head="softmax", freeze=True, head_dropout=0.2)
    model = model_of(the_task, name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    learn(the_task, model.train(), steps=3)
    assert not model.train().model.training
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert changed == {"head.scores.linear.weight", "head.scores.linear.bias"}


def test_unknown_words_are_read_from_their_characters_and_forgotten_after_validation(tmp_path):
    the_task = task()
    model = model_of(the_task, "lstm_crf")
    verbs = Verbs(the_task, model, None, 0)
    one, two = verbs.tag("llac"), verbs.tag("namreG")  # letters of known words
    assert one.probabilities != two.probabilities
    before = model.words.spelling.spelling
    scores = {score.name: score.value for score in validate(the_task, model, [("llac", "O"), *ROWS], tmp_path)}
    assert set(scores) == {"loss", "accuracy", "f1"} and not model.words.spelling.oov_ids
    assert len(model.words.spelling.spelling) == 2 * len(the_task.text.vocabulary) <= len(before)


def test_validation_is_the_loss_and_the_scores_of_evaluate(tmp_path):
    the_task = task(head="crf")
    model = learn(the_task, model_of(the_task), steps=12)
    found = {score.name: score.value for score in validate(the_task, model, ROWS, tmp_path)}
    scores, outputs = Verbs(the_task, model, None, 0).evaluate(ROWS)
    by_name = {score.name: score.value for score in reversed(scores)}
    assert found["f1"] == by_name["span F1"] and found["accuracy"] == by_name["tag accuracy"]
    batch = the_task.collate(examples(the_task))
    words = the_task.counts(batch)["loss"]
    with torch.no_grad():
        assert found["loss"] == pytest.approx(float(the_task.loss(model, batch, None).sums["loss"]) / words, rel=1e-4)
        single = [("Boston", "I-LOC")]
        alone = the_task.loss(model, the_task.collate(examples(the_task, single)), None).sums["loss"]
    assert validate(the_task, model, single, tmp_path)[0].value == pytest.approx(float(alone), rel=1e-4)  # of one word
    assert [len(line.split()) for line in outputs] == [len(words.split("\t")) for words, _ in ROWS]
    assert {score.signature.rpartition("type:")[2] for score in scores[5:]} >= {"PER", "LOC", "ORG", "MISC"}


def test_rare_words_are_hidden_in_training_and_others_are_not(tmp_path):
    rows = [("a\ta\tb", "O\tO\tI-A"), ("a\tc", "O\tI-A")]
    for name, unknown in (("lstm_crf", None), ("rnn_tagger", 1)):
        the_task = task(rows=rows, rare_dropout=0.5)
        model_of(the_task, name)
        corpus = prepare(Rows.of(rows, ("words", "tags")), the_task.arrays(), Filters(), tmp_path)
        given = [(each,) for each in the_task.examples(corpus, 1, 0)]
        batches = [the_task.prepare(given, np.random.default_rng(seed)).tokens for seed in range(60)]
        a, b = (the_task.text.vocabulary.id(word) for word in "ab")
        hidden = b + len(the_task.text.vocabulary) if unknown is None else unknown
        assert {int(tokens[0, 2]) for tokens in batches} == {b, hidden}
        assert 15 < sum(int(tokens[0, 2]) == hidden for tokens in batches) < 45
        assert {int(tokens[0, 0]) for tokens in batches} == {a}
    the_task = task(rows=rows, word_dropout=0.5)
    seen = [the_task.prepare(given, np.random.default_rng(seed)).tokens[0, 0] for seed in range(40)]
    assert {int(each) for each in seen} == {a, 1}


def test_rare_words_of_several_corpora_are_rare_in_all_of_them_together(tmp_path):
    """`b` occurs once in each, `c` once altogether, and the tags, which are numbers too, do not count."""
    rows = [("a\ta\tb", "O\tO\tI-A"), ("a\tc", "O\tI-B"), ("b\ta", "I-C\tO")]
    the_task = task(rows=rows, rare_dropout=0.5)
    columns, arrays = ("words", "tags"), the_task.arrays()
    corpora = [prepare(Rows.of(own, columns), arrays, Filters(), tmp_path) for own in (rows[:2], rows[2:])]
    the_task.examples(Mixture([Part(each, 1.0) for each in corpora]), 1, 0)
    assert the_task.is_rare is not None
    assert np.flatnonzero(the_task.is_rare).tolist() == [the_task.text.vocabulary.id("c")]


def test_tags_and_words_that_do_not_belong_together_are_refused_with_their_row(tmp_path):
    the_task = task()
    wrong = [*ROWS[:2], ("a\tb", "O"), *ROWS]
    with pytest.raises(UserError, match="2 words but 1 tags") as caught:
        prepare(Rows.of(wrong, ("words", "tags"), "my.conll"), the_task.arrays(), Filters(), tmp_path)
    assert caught.value.where == "my.conll, row 3"
    unseen = [ROWS[0], ("a\tb", "O\tI-LAW")]
    with pytest.raises(UserError, match="'I-LAW' does not occur in the training data") as caught:
        prepare(Rows.of(unseen, ("words", "tags"), "my.conll"), the_task.arrays(), Filters(), tmp_path)
    assert caught.value.where == "my.conll, row 2"
    verbs = Verbs(the_task, model_of(the_task), None, 0)
    for rows, message in ((wrong, "2 words but 1 tags"), (unseen, "'I-LAW' does not occur")):
        with pytest.raises(UserError, match=message) as caught:
            verbs.evaluate(rows)
        assert caught.value.where in ("row 3", "row 2")


def test_what_cannot_be_is_refused():
    with pytest.raises(UserError, match=r"holds only 'O': .* tell apart"):
        task(rows=[("a", "O")])
    with pytest.raises(UserError, match="bahdanau encodes no text"):
        model_of(task(), "bahdanau")
    with pytest.raises(UserError, match="has its own CRF"):
        model_of(task(freeze=True), "lstm_crf")
    with pytest.raises(UserError, match="about a CRF, and there is none"):
        model_of(task(constraints=False))
    with pytest.raises(ValueError, match="no effect on head = 'softmax'"):
        Config(head="softmax", constraints=False)
    with pytest.raises(ValueError, match="rare_dropout"):
        Config(rare_dropout=1.0)
    with pytest.raises(UserError, match="need a CRF"):
        Verbs(task(), model_of(task()), None, 0).tag("a", nbest=2)
    with pytest.raises(UserError, match="stride has no effect on a tagger"):
        Verbs(task(), model_of(task()), None, 0).evaluate(ROWS, stride=3)
    assert model_of(task(constraints=False), "lstm_crf").crf.allowed_transitions.all()
    assert not model_of(task(), "lstm_crf").crf.allowed_transitions.all()
