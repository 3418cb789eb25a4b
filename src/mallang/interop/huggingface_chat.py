"""Chat templates of `transformers` as ours, and back: the text of a turn by its role, which is never executed here.

Theirs is a program in Jinja. A run must not hold a program, so an import renders it once, for a few short chats, and
keeps what stands before and after the text of each role (`task.chat`). It is read only if that describes it: further
chats must come out the same, and nothing in it may be a special token, which is no text. Only loops over the messages,
conditions and texts are run, in Jinja's sandbox; a template with anything else is not, and is named on the run's card.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mallang.interop.huggingface_folder import maybe_json
from mallang.tasks.chat import PLACE, ROLES, chat_prompt, check_chat

FILE, KEY, SETTINGS = "chat_template.jinja", "chat_template", "tokenizer_config.json"
LONGEST = 20_000
"""Characters of a template that is read."""
ALLOWED = {
    "Template", "Output", "TemplateData", "For", "If", "Assign", "Name", "Const", "Getattr", "Getitem", "Slice", "List",
    "Compare", "Operand", "And", "Or", "Not", "Neg", "Sub", "Mod", "Add", "Concat", "CondExpr", "Test", "Filter",
    "Call", "Tuple",
}  # fmt: skip
"""The parts of Jinja's grammar that a template may use: no macros, imports, blocks or namespaces."""
FILTERS, FUNCTIONS, LISTS = ("trim", "length"), ("raise_exception",), ("messages", "loop_messages")
Turns = Sequence[tuple[str, str]]
CHATS: tuple[tuple[str, ...], ...] = (
    ("user",), ("user", "assistant", "user"), ("user", "assistant", "user", "assistant", "user"),
    ("system", "user"), ("system", "user", "assistant", "user"),
)  # fmt: skip
"""The roles of the chats that both must write in the same way, those with a system's turn last."""


def read_chat(folder: Path, special: Sequence[str]) -> tuple[dict[str, str] | None, str]:
    """The chat template of a folder as ours, if it has one; a sentence about one that cannot be read.

    `special` are the special tokens of its tokenizer.
    """
    try:
        source = template_of(folder)
        found = None if source is None else derived(renderer(source, maybe_json(folder / SETTINGS)), special)
    except ValueError as error:
        return None, f" Not read: its {KEY}, for {error}."
    return found, ""


def template_of(folder: Path) -> str | None:
    """The text of the template, if there is one."""
    if (folder / FILE).exists():
        return (folder / FILE).read_text("utf-8")
    found = maybe_json(folder / SETTINGS).get(KEY)
    if isinstance(found, list):
        named = {each.get("name"): each.get("template") for each in found if isinstance(each, dict)}
        found = named.get("default")
    if found is not None and not isinstance(found, str):
        raise ValueError("it is no text")
    return found


