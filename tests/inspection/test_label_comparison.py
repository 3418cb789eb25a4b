"""Which model for labeled texts: folds that share no text, honest baselines, and advice that follows from the rows."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mallang.errors import UserError
from mallang.inspection.label_comparison import (
    Candidate,
    System,
    advice,
    compare_on,
    decide,
    divide,
    interval,
    is_close,
    majority,
    scores_of,
)
from mallang.inspection.labeled_rows import labeled_rows
from mallang.inspection.systems import Value

MEANS = Candidate("bag of means", "bag_of_means", ("model.dim=8", "text.unit=word", "optimizer.learning_rate=0.1"))


def write(path, count=80):
    rows = [(f"{('good', 'bad')[n % 2]} film number {n}", ("yes", "no")[n % 2]) for n in range(count)]
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
    return str(path)


@given(texts=st.lists(st.text(max_size=5), min_size=1, max_size=40), folds=st.integers(1, 5))
def test_every_row_is_predicted_once_and_equal_texts_together(texts, folds):
    rows = [(text, "label") for text in texts]
    parts = list(divide([*rows, *[(f" {text.upper()} ", label) for text, label in rows]], folds))
    assert len(parts) == folds
    if folds > 1:
        assert (np.sum(parts, axis=0) == 1).all()
    for part in parts:
        half = len(rows)
        folded = [i for i, text in enumerate(texts) if text.casefold() == text.upper().casefold()]
        assert all(part[i] == part[half + i] for i in folded)


def test_majority_is_that_of_the_other_rows():
    gold = np.array(["a", "a", "a", "b", "b", "b", "b"], dtype=object)
    parts = [np.array([False] * 3 + [True] * 4), np.array([True] * 3 + [False] * 4)]
    found = majority(gold, parts, np.ones(7, bool))
    assert found.scores["accuracy"].mean == 0.0  # the most frequent label of the training rows is always the other one


def test_scores_equal_explicit_counts():
    said, gold = np.array(list("aabbc"), dtype=object), np.array(list("abbba"), dtype=object)
    found = scores_of(said, gold)
    assert found["accuracy"].mean == pytest.approx(60.0)
    assert found["macro F1"].mean == pytest.approx(100 * (2 * 1 / 4 + 2 * 2 / 5) / 2)
    low, high = interval(np.array([1.0, 1.0, 1.0, 0.0, 0.0] * 200))
    assert 56 < low < 60 < high < 64


def test_a_file_is_compared_and_described(tmp_path):
    found = compare_on(write(tmp_path / "my.tsv"), seconds=5.0, candidates=[MEANS])
    assert [system.name for system in found.systems] == ["bag of means", "majority"] and found.folds == 5
    assert found.rows == 80 and found.recommended.scores["accuracy"].mean > 90
    assert "use bag of means" in str(found) and "majority" in found.to_markdown()
    plain = json.loads(json.dumps(found.to_json()))
    assert plain["recommended"] == "bag of means" and len(plain["systems"]) == 2
    assert found.to_csv().splitlines()[0].startswith("system,parameters,seconds")
    assert found.draw(tmp_path / "models.svg").read_text("utf-8").count("bag of means") >= 1


def test_a_test_file_is_scored_by_the_same_models_and_does_not_choose(tmp_path):
    data, other = write(tmp_path / "my.tsv"), tmp_path / "test.tsv"
    # Every label is the wrong one, but for one row in four: the worst model on these rows is the best on the others.
    rows = [(f"{('good', 'bad')[n % 2]} film", ("no", "yes")[n % 2]) for n in range(3)] + [("bad film", "no")]
    other.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows), encoding="utf-8")
    found = compare_on(data, test=str(other), seconds=5.0, candidates=[MEANS])
    tested = {system.name: system.test for system in found.systems}
    assert found.recommended.name == "bag of means" and tested["bag of means"] == pytest.approx(25.0)
    assert 25 <= tested["majority"] <= 75 and "accuracy on test" in str(found)
    assert compare_on(data, seconds=10.0, candidates=[]).systems[0].test is None
    (tmp_path / "unlabeled.tsv").write_text("text\tlabel\na film\t\n")
    with pytest.raises(UserError, match="unlabeled.tsv has no labeled texts"):
        compare_on(data, test=str(tmp_path / "unlabeled.tsv"), candidates=[])


@pytest.mark.parametrize(("count", "label"), [(10, None), (80, "same")])
def test_too_little_to_compare_is_refused(tmp_path, count, label):
    path = tmp_path / "few.tsv"
    write(path, count)
    if label:
        path.write_text(path.read_text().replace("\tyes", f"\t{label}").replace("\tno\n", f"\t{label}\n"))
    with pytest.raises(UserError, match="too few to compare models"):
        compare_on(str(path), candidates=[MEANS])


def test_a_header_is_no_row_of_labeled_texts(tmp_path):
    """`mail` and `kind` are not usual names: the first line would be a row with a label of its own."""
    path = write(tmp_path / "my.tsv")
    table = (tmp_path / "my.tsv").read_text("utf-8").replace("text\tlabel", "mail\tkind")
    (tmp_path / "my.tsv").write_text(table, "utf-8")
    for read in (labeled_rows, lambda path: compare_on(path, candidates=[])):
        with pytest.raises(UserError, match=r"looks like a header(.|\n)*--columns TEXT,LABEL by name"):
            read(path)
    assert len(list(labeled_rows(path, columns=["mail", "kind"]))) == 80
    assert len(list(labeled_rows(path, columns=[1, "2"]))) == 81


def test_a_candidate_that_cannot_train_is_named(tmp_path):
    wrong = Candidate("n-grams", "ngram", ("task.name=classification",))
    found = compare_on(write(tmp_path / "my.tsv"), seconds=5.0, candidates=[wrong])
    assert any("n-grams took no part" in note for note in found.notes)
    assert "no model beats the most frequent label" in found.notes[-1]


def system(name, right, seconds):
    return System(name=name, scores={"accuracy": Value(100 * right.mean())}, seconds=seconds, right=right)


def test_advice_names_a_faster_model_only_if_it_is_not_reliably_worse():
    best = np.arange(1000) < 900
    close, far = np.roll(best, 3), np.arange(1000) < 800
    slow = system("slow", best, 100.0)
    assert "quick is not reliably worse" in advice([slow, system("quick", close, 1.0)])
    assert "within the noise" in advice([slow, system("alike", close, 90.0)])
    assert advice([slow, system("far", far, 1.0)]) == "use slow: 90.0 % is the highest accuracy"


def test_closeness_is_that_of_a_plain_paired_bootstrap():
    """Right at the edge of 95 %: explicit resampling of rows gives the same answer."""
    random = np.random.default_rng(5)
    answers = []
    for lead in range(0, 60, 6):
        mine = np.arange(1000) < 800
        theirs = mine.copy()
        theirs[np.arange(100 + lead)] = False
        theirs[np.arange(900, 1000)] = True  # 100 rows the other way
        apart = mine.astype(float) - theirs.astype(float)
        means = [apart[random.integers(1000, size=1000)].mean() for _ in range(1000)]
        low = np.quantile(means, 0.025)
        answer = is_close(system("a", mine, 1.0), system("b", theirs, 1.0))
        answers.append(answer)
        if abs(low) > 0.004:  # beyond the noise of resampling
            assert answer == (low <= 0), lead
    assert answers[0] and not answers[-1]


def trial(monkeypatch, asked, all_right):
    """A `try_candidate` that predicts the rows of further folds as it is told to."""
    from mallang.inspection import label_comparison

    def answer(candidate, rows, gold, parts, tested, seconds, device):
        asked.append((candidate.name, len(parts), len(tested)))
        return system(candidate.name, all_right[candidate.name][: int(np.any(parts, axis=0).sum())], 1.0)

    monkeypatch.setattr(label_comparison, "try_candidate", answer)


def test_finalists_are_decided_by_all_rows_and_never_by_the_test_file(monkeypatch):
    rows = [(f"text {n}", "ab"[n % 2]) for n in range(4000)]
    gold, asked = np.array([label for _, label in rows], dtype=object), []
    held = int(next(divide(rows, 1)).sum())
    first = np.arange(held) < 0.8 * held
    systems = [
        system("lucky", first, 2.0),
        system("slow", np.roll(first, 1), 40.0),  # five folds of it would take more than 60 s
        system("better", np.roll(first, 2), 3.0),
        system("far", np.arange(held) < 0.5 * held, 1.0),
        System(name="majority", scores={"accuracy": Value(50.0)}, seconds=0.0),
    ]
    rest = np.arange(4000)
    trial(monkeypatch, asked, {"lucky": rest % 100 < 75, "better": rest % 100 < 85})
    candidates = [Candidate(each.name, "cnn") for each in systems]
    found = decide(systems, candidates, rows, gold, 60.0, "cpu")
    assert [each.name for each in found] == ["better", "slow", "lucky", "far", "majority"]
    assert asked == [("lucky", 4, 0), ("better", 4, 0)]
    assert found[0].cross_validated == pytest.approx(83.9, abs=0.5) and found[1].cross_validated is None
    assert len(found[0].all_right) == 4000 and (found[0].all_right[:held] == found[0].right).all()
    told = advice(found)
    assert told.startswith("use better: the rows held out cannot tell it from lucky, and with 5-fold cross-validation")
    assert told.endswith("though the lead over slow is within the noise of these rows")  # over lucky it is not


def test_no_finalists_without_a_rival(monkeypatch):
    rows = [(f"text {n}", "ab"[n % 2]) for n in range(4000)]
    gold = np.array([label for _, label in rows], dtype=object)
    right = np.arange(800) < 700
    systems = [system("best", right, 1.0), system("far", np.arange(800) < 500, 1.0)]
    trial(monkeypatch, asked := [], {})
    assert [each.name for each in decide(systems, [], rows, gold, 60.0, "cpu")] == ["best", "far"] and not asked


def test_a_finalist_that_fails_in_a_fold_costs_no_comparison(monkeypatch):
    from mallang.inspection import label_comparison

    rows = [(f"text {n}", "ab"[n % 2]) for n in range(4000)]
    gold = np.array([label for _, label in rows], dtype=object)
    first = np.arange(int(next(divide(rows, 1)).sum())) % 5 > 0
    systems = [system("one", first, 1.0), system("two", np.roll(first, 1), 2.0)]

    def fail(*_):
        raise UserError("a fold has one class")

    monkeypatch.setattr(label_comparison, "try_candidate", fail)
    said = []
    found = decide(systems, [Candidate(each.name, "cnn") for each in systems], rows, gold, 60.0, "cpu", said.append)
    assert found == systems and said[-1] == "two keeps its place: a fold has one class"


def test_a_larger_file_is_decided_by_cross_validation(tmp_path):
    """Two equal models cannot be told apart by held-out rows; both then predict every row."""
    bags = [Candidate(name, "bag_of_words", ("text.unit=word",)) for name in ("one", "the same again")]
    lines = [f"{('good', 'bad')[n % 2]} film {n}\t{('yes', 'no')[(n % 2) ^ (n % 10 == 3)]}\n" for n in range(3100)]
    (tmp_path / "my.tsv").write_text("text\tlabel\n" + "".join(lines), "utf-8")
    found = compare_on(str(tmp_path / "my.tsv"), seconds=200.0, candidates=bags)
    assert found.folds == 1 and found.rows < 800
    checked = [each.cross_validated for each in found.systems if each.name != "majority"]
    assert checked[0] is not None and checked[0] == checked[1] > 85
    plain = found.to_json()["systems"]
    assert [each["cross_validated"] for each in plain] == [*checked, None] and "5-fold cross-validation" in str(found)
