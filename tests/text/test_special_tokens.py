"""Special tokens by name: a text never spells one, a file keeps them, and an import has them where it had them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers

from mallang.data.corpus import Rows
from mallang.errors import UserError
from mallang.recipe import read
from mallang.tasks import classification
from mallang.text.pieces import Unit
from mallang.text.tokenizer import Config, Tokenizer
from mallang.text.vocabulary import OPTIONAL, SPECIALS, Vocabulary
from mallang.training.materials import check_special, learn_tokenizers

UNITS: tuple[Unit, ...] = get_args(Unit)
LINES = ["my dog is hairy .", "나는 학교에서 사과를 먹었다 .", "the [MASK] and <mask> and <cls> [CLS] <s> ."] * 20
SPELLED = ("<mask>", "<cls>", "<sep>", "[MASK]", "[CLS]", "[SEP]", "<s>", "</s>", "<pad>")
MARKS = ("mask", "cls", "sep")


def trained(unit: Unit, special: tuple[str, ...] = MARKS, lines: list[str] = LINES) -> Tokenizer:
    return Tokenizer.train(lines, Config(unit=unit, vocabulary=400), special=special)


@pytest.mark.parametrize("unit", UNITS)
def test_the_usual_four_stay_at_their_places_and_the_others_are_added(unit: Unit) -> None:
    plain, marked = trained(unit, (), LINES[:2]), trained(unit, MARKS, LINES[:2])
    vocabulary = marked.vocabulary
    assert [vocabulary.special(name) for name in ("pad", "unk", "bos", "eos")] == [0, 1, 2, 3]
    assert vocabulary.tokens == (*plain.vocabulary.tokens, *(OPTIONAL[name] for name in MARKS))
    assert (vocabulary.mask, vocabulary.cls, vocabulary.sep) == tuple(vocabulary.id(f"<{name}>") for name in MARKS)
    assert vocabulary.specials == {0, 1, 2, 3, vocabulary.mask, vocabulary.cls, vocabulary.sep}
    assert not marked.domains
    for text in LINES[:2]:
        assert marked.encode(text).ids == plain.encode(text).ids


@pytest.mark.parametrize("unit", UNITS)
@settings(deadline=None, max_examples=40)
@given(st.lists(st.one_of(st.sampled_from(SPELLED), st.text(max_size=5), st.just(" ")), max_size=8).map("".join))
def test_no_text_spells_one(unit: Unit, text: str) -> None:
    tokenizer = trained(unit)
    hidden = tokenizer.vocabulary.specials - {tokenizer.vocabulary.unk}
    for ids in (tokenizer.encode(text).ids, tokenizer.encode_batch([text])[0]):
        assert hidden.isdisjoint(ids)


@pytest.mark.parametrize("unit", UNITS)
def test_a_marked_text_has_each_as_one_token(unit: Unit) -> None:
    tokenizer = trained(unit)
    vocabulary, encode = tokenizer.vocabulary, lambda text: tokenizer.encode(text).ids
    found = tokenizer.encode_marked("<cls>my dog is <mask> .<sep>나는 <mask><mask>")
    mask = vocabulary.mask
    assert found == [
        vocabulary.cls, *encode("my dog is"), mask, *encode("."), vocabulary.sep, *encode("나는"), mask, mask,
    ]  # fmt: skip
    assert tokenizer.encode_marked("my dog <s>") == encode("my dog <s>")  # only those that a task has asked for
    assert trained(unit, ()).encode_marked("<mask>") == trained(unit, ()).encode("<mask>").ids


@pytest.mark.parametrize("unit", UNITS)
def test_they_are_left_out_of_decoded_text(unit: Unit) -> None:
    tokenizer = trained(unit)
    ids = tokenizer.encode("my dog .").ids
    marks = [tokenizer.vocabulary.special(name) for name in MARKS]
    assert tokenizer.decode([marks[1], *ids, marks[2], marks[0]]) == tokenizer.decode(ids)


@pytest.mark.parametrize("unit", UNITS)
def test_files_keep_them(unit: Unit, tmp_path: Path) -> None:
    tokenizer = trained(unit, ("sep", "mask"))
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.vocabulary == tokenizer.vocabulary and again.fingerprint == tokenizer.fingerprint
    assert json.loads((tmp_path / "text.json").read_text())["special"] == {"sep": "<sep>", "mask": "<mask>"}
    assert again.encode_marked("a <mask>")[-1] == tokenizer.vocabulary.mask
    assert tokenizer.vocabulary.mask not in again.encode("a <mask>").ids
    with pytest.raises(UserError, match="no special token 'cls'; it has pad, unk, bos, eos, sep, mask"):
        _ = again.vocabulary.cls


def test_a_tokenizer_without_them_is_as_before() -> None:
    tokenizer = trained("bpe", ())
    assert "special" not in json.loads(tokenizer.files[1])
    for name in MARKS:
        with pytest.raises(UserError, match=f"no special token '{name}'; it has pad, unk, bos, eos\n"):
            getattr(tokenizer.vocabulary, name)


def test_tags_of_domains_stand_beside_them() -> None:
    tokenizer = Tokenizer.train(LINES, Config(vocabulary=400), ["law", "news"], ["mask"])
    assert list(tokenizer.domains) == ["law", "news"] and tokenizer.vocabulary.mask not in tokenizer.domains.values()
    with pytest.raises(UserError, match="name of a special token: <mask>"):
        Tokenizer.train(LINES, Config(vocabulary=400), ["mask"])


BERT = ("[PAD]", "the", "[UNK]", "dog", "##s", "[CLS]", "[SEP]", "[MASK]", ".")
THEIRS = {
    "pad": "[PAD]", "unk": "[UNK]", "bos": "[CLS]", "eos": "[SEP]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]",
}  # fmt: skip


def imported(special: Any) -> Tokenizer:
    """A tokenizer as BERT has it, and what is known of it."""
    vocabulary = {token: number for number, token in enumerate(BERT)}
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece("##")
    backend.add_special_tokens([token for token in BERT if token.startswith("[")])
    ours = json.loads(trained("wordpiece", ()).files[1])
    return Tokenizer(backend.to_str(), json.dumps({**ours, "special": special}))


def test_an_imported_one_keeps_its_ids() -> None:
    tokenizer = imported(THEIRS)
    vocabulary = tokenizer.vocabulary
    assert vocabulary.tokens == BERT
    assert {name: BERT[vocabulary.special(name)] for name in THEIRS} == THEIRS
    assert vocabulary.unk == 2 and vocabulary.id("cat") == 2
    encoding = tokenizer.encode("the dogs [MASK] .")
    assert encoding.ids[:3] == [1, 3, 4] and vocabulary.mask not in encoding.ids
    assert encoding.unknown_in("the dogs [MASK] .") == ["[", "MASK", "]"]
    assert tokenizer.encode_marked("the [MASK] .") == [1, 7, 8]
    assert tokenizer.decode([5, 1, 3, 4, 8, 6]) == "the dogs." and not tokenizer.domains


@pytest.mark.parametrize(
    ("special", "says"),
    [
        ({**THEIRS, "mask": "<mask>"}, "no special token '<mask>' for mask"),
        ({**THEIRS, "begin": "[CLS]"}, "for begin"),
        ({"mask": "[MASK]"}, "the first tokens are not <pad>"),
        ([1], "not named"),
        ({"mask": 3}, "not named"),
    ],
)
def test_names_that_do_not_fit_the_file_are_damage(special: Any, says: str) -> None:
    with pytest.raises(UserError, match=f"the tokenizer is damaged: .*{says}"):
        imported(special)


def test_a_vocabulary_by_hand_is_as_before() -> None:
    vocabulary = Vocabulary((*SPECIALS, "a"))
    assert vocabulary.optional == () and vocabulary.specials == {0, 1, 2, 3}
    assert hash(vocabulary) == hash(Vocabulary((*SPECIALS, "a")))


class Masking(classification.Task):
    """A task that hides words."""

    @classmethod
    def special_tokens(cls, config: Any) -> tuple[str, ...]:
        """The mask alone."""
        return ("mask",)


def test_a_task_says_which_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = read("bag-of-means", ["text.vocabulary=100"]).build()
    rows = Rows.of([(line, "x") for line in LINES], ("text", "label"))
    plain = learn_tokenizers(recipe, rows, ("text", "label"), {"label": "label"})
    check_special(recipe, plain, None)
    monkeypatch.setattr(classification, "Task", Masking)
    found = learn_tokenizers(recipe, rows, ("text", "label"), {"label": "label"})
    assert dict(found["text"].vocabulary.optional) == {"mask": found["text"].vocabulary.id("<mask>")}
    check_special(recipe, found, Path("runs/x"))
    with pytest.raises(UserError, match="classification needs the special token 'mask', which .* of runs/x does not"):
        check_special(recipe, plain, Path("runs/x"))
