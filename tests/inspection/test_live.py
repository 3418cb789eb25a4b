"""Live pages: what JavaScript computes equals what the model with the same rounded weights computes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mallang.data.batch import Batch, pad_rows
from mallang.data.miniworld import EXAMPLES
from mallang.decoding.contract import Config as Search
from mallang.errors import UserError
from mallang.inspection.alignment import attention_of
from mallang.inspection.live import rounded, tokenizer_of, write_live_page
from mallang.layers.convolution import fold_weights
from mallang.models import (
    bahdanau,
    bert,
    char_aware,
    cho,
    conv_lm,
    convs2s,
    gpt,
    luong,
    modern_gpt,
    ngram,
    nplm,
    rnn_lm,
    sutskever,
    transformer,
)
from mallang.tasks import backward_language_modeling, language_modeling, translation
from mallang.text.tokenizer import Config as Text
from mallang.text.tokenizer import Tokenizer
from mallang.text.vocabulary import BOS, EOS

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="needs node: apt install nodejs, or nodejs.org")
SCRIPT = Path(__file__).with_name("live.js")
LINES = [
    *EXAMPLES,
    "I did not eat a pear.",
    "Yuna took a ship.",
    "The farmer's stomach hurts < a lot!",
    "한글과 Latin 123",
]
TEXTS = ["유나는 배를 탔다.", "그 농부", "사과 사과 사과", "", "뷁 <s> 🙂 pear"]


def run(page: Path, texts: list[Any]) -> list[Any]:
    asked = json.dumps([text if isinstance(text, list) else [text, {}] for text in texts])
    ended = subprocess.run(
        [str(NODE), str(SCRIPT), str(page)], input=asked, text=True, capture_output=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    found: list[Any] = json.loads(ended.stdout)
    return found


def named(config: Any) -> str:
    """The name of a case."""
    return "-".join(str(getattr(each, "__name__", each)).rpartition(".")[2] for each in config.values()) or "gpt2"


def spread(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Random weights so large that no two tokens are nearly as probable; without norms large ones would overflow."""
    fold_weights(model)  # as for any run that is opened
    generator = torch.Generator().manual_seed(seed)
    size = 0.08 if getattr(model.config, "norm", "") == "none" else 0.25
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * size)
        for part in model.modules():
            if isinstance(part, torch.nn.Embedding) and part.padding_idx is not None:
                part.weight[part.padding_idx] = 0  # as training leaves it
    return model.eval()


def translator(unit: str = "bpe", seed: int = 1, model: Any = transformer, **config: Any) -> Any:
    shared = config.get("tie_weights", "all") == "all"
    text = Text(unit=unit, vocabulary=300, shared=shared)
    one = Tokenizer.train(LINES, text)
    other = one if shared else Tokenizer.train(LINES[:6], text)
    task = translation.Task(translation.Config(), {"source": one, "target": other})
    sizes = {"layers": 2, "dim": 32, "heads": 4, "hidden_dim": 48} if model is transformer else model.SIZES["tiny"]
    built = task.build(model, model.Config(**(sizes | config)))
    return translation.Verbs(task, rounded(spread(built, seed)), Search(method="greedy", max_length=12), 100)


def writer(unit: str = "bpe", seed: int = 1, model: Any = gpt, **config: Any) -> Any:
    tokenizer = Tokenizer.train(LINES, Text(unit=unit, vocabulary=300))
    task = language_modeling.Task(language_modeling.Config(), {"text": tokenizer})
    heads = {"layers": 2, "dim": 32, "heads": 4, "max_length": 40}
    sizes = heads if model in (gpt, modern_gpt) else model.SIZES["tiny"]
    built = task.build(model, model.Config(**(sizes | config)))
    return language_modeling.Verbs(task, rounded(spread(built, seed)), Search(method="greedy", max_length=10), 100)


