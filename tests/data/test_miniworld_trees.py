"""The parse trees of miniworld: over the words of the sentence, one a sentence, and of few kinds of phrases."""

from __future__ import annotations

import hashlib

import pytest

from mallang.data import miniworld
from mallang.data.corpus import Config, open_corpus
from mallang.data.miniworld_trees import LEAF, VERSION, Tree, tree_of
from mallang.errors import UserError

LANGUAGES = ("ko", "en")
TREES = {
    "Minsu ate an apple.": "(S (NP Minsu) (VP ate (NP an apple.)))",
    "Yesterday, Sujin drank two glasses of water.": (
        "(S (NP Yesterday,) (NP Sujin) (VP drank (NP (NP two glasses) (PP of (NP water.)))))"
    ),
    "The children will go to Busan by train tomorrow.": (
        "(S (NP The children) (VP will (VP go (PP to (NP Busan)) (PP by (NP train)) (NP tomorrow.))))"
    ),
    "They do not like coffee.": "(S (NP They) (VP do not (VP like (NP coffee.))))",
    "Minsu and Jiyeong bought bread and cake.": (
        "(S (NP (NP Minsu) and (NP Jiyeong)) (VP bought (NP (NP bread) and (NP cake.))))"
    ),
    "There is no cat in the room.": "(S (NP There) (VP is (NP no cat) (PP in (NP the room.))))",
    "The teacher's stomach hurts.": "(S (NP (NP The teacher's) stomach) (VP hurts.))",
    "My stomach hurts.": "(S (NP My stomach) (VP hurts.))",
    "Eunji has long legs.": "(S (NP Eunji) (VP has (NP long legs.)))",
    "Minsu accepted Jiyeong's apology.": "(S (NP Minsu) (VP accepted (NP (NP Jiyeong's) apology.)))",
    "The teacher wants to listen to music.": (
        "(S (NP The teacher) (VP wants (S (VP to (VP listen (PP to (NP music.)))))))"
    ),
    "Minsu often goes home.": "(S (NP Minsu) (ADVP often) (VP goes (ADVP home.)))",
    "Minsu does not often go to school.": ("(S (NP Minsu) (VP does not (ADVP often) (VP go (PP to (NP school.)))))"),
    "Is she a singer?": "(SQ Is (NP she) (NP a singer?))",
    "What did you listen to yesterday?": ("(SBARQ (WHNP What) (SQ did (NP you) (VP listen (PP to) (NP yesterday?))))"),
    "Who opened the window?": "(SBARQ (WHNP Who) (SQ (VP opened (NP the window?))))",
    "Who is sleeping now?": "(SBARQ (WHNP Who) (SQ (VP is (VP sleeping (ADVP now?)))))",
    "When will Seongmin go to Seoul?": "(SBARQ (WHADVP When) (SQ will (NP Seongmin) (VP go (PP to (NP Seoul?)))))",
    "Minsu was hungry, so he ate bread.": (
        "(S (S (NP Minsu) (VP was (ADJP hungry,))) so (S (NP he) (VP ate (NP bread.))))"
    ),
    "민수는 사과를 먹었다.": "(S (NP 민수는) (VP (NP 사과를) 먹었다.))",
    "어제 수진은 물 두 잔을 마셨다.": "(S (NP 어제) (NP 수진은) (VP (NP (NP 물) (QP 두 잔을)) 마셨다.))",
    "민수는 자주 학교에 간다.": "(S (NP 민수는) (VP (ADVP 자주) (NP 학교에) 간다.))",
    "민수와 지영은 빵과 케이크를 샀다.": "(S (NP (NP 민수와) (NP 지영은)) (VP (NP (NP 빵과) (NP 케이크를)) 샀다.))",
    "방에 고양이가 없다.": "(S (NP 방에) (NP 고양이가) (VP 없다.))",
    "어제 서울에 눈이 왔다.": "(S (NP 어제) (NP 서울에) (NP 눈이) (VP 왔다.))",
    "책상 위에 새 책 한 권이 있다.": "(S (NP (NP 책상) 위에) (NP (NP 새 책) (QP 한 권이)) (VP 있다.))",
    "지훈은 수영할 수 없다.": "(S (NP 지훈은) (VP (NP (VP 수영할) 수) 없다.))",
    "선생님은 음악을 듣고 싶어 하신다.": "(S (NP 선생님은) (VP (VP (VP (NP 음악을) 듣고) 싶어) 하신다.))",
    "민수는 지영의 사과를 받아들였다.": "(S (NP 민수는) (VP (NP (NP 지영의) 사과를) 받아들였다.))",
    "그녀는 가수니?": "(S (NP 그녀는) (VP 가수니?))",
    "민수는 배가 고파서 빵을 먹었다.": "(S (S (NP 민수는) (VP (NP 배가) 고파서)) (S (VP (NP 빵을) 먹었다.)))",
}
LABELS = {
    "ko": {"S", "NP", "VP", "QP", "ADVP"},
    "en": {"S", "SQ", "SBARQ", "NP", "VP", "PP", "ADVP", "ADJP", "WHNP", "WHADVP"},
}


