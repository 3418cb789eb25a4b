"""Prompt templates: the text of an example and of a question.

    Template(shot="{text} → {label}", separator=" / ").joined([…], "그는 빵을 먹었다. → ")

`{text}` is the input, `{label}` its label or answer, `{name}` the original name of the label where `relabel` replaces
it. A question is the template up to `{label}`. A template is given by a name from the list below, as a text with
`{text}` and `{label}`, or as a small TOML file:

    shot = "문장: {text} 느낌: {label}"
    separator = " / "
    answer = "choose"

    [labels]                 # the words for labels in prompts, if not their own names
    0 = "나쁘다"
    1 = "좋다"
"""

from __future__ import annotations

import string
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from mallang.errors import UserError, nearest

FIELDS = ("text", "label", "name")


@dataclass(frozen=True, kw_only=True)
class Template:
    """A prompt template: the text of examples and questions."""

    shot: str
    """The text of an example, with `{text}` and `{label}`."""
    separator: str = "\n"
    """The text between examples; a newline is a line boundary for a model that was trained on a stream."""
    instruction: str = ""
    """The text before all examples."""
    answer: str = "choose"
    """Whether the model chooses among labels or generates its answer."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """The words for labels in prompts."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not isinstance(value, Mapping if item.name == "labels" else str):
                raise UserError(f"{item.name} of a template cannot be {value!r}", todo="give a text")
        for label, word in self.labels.items():
            if not isinstance(word, str) or not word.strip():
                raise UserError(f"the label {label!r} of a template cannot be called {word!r}", todo="give a word")
        if self.answer not in ("choose", "write"):
            raise UserError(f"answer = {self.answer!r} is unknown", todo="choose or write")
        if not self.separator:
            raise UserError("the separator of a template is empty", todo="such as ' / '")
        found = [(name, how or conversion) for _, name, how, conversion in pieces(self.shot) if name is not None]
        names = [name for name, _ in found]
        for name, how in found:
            if name not in FIELDS or how:
                raise UserError(f"a template has no {{{name}}}", todo="{text} and {label}, perhaps {name}")
        first = names[: names.index("label")] if names.count("label") == 1 else []
        if "text" not in first or "name" in first:
            raise UserError(
                f"{self.shot!r} must hold {{text}} and, after it, {{label}} once",
                todo="such as '{text} → {label}'; {name} may follow the label",
            )

    @property
    def stops(self) -> list[str]:
        """The stop strings of a generated answer: the text after it in an example, or the start of the next example."""
        found = pieces(self.shot)
        place = [name for _, name, *_ in found].index("label") + 1
        after = found[place][0].strip(" ") if place < len(found) else ""
        return [text for text in dict.fromkeys((after, self.separator.strip(" "))) if text]

    def called(self, label: str) -> str:
        """The word for a label."""
        return self.labels.get(label, label)

    def shot_of(self, text: str, word: str, name: str) -> str:
        """The text of an example."""
        return self.shot.format(text=text, label=word, name=name)

    def question(self, text: str) -> str:
        """The text of a question: an example up to its label."""
        found = pieces(self.shot)
        place = [name for _, name, *_ in found].index("label") + 1
        return "".join(words + (text if name == "text" else "") for words, name, *_ in found[:place])

    def joined(self, shots: Sequence[str], question: str) -> str:
        """Examples and a question as one prompt."""
        return self.separator.join([*([self.instruction] if self.instruction else []), *shots, question])


def read_template(given: str, separator: str | None = None, instruction: str | None = None) -> Template:
    """A template by name, from a TOML file, or from the text of an example; two of its fields may be overridden."""
    if given.endswith(".toml"):
        template = read_file(Path(given).expanduser())
    elif "{" in given:
        template = Template(shot=given)
    elif given in TEMPLATES:
        template = TEMPLATES[given]
    else:
        near = nearest(given, TEMPLATES)
        raise UserError(f"there is no template {given!r}", todo=f"{near}; or a text such as '{{text}} → {{label}}'")
    if separator is not None:
        template = replace(template, separator=separator.replace("\\n", "\n"))
    return template if instruction is None else replace(template, instruction=instruction)


def read_file(path: Path) -> Template:
    """The template in a TOML file."""
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}", todo="check the name") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not TOML: {error}") from error
    known = [item.name for item in fields(Template)]
    for key in found:
        if key not in known:
            raise UserError(f"a template has no {key!r}", where=str(path), todo=nearest(key, known))
    if "shot" not in found:
        raise UserError("the template has no shot", where=str(path), todo="shot = '{text} → {label}'")
    try:
        return Template(**found)
    except UserError as error:
        raise UserError(error.what, where=str(path), todo=error.todo) from error


def pieces(text: str) -> list[tuple[str, str | None, Any, Any]]:
    """The parts of a text with fields in braces."""
    try:
        return list(string.Formatter().parse(text))
    except ValueError as error:
        raise UserError(
            f"{text!r} is no template: {error}", todo="{{ and }} are braces that stand for themselves"
        ) from error


TEMPLATES = {
    "plain": Template(shot="{text} → {label}"),
    "miniworld": Template(shot="{text} → {label} {name}", separator=" / "),
    "question": Template(shot="Q: {text} A: {label}", answer="write"),
    "translate": Template(shot="{text} = {label}", answer="write"),
    "tldr": Template(shot="{text} TL;DR: {label}", answer="write"),
}
"""The named templates; `miniworld` is the format of the data miniworld-prompts."""
