"""Runs that search for no output: what a page shows of them is what their verbs say and what their layers do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from inspection.test_highlights import verbs_of
from inspection.test_live import translator, writer
from inspection.test_page import page_of, read_page
from mallang.errors import UserError
from mallang.inspection.forward_pass import pass_of
from mallang.inspection.shown_texts import Wanted, shown_text
from mallang.inspection.shown_vectors import vectors_of
from mallang.layers.attention import record_attention
from mallang.tasks import answerer, chooser, filler, pairs
from tasks import test_masked_lm, test_multiple_choice, test_pairs, test_question_answering


def answering(name: str = "bert") -> Any:
    task = test_question_answering.task_of("cls", "sep")
    return answerer.Verbs(task, test_question_answering.model_of(task, name), None, 0)


def choosing() -> Any:
    task = test_multiple_choice.task_of()
    return chooser.Verbs(task, test_multiple_choice.model_of(task), None, 0)


def pairing() -> Any:
    task = test_pairs.task()
    return pairs.Verbs(task, test_pairs.small(task), None, 0)


def filling() -> Any:
    task = test_masked_lm.task()
    return filler.Verbs(task, test_masked_lm.model_of(task), None, 0)


def test_a_question_shows_its_answer_and_reads_question_and_context() -> None:
    verbs, text = answering(), "w1 w2\tw3 w4 w5 w6"
    found, told = shown_text(verbs, text, Wanted()), verbs.answer("w1 w2", "w3 w4 w5 w6", nbest=10)
    assert found["output"] == told.answer and found["answer"]["start"] == told.start
    assert found["candidates"][0]["shares"] == pytest.approx([each.probability for each in told.nbest])
    assert found["maps"][0]["queries"] == ["<cls>", "▁w1", "▁w2", "<sep>", "▁w3", "▁w4", "▁w5", "▁w6", "<sep>"] or (
        found["maps"][0]["queries"] == ["<cls>", "w1", "w2", "<sep>", "w3", "w4", "w5", "w6", "<sep>"]
    )
    with record_attention(verbs.model) as recorded:
        verbs.answer("w1 w2", "w3 w4 w5 w6")
    for shown in found["maps"]:
        assert shown["weights"] == pytest.approx(recorded[shown["name"]][0].numpy(), abs=1e-6)
    with pytest.raises(UserError, match="reads 2 texts at once"):
        shown_text(verbs, "w1 w2", Wanted())


def test_the_chosen_choice_is_shown() -> None:
    verbs, texts = choosing(), ["w1 w2", "w3", "w4 w5"]
    found, told = shown_text(verbs, "\t".join(texts), Wanted()), verbs.choose(texts[0], texts[1:])
    assert found["output"] == told.choice and found["candidates"][0]["names"] == [name for name, _ in told.nbest]
    with record_attention(verbs.model) as recorded:
        verbs.choose(texts[0], texts[1:])
    for shown in found["maps"]:
        count = len(shown["queries"])
        assert shown["queries"][-2].endswith(told.choice.split()[-1])
        expected = recorded[shown["name"]][told.number, :, :count, :count].numpy()
        assert shown["weights"] == pytest.approx(expected, abs=1e-6)


def test_a_pair_is_read_in_one_row_and_classified() -> None:
    verbs = pairing()
    found, told = shown_text(verbs, "a b\tc", Wanted()), verbs.classify(("a b", "c"))
    assert found["output"] == told.label and found["labels"]["probabilities"] == list(told.probabilities.values())
    assert [token.strip("▁") for token in found["maps"][0]["keys"]] == ["<cls>", "a", "b", "<sep>", "c", "<sep>"]
    assert [each["name"] for each in found["numbers"]] == [each["name"] for each in found["maps"]]


def test_gaps_are_filled_and_attended_from() -> None:
    verbs, text = filling(), "the man went to [MASK] store [MASK]"
    found, told = shown_text(verbs, text, Wanted()), verbs.fill(text, count=10)
    assert found["output"] == str(told) and len(found["candidates"]) == 3
    assert found["candidates"][0]["shares"] == pytest.approx([each.probability for each in told.gaps[0]])
    assert found["maps"][0]["keys"].count("<mask>") == 2
    assert "candidates" not in shown_text(verbs, "the man", Wanted())


def test_an_encoder_without_attention_has_gates_and_no_maps() -> None:
    found = shown_text(answering("rnn_tagger"), "w1 w2\tw3 w4", Wanted())
    assert "maps" not in found and len(found["gates"][0]["tokens"]) == len(found["gates"][0]["means"]["h"])
    with pytest.raises(UserError, match="no attention between tokens") as caught:
        shown_text(answering("rnn_tagger"), "w1 w2\tw3 w4", Wanted(numbers=True))
    assert "leave out --numbers" in str(caught.value)


def test_documents_have_highlights_and_no_row_of_tokens() -> None:
    verbs = verbs_of("han")
    assert pass_of(verbs, "유나는 배를 탔다. 책을 읽는다!") is None
    assert "highlights" in shown_text(verbs, "유나는 배를 탔다. 책을 읽는다!", Wanted())


@pytest.mark.parametrize("start", [0, 100, 9999])
def test_long_texts_are_shown_in_a_window(start: int) -> None:
    verbs = writer("char", max_length=400)
    text = " ".join(["유나는 배를 탔다."] * 30)[:280]
    found = shown_text(verbs, text, Wanted(start=start, search={"method": "greedy", "max_length": 2}))
    whole = weights_of(verbs, text)
    of = found["window"]["of"]
    begin = min(start, of - 1)
    assert found["window"] == {"start": begin, "size": 128, "of": of}
    for shown in found["maps"]:
        part = slice(begin, begin + 128)
        assert shown["weights"] == pytest.approx(whole[shown["name"]][:, part, part].numpy(), abs=1e-6)
        assert len(shown["queries"]) == len(shown["keys"]) == shown["weights"].shape[1] == min(128, of - begin)
    assert len(found["words"]["read"]["owners"]) == min(128, of - begin)
    assert len(found["next"]["labels"]) == of  # surprisal is shown of the whole text


def weights_of(verbs: Any, text: str) -> dict[str, torch.Tensor]:
    from mallang.inspection.shown_texts import read_text

    reading = read_text(verbs, text, method="greedy", max_length=2)
    assert reading is not None
    return {name: each.weights for name, each in reading.maps().items()}


def test_numbers_of_large_layers_are_shown_when_they_are_asked_for() -> None:
    verbs, text = translator(dim=512, heads=8, hidden_dim=16), "유나는 배를 탔다."
    few, all_ = (shown_text(verbs, text, Wanted(numbers=asked)) for asked in (False, True))
    assert len(few.get("numbers", [])) < len(all_["numbers"]) == 6
    (only,) = shown_text(verbs, text, Wanted(numbers=True, layers=("decoder.1.self",)))["numbers"]
    assert only["name"] == "decoder.1.self"


def test_neighbors_of_words_are_nearest_by_cosine() -> None:
    verbs, texts = filling(), ["the dog runs .", "the cat sleeps .", "my dog is hairy"]
    found = vectors_of(verbs, texts)
    assert found is not None and found["words"].count("dog") == 2 and "." not in found["words"]
    from mallang.tasks.occurrences import Contexts

    words = [each for row in Contexts(verbs).occurrences(texts) for each in row if each.word.text != "."]
    for number, layer in enumerate(found["layers"]):
        rows = torch.stack([torch.from_numpy(each.layers[number]) for each in words]).double()
        cosines = torch.cosine_similarity(rows[:, None], rows[None], dim=-1).fill_diagonal_(-2)
        for place, (near, values) in enumerate(zip(layer["neighbors"], layer["cosines"], strict=True)):
            expected = cosines[place].sort(descending=True).values[: len(near)]
            assert values == pytest.approx(expected.numpy(), abs=1e-5) and place not in near
        assert layer["points"].shape == (len(words), 2)
    assert vectors_of(verbs, ["the dog"]) is None and vectors_of(translator(), texts[:1]) is None


def test_pages_of_all_these_can_be_written(tmp_path: Any) -> None:
    made = [(answering(), "w1\tw2 w3"), (choosing(), "w1\tw2\tw3"), (pairing(), "a\tb"), (filling(), "the [MASK]")]
    texts = [shown_text(verbs, text, Wanted()) for verbs, text in made]
    found = read_page(page_of(tmp_path / "a.html", *texts))["runs"][0]["texts"]
    assert [each["output"] for each in found] == [each["output"] for each in texts]
