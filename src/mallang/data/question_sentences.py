"""Pairs of a question and a sentence, made from the articles of SQuAD: does the sentence contain the answer?

    Where does Mina live?    Mina lives in Busan.       entailment
    Where does Mina live?    Mina works by the sea.     not_entailment

This is the task of QNLI (Wang et al. 2018, GLUE, arXiv:1804.07461), of which only the idea is published: pairs of one
question and one sentence of its context, half of them with the answer, those with little in common left out. Here each
question has two rows: the sentence that holds its first answer, and the sentence without any of its answers that has
the most words in common with the question, the earlier of equals. A question has none where its answer lies on a border
of sentences, or where no other sentence is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from mallang.data.source import Row
from mallang.text.sentences import split_sentences

LABELS = ("entailment", "not_entailment")
WORD = re.compile(r"\w+")


def rows(whole: Mapping[str, Any]) -> Iterator[Row]:
    """Two rows per question: id, title, context, question, sentence, label."""
    for article in whole["data"]:
        for paragraph in article["paragraphs"]:
            context = paragraph["context"]
            sentences = placed_sentences(context)
            for asked in paragraph["qas"]:
                found = chosen(sentences, asked["question"], asked.get("answers", []))
                for sentence, label in zip(found, LABELS, strict=False):
                    yield asked["id"], article.get("title", ""), context, asked["question"], sentence, label


def placed_sentences(context: str) -> list[tuple[int, str]]:
    """The sentences of a context, each with the place of its first character."""
    found, end = [], 0
    for sentence in split_sentences(context):
        begin = context.index(sentence, end)
        end = begin + len(sentence)
        found.append((begin, sentence))
    return found


def chosen(sentences: list[tuple[int, str]], question: str, answers: list[Mapping[str, Any]]) -> tuple[str, ...]:
    """The sentence with the first answer, and the one without any that is most like the question; or nothing."""
    if not answers:
        return ()
    begin, end = answers[0]["answer_start"], answers[0]["answer_start"] + len(answers[0]["text"])
    right = [text for place, text in sentences if place <= begin and end <= place + len(text)]
    others = [text for _, text in sentences if not any(answer["text"] in text for answer in answers)]
    if not right or not others:
        return ()
    asked = words_of(question)
    return right[0], max(others, key=lambda text: len(asked & words_of(text)))


def words_of(text: str) -> set[str]:
    """The words of a text, in lower case."""
    return set(WORD.findall(text.casefold()))
