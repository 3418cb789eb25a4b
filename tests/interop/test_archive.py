"""Archives of model folders: what is in them is imported, and nothing of them leaves its folder."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from interop.test_huggingface_bert import command, save
from mallang.errors import UserError
from mallang.interop import archive
from mallang.interop.huggingface_models import import_model

pytest.importorskip("transformers")


def packed(folder: Path, path: Path, prefix: str = "") -> Path:
    """An archive of the files of a folder."""
    files = sorted(each for each in folder.rglob("*") if each.is_file())
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as made:
            for each in files:
                made.write(each, prefix + each.relative_to(folder).as_posix())
        return path
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as made:
        for each in files:
            made.add(each, prefix + each.relative_to(folder).as_posix())
    return path


@pytest.mark.parametrize(
    ("name", "prefix"), [("m.zip", ""), ("m.tar.gz", "inner/model/"), ("m.tar", "./"), ("m.tgz", "")]
)
def test_an_archive_is_imported_like_its_folder(
    name: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "theirs", "bert")
    packed(tmp_path / "theirs", tmp_path / name, prefix)
    command(monkeypatch, "import", name)
    folder = import_model(tmp_path / "theirs", tmp_path / "folder")
    assert (tmp_path / "runs" / "m" / "model.safetensors").read_bytes() == (
        folder.folder / "model.safetensors"
    ).read_bytes()


@pytest.mark.parametrize("name", ["../evil.json", "/evil.json", "a/../../evil.json", "..\\evil.json", "C:\\evil.json"])
@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
def test_a_name_that_leads_out_of_the_folder_is_refused(name: str, suffix: str, tmp_path: Path) -> None:
    path, content = tmp_path / f"m{suffix}", b"{}"
    if suffix == ".zip":
        with zipfile.ZipFile(path, "w") as made:
            info = zipfile.ZipInfo("x")
            info.filename = name
            made.writestr(info, content)
    else:
        with tarfile.open(path, "w:gz") as archived:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archived.addfile(member, io.BytesIO(content))
    with pytest.raises(UserError, match="holds a file outside its folder"):
        import_model(path, tmp_path / "run")
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_links_are_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "m.tar", "w") as made:
        link = tarfile.TarInfo("config.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        made.addfile(link)
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as zipped:
        info = zipfile.ZipInfo("config.json")
        info.external_attr = 0o120777 << 16
        zipped.writestr(info, "/etc/passwd")
    for name in ("m.tar", "m.zip"):
        with pytest.raises(UserError, match="holds a link or a device: 'config.json'"):
            import_model(tmp_path / name, tmp_path / "run")


def test_what_is_too_large_is_refused_whatever_the_archive_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "m.zip", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("config.json", b" " * 50_000)
    monkeypatch.setattr(archive, "MOST_BYTES", 40_000)
    with pytest.raises(UserError, match="larger than"):
        import_model(tmp_path / "m.zip", tmp_path / "run")
    monkeypatch.setattr(archive, "MOST_FILES", 2)
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as made:
        for number in range(3):
            made.writestr(f"{number}.json", b"{}")
    packed_files = tmp_path / "many"
    packed_files.mkdir()
    for number in range(3):
        (packed_files / f"{number}.json").write_text("{}")
    packed(packed_files, tmp_path / "many.tar")
    for name in ("many.zip", "many.tar"):
        with pytest.raises(UserError, match="more than 2 files"):
            import_model(tmp_path / name, tmp_path / "run")


def test_damaged_archives_and_those_without_a_model_have_one_message(tmp_path: Path) -> None:
    save(tmp_path / "theirs", "bert")
    for name in ("m.zip", "m.tar.gz"):
        path = packed(tmp_path / "theirs", tmp_path / name)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with pytest.raises(UserError, match="damaged"):
            import_model(path, tmp_path / "run")
        path.write_bytes(b"no archive")
        with pytest.raises(UserError, match="damaged"):
            import_model(path, tmp_path / "run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "readme.txt").write_text("nothing")
    with pytest.raises(UserError, match=r"holds no config.json"):
        import_model(packed(tmp_path / "empty", tmp_path / "none.zip"), tmp_path / "run")
    (tmp_path / "two" / "a").mkdir(parents=True)
    (tmp_path / "two" / "b").mkdir()
    for name in "ab":
        (tmp_path / "two" / name / "config.json").write_text("{}")
    with pytest.raises(UserError, match="holds several models: a, b"):
        import_model(packed(tmp_path / "two", tmp_path / "two.zip"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_missing_archive_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mallang.commands.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["mallang", "import", "none.zip"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2 and "there is no file none.zip" in capsys.readouterr().err
