"""Read this file first: one small journey from text to a translation, with every part of the house in it.

Eight Korean sentences are memorized. Nothing is hidden: the tokenizer, the batch, the model, the loss, the
search, the attention and the run folder are each used directly, in the order in which a sentence meets them.
"""

import numpy as np
import pytest
import torch

import mallang
from mallang import recipe as recipes
from mallang.data.batch import Batch
from mallang.decoding.contract import Config as Search
from mallang.decoding.scoring import score
from mallang.decoding.search import search
from mallang.layers.attention import record_attention
from mallang.models import transformer
from mallang.runs.beginning import begin
from mallang.runs.weights import own_weights
from mallang.tasks.translation import Config as TaskConfig
from mallang.tasks.translation import Task, Verbs
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, EOS, PAD
from mallang.training.materials import save_tokenizers

PAIRS = [
    ("민수는 사과를 먹었다.", "Minsu ate an apple."),
    ("지영은 물을 마셨다.", "Jiyeong drank water."),
    ("고양이가 물을 마신다.", "The cat drinks water."),
    ("나는 책을 읽는다.", "I read a book."),
    ("그는 학교에 갔다.", "He went to school."),
    ("그녀는 노래를 부른다.", "She sings a song."),
    ("우리는 서울에 산다.", "We live in Seoul."),
    ("개가 공원에서 잔다.", "The dog sleeps in the park."),
]


@pytest.fixture(scope="module")
def tokenizer():
    """One tokenizer for both languages, learned from the sentences themselves."""
    return Tokenizer.train((text for pair in PAIRS for text in pair), TextConfig(unit="bpe", vocabulary=200))


@pytest.fixture(scope="module")
def task(tokenizer):
    """What is wanted: p(target | source). The task makes batches, the loss, and later the verbs."""
    return Task(TaskConfig(label_smoothing=0.0), {"source": tokenizer, "target": tokenizer})


@pytest.fixture(scope="module")
def batch(task):
    """All eight pairs as one padded rectangle; a row holds one example here, hence the one-tuples."""
    ids = [tuple(np.array(tokenizer_ids) for tokenizer_ids in task.source.encode_batch(pair)) for pair in PAIRS]
    return task.prepare([(pair,) for pair in ids], np.random.default_rng(0))


@pytest.fixture(scope="module")
def model(task, batch):
    """A tiny Transformer that has seen the eight pairs sixty times."""
    torch.manual_seed(1)
    config = transformer.Config(**transformer.SIZES["tiny"], dropout=0.0, norm="pre")
    model = task.build(transformer, config)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    count = task.counts(batch)["loss"]
    losses = []
    for _ in range(60):
        loss = task.loss(model, batch, None).sums["loss"] / count  # nats per token
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 3 and losses[-1] < 0.05  # from knowing nothing to knowing it by heart
    return model.eval()


@pytest.fixture(scope="module")
def translator(task, model):
    """What `mallang.load` gives: a model with the verbs of its task, from raw text to raw text."""
    return Verbs(task, model, Search(beam=3), max_length=50)


def test_text_becomes_tokens_and_comes_back(tokenizer):
    encoding = tokenizer.encode("민수는 물을 마셨다.")
    assert tokenizer.decode(encoding.ids) == "민수는 물을 마셨다."
    assert encoding.tokens[0].startswith("▁")  # a space before the piece
    for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
        assert "민수는 물을 마셨다."[start:end].strip() == token.removeprefix("▁")


def test_a_batch_is_a_padded_rectangle(batch, task):
    assert isinstance(batch, Batch) and len(batch) == len(PAIRS)
    first = int(batch.lengths[0])
    assert batch.tokens[0, 0] == BOS  # the decoder reads <s> and the words …
    assert batch.labels[0, first - 1] == EOS  # … and is asked for the words and </s>
    assert torch.equal(batch.tokens[0, 1:first], batch.labels[0, : first - 1])
    assert (batch.tokens[~batch.mask] == PAD).all()  # mask: True = may be seen
    assert task.target.decode(batch.tokens[0].tolist()) == PAIRS[0][1]


def test_the_model_gives_a_probability_for_every_next_token(model, batch):
    hidden = model(batch)  # one vector a position: [batch, time, dim]
    logits = model.output(hidden)  # one number per word: [batch, time, vocabulary]
    assert hidden.shape == (*batch.tokens.shape, model.config.dim)
    assert logits.shape == (*batch.tokens.shape, len(model.vocabulary))
    assert torch.equal(logits.argmax(dim=-1)[batch.mask], batch.labels[batch.mask])


def test_step_by_step_it_says_what_it_says_at_once(model, batch):
    state = model.start(batch)  # reads the source only
    said = []
    with torch.inference_mode():
        for time in range(batch.tokens.shape[1]):
            logits, state = model.step(batch.tokens[:, time : time + 1], state)
            said.append(logits)
        torch.testing.assert_close(torch.cat(said, dim=1), model.output(model(batch)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("config", [Search(method="greedy"), Search(method="beam", beam=4, nbest=2)])
def test_search_finds_the_sentences(model, batch, task, config):
    for (_, english), hypotheses in zip(PAIRS, search(model, batch, config), strict=True):
        best = hypotheses[0]
        assert task.target.decode(best.tokens) == english
        assert best.finished and best.score == pytest.approx(sum(best.token_scores))
        assert [one.normalized for one in hypotheses] == sorted((one.normalized for one in hypotheses), reverse=True)


def test_the_score_of_an_output_is_that_of_reading_it(model, batch):
    outputs = search(model, batch, Search(method="greedy"))
    for (output,), token_scores in zip(outputs, score(model, batch), strict=True):
        assert output.score == pytest.approx(sum(token_scores), abs=1e-4)


def test_attention_can_be_seen(model, batch):
    with record_attention(model) as maps, torch.inference_mode():
        model(batch)
    assert list(maps) == [
        "encoder.0.self", "encoder.1.self",
        "decoder.0.self", "decoder.0.cross", "decoder.1.self", "decoder.1.cross",
    ]  # fmt: skip
    cross = maps["decoder.1.cross"]  # [batch, heads, target, source]
    assert cross.shape == (len(PAIRS), 4, batch.tokens.shape[1], batch.source.shape[1])
    torch.testing.assert_close(cross.sum(dim=-1), torch.ones(cross.shape[:-1]))
    assert (cross[~batch.source_mask[:, None, None, :].expand_as(cross)] == 0).all()  # nobody looks at padding


def test_raw_text_in_raw_text_out(translator):
    assert str(translator.translate("고양이가 물을 마신다.")) == "The cat drinks water."
    results = translator.translate([korean for korean, _ in PAIRS], method="greedy")
    assert [result.output for result in results] == [english for _, english in PAIRS]
    (right, wrong) = translator.score([PAIRS[0], (PAIRS[0][0], "I read a book.")])
    assert right.score > wrong.score


def test_a_run_folder_holds_all_of_it(tmp_path, tokenizer, model, translator):
    tiny = ["model.size=tiny", "model.dropout=0", "model.norm=pre", "decoding.beam=3"]
    run = begin(tmp_path / "run", recipes.read("transformer", tiny).build(), fresh=False)
    save_tokenizers(run.folder, {"source": tokenizer, "target": tokenizer})
    run.write_weights(own_weights(model))
    loaded = mallang.load(run.folder, "cpu")
    for name, weight in own_weights(loaded.model).items():
        assert torch.equal(weight, own_weights(model)[name])
    assert loaded.translate(PAIRS[4][0]) == translator.translate(PAIRS[4][0])
