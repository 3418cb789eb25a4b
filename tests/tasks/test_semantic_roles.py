"""Semantic roles: examples and losses against loops, a run from a file to roles, and features of another run."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mallang.data.batch import IGNORE
from mallang.data.columns import LabelSet
from mallang.data.corpus import Rows
from mallang.data.filters import Filters
from mallang.data.prepared import prepare
from mallang.data.roles import Sentence, lemma_forms
from mallang.errors import UserError
from mallang.evaluation.roles import Labeled, role_statistics
from mallang.find import find
from mallang.loading import load
from mallang.recipe import read
from mallang.runs.folder import Run
from mallang.tasks.role_examples import RoleExample, RoleExamples
from mallang.tasks.semantic_roles import Config, Task
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer
from mallang.training.train import Options, train

PEOPLE, VERBS, THINGS = ("Anna", "Bob", "민수", "Lee"), {"gave": "give", "sold": "sell"}, ("books", "apples", "tea")
COLUMNS = ("words", "predicates", "roles")


def row(draw: random.Random, *, spans: bool = False) -> tuple[str, str, str]:
    """A sentence of one or two clauses, or a greeting without a predicate."""
    if draw.random() < 0.1:
        return "Hello\t.", "_\t_", ""
    words, lemmas, frames = list[str](), list[str](), list[list[str]]()
    for number in range(draw.choice((1, 1, 2))):
        start = len(words)
        verb, number_of = draw.choice(list(VERBS)), draw.choice(("two", "old"))
        clause = [draw.choice(PEOPLE), verb, draw.choice(PEOPLE), number_of, draw.choice(THINGS)]
        roles = ["ARG0", "_", "ARG2", "_", "ARG1"]
        if spans:
            roles = ["B-ARG0", "O", "B-ARG2", "B-ARG1", "I-ARG1"]
        words += [*clause, "and" if number == 0 else "."]
        lemmas += ["_", VERBS[verb], "_", "_", "_", "_"]
        frames.append([*["O" if spans else "_"] * start, *roles])
    flat = [role for own in frames for role in [*own, *["O" if spans else "_"] * (len(words) - len(own))]]
    return "\t".join(words), "\t".join(lemmas), "\t".join(flat)


def rows_of(count: int, seed: int = 1, *, spans: bool = False) -> list[tuple[str, str, str]]:
    draw = random.Random(seed)
    return [row(draw, spans=spans) for _ in range(count)]


def task_of(rows: list[tuple[str, str, str]], **config: Any) -> Task:
    tokenizer = Tokenizer.train([cells[0].replace("\t", " ") for cells in rows], TextConfig(unit="space"))
    labels = {
        "predicates": LabelSet.learn((lemma_forms(cells[0], cells[1]) for cells in rows), "predicates"),
        "roles": LabelSet.learn((cells[2] for cells in rows), "roles"),
    }
    return Task(Config(**config), {"words": tokenizer}, labels)


def model_of(task: Task, name: str = "dependency_srl") -> Any:
    module = find("models", name)
    torch.manual_seed(1)
    return task.build(module, module.Config(**module.SIZES["tiny"])).eval()


def test_a_sentence_is_read_once_per_predicate_and_once_without(tmp_path: Path) -> None:
    rows = [*rows_of(12), ("Hello\t.", "_\t_", "")]
    task = task_of(rows)
    corpus = prepare(Rows.of(rows, COLUMNS), task.arrays(), Filters(drop_empty=True), tmp_path)
    found = list(RoleExamples(corpus))
    expected = []
    for words, predicates, roles in rows:
        sentence = Sentence.of((words, predicates, roles))
        for place, own in zip(sentence.predicates, sentence.roles, strict=True):
            lemma = sentence.lemmas[place]
            expected.append((sentence.words, place, task.lemmas.id(lemma), task.roles.encode(own), None))
        marks = [int(lemma != "_") for lemma in sentence.lemmas]
        expected.append((sentence.words, -1, 0, None, marks))
    assert len(found) == len(expected) == len(RoleExamples(corpus).lengths)
    for each, (words, place, lemma, own, marks) in zip(found, expected, strict=True):
        assert [task.text.vocabulary.tokens[number] for number in each.ids] == list(words)
        assert (each.asked, each.lemma) == (place, lemma)
        assert (None if each.roles is None else each.roles.tolist()) == own
        assert (None if each.marks is None else each.marks.tolist()) == marks
    assert RoleExamples(corpus).lengths.tolist() == [len(words) for words, *_ in expected]


@pytest.mark.parametrize("name", ["deep_srl", "dependency_srl"])
def test_the_loss_against_a_loop(name: str) -> None:
    rows = rows_of(4)
    task = task_of(rows)
    model, examples = model_of(task, name), []
    for cells in rows:
        sentence = Sentence.of(cells)
        ids = np.array([task.text.vocabulary.ids[word] for word in sentence.words])
        for place, own in zip(sentence.predicates, sentence.roles, strict=True):
            labels = np.array(task.roles.encode(own))
            examples.append(RoleExample(ids, place, task.lemmas.id(sentence.lemmas[place]), labels))
        examples.append(RoleExample(ids, marks=np.array([int(lemma != "_") for lemma in sentence.lemmas])))
    examples[0].roles[1] = -1  # a role that training did not see
    roles = predicates = 0.0
    with torch.no_grad():
        for each in examples:
            scores, _ = task.scores(model, task.collate([each]))
            for word in range(len(each.ids)):
                if each.roles is not None and each.roles[word] >= 0:
                    roles -= float(scores.roles[0, word].log_softmax(0)[each.roles[word]])
                if each.marks is not None:
                    share = float(scores.predicates[0, word].sigmoid())
                    predicates -= float(np.log(share if each.marks[word] else 1 - share))
    batch = task.collate(examples)
    loss = task.loss(model, batch, None)
    assert float(loss.sums["roles"].detach()) == pytest.approx(roles, rel=1e-4)
    assert float(loss.sums["predicates"].detach()) == pytest.approx(predicates, rel=1e-4)
    asked = [each for each in examples if each.roles is not None]
    others = [each for each in examples if each.marks is not None]
    counts = task.counts(batch)
    assert counts["roles"] == sum(len(each.ids) for each in asked) - 1
    assert counts["predicates"] == sum(len(each.ids) for each in others)
    assert int((batch.tags != IGNORE).sum()) == counts["roles"]


def test_rare_words_and_lemmas_are_hidden_in_training(tmp_path: Path) -> None:
    rows = [("Anna gave tea", "_ give _", "ARG0 _ ARG1"), ("Anna sold tea", "_ sell _", "ARG0 _ ARG1"),
            ("Bob gave tea", "_ give _", "ARG0 _ ARG1")]  # fmt: skip
    task = task_of(rows, rare_dropout=0.9)
    model_of(task)
    corpus = prepare(Rows.of(rows, COLUMNS), task.arrays(), Filters(drop_empty=True), tmp_path)
    examples, draw = task.examples(corpus, 1, 0), np.random.default_rng(1)
    drawn = [task.with_unknown(each, draw) for _ in range(50) for each in examples]
    vocabulary, size = task.text.vocabulary, len(task.text.vocabulary)
    hidden = {int(number) - size for each in drawn for number in each.ids if number >= size}
    assert hidden == {vocabulary.ids["sold"], vocabulary.ids["Bob"]}, "known by their characters alone"
    lemmas = {each.lemma for each in drawn if each.asked >= 0}
    assert lemmas == {0, task.lemmas.id("give"), task.lemmas.id("sell")}
    assert all(each.lemma == task.lemmas.id("give") for each in drawn if each.ids[1] % size == vocabulary.ids["gave"]
               and each.asked >= 0)  # fmt: skip


def test_what_cannot_be_is_refused() -> None:
    rows = rows_of(4)
    with pytest.raises(UserError, match="gpt does not label semantic roles"):
        task_of(rows).build(find("models", "gpt"), None)
    with pytest.raises(ValueError, match="unique_roles has no effect with constraints = false"):
        Config(constraints=False, unique_roles=("ARG0",))
    with pytest.raises(UserError, match="a word that has a role is one token"):
        task = task_of(rows)
        Task(Config(), {"words": Tokenizer.train(["a b"], TextConfig(unit="char"))},
             {"predicates": task.lemmas.labels, "roles": task.roles.labels})  # fmt: skip


def write(folder: Path, name: str, rows: list[tuple[str, str, str]]) -> Path:
    path = folder / name
    lines = [json.dumps(dict(zip(COLUMNS, (each.split("\t") if each else [] for each in cells), strict=True)))
             for cells in rows]  # fmt: skip
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def trained(folder: Path, recipe: str, name: str, *changes: str, spans: bool = False) -> Any:
    train_file = write(folder, "train.jsonl", rows_of(80, spans=spans))
    valid_file = write(folder, "valid.jsonl", [*rows_of(20, 2, spans=spans)])
    values = [
        f"data.train={train_file}", f"data.valid={valid_file}", "model.size=tiny", "train.batch_tokens=128",
        "optimizer.learning_rate=0.02", "train.epochs=5", "train.threads=1", "task.unique_roles=none", *changes,
    ]  # fmt: skip
    return train(read(recipe, values).build(), Options(folder=folder / name, device="cpu", quiet=True))


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run on head words."""
    found: Run = trained(tmp_path_factory.mktemp("heads"), "dependency-srl-english-propbank", "run")
    return found