def counted(unit: str = "bpe", **config: Any) -> Any:
    """The verbs of an n-gram model that is fitted to LINES, some of them twice so that counts differ."""
    tokenizer = Tokenizer.train(LINES, Text(unit=unit, vocabulary=300))
    task = language_modeling.Task(language_modeling.Config(), {"text": tokenizer})
    model = task.build(ngram, ngram.Config(**config))
    rows = [tokenizer.encode(line).ids for line in (*LINES, *LINES[:5])]
    (tokens, lengths), (labels, _) = pad_rows(rows, begin=BOS), pad_rows(rows, end=EOS)
    list(model.fit([Batch(tokens=tokens, labels=labels, lengths=lengths)]))
    return language_modeling.Verbs(task, model.eval(), Search(method="greedy", max_length=10), 100)


@needs_node
@pytest.mark.parametrize(
    "config",
    [
        {"norm": "post"},
        {"norm": "pre", "tie_weights": "target", "activation": "gelu", "decoder_layers": 1},
        {"norm": "none", "tie_weights": "none", "positions": "learned", "max_length": 64},
        {"positions": "none", "window": 2, "key_dim": 5, "value_dim": 7},
        {"positions": "learned", "max_length": 64, "unit": "char"},
        {"model": bahdanau},
        {"model": bahdanau, "tie_weights": "none", "unit": "char"},
        {"model": luong, "score": "general"},
        {"model": luong, "score": "dot", "tie_weights": "target"},
        {"model": luong, "score": "concat", "input_feeding": True, "layers": 1},
        {"model": sutskever, "tie_weights": "none"},
        {"model": sutskever, "reverse_source": False, "layers": 3, "tie_weights": "none"},
        {"model": cho},
        {"model": convs2s},
        {
            "model": convs2s,
            "layers": 3,
            "decoder_layers": 1,
            "kernel_size": 4,
            "embedding_dim": 20,
            "tie_weights": "all",
        },
        {"model": convs2s, "kernel_size": 1, "tie_weights": "target", "unit": "char", "max_length": 64},
    ],
    ids=named,
)
def test_a_translator_gives_the_same_outputs_and_attention(tmp_path: Path, config: dict[str, Any]) -> None:
    verbs = translator(**config)
    page = write_live_page(tmp_path / "a.html", verbs, "a").path
    for text, found in zip(TEXTS, run(page, TEXTS), strict=True):
        if not text:  # translate gives nothing for nothing; the page lets the model say what it says
            continue
        ours = verbs.translate(text)
        assert found["read"] == verbs.task.source.encode(text).ids
        assert found["output"] == ours.output
        assert found["isCut"] == ours.is_cut and found["score"] == pytest.approx(ours.score, abs=1e-4)
        assert bool(found["maps"]) == (config.get("model") not in (sutskever, cho))
        if not found["maps"]:
            continue
        seen = attention_of(verbs, text)
        assert set(seen.maps) == set(found["maps"])
        for name, ours_map in seen.maps.items():
            page_map = found["maps"][name]
            weights = np.array(page_map["weights"]).reshape(page_map["heads"], len(page_map["queries"]), -1)
            rows = min(weights.shape[1], ours_map.weights.shape[1])
            assert weights[:, :rows] == pytest.approx(ours_map.weights[:, :rows].numpy(), abs=1e-5), name
            if "cross" in name:
                assert list(ours_map.queries)[:rows] == page_map["queries"][:rows]


