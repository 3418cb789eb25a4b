"""What a note about unknown tokens counts."""

from mallang.commands.options import note_unknown
from mallang.text.tokenizer import Config, Tokenizer


def test_unknown_words_are_counted_but_not_those_that_a_corpus_spells_unk(capsys):
    tokenizer = Tokenizer.train(["the <unk> cat sat"] * 3, Config(unit="space", vocabulary=20))
    note_unknown("ptb", ["the <unk> cat"], tokenizer)
    assert capsys.readouterr().err == ""
    note_unknown("ptb", ["the <unk> cat", "the cow <unk>"], tokenizer)
    assert "ptb: 1 of 6 tokens are unknown" in (told := capsys.readouterr().err)
    assert "'cow'" in told
