from __future__ import annotations

import pytest
import torch

from mallang.decoding import contract as decoding
from mallang.models.transformer import Config, Model
from mallang.tasks import dialogue, translation
from mallang.text.tokenizer import Config as TextConfig
from mallang.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def chatbot():
    torch.manual_seed(2)
    tokenizer = Tokenizer.train(["안녕 배고파", "뭐 좀 드세요."], TextConfig(vocabulary=40, min_count=1))
    task = dialogue.Task(dialogue.Config(), {"source": tokenizer, "target": tokenizer})
    config = Config(layers=1, dim=8, heads=2, hidden_dim=8)
    model = Model(config, tokenizer.vocabulary, tokenizer.vocabulary).eval()
    return dialogue.Verbs(task, model, decoding.Config(beam=2, max_length=8), max_length=20)


def test_an_answer_is_what_the_search_of_a_translation_finds(chatbot):
    plain = translation.Verbs(chatbot.task, chatbot.model, chatbot.config, chatbot.max_length)
    assert chatbot.reply("안녕") == plain.translate("안녕")
    assert [str(one) for one in chatbot.reply(["안녕", "배고파"])] == [
        str(one) for one in plain.translate(["안녕", "배고파"])
    ]
    assert (chatbot.task_name, plain.task_name) == ("dialogue", "translation")


def test_varied_answers_depend_on_the_seed_alone(chatbot):
    first, again, other = (
        [str(chatbot.reply("안녕", **dialogue.VARIED, seed=seed + turn)) for turn in range(5)] for seed in (1, 1, 50)
    )
    assert first == again != other and len(set(first)) > 1


def test_several_chatbots_are_one_that_answers(chatbot):
    both = chatbot.ensemble([chatbot])
    assert both.reply("안녕").output == chatbot.reply("안녕").output
