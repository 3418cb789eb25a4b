import re

import pytest

from mallang.data import registry, storage
from mallang.errors import UserError


@pytest.fixture
def home(shop):
    return registry.entry("small/pairs").home


def test_the_table_that_comes_with_mallang_is_sound():
    registry._entries.cache_clear()
    for name in registry.names():
        entry = registry.entry(name)
        assert entry.about and entry.kind and entry.license and entry.home.source, name
        is_published = all(file.url for file in entry.home.files.values())
        assert re.fullmatch("[0-9a-f]{64}", entry.home.archive) or (is_published and not entry.home.archive)
        for split in entry.splits.values():
            assert split.rows > 0 and len(set(split.files.columns)) == len(split.files.columns)
            assert set(split.needs(split.files.columns)) <= set(entry.home.files), name
        for file in entry.home.files.values():
            assert re.fullmatch("[0-9a-f]{64}", file.sha256) and file.bytes > 0
            # A branch moves on; a commit, or a file of PyPI, stays what it was when the sum was taken.
            fixed = r"raw\.githubusercontent\.com/[^/]+/[^/]+/[0-9a-f]{40}/"
            pypi = r"files\.pythonhosted\.org/packages/[0-9a-f/]{66}/"
            assert file.url is None or re.match(f"https://({fixed}|{pypi})", file.url)


@pytest.mark.parametrize(
    ("name", "columns", "train"),
    [
        ("multi30k", ("en", "de", "fr"), 29000),
        ("tatoeba-deu-eng", ("de", "en"), 166411),
        ("tatoeba-kor-eng", ("ko", "en"), 3424),
        ("korean-english/bible", ("ko", "en", "ref"), 29689),
        ("libreoffice-help-koen", ("ko", "en"), 16022),
        ("iwslt14-deen-evalsets", ("de", "en"), 4600),
        ("ptb", ("text",), 42068),
        ("nsmc", ("id", "document", "label"), 135295),
        ("nsmc/text", ("id", "document", "label"), 142664),
        ("wikitext-2", ("text",), 36718),
        ("tinyshakespeare", ("text",), 35526),
        ("novels", ("text",), 56148),
        ("korean-assembly-bills", ("BILL_ID", "propose_reason"), 54803),
        ("korean-small/chatbot", ("question", "answer", "label"), 10665),
        ("klue/sts", ("sentence1", "sentence2", "score"), 11668),
    ],
)
def test_known_corpora_have_the_published_shape(name, columns, train):
    entry = registry.entry(name)
    assert entry.columns == columns and entry.splits["train"].rows == train


def test_an_unknown_name_is_answered_with_near_ones(shop):
    with pytest.raises(UserError) as caught:
        registry.entry("smal/pair")
    assert "small/pairs" in caught.value.todo
    with pytest.raises(UserError) as caught:
        registry.entry("xyzzy")
    assert caught.value.todo == "`mallang data list` shows all of them"
    with pytest.raises(UserError, match="several corpora") as caught:
        registry.entry("small")
    assert "small/pairs, small/talk" in caught.value.todo


def test_a_name_that_is_a_file_says_how_to_read_it(shop, monkeypatch):
    monkeypatch.chdir(shop.folder)
    (shop.folder / "my.tsv").write_text("a\tb\n")
    with pytest.raises(UserError) as caught:
        registry.entry("my.tsv")
    assert caught.value.todo == "data.train=my.tsv"


def test_a_folder_of_ones_own_is_used_where_it_lies(shop, home):
    shop.put_folder()
    assert registry.obtain(home, list(shop.files)) == shop.data / "small"
    assert not shop.cache.exists() and registry.state(registry.entry("small/pairs")) == "here"


def test_a_file_with_other_content_is_told(shop, home):
    shop.put_folder(**{"train.en": "hello\nwater\nbread\n"})
    assert registry.obtain(home, ["train.ko"])
    with pytest.raises(UserError, match="damaged or another version") as caught:
        registry.obtain(home, ["train.ko", "train.en"])
    assert "train.en" in str(caught.value)


