"""How the turns of a chat become the text that a language model continues: a template, which is never executed.

    [task.chat]
    system = "{text}\\n"
    user = "User: {text}\\n"
    assistant = "Bot: {text}\\n"

Each role has one text, and `{text}` in it stands for what is said. The prompt ends with what the assistant's text has
before `{text}`; the reply ends where what comes after it begins. Nothing else in a template has a meaning, so one that
came with the run of another person can do no harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mallang.errors import UserError

ROLES = ("system", "user", "assistant")
PLACE = "{text}"


def check_chat(template: Mapping[str, str]) -> None:
    """Refuse a template that cannot be filled."""
    for role, text in template.items():
        if role not in ROLES:
            raise ValueError(f"chat.{role} is no role of a chat: give {', '.join(ROLES)}")
        if text.count(PLACE) != 1:
            raise ValueError(f"chat.{role} must hold {PLACE} once, where what is said stands, but is {text!r}")
    for role in ("user", "assistant"):
        if role not in template:
            raise ValueError(f"chat.{role} is missing: a chat has turns of user and assistant")


def chat_prompt(template: Mapping[str, str], turns: Sequence[tuple[str, str]]) -> str:
    """The text of some turns, each a role and what is said, up to where the assistant speaks next."""
    parts = []
    for role, said in turns:
        if role not in template:
            raise UserError(f"this run's chat has no role {role}", todo=f"roles that it has: {', '.join(template)}")
        before, _, after = template[role].partition(PLACE)
        parts.append(f"{before}{said}{after}")
    return "".join(parts) + template["assistant"].partition(PLACE)[0]


def chat_stops(template: Mapping[str, str]) -> list[str]:
    """Where a reply ends: at what follows it, or where another turn begins."""
    after = template["assistant"].partition(PLACE)[2]
    begins = [text.partition(PLACE)[0] for text in template.values()]
    return list(dict.fromkeys([*([after] if after else []), *(begin for begin in begins if begin.strip())]))
