"""The loss of a translation, against the sums written out position by position."""

import numpy as np
import pytest
import torch

from mallang.data.corpus import Rows
from mallang.data.filters import Filters
from mallang.data.prepared import prepare
from mallang.decoding import contract as decoding
from mallang.errors import UserError
from mallang.models import transformer
from mallang.tasks.translation import Config, Task, Verbs
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import PAD


def make(dropout=0.0, **options):
    tokenizer = Tokenizer.train(["a b c d e f g h i j"], Text(unit="char", vocabulary=30))
    task = Task(Config(**options), {"source": tokenizer, "target": tokenizer})
    torch.manual_seed(5)
    return task, task.build(transformer, transformer.Config(**{**transformer.SIZES["tiny"], "dropout": dropout}))


def make_batch(task):
    random = np.random.default_rng(0)
    rows = [((random.integers(4, 15, size=a), random.integers(4, 15, size=b)),) for a, b in [(3, 4), (5, 2), (1, 9)]]
    return task.prepare(rows, random)


def written_out(log_probs, labels, smoothing):
    loss = 0.0
    for row, said in zip(log_probs, labels, strict=True):
        for here, label in zip(row, said.tolist(), strict=True):
            if label != PAD:
                loss = loss - (1 - smoothing) * here[label] - smoothing * here.mean()
    return loss


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_smoothed_cross_entropy(smoothing):
    task, model = make(label_smoothing=smoothing)
    batch = make_batch(task)
    loss = task.loss(model, batch, None)
    log_probs = model.output(model(batch)).log_softmax(dim=-1)
    torch.testing.assert_close(loss.sums["loss"], written_out(log_probs, batch.labels, smoothing), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(loss.report["nll"], written_out(log_probs, batch.labels, 0.0).detach())
    assert task.counts(batch) == {"loss": 4 + 2 + 9 + 3}


def divergence(p, q):
    return (p.exp() * (p - q)).sum()


def test_r_drop_is_the_mean_loss_of_two_passes_and_their_divergence():
    task, model = make(dropout=0.3, r_drop=3.0)
    batch = make_batch(task)
    torch.manual_seed(1)
    loss = task.loss(model, batch, None)
    torch.manual_seed(1)
    twice = batch.map(lambda tensor: torch.cat((tensor, tensor)))
    first, second = model.output(model(twice)).log_softmax(dim=-1).chunk(2)
    assert not torch.equal(first, second), "dropout must tell the two apart"
    wanted = sum(written_out(one, batch.labels, 0.1) for one in (first, second)) / 2
    apart = sum(
        divergence(first[i, t], second[i, t]) + divergence(second[i, t], first[i, t])
        for i, length in enumerate(batch.lengths.tolist())
        for t in range(length)
    )
    torch.testing.assert_close(loss.report["divergence"], apart.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(loss.sums["loss"], wanted + 3.0 / 2 * apart / 2, rtol=1e-4, atol=1e-4)


def test_r_drop_costs_nothing_where_there_is_no_dropout():
    plain, model = make(dropout=0.3)
    task, _ = make(dropout=0.3, r_drop=3.0)
    batch = make_batch(task)
    model.eval()
    torch.testing.assert_close(task.loss(model, batch, None).sums, plain.loss(model, batch, None).sums)
    with pytest.raises(ValueError, match="r_drop"):
        Config(r_drop=-1.0)
    with pytest.raises(UserError, match="has none"):
        make(dropout=0.0, r_drop=3.0)


def test_a_score_is_asked_for_as_on_the_command_line():
    task, model = make()
    verbs = Verbs(task, model.eval(), decoding.Config(), 30)
    one = verbs.score("a b", "c d")
    assert (one.source, one.target) == ("a b", "c d")
    pairs = [("a b", "c d"), ("e", "f g")]
    listed = verbs.score(pairs)
    assert listed[0].score == pytest.approx(one.score, abs=1e-5)
    assert verbs.score(["a b", "e"], ["c d", "f g"]) == listed == verbs.score(pairs=pairs) == verbs.score(iter(pairs))
    assert verbs.score(source="a b", target="c d") == one and verbs.score([]) == []
    for given in (("a b",), (pairs, "loud"), ("a b", ["c d"]), (), (["a"], ["b", "c"])):
        with pytest.raises(UserError, match=r"needs a source and its translation|1 sources, but 2 targets"):
            verbs.score(*given)
    with pytest.raises(UserError, match="one of them"):
        verbs.score("a", "b", pairs=pairs)
    with pytest.raises(UserError, match="domain"):
        verbs.score("a b", "c d", domain="loud")


def test_the_shortest_texts_are_scored_as_any_others():
    """A text of one token, or of none, beside longer ones and alone: batches are cut by length."""
    task, model = make()
    verbs = Verbs(task, model.eval(), decoding.Config(), 30)
    pairs = [("a", "b"), ("", ""), ("a b c", "d"), ("b", "a")]
    together, alone = verbs.score(pairs), [verbs.score(*pair) for pair in pairs]
    assert [each.score for each in together] == pytest.approx([each.score for each in alone], abs=1e-5)
    assert [len(each.token_scores) for each in together] == [len(each.tokens) for each in together]
    assert together[1].tokens == ("</s>",)


def test_a_batch_counts_the_token_that_begins_or_ends_each_side(tmp_path):
    task, _ = make()
    pairs = Rows.of([("abcd", "bcde")] * 40, ("source", "target"))
    corpus = prepare(pairs, [*task.tokenizers.values()], Filters(), cache=tmp_path)
    width = int(corpus.lengths.max()) + 1
    plan = task.plan(corpus, tokens=4 * width, seed=1, epoch=0)
    assert {len(rows) for rows in plan} == {4}