@needs_node
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"norm": "post", "activation": "relu", "scaled_residuals": False},
        {"norm": "none", "activation": "relu-squared", "biases": "none"},
        {"biases": "all", "window": 2, "windowed": "alternate", "activation": "gelu"},
        {"unit": "jamo", "window": 3},
        {"unit": "byte-bpe"},
        {"unit": "syllable"},
        {"model": modern_gpt},
        {"model": modern_gpt, "positions": "learned", "norm": "layer", "tie_weights": True, "window": 2},
        {"model": modern_gpt, "positions": "none", "norm": "none", "qk_norm": False, "soft_cap": 15.0},
        {"model": rnn_lm, "cell": "lstm"},
        {"model": rnn_lm, "cell": "gru", "layers": 1, "tie_weights": True, "embedding_dim": 32},
        {"model": rnn_lm, "cell": "gru", "tie_weights": True, "layers": 3},
        {"model": rnn_lm, "cell": "elman", "activation": "relu"},
        {"model": rnn_lm, "cell": "elman"},
        {"model": conv_lm},
        {
            "model": conv_lm,
            "gated": False,
            "blocks": 0,
            "block_layers": 2,
            "kernel_size": 5,
            "weight_norm": False,
            "tie_weights": True,
        },
        {"model": conv_lm, "bottleneck": 12, "block_layers": 2, "dilation": 2, "embedding_dim": 20, "unit": "syllable"},
        {"model": nplm},
        {"model": nplm, "order": 2, "tie_weights": True},
        {"model": nplm, "order": 6, "direct": True, "unit": "char"},
        {"model": char_aware, "unit": "word"},
        {"model": char_aware, "unit": "word", "jamo": True, "highways": 2, "layers": 2, "longest_word": 6},
        {"model": char_aware, "unit": "space", "filters": (0, 3, 0, 0, 9), "highways": 0},
        {"model": char_aware, "unit": "bpe", "jamo": True},
    ],
    ids=named,
)
def test_a_language_model_gives_the_same_outputs(tmp_path: Path, config: dict[str, Any]) -> None:
    verbs = writer(**config)
    page = write_live_page(tmp_path / "a.html", verbs, "a").path
    for text, found in zip(TEXTS, run(page, TEXTS), strict=True):
        ours = verbs.generate(text)
        assert [verbs.task.text.vocabulary.tokens[id] for id in found["ids"] if id != 3] == list(ours.tokens)
        assert found["output"] == ours.text
        assert found["score"] == pytest.approx(ours.score, abs=1e-4)


@needs_node
def test_words_outside_the_vocabulary_are_read_by_their_characters(tmp_path: Path) -> None:
    verbs = writer("word", model=char_aware, jamo=True)
    page = write_live_page(tmp_path / "a.html", verbs, "a").path
    known = {letter for token in verbs.model.vocabulary.tokens for letter in token}
    texts = ["유나는 배배를", "유나는 타배를 배배를 배배를", "유나는 🙂 배를", "유나는 뷁이"]
    assert (
        "뷁" not in known
        and verbs.model.characters.letters_of("▁배배를")
        and not verbs.model.characters.letters_of("🙂")
    )
    for text, found in zip(texts, run(page, texts), strict=True):
        ours = verbs.generate(text)
        assert found["score"] == pytest.approx(ours.score, abs=1e-4)
        assert [verbs.task.text.vocabulary.tokens[id] for id in found["ids"] if id != 3] == list(ours.tokens)
        assert found["output"] == ours.text
        assert found["unknown"] == ("unknown to the model" in ours.note)
    known_word, other = (run(page, [text])[0]["shares"] for text in ("유나는 배배를", "유나는 타타를"))
    assert known_word != other  # both are <unk> in the vocabulary


@needs_node
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"order": 1},
        {"order": 4, "smoothing": "interpolation", "unit": "space"},
        {"order": 2, "smoothing": "add-k"},
        {"order": 3, "smoothing": "katz", "begin": False},
        {"order": 3, "smoothing": "mle", "unit": "char"},
    ],
    ids=named,
)
def test_an_ngram_model_gives_the_same_outputs_and_probabilities(tmp_path: Path, config: dict[str, Any]) -> None:
    verbs = counted(**config)
    page = write_live_page(tmp_path / "a.html", verbs, "a").path
    for text, found in zip(TEXTS, run(page, TEXTS), strict=True):
        ours = verbs.generate(text)
        assert [verbs.task.text.vocabulary.tokens[id] for id in found["ids"] if id != 3] == list(ours.tokens)
        assert found["score"] == pytest.approx(ours.score, abs=1e-4)


