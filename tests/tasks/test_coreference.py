"""Coreference: losses against loops over antecedents, batches against single documents, clusters of texts."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from commands.running import as_served
from mallang import recipe
from mallang.commands.main import main
from mallang.data.batch import Shapes
from mallang.data.corpus import Rows
from mallang.data.filters import Filters
from mallang.data.prepared import prepare
from mallang.errors import UserError
from mallang.find import find
from mallang.inspection.coreference_page import borders, in_terminal, write_page
from mallang.layers.head import Headed
from mallang.layers.spans import SpanScores
from mallang.runs.given import Given
from mallang.tasks.coreference import (
    Config,
    Task,
    antecedent_loss,
    mention_loss,
    mentions_of,
    right_antecedents,
)
from mallang.tasks.document_parts import Parts
from mallang.tasks.resolver import Resolution, Verbs, linked
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.training.train import Options, train

ROWS = [
    (
        [["Minsu", "met", "Yuna", "."], ["He", "gave", "her", "a", "small", "book", "."], ["Yuna", "read", "it", "."]],
        [[[0, 0], [4, 4]], [[2, 2], [6, 6], [11, 11]], [[7, 9], [13, 13]]],
    ),
    ([["The", "cat", "slept", "."], ["It", "dreamed", "of", "its", "tail", "."]], [[[0, 1], [4, 4], [7, 7]], [[7, 8]]]),
    ([["Yuna", "left"]], [[[0, 0]]]),
    ([["it", "rained"], ["and", "rained"]], []),
]
CELLS = [(json.dumps(sentences), json.dumps(clusters)) for sentences, clusters in ROWS]


def task(given=None, **config):
    text = [" ".join(word for line in sentences for word in line) for sentences, _ in ROWS]
    tokenizer = Tokenizer.train(text, Text(unit="space", vocabulary=60))
    return Task(Config(**config), {"sentences": tokenizer}, **({"given": given} if given else {}))


def model_of(the_task, seed=1, **options):
    torch.manual_seed(seed)
    module = find("models", "e2e_coref")
    return the_task.build(module, module.Config(**module.SIZES["tiny"] | {"span_ratio": 1.0} | options)).eval()


def parts_of(the_task, folder, rows=CELLS):
    corpus = prepare(Rows.of(rows, ("sentences", "clusters")), the_task.arrays(), Filters(min_length=0), folder)
    return corpus, the_task.examples(corpus, 1, 0)


def learn(the_task, model, parts, steps=80):
    optimizer = torch.optim.Adam([each for each in model.parameters() if each.requires_grad], lr=0.02)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        batch = the_task.prepare([(part,) for part in parts], np.random.default_rng(0))
        the_task.loss(model, batch, None).sums["loss"].backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def test_losses_equal_loops_over_spans_and_antecedents(tmp_path: Path):
    """−log of the probability of all right antecedents together, one span after the other; and of every mention."""
    the_task = task(mention_loss=0.5)
    model, (_, parts) = model_of(the_task, antecedents=5, span_ratio=0.7), parts_of(the_task, tmp_path)
    batch = the_task.collate(list(parts))
    scored = the_task.scores(model, batch)
    total, of_mentions = 0.0, 0.0
    for number, (sentences, clusters) in enumerate(ROWS):
        owner = {tuple(mention): n for n, cluster in enumerate(clusters) for mention in cluster}
        kept = [tuple(s) for s, k in zip(scored.spans[number].tolist(), scored.is_kept[number], strict=True) if k]
        assert len(kept) == max(1, int(0.7 * sum(map(len, sentences))))
        for i, span in enumerate(kept):
            scores = {None: 0.0}
            for k in range(1, min(5, i) + 1):
                scores[kept[i - k]] = float(scored.antecedents[number, i, k])
            right = [each for each in scores if each is not None and span in owner and owner.get(each) == owner[span]]
            whole = sum(math.exp(value) for value in scores.values())
            total -= math.log(sum(math.exp(scores[each]) for each in right or [None]) / whole)
        first = 0
        for line in sentences:
            for start in range(first, first + len(line)):
                for end in range(start, min(start + model.config.width, first + len(line))):
                    value = float(scored.mentions[number, start, end - start])
                    of_mentions -= math.log(1 / (1 + math.exp(-value if (start, end) in owner else value)))
            first += len(line)
    assert float(antecedent_loss(scored, mentions_of(batch))) == pytest.approx(total, rel=1e-5)
    assert float(mention_loss(scored, mentions_of(batch))) == pytest.approx(of_mentions, rel=1e-5)
    loss = the_task.loss(model, batch, None)
    assert float(loss.sums["loss"]) == pytest.approx(total + 0.5 * of_mentions, rel=1e-5)
    assert float(loss.report["mentions"]) == pytest.approx(of_mentions, rel=1e-5)
    assert the_task.counts(batch) == {"loss": 31, "tokens": 31}


def test_right_antecedents_are_those_of_the_cluster():
    """Kept spans 0, 2 and 4 are of one cluster, the second of which is too far back for two antecedents; 1 is alone."""
    spans = torch.tensor([[[0, 1], [3, 3], [4, 4], [5, 5], [7, 7], [9, 9]]])
    is_kept = torch.tensor([[True] * 5 + [False]])
    scored = SpanScores(torch.zeros(1, 10, 2), torch.ones(1, 10, 2).bool(), spans, is_kept, torch.zeros(1, 6, 3))
    gold = torch.tensor([[[0, 1, 0], [4, 4, 0], [7, 7, 0], [3, 3, 1], [9, 9, 1], [-1, -1, -1]]])
    none, two_back, one_back = [True, False, False], [False, False, True], [False, True, False]
    assert right_antecedents(scored, gold)[0].tolist() == [none, none, two_back, none, two_back, none]
    near = torch.tensor([[[4, 4, 2], [5, 5, 2]]])
    assert right_antecedents(scored, near)[0, 3].tolist() == one_back


@pytest.mark.parametrize("window", [0, 8])
@torch.no_grad()
def test_a_document_has_the_same_loss_alone_and_beside_others(tmp_path: Path, window):
    the_task = task(mention_loss=1.0, window=window)
    model, (_, parts) = model_of(the_task), parts_of(the_task, tmp_path)
    together = the_task.collate(list(parts))
    alone = sum(float(the_task.loss(model, the_task.collate([part]), None).sums["loss"]) for part in parts)
    assert float(the_task.loss(model, together, None).sums["loss"]) == pytest.approx(alone, rel=1e-5)
    filled = Shapes(tokens=128).fill(together)
    assert float(the_task.loss(model, filled, None).sums["loss"]) == pytest.approx(alone, rel=1e-5)
    assert the_task.counts(filled) == the_task.counts(together)


def test_gradients_reach_every_weight_and_equal_finite_differences(tmp_path: Path):
    """Along the gradient of every weight by itself; spans of one word, since a span that is pruned would be a jump."""
    the_task = task(mention_loss=1.0)
    whole, (_, read) = model_of(the_task), parts_of(the_task, tmp_path)
    the_task.loss(whole, the_task.collate(list(read)), None).sums["loss"].backward()
    unreached = {name for name, weight in whole.named_parameters() if weight.grad is None or not weight.grad.any()}
    assert not unreached
    model, (_, parts) = model_of(the_task, width=1), parts_of(the_task, tmp_path)
    batch = the_task.collate(list(parts))

    def loss():
        return the_task.loss(model, batch, None).sums["loss"]

    loss().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None and weight.grad.isfinite().all(), name
        if name.startswith("mention.attention"):
            continue  # a softmax of one word
        size = float(weight.grad.norm())
        step = 2e-3 * weight.grad / size
        with torch.no_grad():
            weight += step
            above = float(loss())
            weight -= 2 * step
            below = float(loss())
            weight += step
        assert (above - below) / 4e-3 == pytest.approx(size, rel=0.03, abs=0.02), name


def test_it_learns_a_few_documents_and_says_who_is_who(tmp_path: Path):
    the_task = task(mention_loss=1.0, singletons=True)
    corpus, parts = parts_of(the_task, tmp_path)
    model = learn(the_task, model_of(the_task), parts)
    verbs = Verbs(the_task, model, None, 0)
    scores, outputs = verbs.evaluate(CELLS)
    named = {score.name: score.value for score in scores}
    assert named["CoNLL F1"] > 99 and named["mention F1"] > 99 and named["CoNLL F1, without singletons"] > 99
    assert [sorted(map(sorted, json.loads(each))) for each in outputs] == [
        sorted(map(sorted, clusters)) for _, clusters in ROWS
    ]
    text = "Minsu met Yuna. He gave her a small book.\nYuna read it."
    found = verbs.coref(text)
    assert str(found) == "[Minsu]1 met [Yuna]2. [He]1 gave [her]2 [a small book]3.\n[Yuna]2 read [it]3."
    assert all(text[each.start : each.end] == each.text for cluster in found.clusters for each in cluster)
    assert found.clusters[2][0].words == (7, 9) and found.words[7:10] == ("a", "small", "book")
    nested, nothing = verbs.coref([ROWS[1][0], ""])
    assert str(nested) == "[The cat]1 slept . [It]1 dreamed of [[its]1 tail]2 ." and nothing.clusters == ()
    validated = {score.name: score.value for score in the_task.validate(model, corpus, CELLS, "conll_f1")}
    assert validated["conll_f1"] == named["CoNLL F1"] and 0 < validated["loss"] < 0.2
    with pytest.raises(UserError, match="beam has no effect"):
        verbs.evaluate(CELLS, beam=3)
    with pytest.raises(UserError, match="not inside the document") as raised:
        verbs.evaluate([CELLS[0], (CELLS[2][0], "[[[0, 5]]]")])
    assert raised.value.where == "row 2"


@torch.no_grad()
def test_links_become_clusters_and_singletons_need_a_score_above_zero(tmp_path: Path):
    the_task = task()
    model, (_, parts) = model_of(the_task), parts_of(the_task, tmp_path)
    scored = the_task.scores(model, the_task.collate([parts[0]]))
    scored.antecedents[:] = -1.0
    scored.antecedents[:, :, 0] = 0.0
    scored.mentions[:] = -1.0
    assert list(linked(scored, False)) == [()] == list(linked(scored, True))
    spans = [tuple(span) for span in scored.spans[0].tolist()]
    scored.antecedents[0, 2, 2] = scored.antecedents[0, 5, 3] = 1.0  # 5 → 2 → 0
    scored.mentions[0, spans[7][0], spans[7][1] - spans[7][0]] = 0.5
    chain = (spans[0], spans[2], spans[5])
    assert list(linked(scored, False)) == [(chain,)] and list(linked(scored, True)) == [(chain, (spans[7],))]


class Constant(nn.Module):
    """An encoder whose vector of a token is the token's id, so that features can be told apart."""

    reads_source = False

    def __init__(self, vocabulary):
        super().__init__()
        self.vocabulary = vocabulary

    def encode(self, batch):
        from mallang.layers.encoded import Encoded

        layer = batch.tokens[:, :, None].float().expand(-1, -1, 3)
        return Encoded(layers=[layer, 2 * layer], mask=batch.mask, pooled=layer[:, 0])

    def encoder_dims(self):
        from mallang.layers.encoded import EncoderDims

        return EncoderDims(pooled=3, token=3, layers=2)


