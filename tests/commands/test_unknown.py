"""What a note about unknown tokens counts, and where one is given."""

from commands.running import mallang
from mallang.commands.options import note_unknown
from mallang.text.tokenizer import Config, Tokenizer


def test_unknown_words_are_counted_but_not_those_that_a_corpus_spells_unk(capsys):
    tokenizer = Tokenizer.train(["the <unk> cat sat"] * 3, Config(unit="space", vocabulary=20))
    note_unknown("ptb", ["the <unk> cat"], tokenizer)
    assert capsys.readouterr().err == ""
    note_unknown("ptb", ["the <unk> cat", "the cow <unk>"], tokenizer)
    assert "ptb: 1 of 6 tokens are unknown" in (told := capsys.readouterr().err)
    assert "'cow'" in told


def test_translate_and_score_tell_of_unknown_words(trained):
    for verb in (("translate", trained, "😀"), ("score", trained, "😀", "😀")):
        ended = mallang(*verb, cwd=trained.parent)
        assert ended.code == 0
        assert "unknown to the model, and read as <unk>: '😀'" in ended.err
        assert mallang(*verb, "--quiet", cwd=trained.parent).err == ""