@needs_node
def test_the_context_of_a_model_ends_an_output_and_refuses_a_longer_text(tmp_path: Path) -> None:
    page = write_live_page(tmp_path / "a.html", writer("syllable", max_length=12), "a").path
    full, longer = run(page, ["유나는", "유나는 지난주에 배를 탔다."])
    assert full["isCut"] and len(full["ids"]) == 12 - len("유나는") == 9
    assert longer == {"tooLong": True, "tokens": 16, "limit": 12}


@needs_node
def test_a_translation_ends_at_the_last_position_of_the_decoder(tmp_path: Path) -> None:
    verbs = translator("char", model=convs2s, max_length=5)
    (found,) = run(write_live_page(tmp_path / "a.html", verbs, "a").path, ["그 농"])
    assert found["isCut"] and len(found["ids"]) == 5
    assert found["output"] == verbs.translate("그 농").output


@needs_node
def test_tokens_that_a_person_forces_come_first_and_sampling_depends_on_its_seed_alone(tmp_path: Path) -> None:
    verbs = writer()
    page = write_live_page(tmp_path / "a.html", verbs, "a").path
    sampling = {"temperature": 1.5, "topK": 0, "topP": 1}
    free, forced, one, again, other = run(
        page,
        [
            ["유나는", {}],
            ["유나는", {"forced": [20, 21]}],
            *(["유나는", {"sampling": sampling, "seed": seed}] for seed in (3, 3, 4)),
        ],
    )
    assert forced["ids"][:2] == [20, 21] != free["ids"][:2]
    ids = [2, *verbs.task.text.encode("유나는").ids, 20]
    assert one["ids"] == again["ids"] != other["ids"]
    with torch.inference_mode():
        logits, _ = verbs.model.step(torch.tensor([ids]), verbs.model.start(batch(ids)))
    shares = logits[0, -1].masked_fill(torch.tensor([True, False, True] + [False] * (logits.shape[-1] - 3)), -torch.inf)
    assert forced["shares"][1] == pytest.approx(logits[0, -1].log_softmax(0)[21].item(), abs=1e-4)
    best = shares.topk(5).indices.tolist()
    assert [each["id"] for each in forced["tops"][1]] == best


def batch(ids: list[int]) -> Any:
    return Batch(tokens=torch.tensor([ids]), lengths=torch.tensor([len(ids)]))


@needs_node
def test_candidates_after_temperature_top_k_and_top_p(tmp_path: Path) -> None:
    page = write_live_page(tmp_path / "a.html", writer(), "a").path
    shown = {"temperature": 0.5, "topK": 3, "topP": 1}
    plain, (cut,) = run(page, [["유나는", {}]])[0]["tops"][0], [run(page, [["유나는", {"shown": shown}]])[0]["tops"][0]]
    squares = np.array([each["probability"] for each in plain[:3]]) ** 2
    assert [each["share"] for each in cut] == pytest.approx([*(squares / squares.sum()), 0, 0], abs=1e-6)
    (narrow,) = [run(page, [["유나는", {"shown": {"topP": plain[0]["probability"] / 2}}]])[0]["tops"][0]]
    assert [each["share"] for each in narrow] == [1, 0, 0, 0, 0]


