"""The official client of OpenAI, unmodified, against our server."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import mallang
from serving.serving import TEXTS, Client, serving, write_run

openai = pytest.importorskip("openai")


def openai_client(server: Client) -> Any:
    """The official client, for a server of ours."""
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def client(server: Client) -> Any:
    with openai_client(server) as found:
        yield found


@pytest.fixture(scope="module")
def own(writer: Path) -> Any:
    return mallang.load(writer, "cpu")


def test_models(client: Any) -> None:
    assert [each.id for each in client.models.list()] == ["translator", "writer", "chatbot"]
    assert client.models.retrieve("writer").owned_by == "mallang"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")


def test_a_completion_is_that_of_the_library(client: Any, own: Any) -> None:
    found = client.completions.create(model="writer", prompt=TEXTS[0], temperature=0, max_tokens=9)
    expected = own.generate(TEXTS[0], method="greedy", max_tokens=9)
    assert found.choices[0].text == expected.output
    assert found.choices[0].finish_reason == ("length" if expected.is_cut else "stop")
    assert found.usage.completion_tokens == len(expected.tokens)


def test_samples_depend_on_the_seed(client: Any, own: Any) -> None:
    def ask(seed: int) -> list[str]:
        found = client.completions.create(model="writer", prompt=TEXTS[:2], seed=seed, n=3, top_p=0.9, max_tokens=9)
        assert [each.index for each in found.choices] == [0, 1, 2, 3, 4, 5]
        return [each.text for each in found.choices]

    expected = own.generate(TEXTS[:2], method="sampling", seed=5, nbest=3, top_p=0.9, max_tokens=9)
    assert ask(5) == ask(5) == [each[0] for result in expected for each in result.nbest]
    assert ask(5) != ask(6)


def test_streaming_adds_up(client: Any) -> None:
    options = {"model": "writer", "prompt": TEXTS[:2], "seed": 3, "n": 2, "max_tokens": 20}
    whole = client.completions.create(**options)
    texts, reasons = [""] * 4, [None] * 4
    usage = None
    for chunk in client.completions.create(**options, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            reasons[choice.index] = reasons[choice.index] or choice.finish_reason
    assert texts == [each.text for each in whole.choices]
    assert reasons == [each.finish_reason for each in whole.choices]
    assert usage == whole.usage


def test_logprobs(client: Any, own: Any) -> None:
    found = client.completions.create(model="writer", prompt=TEXTS[0], temperature=0, max_tokens=6, logprobs=3)
    expected = own.generate(TEXTS[0], method="greedy", max_tokens=6)
    logprobs = found.choices[0].logprobs
    assert logprobs.tokens == list(expected.tokens)
    assert logprobs.token_logprobs == pytest.approx(expected.token_scores[: len(expected.tokens)], abs=1e-4)
    for token, score, best in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert len(best) == 3 and math.isclose(best[token], score) and max(best.values()) == best[token]
    assert logprobs.text_offset[0] == 0 and len(logprobs.text_offset) == len(logprobs.tokens)
    chunks = client.completions.create(
        model="writer", prompt=TEXTS[0], temperature=0, max_tokens=6, logprobs=3, stream=True
    )
    streamed = [score for chunk in chunks for score in chunk.choices[0].logprobs.token_logprobs]
    assert streamed == pytest.approx(logprobs.token_logprobs, abs=1e-4)


def test_stop_ids_echo_and_beam(client: Any, own: Any) -> None:
    whole = client.completions.create(model="writer", prompt="", temperature=0, max_tokens=30).choices[0].text
    stop = whole[3:5]
    cut = client.completions.create(model="writer", prompt="", temperature=0, max_tokens=30, stop=[stop]).choices[0]
    assert cut.text == whole[: whole.find(stop)] and cut.finish_reason == "stop"
    ids = own.tokenizer.encode(TEXTS[0]).ids
    by_ids = client.completions.create(model="writer", prompt=ids, temperature=0, max_tokens=6).choices[0].text
    text = client.completions.create(model="writer", prompt=TEXTS[0], temperature=0, max_tokens=6, echo=True).choices[0]
    assert text.text == TEXTS[0] + by_ids
    beam = client.completions.create(model="writer", prompt="", max_tokens=5, n=2, extra_body={"beam": 4})
    expected = own.generate("", method="beam", beam=4, nbest=2, max_tokens=5)
    assert [each.text for each in beam.choices] == [each[0] for each in expected.nbest]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("suffix", "x"), ("logit_bias", {"1": 5}), ("presence_penalty", 0.5), ("frequency_penalty", 1), ("best_of", 4),
        ("max_tokens", 0), ("temperature", 3), ("logprobs", 21), ("stop", ["a"] * 5), ("n", 17),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(client: Any, field: str, value: Any) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="writer", prompt="물", **{field: value})
    assert (refused.value.param or "").startswith(field) and field in str(refused.value)


def test_neutral_values_are_served(client: Any) -> None:
    neutral = {"suffix": None, "logit_bias": {}, "presence_penalty": 0, "frequency_penalty": 0.0, "best_of": 1}
    assert client.completions.create(model="writer", prompt="물", max_tokens=2, user="me", **neutral).choices


def test_chats(client: Any, chatbot: Path) -> None:
    messages = [{"role": "user", "content": TEXTS[1]}]
    found = client.chat.completions.create(model="chatbot", messages=messages, logprobs=True)
    expected = mallang.load(chatbot, "cpu").reply(TEXTS[1])
    assert found.choices[0].message.content == expected.output
    assert [each.token for each in found.choices[0].logprobs.content] == list(expected.tokens)
    assert found.usage.prompt_tokens == len(mallang.load(chatbot, "cpu").task.source.encode(TEXTS[1]).ids)
    chunks = list(client.chat.completions.create(model="chatbot", messages=messages, stream=True))
    assert "".join(each.choices[0].delta.content or "" for each in chunks) == expected.output
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")
    varied = client.chat.completions.create(model="chatbot", messages=messages, temperature=0.9, seed=4, n=2)
    samples = mallang.load(chatbot, "cpu").reply(TEXTS[1], method="sampling", temperature=0.9, seed=4, nbest=2)
    assert [each.message.content for each in varied.choices] == [each[0] for each in samples.nbest]
    with pytest.raises(openai.BadRequestError, match="earlier turns"):
        client.chat.completions.create(model="chatbot", messages=messages * 2)
    with pytest.raises(openai.NotFoundError, match="no template of a chat"):
        client.chat.completions.create(model="translator", messages=messages)


def test_embeddings(client: Any, own: Any) -> None:
    vectors = own.embed(TEXTS[:2])
    for format_ in ("float", "base64"):
        found = client.embeddings.create(model="writer", input=TEXTS[:2], encoding_format=format_)
        assert found.usage.prompt_tokens == sum(len(own.tokenizer.encode(text).ids) for text in TEXTS[:2])
        for each, vector in zip(found.data, vectors, strict=True):
            got = each.embedding
            if isinstance(got, str):
                import base64

                import numpy as np

                got = np.frombuffer(base64.b64decode(got), dtype="<f4").tolist()
            assert got == pytest.approx(vector.tolist(), abs=1e-4)
    assert client.embeddings.create(model="writer", input=TEXTS[0]).data[0].embedding == pytest.approx(
        vectors[0].tolist(), abs=1e-4
    )


def test_a_language_model_with_a_template_chats(tmp_path: Path) -> None:
    chat = 'task.chat={system = "{text} ", user = "{text} I ", assistant = "M {text} S"}'
    talker = write_run(tmp_path / "talker", "gpt-miniworld", "model.max_length=64", chat)
    own = mallang.load(talker, "cpu")
    with serving(talker, "--workers", "1") as (found, _), openai_client(found) as client:
        check_chat(client, own)


def check_chat(client: Any, own: Any) -> None:
    """The chat of a language model is the continuation of what its template makes."""
    turns = [("system", "Be kind."), ("user", TEXTS[0]), ("assistant", "네"), ("user", TEXTS[1])]
    messages = [{"role": role, "content": text} for role, text in turns]
    prompt = f"Be kind. {TEXTS[0]} I M 네 S{TEXTS[1]} I M "
    options = {"messages": messages, "model": "talker", "max_tokens": 12}
    expected = own.generate(prompt, method="greedy", max_tokens=12, stop=[" S", "M "])
    found = client.chat.completions.create(**options, temperature=0, logprobs=True, top_logprobs=3)
    (choice,) = found.choices
    assert choice.message.content == expected.output
    assert [each.token for each in choice.logprobs.content] == list(expected.tokens)
    for each in choice.logprobs.content:
        assert len(each.top_logprobs) == 3 and each.top_logprobs[0].logprob == pytest.approx(each.logprob, abs=1e-5)
    chunks = list(client.chat.completions.create(**options, temperature=0, stream=True))
    parts = [each.choices[0].delta.content or "" for each in chunks]
    assert "".join(parts) == expected.output and sum(map(bool, parts)) > 1
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[-1].choices[0].finish_reason in ("stop", "length")
    with pytest.raises(openai.BadRequestError, match="top_logprobs needs logprobs"):
        client.chat.completions.create(**options, top_logprobs=2)


def test_replies_stream_by_tokens_and_stop(client: Any, chatbot: Path) -> None:
    own, messages = mallang.load(chatbot, "cpu"), [{"role": "user", "content": TEXTS[1]}]
    greedy = own.reply(TEXTS[1], method="greedy")
    options = {"model": "chatbot", "messages": messages, "temperature": 0}
    chunks = list(client.chat.completions.create(**options, stream=True, logprobs=True, top_logprobs=2))
    parts = [each.choices[0].delta.content or "" for each in chunks]
    assert "".join(parts) == greedy.output and sum(map(bool, parts)) > 1
    scored = [each for chunk in chunks if chunk.choices[0].logprobs for each in chunk.choices[0].logprobs.content]
    assert [each.token for each in scored] == list(greedy.tokens)
    assert [each.logprob for each in scored] == pytest.approx(list(greedy.token_scores[: len(scored)]), abs=1e-4)
    assert all(each.top_logprobs[0].token == each.token and len(each.top_logprobs) == 2 for each in scored)
    stop = greedy.output[2:4]
    cut = client.chat.completions.create(**options, stop=[stop]).choices[0]
    assert cut.message.content == greedy.output[: greedy.output.find(stop)] and cut.finish_reason == "stop"
    sampled = {"model": "chatbot", "messages": messages, "temperature": 0.9, "seed": 4, "n": 2}
    whole = [each.message.content for each in client.chat.completions.create(**sampled).choices]
    texts = ["", ""]
    for chunk in client.chat.completions.create(**sampled, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == whole  # samples are those of the batched search
    with pytest.raises(openai.BadRequestError, match="stop is not supported for beam"):
        client.chat.completions.create(model="chatbot", messages=messages, stop="a")
