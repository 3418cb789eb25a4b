"""Models in ONNX Runtime say what ours say. An export takes seconds, so each is used for all that it can show."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from interop.conftest import TEXTS
from mallang.data import miniworld
from mallang.errors import UserError
from mallang.interop.onnx import Reader, Writer, write
from mallang.tasks.translator import Verbs

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
SHAPES: dict[str, dict[str, Any]] = {
    "as-in-the-paper": {},
    "all-else": {
        "norm": "pre", "activation": "gelu", "positions": "learned", "max_length": 40, "tie_weights": "none",
        "layers": 1, "key_dim": 3, "value_dim": 5, "window": 2,
    },
    "tricks-off": {"norm": "none", "positions": "none"},
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_parts_that_are_exported_are_the_model(shape: dict[str, Any], make: Callable[..., Verbs]) -> None:
    ours = make(**shape)
    batch = prepared(ours)
    with torch.no_grad():
        wanted = ours.model.output(ours.model(batch))
        real, *memory = Reader(ours.model)(batch.source, batch.source_lengths)
        nothing = [tensor[:, :, :0] for tensor in memory]
        logits, *past = Writer(ours.model)(batch.tokens[:, :2], real, memory, nothing)
        more, *_ = Writer(ours.model)(batch.tokens[:, 2:], real, memory, past)
    torch.testing.assert_close(torch.cat([logits, more], dim=1)[batch.mask], wanted[batch.mask], atol=1e-5, rtol=1e-5)


def test_every_option_at_once_gives_our_logits_and_outputs(
    make: Callable[..., Verbs], script: Any, tmp_path: Path
) -> None:
    ours = make(("bpe", "jamo"), ("bible",), **SHAPES["all-else"])
    was_training = ours.model.train().training
    write(ours, tmp_path / "out")
    assert ours.model.training == was_training
    ours.model.eval()
    theirs = script(tmp_path / "out")
    for domain in (None, "bible"):
        assert theirs.translate(TEXTS, domain) == [str(result) for result in ours.translate(TEXTS, domain=domain)]
    assert theirs.translate([]) == []
    with pytest.raises(ValueError, match="tokens, the model reads 40: split it"):
        theirs.translate(["물" * 60])
    with pytest.raises(ValueError, match="there is no domain 'news'; known: bible"):
        theirs.translate(TEXTS, "news")
    for rows in (slice(0, 1), slice(0, 6)):  # one sentence, and several
        batch = prepared(ours, rows)
        wanted = ours.model.output(ours.model(batch)).detach().numpy()
        assert logits_of(theirs, batch)[batch.mask.numpy()] == pytest.approx(wanted[batch.mask.numpy()], abs=1e-4)


def test_greedy_outputs_are_ours_on_200_sentences(learned: Verbs, script: Any, tmp_path: Path) -> None:
    texts = [korean for korean, _ in miniworld.rows("test")[:200]]
    wanted = [str(result) for result in learned.translate(texts)]
    assert len(set(wanted)) > 100, "a model that says the same everywhere would prove nothing"
    write(learned, tmp_path / "out")
    assert script(tmp_path / "out").translate(texts) == wanted
    assert "pip install onnxruntime tokenizers numpy" in (tmp_path / "out" / "README.md").read_text("utf-8")
    with pytest.raises(UserError, match="is there already"):
        write(learned, tmp_path / "out")


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_is_told_with_its_install_line(
    package: str, make: Callable[..., Verbs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=package) as told:
        write(make(), tmp_path / "out")
    assert told.value.todo == "pip install -e '.[export]'"


def prepared(ours: Verbs, rows: slice = slice(None)) -> Any:
    """Some texts, and others as what is said of them."""
    texts = [text for text in TEXTS if text.strip()]
    sources = ours.task.source.encode_batch(texts)[rows]
    targets = ours.task.target.encode_batch(texts[::-1])[rows]
    pairs = [((source, target),) for source, target in zip(sources, targets, strict=True)]
    return ours.task.prepare(pairs, np.random.default_rng(0))


def logits_of(theirs: Any, batch: Any) -> Any:
    """The logits of given tokens, read one by one."""
    given = {"source": batch.source.numpy(), "lengths": batch.source_lengths.numpy()}
    found = theirs.encoder.run(None, given)
    memory = dict(zip([output.name for output in theirs.encoder.get_outputs()], found, strict=True))
    past = {name.replace("memory", "past"): value[:, :, :0] for name, value in memory.items() if name != "mask"}
    said = []
    for column in batch.tokens.numpy().T:
        logits, *grown = theirs.step.run(None, {"tokens": column[:, None], **memory, **past})
        past = dict(zip(past, grown, strict=True))
        said.append(logits)
    return np.concatenate(said, axis=1)
