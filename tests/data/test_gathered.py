"""Documents out of lines, and training text without excluded texts."""

from dataclasses import replace

import pytest

from mallang.data.corpus import Config, Member, Rows, _shaped, open_corpus
from mallang.data.first_rows import First
from mallang.data.readers import Files
from mallang.errors import UserError

ARTICLES = " \n = One = \n \n text of one . \n \n = = Part = = \n more . \n = Two = \n text of two . \n"


def rows(config, columns=("text",), split="train"):
    return [cell for (cell,) in open_corpus(config, columns).split(split)]


def test_blank_lines_end_documents(tmp_path):
    path = tmp_path / "books.txt"
    path.write_text("a one.\na two.\n\n\nb one.\n \nc one.\nc two.")
    assert rows(Config(train=str(path), documents="blank-lines")) == ["a one.\na two.", "b one.", "c one.\nc two."]
    assert len(rows(Config(train=str(path)))) == 8


def test_titles_begin_articles_and_headings_do_not(tmp_path):
    path = tmp_path / "wiki.txt"
    path.write_text(ARTICLES)
    found = rows(Config(train=str(path), documents="headings"))
    assert found == ["= One =\ntext of one .\n= = Part = =\nmore .", "= Two =\ntext of two ."]


def test_documents_have_another_fingerprint_and_need_one_column(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("a\n\nb\n")
    sums = {open_corpus(Config(train=str(path), documents=how), ("text",)).split("train").fingerprint
            for how in ("rows", "blank-lines", "headings")}  # fmt: skip
    assert len(sums) == 3
    with pytest.raises(UserError, match="joins lines of one column"):
        open_corpus(Config(documents="blank-lines"), ("source", "target"))
    with pytest.raises(ValueError, match="holds out lines"):
        Config(train=str(path), documents="blank-lines", hold_out=0.1)


def bible(folder, references=True):
    """Verses with their references."""
    lines = {"ko": ["가", "나", "", "다", "라"], "ref": ["Job 1:1", "Job 1:2", "Job 1:3", "Job 2:1", "Mark 2:1"]}
    for name, texts in lines.items():
        (folder / f"verses.{name}").write_text("\n".join(texts) + "\n", "utf-8")
    columns = ("ko", "ref") if references else ("ko",)
    files = Files("parallel", tuple(folder / f"verses.{name}" for name in columns), columns)
    return Rows("verses", ("text",), files, ("ko",))


def test_verses_of_a_chapter_are_a_document(tmp_path):
    verses, lines = bible(tmp_path), bible(tmp_path, references=False)
    config = Config(documents="chapters")
    found = _shaped(verses, config, ())
    assert [cell for (cell,) in found] == ["가\n나", "다", "라"]
    assert found.fingerprint != verses.fingerprint
    assert _shaped(lines, config, ()).source is lines.source, "a corpus without references keeps its rows"
    without = _shaped(verses, config, (Rows.of([("나",)], ("text",)),))
    assert [cell for (cell,) in without] == ["가", "다", "라"], "excluded verses are left out of their chapters"
    both = Rows.joined([Member("a", verses), Member("b", lines)], ("text",))
    assert [cell for (cell,) in _shaped(both, config, ())] == ["가\n나", "다", "라", "가", "나", "", "다", "라"]


def test_the_first_verses_become_chapters_too(tmp_path):
    verses = bible(tmp_path)
    first = replace(verses, source=First(verses.source, 2))
    assert [cell for (cell,) in _shaped(first, Config(documents="chapters"), ())] == ["가\n나"]


def test_chapters_need_references(tmp_path):
    (tmp_path / "a.txt").write_text("a\nb\n")
    with pytest.raises(UserError, match="needs a column ref, such as Genesis 25:1"):
        open_corpus(Config(train=str(tmp_path / "a.txt"), documents="chapters"), ("text",))
    tested = Config(corpus=None, test=str(tmp_path / "a.txt"), documents="chapters")
    assert rows(tested, split="test") == ["a", "b"], "a run of chapters is tested on any file"


def test_excluded_texts_are_left_out_and_counted(tmp_path):
    kept = rows(Config(corpus="miniworld", columns=["ko"]), split="test")
    path = tmp_path / "train.txt"
    path.write_text("new text\n" + kept[0] + "\n" + kept[5].replace(" ", "  ") + "\n\nother\n")
    config = Config(train=str(path), valid=str(path), exclude=["miniworld:test"])
    corpus = open_corpus(config, ("text",))
    assert [cell for (cell,) in corpus.split("train")] == ["new text", "", "other"]
    assert len(list(corpus.split("valid"))) == 5, "only training text is changed"
    [note] = [note for note in corpus.notes if "left out" in note]
    assert note.endswith("2 of 5 rows are left out: their text is in miniworld test")
    plain = open_corpus(Config(train=str(path)), ("text",)).split("train")
    assert corpus.split("train").fingerprint != plain.fingerprint


def test_exclusion_comes_before_documents_and_reaches_every_corpus(tmp_path):
    (tmp_path / "a.txt").write_text("the same\nof a\n\n")
    (tmp_path / "b.txt").write_text("The  same\nof b\n")
    (tmp_path / "miniworld.txt").write_text("")
    told = rows(Config(corpus="miniworld", columns=["ko"]), split="valid")[0]
    (tmp_path / "b.txt").write_text(f"{told}\nof b\n")
    names = {str(tmp_path / "a.txt"): 1.0, str(tmp_path / "b.txt"): 2.0}
    config = Config(corpora=names, documents="blank-lines", exclude=["miniworld:valid"])
    assert rows(config) == ["the same\nof a", "of b"]
    assert sum("left out" in note for note in open_corpus(config, ("text",)).notes) == 2


def test_what_is_excluded_must_be_there():
    with pytest.raises(ValueError, match="such as nsmc:test"):
        Config(exclude=["nsmc"])
    with pytest.raises(UserError, match="no corpus"):
        open_corpus(Config(exclude=["nothing:test"]), ("text",))
    with pytest.raises(UserError, match="no split"):
        open_corpus(Config(exclude=["miniworld:nothing"]), ("source",))
