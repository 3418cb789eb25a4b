"""A masked language model that only knows how frequent tokens are is told so, from its second validation on."""

from __future__ import annotations

from pathlib import Path

import pytest

from mallang.recipe import read
from mallang.training.diagnosis import note_of_frequencies
from mallang.training.train import Options, train

LINES = ["the man went to the store .", "my dog is very hairy .", "it sleeps all day long ."]


def test_the_note_is_about_masked_tokens_alone() -> None:
    assert "6.95, is that of the frequencies of tokens alone, 6.91" in note_of_frequencies(
        {"mlm": 6.95, "unigram": 6.91}
    )
    assert note_of_frequencies({"mlm": 6.85, "unigram": 6.91}), "no better than rounding"
    assert not note_of_frequencies({"mlm": 6.0, "unigram": 6.91})
    assert not note_of_frequencies({"loss": 7.0}) and not note_of_frequencies({"mlm": 7.0})


@pytest.mark.parametrize(("rate", "steps"), [("1e-9", 6), ("0.01", 120)])
def test_it_is_said_after_the_second_validation_where_nothing_is_learned(
    rate: str, steps: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "some.txt"
    path.write_text("\n".join(LINES * 30) + "\n", "utf-8")
    values = [
        f"data.train={path}", f"data.valid={path}", "task.name=masked_lm", "task.length=16", "text.unit=space",
        "text.vocabulary=60", "model.layers=1", "model.dim=32", "model.heads=2", "model.max_length=16",
        "model.dropout=0", "model.attention_dropout=0", "model.pretraining_heads=masked-lm", f"train.steps={steps}",
        f"train.validate_every={steps // 3}", "train.batch_tokens=256", f"optimizer.learning_rate={rate}",
        "schedule.warmup=2",
    ]  # fmt: skip
    train(read("bert", values).build(), Options(folder=tmp_path / "run", device="cpu"))
    said = capsys.readouterr()
    lines = (said.out + said.err).splitlines()
    notes = [place for place, line in enumerate(lines) if "of the frequencies of tokens alone" in line]
    validations = [place for place, line in enumerate(lines) if "validation: " in line]
    assert len(validations) == 3
    assert notes == ([validations[1] + 1, validations[2] + 1] if steps == 6 else [])
