"""Text by book, and novels for pre-training without the books that are scored."""

import pytest

from mallang.data import registry
from mallang.data.readers import Files
from mallang.data.shares import hundredths, shared_out
from mallang.errors import UserError

FOLDS = range(1, 11)


def test_lines_have_the_name_of_their_book(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n\nthree\n", "utf-8")
    (tmp_path / "b.txt").write_text("four\n\n", "utf-8")
    files = Files("books", (tmp_path / "a.txt", tmp_path / "b.txt"), ("text", "book"), sections=("x", "y", "z"))
    rows = list(files.rows(("text", "book")))
    assert rows == [("one", "x"), ("two", "x"), ("", "x"), ("three", "y"), ("four", "z"), ("", "z")]
    fewer = Files("books", files.paths, files.columns, sections=("x", "y"))
    assert fewer.fingerprint(("text",)) != files.fingerprint(("text",))
    with pytest.raises(UserError, match="more books than 2"):
        list(fewer.rows(("text",)))


def test_several_blank_lines_end_one_book(tmp_path):
    (tmp_path / "a.txt").write_text("\none\n\n \ntwo\n\n\n", "utf-8")
    (tmp_path / "b.txt").write_text("three\n", "utf-8")
    files = Files("books", (tmp_path / "a.txt", tmp_path / "b.txt"), ("text", "book"), sections=("x", "y", "z"))
    rows = [row for row in files.rows(("text", "book")) if row[0].strip()]
    assert rows == [("one", "x"), ("two", "y"), ("three", "z")]


@pytest.mark.parametrize("fold", FOLDS)
def test_no_novel_of_a_fold_is_scored_in_it(fold):
    """The novels are LitBank's books, under the names that its folds are made of."""
    scored = hundredths(*registry.entry(f"litbank-coref/fold{fold}").splits["test"].files.share[1:])
    kept = {}
    for split in ("train", "valid"):
        files = registry.entry(f"novels/fold{fold}").splits[split].files
        rows = [(name,) for name in files.sections]
        kept[split] = {row[0] for row in shared_out(iter(rows), 0, hundredths(*files.share[1:]))}
        assert kept[split] and not set(shared_out(iter(rows), 0, scored)) & {(name,) for name in kept[split]}
    assert len(files.sections) == 26 and not kept["train"] & kept["valid"]
