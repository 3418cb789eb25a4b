"""Which texts count as seen in training where a text was joined of several columns."""

import json

import pytest

from mallang.data.corpus import Config, Rows, open_corpus
from mallang.data.seen import longest_part, seen, separators

TEXT = ("text", "label")
BODY = "A long article says much. <p> It has two paragraphs."


@pytest.mark.parametrize(
    ("text", "marks", "part"),
    [
        ("Title <p> " + BODY, [" <p> "], BODY),
        ("no mark here", [" <p> "], "no mark here"),
        ("a\tbbb\tcc", ["\t", "\t"], "bbb"),
        ("a\tbbb", ["\t", "\t"], "a\tbbb"),  # not joined of three
        ("Title <p> " + BODY, [], "Title <p> " + BODY),
    ],
)
def test_the_longest_part_of_a_joined_text(text, marks, part):
    assert longest_part(text, marks) == part


def test_a_text_under_another_title_is_seen_and_a_title_alone_is_not():
    training = ["Old title <p> " + BODY, "Shared title <p> Something else that is much longer than its title."]
    texts = [
        "New title <p> " + BODY.upper().replace(" ", "  "),
        "Shared title <p> A text that no one has read before.",
        "Old title <p> " + BODY,
        BODY,
        "Shared title",
    ]
    assert seen(texts, training, [" <p> "]).tolist() == [True, False, True, True, False]
    assert seen(texts, training).tolist() == [False, False, True, False, False]


def test_bodies_alone_are_known_from_joined_texts():
    body = "One long paragraph that stands alone."
    assert seen([body], ["Title <p> " + body], [" <p> "]).tolist() == [True]
    assert seen(["Title <p> " + body], [body], [" <p> "]).tolist() == [True]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return str(path)


def test_separators_are_those_of_the_corpus(tmp_path, bbc):
    assert separators(bbc.split("train")) == (" <p> ",)
    rows = [{"title": f"t{i}", "body": f"a body {i}", "label": "x"} for i in range(30)]
    path = write(tmp_path / "train.jsonl", rows)
    config = Config(train=path, hold_out=0.2, columns=["title+body", "label"])
    opened = open_corpus(config, TEXT)
    assert separators(opened.split("train")) == ("\t",)  # seen through the held-out rows too
    first = Config(train=path, first=3, columns=["title+body", "label"])
    assert separators(open_corpus(first, TEXT).split("train")) == ("\t",)
    assert separators(open_corpus(Config(train=path, columns=["body", "label"]), TEXT).split("train")) == ()
    three = open_corpus(Config(train=path, columns=["title", "body", "label"]), ("text", "second", "label"))
    assert separators(three.split("train")) == ()  # both of a pair must be known
    assert separators(Rows.of([("a", "b")], TEXT)) == ()


@pytest.fixture
def bbc(tmp_path, monkeypatch):
    """BBC News as the registry describes it, of four articles."""
    from mallang.data import registry

    rows = [("1", "sport", "Title", BODY), ("2", "tech", "Other", "Another body <p> of two.")]
    for name in ("train", "dev", "test"):
        lines = ["id\tlabel\ttitle\ttext", *("\t".join(row) for row in rows)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    monkeypatch.setattr(registry, "obtain", lambda *_: tmp_path)
    return open_corpus(Config(corpus="bbc-news", columns=["article", "label"]), TEXT)


def test_an_article_of_the_registry_is_its_title_and_its_text(bbc):
    assert next(iter(bbc.split("test"))) == ("Title <p> " + BODY, "sport")


def test_a_space_between_columns_cannot_be_found_again(tmp_path, monkeypatch):
    from mallang.data import registry

    for name in ("train", "test"):
        (tmp_path / f"{name}.tsv").write_text("label\ttitle\tdescription\n1\ta title\ta text\n", "utf-8")
    monkeypatch.setattr(registry, "obtain", lambda *_: tmp_path)
    opened = open_corpus(Config(corpus="agnews-subset", columns=["text", "label"]), TEXT)
    assert separators(opened.split("train")) == ()
