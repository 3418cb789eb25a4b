"""An analyzer that needs no package and knows no Korean: a morpheme ends where a syllable ends in a consonant."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from mallang.text import hangul, morphemes


class Stub:
    """Cuts by rule; also at places where no cut may be made, to see that none is."""

    name = "stub==1"

    def cuts(self, texts: Sequence[str]) -> list[list[int]]:
        closed = [[i + 1 for i, character in enumerate(text) if hangul.has_final(character)] for text in texts]
        return [
            [len(text), *reversed(places), 0, *places, text.find(" ") + 1]
            for text, places in zip(texts, closed, strict=True)
        ]


@pytest.fixture(autouse=True, scope="session")
def analyzer() -> Iterator[Stub]:
    """Every test here has this analyzer; those of Kiwi itself ask for that by name."""
    with pytest.MonkeyPatch.context() as patch:
        stub = Stub()
        patch.setattr(morphemes, "analyzer", lambda: stub)
        yield stub
