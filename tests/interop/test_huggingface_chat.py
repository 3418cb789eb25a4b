"""Chat templates: what is read of theirs writes the chats that transformers writes, and what is not is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mallang
from interop.test_huggingface import theirs  # noqa: F401  a small GPT-2
from mallang.interop import huggingface
from mallang.interop.huggingface_chat import chat_files, derived, read_chat, renderer
from mallang.tasks.chat import chat_prompt

transformers = pytest.importorskip("transformers")
pytest.importorskip("jinja2")
PLAIN = (
    "{% for message in messages %}{% if message['role'] == 'system' %}{{ message['content'] + '\\n\\n' }}"
    "{% elif message.role == 'user' %}{{ 'User: ' + message['content'] | trim + '\\n' }}"
    "{% else %}{{ 'Bot: ' ~ message.content ~ '\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Bot: ' }}{% endif %}"
)
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
STRICT = (
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('in turns') }}{% endif %}"
    "{% if message['role'] == 'user' %}Q: {{ message['content'] }}\nA: {% else %}{{ message['content'] }}\n{% endif %}"
    "{% endfor %}"
)
CHATS = [
    [("user", '안녕? "x" \\ {text}')],
    [("system", "be kind"), ("user", "a"), ("assistant", "b\nc"), ("user", "d")],
    [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"), ("user", "e")],
]


def written(template: str, turns: list[tuple[str, str]]) -> str:
    """A chat as transformers writes it."""
    backend = transformers.PreTrainedTokenizerFast(
        tokenizer_object=mallang_backend(), chat_template=template, eos_token="</s>"
    )
    messages = [{"role": role, "content": said} for role, said in turns]
    return str(backend.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def mallang_backend() -> Any:
    from tokenizers import Tokenizer, models

    return Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))


@pytest.mark.parametrize("template", [PLAIN, CHATML, STRICT], ids=["plain", "chatml", "strict"])
def test_chats_are_those_of_transformers_there_and_back(template: str) -> None:
    found = derived(renderer(template, {}), [])
    assert ("system" in found) == (template is not STRICT)
    back = chat_files(found)["chat_template"]
    for turns in CHATS:
        if turns[0][0] in found:
            assert chat_prompt(found, turns) == written(template, turns) == written(back, turns)
    assert derived(renderer(back, {}), []) == found


def test_an_emoji_of_ours_is_an_emoji_of_theirs() -> None:
    chat = {"system": '🤖 \\é"{text}\n', "user": "🙂: {text}\n", "assistant": "말랑 🍡: {text} ✅\n"}
    for turns in CHATS:
        found = renderer(chat_files(chat)["chat_template"], {})(turns, generation=True)
        assert found.encode("utf-8").decode("utf-8") == chat_prompt(chat, turns)


WRONG = {
    "{% macro x() %}{% endmacro %}": "it uses Macro, which is not run here",
    "{{ messages.__class__.mro() }}": "it uses a method, which is not run here",
    "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}": "it has a loop over more than",
    "{% for message in messages %}{% for x in messages %}a{% endfor %}{% endfor %}": "it has a loop over more than",
    "{{ '%99999999d' % 1 }}": "it formats a text",
    "{% set x = 'a' %}" + "{% set x = x + x %}" * 40 + "{{ x }}": "it builds up a text",
    "{{ messages | tojson }}": "it uses the filter tojson",
    "{{ 'a' * 999999999 }}": "it uses Mul",
    "{% if": "it is not Jinja that can be run here",
    "{{ messages[0].content }}": "it writes more than a text before and after each turn",
    "{{ messages[0].nothing.more }}": "it does not write a chat",
    PLAIN.replace("{{ 'Bot: ' }}", "{{ 'Bot:' }}"): "what it writes before a reply is not",
    PLAIN.replace("'User: '", "('First: ' if loop.index0 == 0 else 'User: ')"): "it writes a turn in more than one way",
    PLAIN.replace("'Bot: ' ~", "eos_token ~ 'Bot: ' ~").replace("{{ 'Bot: ' }}", "{{ eos_token + 'Bot: ' }}"):
        r"it writes the special token <\|endoftext\|>",
    "x" * 30_000: "it has more than 20,000 characters",
}  # fmt: skip


@pytest.mark.parametrize("template", WRONG)
def test_what_is_not_read_is_named(template: str, tmp_path: Path) -> None:
    about = {"chat_template": template, "eos_token": {"content": "<|endoftext|>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(about))
    found, told = read_chat(tmp_path, ["<|endoftext|>"])
    assert found is None and told.startswith(" Not read: its chat_template, for ")
    with pytest.raises(ValueError, match=WRONG[template]):
        derived(renderer(template, {"eos_token": "<|endoftext|>"}), ["<|endoftext|>"])


def test_an_imported_gpt2_chats_and_goes_back(theirs: Path, tmp_path: Path) -> None:  # noqa: F811
    import shutil

    shutil.copytree(theirs, tmp_path / "theirs")
    (tmp_path / "theirs" / "chat_template.jinja").write_text(PLAIN, "utf-8")
    huggingface.import_gpt2(tmp_path / "theirs", tmp_path / "run")
    verbs = mallang.load(tmp_path / "run", device="cpu")
    expected = {"system": "{text}\n\n", "user": "User: {text}\n", "assistant": "Bot: {text}\n"}
    assert verbs.task.config.chat == expected
    assert "chat_template.jinja" in json.loads((tmp_path / "run" / "run.json").read_text())["imported"]
    huggingface.export_gpt2(verbs, tmp_path / "back")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    for turns in CHATS:
        messages = [{"role": role, "content": said} for role, said in turns]
        found = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        assert found == written(PLAIN, turns) == chat_prompt(expected, turns)
    huggingface.import_gpt2(tmp_path / "back", tmp_path / "again")
    assert mallang.load(tmp_path / "again", device="cpu").task.config.chat == expected
    settings = {"chat_template": [{"name": "default", "template": CHATML + "{{ messages | tojson }}"}]}
    (tmp_path / "theirs" / "chat_template.jinja").unlink()
    (tmp_path / "theirs" / "tokenizer_config.json").write_text(json.dumps(settings))
    huggingface.import_gpt2(tmp_path / "theirs", tmp_path / "without")
    assert mallang.load(tmp_path / "without", device="cpu").task.config.chat is None
    assert "its chat_template, for it uses the filter tojson" in (tmp_path / "without" / "card.md").read_text()
