"""What columns are called in the files of others, by their role in a task."""

from __future__ import annotations


def column_names(source: str, target: str, text: str) -> dict[str, tuple[str, ...]]:
    """The names that a column of each role may have, the most fitting first.

    `source` and `target` are languages, or names of columns; `text` is what a corpus calls its text.
    """
    return {
        "source": (source, "source"),
        "target": (target, "target"),
        "text": (text, source, "document", "sentence", "review"),
        "label": (
            "label",
            "labels",
            "class",
            "category",
            "sentiment",
            "gold_label",
            "is_duplicate",
            "types",
            "relation",
        ),
        "mentions": ("mentions", "mention"),
        "links": ("links", "ents", "entities"),
        "first": (
            "first",
            "sentence1",
            "premise",
            "question1",
            "question",
            f"{source}-sentence1",
            f"{source}-premise",
        ),
        "second": (
            "second",
            "sentence2",
            "hypothesis",
            "question2",
            "sentence",
            f"{source}-sentence2",
            f"{source}-hypothesis",
        ),
        "score": ("score", "similarity", "number"),
        "words": ("words", "tokens", "token", "word", f"{source}-tokens"),
        "predicates": ("predicates", f"{source}-predicates"),
        "roles": ("roles", f"{source}-roles"),
        "tags": ("tags", "ner_tags", "ner", "tag", "labels", "pos"),
        "sentences": ("sentences", f"{source}-sentences"),
        "clusters": ("clusters", "coref", f"{source}-clusters"),
        "question": ("question", "question.stem"),
        "context": ("context", "passage", "paragraph"),
        "answers": ("answers", "answer"),
        "choices": ("choices", "question.choices", "options"),
        "image": ("image", "picture", "file", "file_name", "path"),
        "caption": ("caption", source, "text", "description"),
        "boxes": ("boxes", f"{source}-boxes"),
        "answer": ("answer", "answerKey", "label"),
    }
