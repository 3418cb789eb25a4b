"""Results as markup: what a notebook shows of scores, semantic roles and coreference; text is escaped."""

from __future__ import annotations

from mallang.tasks.resolver import MentionSpan, Resolution
from mallang.tasks.role_labeler import Proposition, RoleLabeling, RoleSpan
from mallang.tasks.surprisal import Scored
from mallang.tasks.translator import Scored as Pair

NASTY = "<b>Yuna"


def test_scores_show_the_surprisal_of_every_token() -> None:
    for found in (
        Scored(NASTY, -2.0, (NASTY, "</s>"), (-1.5, -0.5)),
        Pair("a", NASTY, -2.0, (NASTY, "</s>"), (-1.5, -0.5)),
    ):
        markup = found._repr_html_()
        assert "2.16 bits" in markup and "0.72 bits" in markup and "-2.0000" in markup  # 1.5 / ln 2, 0.5 / ln 2
        assert "&lt;b&gt;Yuna" in markup and "<b>Yuna" not in markup and "&lt;/s&gt;" in markup


def test_roles_show_arguments_with_their_confidence() -> None:
    arguments = (RoleSpan("AGENT", NASTY, 0, 7, 0, 0, 0.75),)
    one = Proposition("took", "take", 1, 8, 12, 0.9, ("AGENT", "V"), arguments)
    markup = RoleLabeling(f"{NASTY} took", (NASTY, "took"), ((0, 7), (8, 12)), (one,), False)._repr_html_()
    assert "took" in markup and "AGENT · &lt;b&gt;Yuna" in markup and "0.7500" in markup and "<b>Yuna" not in markup


def test_coreference_shows_its_clusters() -> None:
    spans = (MentionSpan(NASTY, 0, 7, (0, 0)), MentionSpan("she", 8, 11, (1, 1)))
    markup = Resolution(f"{NASTY} she", (NASTY, "she"), ((0, 7), (8, 11)), (spans,))._repr_html_()
    assert "&lt;b&gt;Yuna = she" in markup and "[&lt;b&gt;Yuna]1 [she]1" in markup
    assert "the same" not in Resolution("a", ("a",), ((0, 1),), ())._repr_html_()