def test_a_run_on_head_words(heads: Run) -> None:
    model = load(heads.folder, device="cpu")
    rows = [*rows_of(30, 5), ("Hello\t.", "_\t_", "")]
    scores, outputs = model.evaluate(rows)
    by_name = {score.name: score for score in scores if "role:" not in score.signature.replace("roles:", "")}
    assert by_name["role F1"].value > 95 and "roles:heads|predicates:given" in by_name["role F1"].signature
    assert by_name["predicate F1"].value == 100 and by_name["end-to-end role F1"].value > 95
    assert len(outputs) == len(rows) and outputs[-1] == ""
    flat = [(*each, "\t".join("0" if n == 0 else "1" for n in range(len(each[0].split("\t"))))) for each in rows]
    [derived, *_] = model.derived_span_scores(flat)
    assert derived.value > 80 and "roles:spans" in derived.signature
    # The score is that of the roles which the verb prints for the predicates of the data.
    sentences = [Sentence.of(each) for each in rows]
    found = [
        model.roles([list(each.words)], predicates=[place + 1 for place in each.predicates])[0] for each in sentences
    ]
    golds = [Labeled(each.predicates, each.roles) for each in sentences]
    again = [Labeled([p.place for p in each.propositions], [p.roles for p in each.propositions]) for each in found]
    assert role_statistics(again, golds, spans=False)["F1"].value == pytest.approx(by_name["role F1"].value)


