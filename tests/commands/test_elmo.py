"""ELMo from training to use: perplexity, neighbors in context with a map, features of a tagger, the mix in doctor."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from commands.running import ran
from mallang.inspection.contextual_neighbors import contextual_neighbors
from mallang.loading import load
from mallang.runs.files import load_tensors
from runs.small_runs import run_of, write_lines, write_names

ELMO = ("text.unit=space", "text.vocabulary=60")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained ELMo, and a tagger that mixes its layers."""
    folder = tmp_path_factory.mktemp("elmo")
    run_of(folder / "runs" / "reader", "elmo", write_lines(folder), *ELMO)
    given = f"given.features={folder / 'runs' / 'reader'}"
    tagger = ("task.features_mix=true", "task.features_l2=0.01", given)
    run_of(folder / "runs" / "names", "lstm_crf", write_names(folder), *tagger)
    return folder


def test_evaluate_shows_both_directions(home: Path) -> None:
    ended = ran("evaluate", "runs/reader", "--data", "lines.txt", cwd=home)
    assert "forward perplexity per token" in ended.out and "backward bits per byte" in ended.out


def test_neighbors_in_context_are_those_of_the_python_interface(home: Path) -> None:
    context = "the good film 1 of mr Kim in Seoul"
    options = ("film", "--context", context, "--file", "lines.txt", "--layer", "1")
    ended = ran("neighbors", "runs/reader", *options, "-k", "3", "--map", "map.json", cwd=home)
    texts = (home / "lines.txt").read_text("utf-8").splitlines()
    (found,) = contextual_neighbors(load(home / "runs" / "reader", "cpu"), context, "film", texts, layer=1)
    rows = [line.split("\t") for line in ended.out.splitlines()]
    assert [row[0] for row in rows] == ["film"] * 3
    assert [row[2] for row in rows] == [str(each) for each, _ in found.neighbors[:3]]
    points = json.loads((home / "map.json").read_text("utf-8"))["points"]
    assert len(points) == 1 + len(texts) and all("[film]" in point["text"] for point in points)
    ended = ran("neighbors", "runs/reader", *options, "-k", "2", "--json", "--any-word", cwd=home)
    values = json.loads(ended.out)
    assert values["layer"] == 1 and len(values["neighbors"]) == 2 and values["word"] == "film"


def test_doctor_shows_the_learned_mix(home: Path) -> None:
    tensors = load_tensors(home / "runs" / "names" / "model.safetensors")
    assert not any(name.startswith("features.") for name in tensors)
    shares = torch.softmax(tensors["head.features_mix.scores"], dim=0)
    facts = json.loads(ran("doctor", "runs/names", "--json", cwd=home).out)["facts"]
    said = facts["mix of the layers of the features"]
    assert said.startswith(" ".join(f"{share:.2f}" for share in shares.tolist()))
    assert (
        "mix of the layers of the features"
        not in json.loads(ran("doctor", "runs/reader", "--json", cwd=home).out)["facts"]
    )


def test_a_tagger_reads_words_that_neither_run_has_seen(home: Path) -> None:
    verbs = load(home / "runs" / "names", "cpu")
    known, unknown = (verbs.tag(text, pretokenized=True) for text in ("mr Kim ran in Seoul", "mr Kimmie ran in Seoul"))
    assert len(known.tags) == len(unknown.tags) == 5
    assert not np.allclose(known.probabilities, unknown.probabilities)
