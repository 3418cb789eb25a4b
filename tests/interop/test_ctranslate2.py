"""Models in CTranslate2 say what ours say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from interop.conftest import SHAPES, TEXTS
from mallang.data import miniworld
from mallang.errors import UserError
from mallang.interop.ctranslate2 import write
from mallang.interop.positions import POSITIONS
from mallang.layers.quantization import quantize
from mallang.tasks.translator import Verbs
from mallang.text.tokenizer_files import names

library = pytest.importorskip("ctranslate2")
FLOAT = {"compute_type": "float32", "inter_threads": 1, "intra_threads": 1}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_shape_gives_our_probabilities_and_outputs(
    shape: dict[str, Any], make: Callable[..., Verbs], script: Any, tmp_path: Path
) -> None:
    ours = make(**shape)
    write(ours, tmp_path / "out")
    theirs = script(tmp_path / "out", **FLOAT)
    assert theirs.translate(TEXTS) == [str(result) for result in ours.translate(TEXTS)]
    pairs = [(text, other) for text in TEXTS for other in TEXTS[::3] if text.strip() and other.strip()]
    spelled = names(ours.task.source.backend)
    sources, targets = (
        [[spelled[number] for number in row] for row in ours.task.source.encode_batch([pair[side] for pair in pairs])]
        for side in (0, 1)
    )
    for wanted, found in zip(ours.score(pairs), theirs.model.score_batch(sources, targets), strict=True):
        assert found.log_probs == pytest.approx(wanted.token_scores, abs=1e-4)


@pytest.mark.parametrize("units", [("bpe", "jamo"), ("byte-bpe", "wordpiece"), ("syllable", "unigram")], ids=str)
def test_each_side_may_have_its_own_tokenizer(
    units: tuple[str, str], make: Callable[..., Verbs], script: Any, tmp_path: Path
) -> None:
    ours = make(units, tie_weights="target")
    write(ours, tmp_path / "out")
    assert not (tmp_path / "out" / "tokenizer.json").exists()
    assert script(tmp_path / "out", **FLOAT).translate(TEXTS) == [str(result) for result in ours.translate(TEXTS)]


def test_learned_positions_bound_both_sides(make: Callable[..., Verbs], script: Any, tmp_path: Path) -> None:
    ours = make(positions="learned", max_length=20)
    ours.config = replace(ours.config, max_length=60, max_ratio=3.0)
    write(ours, tmp_path / "out")
    theirs, short = script(tmp_path / "out", **FLOAT), [text for text in TEXTS if len(text) < 19]
    wanted = [str(result) for result in ours.translate(short)]
    assert max(map(len, wanted)) == 20
    assert theirs.translate(short) == wanted
    assert theirs.translate([]) == []
    with pytest.raises(ValueError, match="a text has 21 tokens, the model reads 20"):
        theirs.translate(["물" * 20])


def test_a_domain_can_be_asked_for(make: Callable[..., Verbs], script: Any, tmp_path: Path) -> None:
    ours = make(domains=("bible", "help"))
    write(ours, tmp_path / "out")
    theirs = script(tmp_path / "out", **FLOAT)
    outputs = {name: [str(each) for each in ours.translate(TEXTS, domain=name)] for name in (None, "bible", "help")}
    assert outputs["bible"] != outputs[None] != outputs["help"], "a tag must change something for this to be a test"
    for name, wanted in outputs.items():
        assert theirs.translate(TEXTS, domain=name) == wanted


def test_options_of_the_search_are_passed_on(make: Callable[..., Verbs], script: Any, tmp_path: Path) -> None:
    ours = make(domains=("bible", "help"))
    write(ours, tmp_path / "out")
    theirs, text = script(tmp_path / "out", **FLOAT), "고양이가 물을 마신다."
    (whole,) = theirs.translate([text])
    assert len(whole) > 5
    assert theirs.translate([text, ""], max_decoding_length=5) == [whole[:5], ""]
    ours.config = replace(ours.config, max_length=30, max_ratio=9.0)
    longer = str(ours.translate(text))
    assert len(longer) == 30 > len(whole), "or the next line would prove nothing"
    assert theirs.translate([text], max_decoding_length=30) == [longer]
    (other,) = theirs.translate([text], suppress_sequences=[[whole[0]]])
    assert other and whole[0] not in other
    for name, value in {"num_hypotheses": 2, "return_scores": True, "target_prefix": [["a"]]}.items():
        with pytest.raises(ValueError, match=f"^{name}: a text each is given here"):
            theirs.translate([text], **{name: value})
    with pytest.raises(ValueError, match="there is no domain 'news'; known: bible, help"):
        theirs.translate([text], domain="news")


def test_greedy_outputs_are_ours_on_200_sentences(learned: Verbs, script: Any, tmp_path: Path) -> None:
    texts = [korean for korean, _ in miniworld.rows("test")[:200]]
    wanted = [str(result) for result in learned.translate(texts)]
    assert len(set(wanted)) > 100, "a model that says the same everywhere would prove nothing"
    write(learned, tmp_path / "out")
    assert script(tmp_path / "out", **FLOAT).translate(texts) == wanted


def test_int8_is_smaller_and_nearly_the_same(learned: Verbs, script: Any, tmp_path: Path) -> None:
    texts = [korean for korean, _ in miniworld.rows("test")[:200]]
    write(learned, tmp_path / "whole")
    write(learned, tmp_path / "small", int8=True)
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("whole", "small")]
    whole, small = (script(tmp_path / name).translate(texts) for name in ("whole", "small"))
    positions = POSITIONS * 64 * 4  # they stay as they are
    assert sizes[1] - positions < 0.4 * (sizes[0] - positions)
    # A model that has learned so little is often undecided, and a rounding decides.
    assert sum(a == b for a, b in zip(whole, small, strict=True)) > 100


def test_the_folder_runs_without_mallang(make: Callable[..., Verbs], tmp_path: Path) -> None:
    ours = make()
    write(ours, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "export.json").read_text("utf-8"))["kind"] == "ctranslate2"
    assert "pip install ctranslate2 tokenizers" in (tmp_path / "out" / "README.md").read_text("utf-8")
    code = (
        "import runpy, sys; sys.modules.update(dict.fromkeys(['mallang', 'torch'])); del sys.argv[0]; "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, tmp_path / "out" / "translate.py", "물을 마신다.", "a"],
        capture_output=True, text=True, check=True, encoding="utf-8",
    )  # fmt: skip
    assert ended.stdout.split("\n")[:-1] == [str(each) for each in ours.translate(["물을 마신다.", "a"])]


@pytest.mark.parametrize(
    ("shape", "named"),
    [
        ({"window": 3}, "window = 3"),
        ({"key_dim": 3, "value_dim": 5}, "key_dim 3 and value_dim 5"),
        ({"norm": "none"}, 'norm = "none"'),
    ],
    ids=["window", "sizes", "norm"],
)
def test_what_it_cannot_say_is_refused_by_name(
    shape: dict[str, Any], named: str, make: Callable[..., Verbs], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=named):
        write(make(**shape), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(make: Callable[..., Verbs], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write(make(), tmp_path / "out")  # an empty folder is as good as none
    (tmp_path / "out" / "mine").write_text("mine")
    with pytest.raises(UserError, match="is there already"):
        write(make(), tmp_path / "out")
    assert (tmp_path / "out" / "mine").read_text() == "mine"


def test_a_missing_package_is_told_with_its_install_line(
    make: Callable[..., Verbs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2.specs", None)
    with pytest.raises(UserError, match=r"ctranslate2") as told:
        write(make(), tmp_path / "out")
    assert told.value.todo == "pip install -e '.[export]'"


def test_only_a_transformer_can_be_exported(make: Callable[..., Verbs], tmp_path: Path) -> None:
    ours = make()
    quantize(ours.model)
    with pytest.raises(UserError, match="int8 weights cannot be exported"):
        write(ours, tmp_path / "out")
    ours.model = ours.model.encoder
    with pytest.raises(UserError, match="only the Transformer can be exported, not Blocks"):
        write(ours, tmp_path / "out")


def test_a_source_that_needs_an_analyzer_is_refused(make: Callable[..., Verbs], tmp_path: Path) -> None:
    ours = make()
    tokenizer = ours.task.source
    tokenizer.config = replace(tokenizer.config, unit="morpheme")
    with pytest.raises(UserError, match="analyzer"):
        write(ours, tmp_path / "out")