@needs_node
@pytest.mark.parametrize("unit", ["word", "space", "char", "syllable", "jamo", "byte", "bpe", "byte-bpe"])
def test_tokenizers_agree(unit: str) -> None:
    lines = [*LINES, "a <s> <unk> </s>", "don't we'll  stop", "ﬁ ① Ⅳ é e\u0301", "각 각"]
    texts: list[str] = []

    # What is not assigned is left out: browsers and libraries know different versions of Unicode.
    @settings(max_examples=150, database=None, derandomize=True)
    @given(st.text(st.characters(exclude_categories=["Cs", "Cn", "Co"]), max_size=12) | st.sampled_from(lines))
    def collect(text: str) -> None:
        texts.append(text)

    collect()
    tokenizer = Tokenizer.train(lines, Text(unit=unit, vocabulary=400, normalization="NFKC", lowercase=True))
    model = (SCRIPT.parents[2] / "src" / "mallang" / "inspection" / "live_model.js").read_text("utf-8")
    ask = f"""{model}
      const [about, texts] = JSON.parse(require("fs").readFileSync(0, "utf8")), tokenizer = new Tokenizer(about);
      const encoded = texts.map(text => tokenizer.encode(text));
      console.log(JSON.stringify(encoded.map(ids => [ids, tokenizer.decode(ids)])));"""
    ended = subprocess.run(
        [str(NODE), "-e", ask],
        input=json.dumps([tokenizer_of(tokenizer), texts]),
        text=True,
        capture_output=True,
        check=True,
    )
    for text, (ids, back) in zip(texts, json.loads(ended.stdout), strict=True):
        assert (text, ids) == (text, tokenizer.encode(text).ids)
        assert back == tokenizer.decode(ids)


def test_the_page_loads_nothing_and_shows_text_as_text(tmp_path: Path) -> None:
    nasty = "</script><script>alert(1)</script> {{view}}"
    page = write_live_page(tmp_path / "new" / "a.html", writer(), nasty, [nasty])
    html = page.path.read_text("utf-8")
    assert page.bytes == len(html.encode()) and page.weights == sum(p.numel() for p in writer().model.parameters())
    assert "default-src 'none'" in html and "innerHTML" not in html and "alert(1)</script>" not in html
    assert html.count("<script") == html.count("</script>") == 4
    assert not re.search(r"(src|href)=|https?://(?!www\.w3\.org/2000/svg)|@import|url\(", html)
    header = json.loads(re.findall(r'id="header">(.*?)</script>', html, re.DOTALL)[0])
    assert header["name"] == nasty and header["examples"] == [nasty]


def test_what_a_page_cannot_run_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(LINES, Text(vocabulary=300))
    task = language_modeling.Task(language_modeling.Config(), {"text": tokenizer})
    masked = task.build(bert, bert.Config(**bert.SIZES["tiny"]))
    with pytest.raises(UserError, match=r"cannot run bert, the model of x; it runs transformer, .*luong, gpt"):
        write_live_page(tmp_path / "a.html", language_modeling.Verbs(task, masked, Search(), 100), "x")
    with pytest.raises(UserError, match="scores of x are none"):
        write_live_page(tmp_path / "a.html", counted(smoothing="stupid-back-off"), "x")
    backward = backward_language_modeling.Task(backward_language_modeling.Config(), {"text": tokenizer})
    model = backward.build(gpt, gpt.Config(**gpt.SIZES["tiny"]))
    with pytest.raises(UserError, match="backward"):
        write_live_page(tmp_path / "a.html", language_modeling.Verbs(backward, model, Search(), 100), "x")
    with pytest.raises(UserError, match="tokenize by unigram"):
        write_live_page(tmp_path / "a.html", writer("unigram"), "x")
    assert not list(tmp_path.iterdir())


def test_rounded_weights_differ_by_at_most_half_a_step() -> None:
    exact, changed = writer(seed=7).model, writer(seed=7).model
    with torch.no_grad():
        for weight in exact.parameters():
            weight += 0.01 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
        changed.load_state_dict(exact.state_dict())
    rounded(changed)
    for (name, one), other in zip(exact.named_parameters(), changed.parameters(), strict=True):
        step = one.abs().amax(dim=-1, keepdim=True) / 127 if one.dim() > 1 else torch.zeros(1)
        assert ((one - other).abs() <= step / 2 + 1e-6).all(), name