@pytest.mark.parametrize("mix", [False, True])
def test_features_stand_beside_the_word_they_belong_to(tmp_path: Path, mix):
    other = Tokenizer.train(["Minsu met Yuna He gave her a small book read it The cat slept"], Text(unit="char"))
    given = Given("features", tmp_path, Constant(other.vocabulary), other, "encoding", "x")
    the_task = task({"features": given}, window=8, features_mix=mix, features_l2=0.1 if mix else 0.0)
    model, (_, parts) = model_of(the_task), parts_of(the_task, tmp_path)
    assert isinstance(model, Headed)
    batch = the_task.collate(list(parts))
    inner = model.model
    words = inner.word_vectors(batch.tokens)
    joined = the_task.features.join(words, model.features, batch, model.features_mix)
    assert joined.shape[2] == words.shape[2] + 3
    row = 0
    for part in parts:
        for ids in part.row_words():
            texts = [the_task.text.decode([int(number)]).strip() for number in ids]
            firsts = [other.encode_batch([text])[0][0] for text in texts]
            scale = 1.5 if mix else 2.0  # the mean of both layers, or the last
            found = joined[row, : len(ids), -1].tolist()
            assert found == pytest.approx([scale * first for first in firsts])
            row += 1
    filled = Shapes(tokens=128).fill(batch)
    losses = [the_task.loss(model, each, None).sums["loss"].item() for each in (batch, filled)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    if mix:
        model.train()
        model.features_mix.scores.data[:] = torch.tensor([1.0, -1.0])
        assert the_task.loss(model, batch, None).report["features_l2"].item() == pytest.approx(31 * 0.1 * 2)


def test_words_are_hidden_in_training_alone(tmp_path: Path):
    the_task = task(rare_dropout=0.99, word_dropout=0.0)
    model_of(the_task)
    _, parts = parts_of(the_task, tmp_path)
    batch = the_task.prepare([(part,) for part in parts], np.random.default_rng(0))
    hidden = (batch.tokens >= len(the_task.text.vocabulary)).sum()
    assert hidden > 5 and (the_task.collate(list(parts)).tokens < len(the_task.text.vocabulary)).all()


def test_long_documents_are_trained_on_in_parts(tmp_path: Path):
    the_task = task(max_words=8)
    corpus, parts = parts_of(the_task, tmp_path)
    assert isinstance(parts, Parts) and [len(part.words) for part in parts] == [4, 7, 4, 4, 6, 2, 4]
    plan = the_task.plan(corpus, tokens=16, seed=1, epoch=0)
    assert sorted(number for rows in plan for (number,) in rows) == list(range(7))


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"singletons": True}, "singletons needs mention_loss"),
        ({"mention_loss": -1.0}, "mention_loss must not be negative"),
        ({"rare_dropout": 1.0}, "rare_dropout must be at least 0"),
        ({"features_l2": 0.1}, "features_l2 has no effect"),
    ],
)
def test_impossible_options_are_refused(config, told):
    with pytest.raises(ValueError, match=told):
        Config(**config)