@pytest.mark.parametrize("text", TREES)
def test_trees_by_hand(text: str) -> None:
    language = "en" if text.isascii() else "ko"
    scene = miniworld.parse(text, language)
    assert scene is not None
    assert str(tree_of(scene, language)) == TREES[text]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_tree_stands_over_its_sentence(language: str) -> None:
    for scene in miniworld.scenes("valid"):
        tree = tree_of(scene, language)
        assert tree.leaves == (scene.korean if language == "ko" else scene.english).split(" ")
        assert labels(tree) <= LABELS[language]
        assert all(each.children for each in phrases(tree))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_sentence_read_back_has_the_tree_it_was_written_with(language: str) -> None:
    for scene in miniworld.scenes("valid")[::8]:
        tree = tree_of(scene, language)
        read = miniworld.parse(" ".join(tree.leaves), language)
        assert read is not None and tree_of(read, language) == tree


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_linear_tree_has_a_leaf_a_word_and_brackets_that_fit(language: str) -> None:
    for text, line in zip(miniworld.text("test", language), miniworld.trees("test", language), strict=True):
        tokens = line.split(" ")
        assert tokens.count(LEAF) == len(text.split(" "))
        opened: list[str] = []
        for token in tokens:
            if token.startswith("("):
                opened.append(token[1:])
            elif token.startswith(")"):
                assert opened.pop() == token[1:]
        assert not opened


def test_the_linear_form_is_that_of_the_paper() -> None:
    scene = miniworld.parse("Minsu ate an apple.", "en")
    assert scene is not None
    assert tree_of(scene, "en").linear == "(S (NP XX )NP (VP XX (NP XX XX )NP )VP )S"


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_linear_tree_with_words_is_the_sentence_between_the_same_brackets(language: str) -> None:
    bare, full = (miniworld.trees("valid", language, words=words) for words in (False, True))
    for text, without, line in zip(miniworld.text("valid", language), bare, full, strict=True):
        tokens = line.split(" ")
        assert [token for token in tokens if token[0] not in "()"] == text.split(" ")
        assert " ".join(token if token[0] in "()" else LEAF for token in tokens) == without
    rows = open_corpus(Config(source=language, target=f"{language}-tree-words"), ("source", "target")).split("valid")
    assert [row[1] for row in rows] == full


def test_trees_are_frozen() -> None:
    """Whoever changes a tree changes their VERSION, by which prepared text is told apart, and then this sum."""
    lines = "\n".join(line for language in LANGUAGES for line in miniworld.trees("test", language))
    assert (VERSION, hashlib.sha256(lines.encode()).hexdigest()[:16]) == (1, "7e788e0fe2a91cbc")


def test_trees_are_columns_of_the_corpus() -> None:
    rows = open_corpus(Config(source="en", target="en-tree"), ("source", "target")).split("test")
    assert list(rows) == list(zip(miniworld.text("test", "en"), miniworld.trees("test", "en"), strict=True))
    korean = open_corpus(Config(source="ko-tree", target="ko"), ("source", "target")).split("test")
    assert next(iter(korean)) == (miniworld.trees("test", "ko")[0], miniworld.text("test", "ko")[0])
    plain = open_corpus(Config(), ("source", "target")).split("test")
    assert len({rows.fingerprint, korean.fingerprint, plain.fingerprint}) == 3
    assert open_corpus(Config(), ()).split("test").columns == ("ko", "en")


def test_unknown_languages_and_columns_are_named() -> None:
    with pytest.raises(UserError, match="does not speak 'de'"):
        miniworld.trees("test", "de")
    with pytest.raises(UserError, match="no column .en-trees. for the target"):
        open_corpus(Config(source="en", target="en-trees"), ("source", "target"))


def phrases(tree: Tree) -> list[Tree]:
    """A tree and all trees in it."""
    return [tree, *(found for child in tree.children if isinstance(child, Tree) for found in phrases(child))]


def labels(tree: Tree) -> set[str]:
    return {each.label for each in phrases(tree)}
