import json
import os
import subprocess
import sys
import types

import pytest
from typer.testing import CliRunner

from mallang.commands.data import app
from mallang.data import registry, storage
from mallang.data.miniworld_views import VIEWS
from mallang.errors import UserError


@pytest.fixture(autouse=True)
def places(tmp_path, monkeypatch):
    monkeypatch.setenv("MALLANG_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MALLANG_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments, code=0):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(done.exception, UserError):
        raise done.exception
    assert done.exit_code == code, done.output + str(done.exception)
    return done.output


def put_multi30k(folder):
    """Files of the right names and the wrong content."""
    (folder / "data" / "multi30k").mkdir(parents=True)
    for split in ("train", "val", "test2016", "test2017"):
        for language in ("en", "de", "fr"):
            (folder / "data" / "multi30k" / f"{split}.{language}").write_text(f"{split} {language}\n")


@pytest.mark.parametrize("command", ["list", "get", "show", "prepare", "check"])
def test_every_help_has_an_example(command):
    assert f"mallang data {command}" in run(command, "--help")


def test_the_list_names_every_corpus_and_its_license():
    lines = run("list").splitlines()
    assert lines[0].split("\t") == ["name", "kind", "columns", "rows", "state", "license"]
    rows = {line.split("\t")[0]: line.split("\t")[1:] for line in lines[1:]}
    assert set(rows) == {*VIEWS, *registry.names()}
    counts = "train 135,295, valid 14,705, test 50,000"
    assert rows["nsmc"] == ["classification", "id document label", counts, "download", "CC0 1.0"]
    assert rows["miniworld"][3] == "built in" and rows["squad1.1"][3] == "download in part"
    assert rows["tatoeba-kor-eng"][3] == "own copy" and rows["korean-english/jhe"][3] == "download"
    with pytest.raises(UserError, match="no corpus has 'xyzzy'"):
        run("list", "xyzzy")


def test_the_list_can_be_narrowed_and_read_by_programs():
    found = json.loads(run("list", "TransLation", "--json"))
    assert {row["kind"] for row in found} == {"translation"} and found[0]["name"] == "miniworld"
    assert next(row for row in found if row["name"] == "multi30k")["splits"]["test2016"] == 1000


def test_getting_what_is_here_names_the_folder(places, monkeypatch):
    monkeypatch.setenv("MALLANG_DATA", str(places / "data"))
    put_multi30k(places)
    monkeypatch.setattr(registry, "_check", lambda *given: None)  # the content is not the point here
    got = json.loads(run("get", "multi30k", "--json"))
    assert got[0]["folder"] == str(places / "data" / "multi30k") and len(got[0]["files"]) == 12
    assert "license: not stated in the repository" in run("get", "multi30k")
    assert "mallang itself" in run("get", "miniworld")


def test_getting_a_wrong_file_is_told(places, monkeypatch):
    monkeypatch.setenv("MALLANG_DATA", str(places / "data"))
    put_multi30k(places)
    with pytest.raises(UserError, match="damaged or another version"):
        run("get", "multi30k")


def test_getting_without_network_says_what_to_do(monkeypatch):
    def unreachable(url):
        raise OSError("no network here")

    monkeypatch.setattr(storage, "open_https", unreachable)
    with pytest.raises(UserError, match="no network here") as caught:
        run("get", "ptb")
    assert "MALLANG_DATA" in caught.value.todo
    with pytest.raises(UserError, match="at no public address"):
        run("get", "tatoeba-kor-eng")
    with pytest.raises(UserError) as caught:
        run("get", "multi3k")
    assert "multi30k" in caught.value.todo


def test_parts_that_cannot_be_had_are_named(monkeypatch):
    monkeypatch.setattr(storage, "download", lambda *given: None)
    got = json.loads(run("get", "squad1.1", "--json"))[0]
    assert got["files"] == ["dev-v1.1.json"] and got["missing"] == ["train-subset-v1.1.json"]


def test_files_are_checked_as_splits(places):
    (places / "train.tsv").write_text("".join(f"글 {i} 끝\ttext {i} end\n" for i in range(9)))
    (places / "test.tsv").write_text("글 3 끝\ttext 3 end\n말\tword\n")
    said = run("check", "train.tsv", "test.tsv")
    assert "test: 1 of 2 rows (50.0%) are in train as well; the first is row 1" in said
    assert "train.tsv: the first line is data, not a header" in said
    run("check", "train.tsv", "test.tsv", "--strict", code=1)
    assert run("check", "train.tsv", "--strict").endswith("nothing suspicious was found\n")
    told = json.loads(run("check", "train.tsv", "test.tsv", "--json", "--columns", "2"))
    assert told["splits"][0]["columns"][0]["name"] == "2" and len(told["findings"]) == 1


@pytest.mark.parametrize(("names", "is_header"), [("review\tsentiment", True), ("ko\ten", True), ("나는\tme", False)])
def test_a_first_line_of_usual_names_is_a_header(places, names, is_header):
    (places / "own.tsv").write_text(f"{names}\n좋은 영화\tgood\n나쁜 영화\tbad\n")
    said = run("check", "own.tsv")
    assert ("the first line names the columns" in said) == is_header
    shown = [line for line in run("show", "own.tsv").splitlines() if line.startswith("own\t")]
    assert len(shown) == (2 if is_header else 3)


def test_parallel_files_are_one_split(places):
    for name in ("train", "dev"):
        (places / f"{name}.ko").write_text(f"{name} 하나\n{name} 둘\n")
        (places / f"{name}.en").write_text(f"{name} one\n{name} two\n")
    told = json.loads(run("check", "train.ko", "train.en", "dev.ko", "dev.en", "--json"))
    assert [split["name"] for split in told["splits"]] == ["train", "dev"]
    assert [column["name"] for column in told["splits"][0]["columns"]] == ["ko", "en"]
    told = json.loads(run("check", "train", "dev", "--json", "--source", "en", "--target", "ko"))
    assert told["splits"][1]["columns"][0] == {**told["splits"][1]["columns"][0], "name": "source", "longest": 1}


def test_files_of_one_name_keep_their_folders(places):
    for folder in ("a", "b"):
        (places / folder).mkdir()
        (places / folder / "train.txt").write_text(f"{folder}\n")
    told = json.loads(run("check", "a/train.txt", "b/train.txt", "--json"))
    assert [split["name"] for split in told["splits"]] == ["a/train.txt", "b/train.txt"]


def test_a_corpus_is_checked_by_name():
    """In a process of its own, for drawing all of miniworld while types are checked takes a minute."""
    code = "from mallang.commands.data import app; app(['check', 'miniworld', '--json'])"
    told = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert [split["rows"] for split in told["splits"]] == [20000, 1000, 1000]
    assert told["leaks"] == [] and told["findings"] == []


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (["multi3k"], "there is no corpus 'multi3k'"),
        (["none.tsv", "a.tsv"], "there is no file none.tsv"),
        (["none.tsv"], "there is no file none.tsv"),
    ],
)
def test_what_is_not_there_is_told(targets, message):
    with pytest.raises(UserError, match=message):
        run("check", *targets)


