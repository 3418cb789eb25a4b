"""Every model has a family, and so a color."""

from mallang import find, recipe
from mallang.inspection.families import COLORS, MEMBERS, family_of


def test_every_model_and_recipe_has_a_family():
    names = [*find.names("models"), *recipe.names()]
    assert [name for name in names if family_of(name) == "other"] == []
    assert set(MEMBERS.values()) | {"other"} == set(COLORS)


def test_the_longest_beginning_decides():
    assert family_of("modern-gpt-ptb") == family_of("gpt") == "Transformer"
    assert family_of("convs2s-multi30k") == "feed-forward and convolution"
    assert family_of("char-aware-large-ptb") == family_of("awd_lstm") == "recurrent"
    assert family_of("mine") == "other"
