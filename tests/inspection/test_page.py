"""The page: what it holds equals what the model computes, and it stays one file that loads nothing."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mallang
from inspection.test_live import translator, writer
from mallang import recipe
from mallang.decoding.contract import Config
from mallang.decoding.sampling import truncate
from mallang.errors import UserError
from mallang.inspection.alignment import Seen, attention_of
from mallang.inspection.attention import AttentionMap
from mallang.inspection.next_token import TEMPERATURES, next_tokens
from mallang.inspection.page import FOLDER, as_plain, modules, packed, write_page
from mallang.inspection.search_tree import tree_of
from mallang.inspection.shown_texts import Wanted, shown_text
from mallang.inspection.text_with_output import text_with_output
from mallang.training.train import Options, train

NASTY = "</script><script>alert(1)</script> & \"quotes\" 'and' <b> 배를"
TEXT = "유나는 배를 탔다."


def seen() -> Seen:
    cross = torch.tensor([[[0.9, 0.1], [0.25, 0.75]], [[0.5, 0.5], [0.0, 1.0]]])
    maps = {
        "encoder.0.self": AttentionMap("encoder.0.self", torch.eye(2)[None], ("나", "배"), ("나", "배")),
        "decoder.0.cross": AttentionMap("decoder.0.cross", cross, ("I", "</s>"), ("나", "배")),
    }
    return Seen("나는 배를 탔다.", "I took it.", -1.5, maps, {})


def read_page(path: Path) -> Any:
    """The data of a page, its arrays as arrays again."""
    text = path.read_text("utf-8")
    found = dict(re.findall(r'id="(data|numbers)">(.*?)</script>', text, re.DOTALL))
    values = np.frombuffer(gzip.decompress(base64.b64decode(found["numbers"])), "<f4")

    def unpacked(value: dict[str, Any]) -> Any:
        if set(value) != {"at", "shape"}:
            return value
        return values[value["at"] : value["at"] + math.prod(value["shape"])].reshape(value["shape"])

    return json.loads(found["data"], object_hook=unpacked)


def page_of(path: Path, *texts: dict[str, Any], **run: Any) -> Path:
    """A page of one run."""
    about = {"name": "a", "model": "transformer", "task": "translation", "parameters": 1, "curves": {}, "mixes": []}
    runs = [{**about, "positions": None, **run, "texts": texts}]
    return write_page(path, {"temperatures": list(TEMPERATURES), "runs": runs})


def test_arrays_are_exact_and_in_their_places(tmp_path: Path) -> None:
    first, second = torch.randn(2, 3, 4), np.array([1e-30, -np.inf, 1 / 3], dtype=np.float32)
    plain, numbers = packed({"a": [first, {"b": second}], "c": "x"})
    assert plain == {"a": [{"at": 0, "shape": [2, 3, 4]}, {"b": {"at": 24, "shape": [3]}}], "c": "x"}
    assert len(numbers) == 4 * 27
    found = read_page(page_of(tmp_path / "a.html", {"first": first, "second": second}))["runs"][0]["texts"][0]
    assert (found["first"] == first.numpy()).all() and (found["second"] == second).all()


def test_text_stays_text_and_nothing_is_loaded(tmp_path: Path) -> None:
    path = page_of(tmp_path / "a.html", {"input": NASTY, "output": NASTY})
    page = path.read_text("utf-8")
    assert read_page(path)["runs"][0]["texts"][0]["output"] == NASTY
    assert page.count("</script>") == 4 and "alert(1)</script>" not in page
    assert "default-src 'none'" in page
    for name, code in {"page.html": page, **modules()}.items():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|fetch\(", code), name
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", code), name
    assert sum(len(code.encode("utf-8")) for code in modules().values()) < 120_000


def test_the_numbers_of_a_text_are_those_of_the_model(tmp_path: Path) -> None:
    verbs = translator(norm="pre")
    ours, made = attention_of(verbs, TEXT), verbs.translate(TEXT)
    found = read_page(page_of(tmp_path / "a.html", shown_text(verbs, TEXT, Wanted())))["runs"][0]["texts"][0]
    assert found["output"] == ours.output == made.output and found["score"] == pytest.approx(made.score, abs=1e-4)
    assert [each["name"] for each in found["maps"]] == list(ours.maps)
    for each in found["maps"]:
        assert each["weights"] == pytest.approx(ours.maps[each["name"]].weights.numpy(), abs=1e-6)
    assert found["maps"][found["first"]]["name"] == "decoder.1.cross"
    assert found["next"]["label_log_probs"].sum() == pytest.approx(ours.score, abs=1e-4)
    tree, nodes = found["tree"], tree_of(verbs, TEXT).nodes
    assert tree["parents"][0] == -1 and tree["tokens"][1:] == [node.token for node in nodes][1:]
    assert tree["total"] == pytest.approx([node.total for node in nodes], abs=1e-6)


@pytest.mark.parametrize("numbers", [False, True])
def test_thirty_tokens_at_six_layers_of_eight_heads_are_small_and_exact(tmp_path: Path, numbers: bool) -> None:
    verbs = translator("char", layers=6, dim=64, heads=8)
    text, target = "유나는 지난주에 배를 탔고 책을 읽었다 그래", "Yuna took a ship and read i"
    path = page_of(tmp_path / "a.html", shown_text(verbs, text, Wanted(target=target, numbers=numbers)))
    found, ours = read_page(path)["runs"][0]["texts"][0], attention_of(verbs, text, target=target)
    assert path.stat().st_size < 3_000_000 and len(found["maps"]) == 18
    for each in found["maps"]:
        assert each["weights"].shape[0] == 8 and min(each["weights"].shape[1:]) >= 24
        assert np.abs(each["weights"] - ours.maps[each["name"]].weights.numpy()).max() <= 1e-6
    assert len(found["numbers"]) == (18 if numbers else len(found["numbers"])) >= 1


def test_next_tokens_are_the_models_and_others_are_summed_at_every_temperature() -> None:
    verbs = writer()
    both = text_with_output(verbs, "유나는")
    found = next_tokens(verbs.model, both.batch, kept=5)
    with torch.inference_mode():
        log_probs = verbs.model.output(verbs.model(both.batch))[0].double().log_softmax(-1)
    labels = log_probs.gather(1, both.batch.labels[0, :, None])[:, 0]
    assert found.labels.numpy() == pytest.approx(labels.numpy(), abs=1e-5)
    assert found.surprisal.numpy() == pytest.approx((-labels / math.log(2)).numpy(), abs=1e-5)
    for step, row in enumerate(log_probs):
        ordered = sorted((value, -number) for number, value in enumerate(row.tolist()) if number not in (0, 2))[::-1]
        assert found.ids[step].tolist() == [-number for _, number in ordered[:5]]
        for place, temperature in enumerate(TEMPERATURES):
            rest = math.log(sum(math.exp(value / temperature) for value, _ in ordered[5:]))
            assert float(found.rest[step, place]) == pytest.approx(rest, abs=1e-4)
    assert found.others == len(ordered) - 5


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to run the page's script")
@pytest.mark.parametrize("kept", [20, 4])
def test_the_page_truncates_as_sampling_does(kept: int) -> None:
    log_probs = (3 * torch.randn(1, 20, generator=torch.Generator().manual_seed(1))).log_softmax(-1)
    ordered, places = log_probs[0].sort(descending=True)
    asked, expected = [], []
    for temperature in (0.3, 1.0, 1.7):
        for k in (0, 1, 3, 20):
            for p in (1.0, 0.9, 0.2):
                rest = float((ordered[kept:] / temperature).logsumexp(0)) if kept < 20 else 0.0
                asked.append([ordered[:kept].tolist(), rest, 20 - kept, {"temperature": temperature, "k": k, "p": p}])
                drawn = truncate(log_probs, Config(method="sampling", temperature=temperature, top_k=k, top_p=p))[0]
                expected.append((drawn / drawn.sum())[places])
    ended = subprocess.run(
        ["node", str(Path(__file__).with_name("sampling.mjs")), str(FOLDER / "sampling.js")],
        input=json.dumps(asked), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    for (*_, options), found, ours in zip(asked, json.loads(ended.stdout), expected, strict=True):
        within = 1e-6 if found["isExact"] else float(ours[kept - 1])
        assert found["shares"] == pytest.approx(ours[:kept].tolist(), abs=within), options
        assert found["others"] == pytest.approx(float(ours[kept:].sum()), abs=max(within, 1e-6) * 20), options
        if found["isExact"]:
            assert found["count"] == int((ours > 0).sum()), options


def test_layers_and_heads_can_be_chosen() -> None:
    plain = as_plain(seen(), ["decoder.0.cross"], "2")
    assert [one["name"] for one in plain["maps"]] == ["decoder.0.cross"]
    assert plain["maps"][0]["weights"] == [[[0.5, 0.5], [0.0, 1.0]]] and plain["maps"][0]["heads"] == ["head 2"]
    assert as_plain(seen(), ["decoder.0.cross"], "mean")["maps"][0]["weights"][0][0] == pytest.approx([0.7, 0.3])
    with pytest.raises(UserError, match="no layer 'decoder.0.cros'") as caught:
        as_plain(seen(), ["decoder.0.cros"])
    assert "decoder.0.cross" in str(caught.value)
    verbs = translator(norm="pre")
    shown = shown_text(verbs, TEXT, Wanted(layers=("encoder.1.self",), head="mean", words=True))
    (only,) = shown["maps"]
    assert only["heads"] == ["mean"] and only["weights"].shape[0] == 1 and only["queries"][0] == "유나는"


@pytest.fixture(scope="module")
def labeler(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A role labeler after one update."""
    folder = tmp_path_factory.mktemp("roles") / "run"
    few = (
        "model.size=tiny",
        "train.epochs=none",
        "train.steps=1",
        "train.validate_every=none",
        "train.batch_tokens=64",
    )
    train(recipe.read("deep-srl-miniworld", few).build(), Options(folder=folder, device="cpu", quiet=True))
    return mallang.load(folder, "cpu")


def test_semantic_roles_are_on_the_common_page(labeler: Any) -> None:
    text = "유나는 지난주에 배를 탔다."
    shown, found = shown_text(labeler, text, Wanted()), labeler.roles(text)
    assert shown["output"] == str(found) and len(shown["roles"]) == len(found.propositions)
    for parts, one in zip(shown["roles"], found.propositions, strict=True):
        assert "".join(part["text"] for part in parts) == text
        assert [part["text"] for part in parts if part["role"] == "V"] == [one.predicate]