def test_what_does_not_fit_is_refused():
    with pytest.raises(UserError, match="every word is one token"):
        Task(Config(), {"sentences": Tokenizer.train(["a b"], Text(unit="char"))})
    with pytest.raises(UserError, match="lstm_crf scores no spans"):
        module = find("models", "lstm_crf")
        task().build(module, module.Config())


def test_a_page_and_a_terminal_show_nested_mentions_and_escape_texts(tmp_path: Path):
    text = "A <b> 's cat left."

    def span(start, end):
        from mallang.tasks.resolver import MentionSpan

        return MentionSpan(text[start:end], start, end, (0, 0))

    found = Resolution(text, (), (), ((span(0, 12),), (span(0, 5), span(13, 17))))
    assert str(found) == "[[A <b>]2 's cat]1 [left]2."
    assert [border.opens for border in borders(found)] == [True, True, False, False, True, False]
    page = write_page(tmp_path / "x.html", [found]).read_text("utf-8")
    assert (
        '<span class="c0" title="cluster 1: 1 mention"><span class="c1" title="cluster 2: 2 mentions">A &lt;b&gt;'
        in page
    )
    assert "<b>" not in page and "<script" not in page and page.count("<span") == page.count("</span>")
    assert in_terminal(found).plain == "A <b>₂ 's cat₁ left₂."