def test_the_verb_finds_predicates_or_takes_them(heads: Run) -> None:
    model = load(heads.folder, device="cpu")
    text = "Anna gave Bob two books and Lee sold 민수 old tea."
    found = model.roles(text)
    assert not found.are_given and [each.predicate for each in found.propositions] == ["gave", "sold"]
    first = found.propositions[0]
    assert str(first) == "gave: ARG0=Anna, ARG2=Bob, ARG1=books" and first.lemma == "give"
    assert all(text[each.start : each.end] == each.text and 0 < each.confidence <= 1 for each in first.arguments)
    assert 0.5 < first.confidence <= 1 and len(first.roles) == len(found.words) == 12
    given = model.roles(text, predicates=["sold"])
    assert given.are_given and [each.predicate for each in given.propositions] == ["sold"]
    assert given.propositions[0].roles == found.propositions[1].roles and given.propositions[0].confidence == 1
    assert model.roles(text, predicates=[8]).propositions == given.propositions
    several = model.roles([text, "", "Hello .", text])
    assert several[1].words == () == several[2].propositions and str(several[3]) == str(found)
    for one, other in zip(several[0].propositions, found.propositions, strict=True):
        assert one.roles == other.roles and one.confidence == pytest.approx(other.confidence, abs=1e-5)
    unknown = model.roles("Zoë gave Bob two umbrellas .").propositions[0]
    assert [each.text for each in unknown.arguments][1] == "Bob", "unknown words are read from their characters"
    with pytest.raises(UserError, match="'ran' is no word of the text"):
        model.roles(text, predicates=["ran"])
    with pytest.raises(UserError, match="there is no word 40: the text has 12 words"):
        model.roles(text, predicates=["40"])
    with pytest.raises(UserError, match="beam has no effect on a role labeler"):
        model.evaluate(rows_of(2), beam=3)
    with pytest.raises(UserError, match="there are 1 roles, but 2 words") as caught:
        model.evaluate([("a b", "_ b", "ARG0")])
    assert caught.value.where == "row 1"


def test_spans_with_features_of_another_run(tmp_path: Path) -> None:
    """The mix of the layers is learned with the roles; the other run stays as it is."""
    plain = tmp_path / "plain.txt"
    plain.write_text("\n".join(cells[0].replace("\t", " ") for cells in rows_of(60)) + "\n", "utf-8")
    changes = [f"data.train={plain}", f"data.valid={plain}", "model.size=tiny", "text.unit=space", "train.steps=3",
               "train.epochs=none", "train.threads=1", "train.workers=0", "train.batch_tokens=128"]  # fmt: skip
    elmo = train(read("elmo-miniworld", changes).build(), Options(folder=tmp_path / "elmo", device="cpu", quiet=True))
    before = elmo.read_weights()
    run = trained(
        tmp_path, "deep-srl-miniworld", "run", f"given.features={tmp_path / 'elmo'}", "task.features_mix=true",
        "task.features_l2=0.001", "train.epochs=3", spans=True,
    )  # fmt: skip
    assert len(run.info["features_mix"]["weights"]) == 3
    assert not any("features." in name for name in run.read_weights() if "features_mix" not in name)
    model = load(run.folder, device="cpu")
    scores, _ = model.evaluate(rows_of(20, 5, spans=True))
    assert scores[0].name == "role F1" and scores[0].value > 90 and "roles:spans" in scores[0].signature
    found = model.roles("Anna gave Bob two books.")
    assert [(each.role, each.text) for each in found.propositions[0].arguments] == [
        ("ARG0", "Anna"), ("ARG2", "Bob"), ("ARG1", "two books"),
    ]  # fmt: skip
    assert all(torch.equal(value, before[name]) for name, value in Run.open(elmo.folder).read_weights().items())
