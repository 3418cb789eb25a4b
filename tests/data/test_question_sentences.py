"""Pairs of questions and sentences from a SQuAD file that was written by hand."""

import json

from mallang.data.question_sentences import placed_sentences
from mallang.data.readers import Files

CONTEXT = "Mina lives in Busan. Mina works in a bank by the sea. The bank is old! Its door is red."
COLUMNS = ("id", "title", "context", "question", "sentence", "label")


def asked(number, question, *answers):
    found = [{"text": answer, "answer_start": CONTEXT.index(answer)} for answer in answers]
    return {"id": f"q{number}", "question": question, "answers": found}


def write(folder):
    questions = [
        asked(1, "Where does Mina live?", "Busan"),
        asked(2, "What is the bank like?", "old"),
        asked(3, "Where does Mina work?", "bank"),  # another sentence has the word too
        asked(4, "What is where?", "Busan. Mina"),  # across a border of sentences
        asked(5, "Why?"),
    ]
    alone = {
        "context": "One sentence.",
        "qas": [{**asked(6, "How many?"), "answers": [{"text": "One", "answer_start": 0}]}],
    }
    data = [{"title": "Mina", "paragraphs": [{"context": CONTEXT, "qas": questions}, alone]}]
    path = folder / "squad.json"
    path.write_text(json.dumps({"version": "1.1", "data": data}), "utf-8")
    return path


def test_every_question_has_the_sentence_with_its_answer_and_the_one_most_like_it(tmp_path):
    rows = list(Files("qnli", (write(tmp_path),), COLUMNS).rows(("id", "sentence", "label")))
    assert rows == [
        ("q1", "Mina lives in Busan.", "entailment"),
        ("q1", "Mina works in a bank by the sea.", "not_entailment"),
        ("q2", "The bank is old!", "entailment"),
        ("q2", "Mina works in a bank by the sea.", "not_entailment"),
        ("q3", "Mina works in a bank by the sea.", "entailment"),
        ("q3", "Mina lives in Busan.", "not_entailment"),
    ]


def test_a_share_keeps_the_questions_of_a_context_together(tmp_path):
    path = write(tmp_path)
    counts = [len(list(Files("qnli", (path,), COLUMNS, share=("context", *part)).rows(COLUMNS)))
              for part in ((0, 50), (50, 100))]  # fmt: skip
    assert sorted(counts) == [0, 6]


def test_sentences_lie_where_they_are_said_to_lie():
    text = "  No one.\nNo one. No one!  Yes. "
    assert all(text[place : place + len(sentence)] == sentence for place, sentence in placed_sentences(text))
    assert [place for place, _ in placed_sentences(text)] == [2, 10, 18, 27]