def test_a_file_that_is_missing_is_told(shop, home):
    shop.put_folder()
    (shop.data / "small" / "dev.en").unlink()
    with pytest.raises(registry.UnobtainableError, match=r"dev\.en of small is missing") as caught:
        registry.obtain(home, ["dev.ko", "dev.en"])
    assert "put small/ or small.tar.xz into the folder that MALLANG_DATA names" in caught.value.todo


def test_an_archive_is_unpacked_into_the_cache_once(shop, home, monkeypatch):
    shop.put_archive()
    assert registry.state(registry.entry("small/pairs")) == "here"
    folder = registry.obtain(home, ["talk/a.tsv"])
    assert folder == shop.cache
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")} == set(shop.files)
    monkeypatch.setattr(storage, "unpack", lambda *given: pytest.fail("unpacked twice"))
    assert registry.obtain(home, list(shop.files)) == folder


def test_a_damaged_file_in_the_cache_is_unpacked_again(shop, home):
    shop.put_archive()
    folder = registry.obtain(home, ["dev.ko"])
    (folder / "dev.ko").write_text("짚\n")  # the same size
    assert (registry.obtain(home, ["dev.ko"]) / "dev.ko").read_text() == shop.files["dev.ko"]


@pytest.mark.parametrize("change", [lambda data: data[:-10], lambda data: b"no archive", lambda data: data + b"\0"])
def test_an_archive_with_another_sum_is_told(shop, home, change):
    shop.put_archive(change(shop.archive()))
    with pytest.raises(UserError, match=r"small\.tar\.xz is damaged or another version"):
        registry.obtain(home, ["train.ko"])
    assert not shop.cache.exists()


def test_public_files_are_downloaded_once(shop, home):
    assert registry.state(registry.entry("small/pairs")) == "download in part"
    folder = registry.obtain(home, ["train.ko", "train.en"], shop.serving(shop.files))
    assert (folder / "train.ko").read_text() == shop.files["train.ko"]
    assert registry.obtain(home, ["train.ko", "train.en"], shop.serving({})) == folder


def test_without_network_the_message_names_the_folder(shop, home):
    with pytest.raises(UserError, match="cannot download https://example.org/train.ko: no network") as caught:
        registry.obtain(home, ["train.ko"], shop.serving({}))
    assert "MALLANG_DATA" in caught.value.todo


def test_a_download_with_other_content_is_refused(shop, home):
    with pytest.raises(UserError, match="does not hold what it should"):
        registry.obtain(home, ["train.ko"], shop.serving({"train.ko": "something else"}))
    assert not (shop.cache / "train.ko").exists()


def test_a_file_at_no_public_address_says_so(shop, home):
    with pytest.raises(registry.UnobtainableError, match="exists at no public address") as caught:
        registry.obtain(home, ["dev.ko"], shop.serving(shop.files))
    assert "small.tar.xz" in caught.value.todo


def test_one_member_of_a_published_archive_is_downloaded(tmp_path):
    import hashlib
    import io
    import tarfile

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in (("x-1/other.txt", b"no"), ("x-1/data/text.txt", b"yes")):
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))

    def opener(url):
        return io.BytesIO(packed.getvalue())

    url, right = "https://example.org/x-1.tar.gz", hashlib.sha256(b"yes").hexdigest()
    storage.download(url, tmp_path / "text.txt", right, opener, "x-1/data/text.txt")
    assert (tmp_path / "text.txt").read_bytes() == b"yes"
    with pytest.raises(UserError, match="holds no file x-1/none"):
        storage.download(url, tmp_path / "b.txt", right, opener, "x-1/none")
    with pytest.raises(UserError, match="does not hold what it should"):
        storage.download(url, tmp_path / "b.txt", right, opener, "x-1/other.txt")
    with pytest.raises(UserError, match="cannot download"):
        storage.download(url, tmp_path / "b.txt", right, lambda url: io.BytesIO(b"no archive"), "x-1/other.txt")
    assert not (tmp_path / "b.txt").exists()
