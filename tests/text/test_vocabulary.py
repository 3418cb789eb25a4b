from mallang.text.vocabulary import SPECIALS, UNK, Vocabulary


def test_tokens_have_the_ids_of_their_places() -> None:
    vocabulary = Vocabulary((*SPECIALS, "가", "나"))
    assert len(vocabulary) == 6
    assert [vocabulary.id(token) for token in vocabulary.tokens] == list(range(6))
    assert vocabulary.id("다") == UNK
    assert vocabulary.specials == {0, 1, 2, 3}


def test_an_import_keeps_its_own_special_ids() -> None:
    vocabulary = Vocabulary(("a", "[PAD]", "[UNK]", "[CLS]", "[SEP]"), pad=1, unk=2, bos=3, eos=4)
    assert vocabulary.id("b") == 2
    assert vocabulary.specials == {1, 2, 3, 4}
