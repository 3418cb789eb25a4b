"""What entities add: gains over the controls, paired over texts."""

import pytest
from benchmarks import entities
from benchmarks.kinds import kind_of


def line(read, counts, seed=1):
    return {
        "name": "fewrel", "read": read, "seed": seed, "set": [], "recipe": "ernie-fewrel-wiki16", "metric": "accuracy",
        "corpus": "fewrel-wiki16", "counts": counts, "covered": [1, 1, 0, 0], "commit": "0" * 12, "hardware": "m",
    }  # fmt: skip


def test_labels_are_counted_as_sets():
    assert entities.counts("person|actor", "actor|person|artist") == [2, 2, 3]
    assert entities.counts("founder", "child") == [0, 1, 1]


def test_gains_are_paired_and_covered_texts_apart():
    """Entities are right on all four texts; text alone on the two that are not covered, over two seeds."""
    right, wrong = [1, 1, 1], [0, 1, 1]
    lines = [line("both", [right] * 4, seed) for seed in (1, 2)]
    lines += [line("text", [wrong, wrong, right, right], seed) for seed in (1, 2)]
    found = {(read, part): (value, low, high) for read, part, value, low, high, _ in entities.gains(lines, "fewrel")}
    assert found["text", "covered"] == pytest.approx((100, 100, 100))
    value, low, high = found["text", "all"]
    assert value == pytest.approx(50) and low < 50 < high
    assert not list(entities.gains(lines, "openentity"))
    assert kind_of("entities-fewrel-gain-over-text-all").table == "understanding"