def test_preparing_reads_the_recipe_and_tells_the_account(monkeypatch):
    asked = []
    account = types.SimpleNamespace(account="train: 5 read, 5 kept (100.0%)")

    def prepare_data(recipe, folder):
        asked.append((recipe.data.max_length, folder))
        return types.SimpleNamespace(train=account, valid=account)

    monkeypatch.setattr("mallang.training.materials.prepare_data", prepare_data)
    assert run("prepare", "transformer-miniworld", "data.max_length=77").count("5 kept") == 2
    assert asked == [(77, None)]


def test_list_get_and_check_do_without_torch(places):
    (places / "a.txt").write_text("하나\n둘\n")
    code = "import sys\nfrom mallang.commands.data import app\ntry: app()\nfinally: assert 'torch' not in sys.modules"
    for arguments in (["list"], ["get", "miniworld"], ["check", "a.txt"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=os.environ | {"NO_COLOR": "1"}
        )
        assert done.returncode == 0, done.stderr


def test_the_first_rows_of_a_corpus_or_of_files_are_shown(places):
    lines = [line.split("\t") for line in run("show", "miniworld", "--split", "valid", "--rows", "2").splitlines()]
    assert lines[0] == ["split", "row", "ko", "en"] and [line[:2] for line in lines[1:]] == [
        ["valid", "1"],
        ["valid", "2"],
    ]
    found = json.loads(run("show", "miniworld", "--columns", "en", "-n", "1", "--json"))
    assert [row["split"] for row in found] == ["train", "valid", "test"] and set(found[0]["columns"]) == {"en"}
    (places / "mine.csv").write_text('text,split\n"a\nb",good\nc,bad\n', "utf-8")
    told = run("show", "mine.csv", "-n", "1", "--columns", "text,split").splitlines()
    assert [line for line in told if not line.startswith("note")] == ["split\trow\ttext\tsplit", "mine\t1\ta\\nb\tgood"]
    with pytest.raises(UserError, match="has no split 'tset'"):
        run("show", "miniworld", "--split", "tset")
    with pytest.raises(UserError, match="nowhere"):
        run("show", "nowhere")


def test_a_terminal_shows_square_brackets_and_colons_as_they_are(places):
    import pty

    (places / "rows.tsv").write_text("x [/laughs] y\the [laughs] loudly :heart:\n", "utf-8")
    outer, inner = pty.openpty()
    done = subprocess.run([sys.executable, "-m", "mallang", "data", "show", "rows.tsv"], stdout=inner, stderr=inner)
    os.close(inner)
    shown = os.read(outer, 10_000).decode()
    os.close(outer)
    assert done.returncode == 0 and "x [/laughs] y" in shown and "he [laughs] loudly :heart:" in shown, shown


def test_morphemes_are_written_to_a_folder_that_is_there(tmp_path):
    (tmp_path / "a.tsv").write_text("물\twater\n", "utf-8")
    with pytest.raises(UserError, match="there is no folder nowhere for a.gz"):
        run("analyze", "a.tsv", "--out", "nowhere/a.gz")
