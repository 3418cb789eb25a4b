"""Every model is inspected: its attention if it attends, its search if it searches; else one message says why not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from contracts.tiny_models import CLASSES, vocabularies_of
from mallang.data.columns import LabelSet
from mallang.data.images import data_uri
from mallang.data.knowledge import Graph
from mallang.decoding.contract import Autoregressive, Config
from mallang.errors import UserError
from mallang.find import find, names
from mallang.inspection.alignment import attention_of, in_words
from mallang.inspection.highlights import highlights_of, pools_by_attention
from mallang.inspection.page import packed
from mallang.inspection.search_tree import tree_of
from mallang.inspection.shown_texts import Wanted, shown_text
from mallang.layers.recurrent import Recurrent
from mallang.tasks import autoencoding, captioning, classifier, language_modeling, mention_classification, translation
from mallang.tasks.captioner import short
from mallang.tasks.contract import text_columns
from mallang.tasks.graph_chooser import ShowsPaths
from mallang.text.added_words import with_special_tokens
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer

LINES = ["나는 물을 마신다.", "나는 책을 읽는다.", "그는 물을 마신다.", "유나는 배를 탔다."]
NAMES = names("models")
ATTENTIVE = ("bahdanau", "convs2s", "gpt", "luong", "modern_gpt", "transformer")
"""Those known to attend; a new model that does is found by what it records."""
LABELS: dict[str, list[Any]] = {
    "classification": [{"label": LabelSet(CLASSES)}],
    "tagging": [{"tags": LabelSet(("B-X", "I-X", "O"), "tags")}],
    "word_vectors": [],
    "coreference": [],
    "link_prediction": [{"relation": LabelSet(CLASSES)}],
    "bidirectional_language_modeling": [],
    "graph_choice": [{}, {}, Graph.of([("물", "is a", "것")])],
    "semantic_roles": [{"predicates": LabelSet(("_", "a|b"), "predicates"), "roles": LabelSet(("ARG0", "_"), "roles")}],
}
"""Tasks that search for no output, and the labels, or the graph, that each is built with."""


def verbs_of(name: str, task: str | None = None) -> Any:
    """An untrained model with the verbs of the task that suits it."""
    module = find("models", name)
    unit = "space" if module.TASK in ("link_prediction", "coreference", "semantic_roles") else "word"
    tokenizer = Tokenizer.train(LINES, TextConfig(unit=unit, vocabulary=40))
    if module.TASK == "captioning":
        captions = captioning.Task(captioning.Config(size=12), {"caption": tokenizer})
        model = captions.build(module, module.Config(**module.SIZES["tiny"])).eval()
        return captioning.Verbs(captions, model, Config(beam=3, max_length=5), 30)
    if module.TASK == "mention_classification":
        marked = with_special_tokens(tokenizer, ("cls", "sep", "entity"))
        config, labels = mention_classification.Config(read="text"), {"label": LabelSet(CLASSES)}
        mentions = mention_classification.Task(config, {"text": marked}, labels)
        model = mentions.build(module, module.Config(**module.SIZES["tiny"])).eval()
        return mention_classification.Verbs(mentions, model, None, 30)
    if module.TASK in LABELS:
        whole = find("tasks", module.TASK)
        tokenizers = dict.fromkeys(text_columns(whole.Task, whole.Config()), tokenizer)
        task_of = whole.Task(whole.Config(), tokenizers, *LABELS[module.TASK])
        return whole.Verbs(task_of, task_of.build(module, module.Config(**module.SIZES["tiny"])).eval(), None, 30)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        vocabularies = vocabularies_of(module, tokenizer.vocabulary)
        model = module.Model(module.Config(**module.SIZES["tiny"]), *vocabularies).eval()
    search = Config(beam=3, max_length=5)
    if not module.Model.reads_source:
        sampled = Config(method="sampling", max_length=5)
        lines = language_modeling.Task(language_modeling.Config(), {"text": tokenizer})
        return language_modeling.Verbs(lines, model, sampled, 0)
    if task == "autoencoding" or not isinstance(model, Autoregressive):
        texts = autoencoding.Task(autoencoding.Config(), {"text": tokenizer})
        return autoencoding.Verbs(texts, model, search, 30)
    pairs = translation.Task(translation.Config(), {"source": tokenizer, "target": tokenizer})
    return translation.Verbs(pairs, model, search, 30)


def picture(verbs: Any) -> str:
    """An image for a captioner, as text; nothing for other models."""
    if not isinstance(verbs, captioning.Verbs):
        return ""
    return data_uri(np.random.default_rng(1).integers(0, 256, (12, 12, 3), np.uint8))


def own_text(verbs: Any, line: str) -> str:
    """A text that a run can read: some read an image, a marked mention, or several texts with tabs between."""
    own = {
        "captioning": picture(verbs),
        "link_prediction": f"나는\t{CLASSES[0]}",
        "graph_choice": "민수는 무엇을 마셨다?\t물\t배",
        "mention_classification": f"[[{line.split()[0]}]] {' '.join(line.split()[1:])}",
    }
    return own.get(verbs.task_name, line)


def attends(verbs: Any) -> bool:
    return any(isinstance(getattr(part, "recorders", None), list) for part in verbs.model.modules())


def searches(verbs: Any) -> bool:
    return hasattr(verbs.model, "step")


@pytest.mark.parametrize("name", NAMES)
def test_attention_is_seen_or_the_message_says_that_there_is_none(name: str) -> None:
    verbs = verbs_of(name)
    assert attends(verbs) or name not in ATTENTIVE
    if pools_by_attention(verbs):
        assert sum(piece.weight for piece in highlights_of(verbs, LINES[0]).sentences[0].pieces) > 0
        with pytest.raises(UserError, match="one weight per token"):
            attention_of(verbs, LINES[0])
        return
    if not attends(verbs) or isinstance(verbs, ShowsPaths):  # such a model attends to paths, not to words
        with pytest.raises(UserError, match="has no attention|searches for no output"):
            attention_of(verbs, own_text(verbs, LINES[0]))
        return
    text = own_text(verbs, "나는 물을")
    searched: list[dict[str, Any]] = [{"method": "greedy"}, {"target": " 마신다."}]
    for options in [{}, *([] if isinstance(verbs, classifier.Verbs) else searched)]:
        seen = attention_of(verbs, text, **options)
        assert seen.maps and seen.input == (short(text) if text.startswith("data:") else text)
        for each in (*seen.maps.values(), *in_words(seen).maps.values()):
            assert each.weights.shape[1:] == (len(each.queries), len(each.keys))
            torch.testing.assert_close(each.weights.sum(dim=-1), torch.ones_like(each.weights[..., 0]))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_all_that_a_run_can_fill(name: str) -> None:
    verbs = verbs_of(name)
    text = own_text(verbs, LINES[3])
    search = {} if not searches(verbs) or not hasattr(verbs, "config") else {"method": "greedy"}
    shown = shown_text(verbs, text, Wanted(search=search))
    json.dumps(packed(shown)[0], allow_nan=False)
    if searches(verbs) and not isinstance(verbs, captioning.Verbs):
        made = getattr(verbs, "generate" if hasattr(verbs, "generate") else "translate")(text, **search)
        assert shown["output"] == made.output and shown["score"] == pytest.approx(made.score, abs=1e-4)
        bits = shown["next"]["label_log_probs"][shown["prompt"] or 0 :]
        assert float(bits.sum()) == pytest.approx(shown["score"], abs=1e-3)
    recurrent = [part for part in verbs.model.modules() if isinstance(part, Recurrent)]
    if recurrent and not pools_by_attention(verbs) and searches(verbs):
        assert {trace["kind"] for trace in shown["gates"]} == {part.kind for part in recurrent}
    if attends(verbs) and not pools_by_attention(verbs) and not isinstance(verbs, captioning.Verbs | ShowsPaths):
        seen = attention_of(verbs, text, **({} if isinstance(verbs, classifier.Verbs) else search))
        for each in shown["maps"]:
            assert each["weights"] == pytest.approx(seen.maps[each["name"]].weights.numpy(), abs=1e-6)
    assert ("image" in shown) == isinstance(verbs, captioning.Verbs)
    assert ("highlights" in shown) == pools_by_attention(verbs)


@pytest.mark.parametrize("name", [name for name in ATTENTIVE if "gpt" in name])
def test_what_a_language_model_attends_to_belongs_to_what_it_writes(name: str) -> None:
    verbs, text = verbs_of(name), "나는 물을"
    for options in ({"seed": 4}, {"method": "greedy"}, {"method": "beam", "beam": 2}):
        seen, made = attention_of(verbs, text, **options), verbs.generate(text, **options)
        assert (seen.output, seen.score) == (made.output, pytest.approx(made.score, abs=1e-4))
        shown = list(seen.maps.values())[-1]
        prompt = tuple(verbs.tokenizer.encode(text).tokens)
        ended = () if made.is_cut else ("</s>",)
        assert shown.queries == (*prompt, *made.tokens, *ended)
        assert shown.keys == ("<s>", *shown.queries[:-1])
        assert not shown.weights.triu(1).any()  # no token attends to one that comes after it
        assert in_words(seen).maps[shown.name].keys[:3] == ("<s>", "나는", "물을")
    whole, line = attention_of(verbs, LINES[0], target=""), verbs.score(LINES[0])
    assert next(iter(whole.maps.values())).queries == line.tokens
    given = attention_of(verbs, "나는 물을", target=" 마신다.")
    assert given.score == pytest.approx(sum(line.token_scores[2:]), abs=1e-4)
    for words, options in (("domain x has no effect", {"domain": "x"}), ("reads", {"target": " 나는" * 900})):
        with pytest.raises(UserError, match=words):
            attention_of(verbs, text, **options)


@pytest.mark.parametrize("name", NAMES)
def test_the_search_is_a_tree_or_the_message_says_that_there_is_none(name: str) -> None:
    verbs = verbs_of(name)
    if not searches(verbs):
        with pytest.raises(UserError, match="searches for no output"):
            tree_of(verbs, LINES[0])
        return
    text = own_text(verbs, "나는 물을")
    for options in ({"method": "beam", "beam": 3}, {"method": "greedy"}):
        tree = tree_of(verbs, text, **options)
        made = getattr(verbs, next(verb for verb in ("generate", "translate", "caption") if hasattr(verbs, verb)))
        made = made(text, **options)
        assert tree.input == made.input and tree.nodes[tree.outputs[0]].total == pytest.approx(made.score, abs=1e-4)
        said = [tree.nodes[place].token for place in tree.path(tree.outputs[0])]
        assert said == [*made.tokens, *([] if made.is_cut else ["</s>"])]
    assert tree_of(verbs, text).method == "beam"  # what draws at random is shown as a beam search


@pytest.mark.parametrize("name", ["transformer", "sutskever"])
def test_autoencoders_that_write_are_inspected_too(name: str) -> None:
    verbs = verbs_of(name, "autoencoding")
    tree = tree_of(verbs, LINES[0])
    assert tree.nodes[tree.outputs[0]].total == pytest.approx(verbs.reconstruct(LINES[0]).score, abs=1e-4)
    if name == "transformer":
        assert attention_of(verbs, LINES[0]).output == verbs.reconstruct(LINES[0]).output


def test_a_class_token_is_shown_before_the_text() -> None:
    module = find("models", "transformer_encoder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(module.SIZES, "tiny", {**module.SIZES["tiny"], "pooling": "first"})
        verbs = verbs_of("transformer_encoder")
    seen = attention_of(verbs, "나는 물을")
    for each in seen.maps.values():
        assert each.keys[0] == each.queries[0] == "[CLS]" and each.weights.shape[1:] == (4, 4)
    assert next(iter(in_words(seen).maps.values())).keys == ("[CLS]", "나는", "물을", "</s>")
