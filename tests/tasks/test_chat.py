"""Templates of chats: texts that are filled and never executed."""

from __future__ import annotations

import pytest

from mallang.errors import UserError
from mallang.tasks.chat import chat_prompt, chat_stops
from mallang.tasks.language_modeling import Config

TEMPLATE = {"system": "{text}\n\n", "user": "User: {text}\n", "assistant": "Bot: {text}\n"}


def test_turns_become_one_text_that_ends_where_the_assistant_speaks() -> None:
    turns = [("system", "Be kind."), ("user", "물"), ("assistant", "water"), ("user", "책")]
    assert chat_prompt(TEMPLATE, turns) == "Be kind.\n\nUser: 물\nBot: water\nUser: 책\nBot: "
    assert chat_stops(TEMPLATE) == ["\n", "User: ", "Bot: "]
    assert chat_stops({"user": "{text}\n", "assistant": "{text}"}) == []


def test_what_is_said_is_never_a_template() -> None:
    nasty = "{text} {{ 7 * 7 }} {% for x in y %} {user.__class__} %s"
    assert chat_prompt(TEMPLATE, [("user", nasty)]) == f"User: {nasty}\nBot: "
    with pytest.raises(UserError, match="no role system"):
        chat_prompt({"user": "{text}", "assistant": "{text}"}, [("system", "x")])


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ({"user": "{text}"}, "chat.assistant is missing"),
        ({"user": "said", "assistant": "{text}"}, "chat.user must hold"),
        ({"user": "{text}{text}", "assistant": "{text}"}, "chat.user must hold"),
        ({"tool": "{text}", "user": "{text}", "assistant": "{text}"}, "chat.tool is no role"),
    ],
)
def test_a_wrong_template_is_refused(template: dict[str, str], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Config(chat=template)