SMALL = ("train.epochs=none", "train.steps=4", "train.batch_tokens=256", "train.precision=fp32")


def test_a_run_is_trained_resumed_and_asked(tmp_path: Path, monkeypatch, capsys):
    """Stopped after two updates and started again, it ends with the weights of one that was never stopped."""
    import mallang
    from gpu import stand_ins
    from gpu.gate import stopping_after

    monkeypatch.setenv("MALLANG_CACHE", str(tmp_path / "cache"))
    built = recipe.read("e2e-coref-miniworld", list(SMALL)).build()
    with stand_ins.shortened(train=60, valid=6):
        whole = train(built, Options(folder=tmp_path / "whole", device="cpu", quiet=True))
        with stopping_after(2):
            train(built, Options(folder=tmp_path / "halves", device="cpu", quiet=True))
        halves = train(built, Options(folder=tmp_path / "halves", device="cpu", quiet=True))
    one, two = (run.read_weights() for run in (whole, halves))
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
    model = mallang.load(whole.folder, device="cpu")
    found = model.coref("민수는 지영을 만났다. 그는 잤다.")
    assert found.words == ("민수는", "지영을", "만났다", ".", "그는", "잤다", ".")
    assert re.sub(r"[\[\]\d]", "", str(found)) == found.input
    check_command(whole.folder, tmp_path, monkeypatch, capsys)


def check_command(run, folder, monkeypatch, capsys):
    """What `mallang coref` prints and writes, and what it refuses."""

    def command(*arguments):
        monkeypatch.setattr("sys.argv", ["mallang", "coref", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        return left.value.code, *capsys.readouterr()

    (folder / "x.txt").write_text("민수는 잤다.\n그는 웃었다.", "utf-8")
    code, told, _ = command(run, "--file", folder / "x.txt", "--json")
    line = json.loads(told)
    assert code in (0, None) and line["input"] == "민수는 잤다.\n그는 웃었다." and len(line["words"]) == 6
    assert [line["input"][start:end] for start, end in line["offsets"]] == line["words"]
    assert [line] == as_served(run, "coref", [line["input"]])
    code, told, noted = command(run, "민수는 잤다.", "--out", folder / "x.html")
    assert code in (0, None) and not told and "the page is" in noted and (folder / "x.html").exists()
    for wrong, why in (
        (("text", "--out", folder / "x.png"), "is no .html file"),
        (("text", "--file", folder / "x.txt"), "both given"),
        (("text", "--out", folder / "no" / "x.html"), "cannot write"),
    ):
        code, told, noted = command(run, *wrong)
        assert code == 2 and why in noted and not told and "Traceback" not in noted


@pytest.mark.slow
@pytest.mark.parametrize("language", ["ko", "en"])
def test_the_recipe_reaches_its_score(tmp_path: Path, language):
    import mallang

    built = recipe.read("e2e-coref-miniworld", [f"data.source={language}", "train.epochs=4"]).build()
    run = train(built, Options(folder=tmp_path / "run", device="cpu", quiet=True))
    from mallang.data.corpus import open_corpus

    rows = list(open_corpus(built.data, ("sentences", "clusters")).split("test"))
    scores, _ = mallang.load(run.folder, device="cpu").evaluate(rows)
    assert next(score.value for score in scores if score.name == "CoNLL F1") > 93