def renderer(source: str, settings: Mapping[str, Any]) -> Callable[..., str]:
    """What writes turns by a template; a ValueError where it is no template, or may not be run."""
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise ValueError("jinja2 is not installed") from error
    if len(source) > LONGEST:
        raise ValueError(f"it has more than {LONGEST:,} characters")
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    try:
        check_nodes(environment.parse(source))
        template = environment.from_string(source)
    except (TemplateError, RecursionError) as error:
        raise ValueError(f"it is not Jinja that can be run here ({error})") from error
    tokens = {name: settings.get(name) for name in ("bos_token", "eos_token", "unk_token", "pad_token")}
    tokens = {name: each.get("content") if isinstance(each, dict) else each for name, each in tokens.items()}

    def refuse(why: object) -> None:
        raise ValueError(str(why))

    def render(turns: Turns, *, generation: bool) -> str:
        messages = [{"role": role, "content": said} for role, said in turns]
        given = {**tokens, "messages": messages, "add_generation_prompt": generation, "raise_exception": refuse}
        try:
            return template.render(given)
        except (TemplateError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
            raise ValueError(f"it does not write a chat ({error})") from error

    return render


def check_nodes(tree: Any) -> None:
    """Refuse a template that uses more than loops over the messages, conditions and texts, or whose texts may grow."""
    from jinja2 import nodes

    for node in tree.find_all(nodes.Node):
        kind, named = type(node).__name__, ""
        if isinstance(node, nodes.Call):
            named = node.node.name if isinstance(node.node, nodes.Name) else "a method"
        if isinstance(node, nodes.Filter):
            kind = f"the filter {node.name}" if node.name not in FILTERS else kind
        if kind not in ALLOWED or (named and named not in FUNCTIONS):
            raise ValueError(f"it uses {named or kind}, which is not run here")
        if isinstance(node, nodes.Mod) and not isinstance(node.left, nodes.Getattr):  # "%9999d" % 1
            raise ValueError("it formats a text, which is not run here")
        if isinstance(node, nodes.Assign) and list(node.find_all((nodes.Add, nodes.Concat, nodes.Mod))):
            raise ValueError("it builds up a text, which is not run here")
        if isinstance(node, nodes.For):
            over = node.iter.node if isinstance(node.iter, nodes.Getitem) else node.iter
            inner = [each for each in node.find_all(nodes.For) if each is not node]
            if inner or not isinstance(over, nodes.Name) or over.name not in LISTS:
                raise ValueError("it has a loop over more than the messages, which is not run here")


def derived(render: Callable[..., str], special: Sequence[str]) -> dict[str, str]:
    """The text of each role, if these are all that the template does."""
    user, reply = ("user", "⟨one⟩"), ("assistant", "⟨two⟩")
    first = render([user], generation=False)
    answered, asked = render([user, reply], generation=False), render([user], generation=True)
    if not answered.startswith(first) or first.count("⟨one⟩") != 1 or answered[len(first) :].count("⟨two⟩") != 1:
        raise ValueError("it writes more than a text before and after each turn")
    found = {"user": first.replace("⟨one⟩", PLACE), "assistant": answered[len(first) :].replace("⟨two⟩", PLACE)}
    if asked != first + found["assistant"].partition(PLACE)[0]:
        raise ValueError("what it writes before a reply is not what a reply of the chat has before it")
    try:
        whole = render([("system", "⟨zero⟩"), user], generation=False)
        if whole.endswith(first) and whole[: len(whole) - len(first)].count("⟨zero⟩") == 1:
            before = whole[: len(whole) - len(first)].replace("⟨zero⟩", PLACE)
            found = {"system": before, **found}
    except ValueError:
        pass  # it has no turn of the system
    compare(render, found)
    if token := next((token for token in special if any(token in text for text in found.values())), None):
        raise ValueError(f"it writes the special token {token}, which is no text here")
    check_chat(found)
    return found


def compare(render: Callable[..., str], found: Mapping[str, str]) -> None:
    """Refuse texts that do not write other chats as the template does."""
    for number, roles in enumerate(CHATS):
        if "system" in roles and "system" not in found:
            continue
        turns = [(role, f"what {role} says, {number}.{place}") for place, role in enumerate(roles)]
        if render(turns, generation=True) != chat_prompt(found, turns):
            raise ValueError("it writes a turn in more than one way")


def chat_files(chat: Mapping[str, str] | None) -> dict[str, str]:
    """What an export adds to the settings of the tokenizer: our template as a program of theirs."""
    if chat is None:
        return {}
    parts, word = [], "if"
    for role in ROLES:
        if role in chat:
            before, _, after = (quoted(text) for text in chat[role].partition(PLACE))
            spoken = f"{{{{ {before} + message['content'] + {after} }}}}"
            parts.append(f"{{% {word} message['role'] == '{role}' %}}{spoken}")
            word = "elif"
    wrong = "{% else %}{{ raise_exception('no role ' + message['role']) }}{% endif %}"
    begin = quoted(chat["assistant"].partition(PLACE)[0])
    generation = f"{{% if add_generation_prompt %}}{{{{ {begin} }}}}{{% endif %}}"
    return {KEY: f"{{% for message in messages %}}{''.join(parts)}{wrong}{{% endfor %}}{generation}"}


def quoted(text: str) -> str:
    """A text as Jinja spells it: it would read the two escapes that JSON has for an emoji as two broken characters."""
    return json.dumps(text, ensure_ascii=False)
