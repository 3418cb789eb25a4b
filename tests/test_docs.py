"""What README and docs show is run: commands, Python, links. A page runs from top to bottom in a folder of its own.

Trainings are cut to three steps of a tiny model on little data; all else runs as it is shown. A block whose fence names
a file, such as ```tsv train.tsv, is written to that file first.
"""

import contextlib
import json
import os
import re
import runpy
import shlex
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from gpu.stand_ins import shortened
from mallang import find, recipe, schema
from mallang.commands.main import as_typed, main, verbs
from mallang.data import miniworld
from mallang.errors import UserError, install
from mallang.models.contract import is_fitted

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "README.ko.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md")),
]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))
SOURCES = sorted(path for path in (ROOT / "src" / "mallang").rglob("*.py") if path.name != "__init__.py")
RUN = "transformer-miniworld"
FEW = (
    "train.epochs=none", "train.steps=3", "train.validate_every=none", "train.workers=0", "model.size=tiny",
    "decoding.max_length=4",
)  # fmt: skip
"""Added to every training that a page shows; the short outputs keep an untrained model from talking."""
FITTED = [name for name in find.names("models") if is_fitted(find.find("models", name))]
"""Models that learn without gradients: there are no steps to be few."""
LITTLE = ("data.train=train.tsv", "data.valid=valid.tsv", "data.test=test.tsv")
"""Added where a page names no data of its own: the run that all pages use was trained on the whole of miniworld."""
LITTLE_TEXT = ("data.train=train.txt", "data.valid=valid.txt", "data.test=test.txt")
"""The same for language models."""
READING = (
    "question_answering", "multiple_choice", "link_prediction", "mention_classification", "entity_denoising",
    "graph_choice", "coreference", "semantic_roles", "captioning",
)  # fmt: skip
"""Tasks whose recipes keep their own corpus: three columns are no pairs."""
PAIRS = [
    ("나는 물을 마신다.", "I drink water."),
    ("나는 책을 읽는다.", "I read a book."),
    ("그는 물을 마신다.", "He drinks water."),
    ("그는 책을 읽는다.", "He reads a book."),
    ("그녀는 학교에 간다.", "She goes to school."),
    ("우리는 학교에 간다.", "We go to school."),
]
SHOWN = {
    "dog-and-cat": ("within > across + 0.1", "of_its_kind >= 18", "rank <= 5"),
    "european-economic-area": ("exact >= 95", "linked >= 285", "reversed_phrases >= 90"),
    "homonyms": ("min(right.values()) >= 24", "max(alone.values()) <= 20", "other_frame['사과'] >= 30"),
    "it-and-the-animal": ("exact >= 285", "means['animal']['ANIMAL'] > means['place']['ANIMAL'] + 0.2"),
    "je-suis-etudiant": ("said == ['▁I', '▁am', '▁a', '▁student', '</s>']",),
    "unicorns": ("right >= 30",),
}
"""What the variables of a worked example must be when it is trained as its page says."""
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def blocks(page):
    """(language, file name or empty, content) of every fenced block."""
    return [(found[1], found[2] or "", found[3]) for found in FENCE.finditer(page.read_text("utf-8"))]


def shell_lines(page):
    """Every line of a shell block."""
    return [line for kind, _, code in blocks(page) if kind in ("sh", "bash") for line in code.splitlines() if line]


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The run that the pages use, trained for a moment."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MALLANG_CACHE", str(folder / "cache"))
        patch.delenv("MALLANG_DATA", raising=False)
        mallang(patch, ["train", RUN, *FEW, "-q"])
    return folder


@pytest.fixture
def place(tmp_path, trained, monkeypatch):
    """An empty folder with the files that pages take for granted."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MALLANG_CACHE", str(trained / "cache"))
    monkeypatch.delenv("MALLANG_DATA", raising=False)
    monkeypatch.setattr(find, "PLUGINS", {})
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("mallang.evaluation.score.RESAMPLES", 40)  # intervals of three steps of training say nothing
    monkeypatch.setattr("mallang.inspection.cost.REPEATS", 1)  # nor does how fast they talk
    monkeypatch.setattr("mallang.inspection.cost.LONGEST", 8)
    for name, rows in (("train", PAIRS[:4]), ("valid", PAIRS[4:5]), ("test", PAIRS[5:])):
        Path(f"{name}.tsv").write_text("".join(f"{ko}\t{en}\n" for ko, en in rows), "utf-8")
        Path(f"{name}.txt").write_text("".join(f"{ko}\n" for ko, _ in rows) * 100, "utf-8")  # for streams of many rows
    Path("in.txt").write_text("".join(f"{ko}\n" for ko, _ in PAIRS[:2]), "utf-8")
    Path("docs").symlink_to(ROOT / "docs")
    Path("corpora").mkdir()
    return tmp_path


def mallang(patch, arguments):
    """Run the command in this process; what it would leave the shell with must be 0."""
    patch.setattr(sys, "argv", ["mallang", *arguments])
    try:
        main()
    except SystemExit as left:
        assert left.code in (0, None), f"mallang {shlex.join(arguments)} left with {left.code}"


def run_line(line, place, trained, patch, is_cut=True):
    """Run one command line as a shell would: settings before it, `>` after it. A training run is cut, or not."""
    words = shlex.split(line, comments=True)
    settings = [words.pop(0) for _ in range(words.index("mallang"))]
    arguments = words[1:]
    target = None
    if ">" in arguments:
        target, arguments = arguments[arguments.index(">") + 1], arguments[: arguments.index(">")]
    if arguments[0] != "train" and not (place / "runs" / RUN).exists():
        shutil.copytree(trained / "runs" / RUN, place / "runs" / RUN)
    if "test2016" in arguments or "test2017" in arguments:
        arguments = ["test" if word in ("test2016", "test2017") else word for word in arguments]  # little data has one
    if arguments[0] == "train" and "--from" in arguments:
        shutil.copytree(trained / "runs" / RUN, place / "runs" / RUN, dirs_exist_ok=True)
    if arguments[0] == "train" and is_cut and not {"--show", "--help"} & set(arguments):
        model, task = trained_by(arguments[1])
        few = FEW[-2:] if model in FITTED else FEW
        few = few if "decoding" in schema.sections(task) else [each for each in few if not each.startswith("decoding")]
        own = ("classification", "masked_lm", *READING)  # their recipes read what no file of a page holds
        little = {"language_modeling": LITTLE_TEXT, **dict.fromkeys(own, ())}.get(task, LITTLE)
        has_data = "data." in line or Path(arguments[1]).suffix == ".toml"  # a recipe that the page shows names its own
        arguments = [*arguments, *few, *([] if has_data else little)]
    with contextlib.ExitStack() as stack:
        inner = stack.enter_context(pytest.MonkeyPatch.context())
        for name, _, value in (setting.partition("=") for setting in settings):
            inner.setenv(name, value)
        if target is not None:
            stack.enter_context(
                contextlib.redirect_stdout(stack.enter_context(Path(target).open("w", encoding="utf-8")))
            )
        mallang(patch, arguments)


def trained_by(name):
    """The model and the task of a recipe; of a model in a plugin nothing is known before the file is read."""
    try:
        values = recipe.read(name).resolved()
    except UserError:
        return name, "translation"
    return values["model"]["name"], values["task"]["name"]


def run_benchmark(line, patch):
    """Run a script of the benchmarks, which lie beside the package; lines that need a corpus are only read."""
    patch.syspath_prepend(ROOT)
    patch.setattr(sys, "argv", shlex.split(line)[2:])
    patch.delitem(sys.modules, sys.argv[0], raising=False)  # another test may have imported it
    runpy.run_module(sys.argv[0], run_name="__main__")


def commands_of(page):
    """The lines of a page that are commands of mallang, after settings such as MALLANG_DATA=folder."""
    return [line for line in shell_lines(page) if re.match(r"(\w+=\S+ )*mallang\b", line)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_does_what_it_shows(page, place, trained, monkeypatch, capsys):
    if page.name == "README.ko.md":
        pytest.skip("shows what README.md shows, which another test checks")
    with shortened(train=2000, valid=100):
        follow(page, place, trained, monkeypatch)
    capsys.readouterr()


def follow(page, place, trained, monkeypatch, is_cut=True):
    """Do what a page shows, from top to bottom; the names that its Python leaves behind."""
    space = {"__name__": "page"}
    for kind, file, code in blocks(page):
        if file:
            Path(file).write_text(code, "utf-8")
        elif kind == "python":
            if not (place / "runs" / RUN).exists():
                shutil.copytree(trained / "runs" / RUN, place / "runs" / RUN)
            exec(compile(code, name_of(page), "exec"), space)
        elif kind in ("sh", "bash"):
            for line in code.splitlines():
                if re.match(r"(\w+=\S+ )*mallang serve\b", line):
                    with pytest.MonkeyPatch.context() as patch:  # it is understood, and does not serve for ever
                        patch.setattr("mallang.serving.server.serve", lambda options: None)
                        run_line(line, place, trained, patch)
                elif re.match(r"(\w+=\S+ )*mallang\b", line):
                    run_line(line, place, trained, monkeypatch, is_cut)
                elif line.startswith("python docs/examples/"):
                    runpy.run_path(shlex.split(line)[1], run_name="__main__")
                elif line.startswith("python -m benchmarks.protocols") and "--corpus" not in line:
                    run_benchmark(line, monkeypatch)
                elif line.startswith("sha256sum"):
                    files = shlex.split(line)[1:]
                    sums = {subprocess.check_output(["sha256sum", file]).split()[0] for file in files}
                    assert len(sums) == 1, line
    return space


def test_what_is_asked_of_a_server_is_answered(trained):
    """The lines with curl, sent to a server that serves the run of all pages."""
    from serving.serving import serving

    lines = [shlex.split(line) for page in PAGES for line in shell_lines(page) if line.startswith("curl ")]
    with serving(trained / "runs" / RUN, "--workers", "1") as (client, _):
        for _, url, *rest in lines:
            given = dict(zip(rest[::2], rest[1::2], strict=True))
            assert url.startswith("http://localhost:8000/") and given.keys() <= {"-H", "-d"}, url
            headers = dict([given["-H"].split(": ")]) if "-H" in given else {}
            body = given["-d"].encode() if "-d" in given else None
            status, _, answer = client.ask(
                "POST" if body else "GET", url.removeprefix("http://localhost:8000"), body, headers
            )
            assert status == 200 and not answer.startswith(b'{"error"'), (url, answer)
    assert len(lines) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("name", SHOWN)
def test_a_worked_example_shows_what_it_says(name, place, trained, monkeypatch, capsys):
    """Trained as the page says: what its Python measures is what the page tells, within what machines differ by."""
    space = follow(ROOT / "docs" / "examples" / f"{name}.md", place, trained, monkeypatch, is_cut=False)
    assert [rule for rule in SHOWN[name] if not eval(rule, space)] == [], capsys.readouterr().out


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_an_example_runs(example, place, trained, capsys):
    shutil.copytree(trained / "runs" / RUN, place / "runs" / RUN)
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


def test_there_is_something_to_run():
    assert len(commands_of(ROOT / "README.md")) >= 10
    assert sum(len(commands_of(page)) for page in PAGES) >= 40


def test_both_readmes_show_the_same():
    english, korean = (
        [(kind, re.sub(r"\s*#.*", "", code) if kind == "sh" else code) for kind, _, code in blocks(ROOT / name)]
        for name in ("README.md", "README.ko.md")
    )  # comments are in the language of the page
    assert english == korean
    links = [sorted(set(LINK.findall((ROOT / name).read_text("utf-8")))) for name in ("README.md", "README.ko.md")]
    assert set(links[0]) ^ set(links[1]) == {"README.md", "README.ko.md"}


def test_what_the_tutorial_quotes_is_what_is_printed(monkeypatch, capsys):
    page = ROOT / "docs" / "tutorial" / "first-afternoon.md"
    quoted = [code for kind, _, code in blocks(page) if kind == "text"]
    mallang(monkeypatch, ["train", RUN, "model.layers=3", "--show"])
    assert next(code for code in quoted if code.startswith("[model]")) in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["mallang", "train", RUN, "model.layer=3"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err in quoted


def test_what_pages_translate_with_miniworld_belongs_to_it():
    text = "".join(path.read_text("utf-8") for path in [*PAGES, *EXAMPLES])
    shown = re.findall(
        r'(?:translate runs/transformer-miniworld|translate\(|translation_maps\(model,) ?"([^"]+)"', text
    )
    assert len(shown) > 10
    assert [sentence for sentence in shown if not miniworld.is_grammatical(sentence, "ko")] == []


def test_the_readme_is_short():
    for name in ("README.md", "README.ko.md"):
        assert len((ROOT / name).read_text("utf-8").splitlines()) < 200


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=name_of)
def test_links_lead_somewhere(page):
    for link in LINK.findall(page.read_text("utf-8")):
        if not re.match(r"[a-z]+:", link):
            assert (page.parent / link.split("#")[0]).exists(), link


def test_the_list_of_pages_has_every_page():
    folder = ROOT / "docs"
    linked = {(folder / link).resolve() for link in LINK.findall((folder / "README.md").read_text("utf-8"))}
    pages = {
        path
        for part in ("tutorial", "how-to", "explanation", "examples", "ko")
        for path in (folder / part).glob("*.md")
    }
    assert pages <= linked


def test_the_map_links_every_file():
    page = ROOT / "docs" / "map.md"
    linked = {(page.parent / link).resolve() for link in LINK.findall(page.read_text("utf-8"))}
    assert [name_of(path) for path in SOURCES if path not in linked] == []


@pytest.mark.parametrize("page", ["which-model", "coming-from-fairseq", "coming-from-joeynmt"])
def test_measured_numbers_of_a_page_are_in_the_results(page):
    """Every number with a decimal point, or with a comma and no zeros at its end, is a value of results/, rounded."""
    text = (ROOT / "docs" / "how-to" / f"{page}.md").read_text("utf-8")
    text = re.sub(r"```.*?```|`[^`]*`|\([^)]*\)|arXiv:\S+|JoeyNMT 2\.3", " ", text, flags=re.DOTALL)
    files = [json.loads(path.read_text("utf-8")) for path in (ROOT / "results").glob("*.json")]
    known = [each[key] for each in files for key in ("value", "published", "seconds") if each[key] is not None]
    known += [mean_of_seeds(path) for path in (ROOT / "results").glob("*-seed1.json")]
    shown = re.findall(r"\b\d+\.\d+\b|\b\d{1,3},\d{2}[1-9]\b", text)
    assert len(shown) > 1
    for number in shown:
        digits = len(number.partition(".")[2])
        value = float(number.replace(",", ""))
        assert any(round(each, digits) == value for each in known), number


def mean_of_seeds(first):
    """The mean over all seeds of a result, given the file of the first."""
    paths = first.parent.glob(first.name.replace("-seed1.json", "-seed*.json"))
    return statistics.mean(json.loads(path.read_text("utf-8"))["value"] for path in paths)


def test_files_that_the_glossary_names_exist():
    named = re.findall(r"`((?:kernels|layers|models|data|text|tasks|training|decoding|evaluation)/\w+\.py)`",
                       (ROOT / "docs" / "glossary.md").read_text("utf-8"))  # fmt: skip
    assert len(named) > 20
    assert [name for name in named if not (ROOT / "src" / "mallang" / name).exists()] == []


def test_keys_and_recipes_that_pages_name_exist():
    """The pages whose tables name keys and recipes in passing, where no command would fail on a wrong one."""
    pages = [*(ROOT / "docs" / "how-to").glob("coming-from-*.md"), ROOT / "docs" / "how-to" / "which-model.md"]
    pages += [ROOT / "docs" / "ko" / "lectures.md"]
    whole = [recipe.read(name).resolved() for name in recipe.names()]
    known = {
        f"{section}.{key}" for each in whole for section, keys in each.items() if isinstance(keys, dict) for key in keys
    }
    names, corpora = set(recipe.names()), "miniworld|multi30k|ptb|wikitext-2"
    for page in pages:
        quoted = " ".join(re.findall(r"`([^`\n]+)`", page.read_text("utf-8")))
        keys = re.findall(
            r"\b((?:task|model|text|data|train|optimizer|schedule|decoding)\.(?!(?:tsv|txt|de|en|json|safetensors)\b)[a-z_]+)",
            quoted,
        )
        assert len(keys) > 2 and not (wrong := sorted(set(keys) - known)), (page.name, wrong)
        recipes = re.findall(rf"(?<![/\w-])[a-z0-9-]+-(?:{corpora})(?:-[a-z-]+)?\b", quoted)
        assert not (wrong := sorted(set(recipes) - names)), (page.name, wrong)


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    shown = {shlex.split(line, comments=True)[1] for page in PAGES for line in shell_lines(page) if line[:5] == "make "}
    assert {"demo", "test"} <= shown <= targets


def test_no_line_is_left_unchecked():
    scripts = r"python -m benchmarks\.protocols |python docs/examples/\w+\.py$"
    known = re.compile(rf"(\w+=\S+ )*mallang |make |pip install |torchrun |curl http://|sha256sum |{scripts}")
    assert [line for page in PAGES for line in shell_lines(page) if not known.match(line)] == []


def test_extras_that_pages_install_exist():
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for page in PAGES:
        for names in re.findall(r"pip install -e '\.\[([a-z,]+)\]'", page.read_text("utf-8")):
            assert set(names.split(",")) <= set(extras), page


def test_the_ladder_says_in_what_it_differs_from_the_results():
    page = (ROOT / "docs" / "how-to" / "ladder.md").read_text("utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| transformer | "))
    for name in ("exact", "bleu"):
        found = json.loads((ROOT / "results" / f"miniworld-{name}.json").read_text("utf-8"))
        value = f"{found['value']:g}"
        assert value in row or (value in page and found["commit"] in page), name


def test_pages_install_extras_as_messages_do():
    named = re.compile(r"pip install [^`\n]*\[[a-z,]+\]'?")
    lines = [line for page in PAGES for line in named.findall(page.read_text("utf-8"))]
    assert len(lines) > 5
    assert [line for line in lines if line != install(line.partition("[")[2].partition("]")[0])] == []


@pytest.mark.parametrize("verb", ["", *sorted(verbs(find.names("commands")))])
def test_help_is_there(verb, monkeypatch, capsys):
    verb = as_typed(verb)
    mallang(monkeypatch, [*filter(None, [verb]), "--help"])
    assert f"mallang {verb}".strip() in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for page in PAGES for line in shell_lines(page) if line.startswith("torchrun")])
def test_several_processes(line, place):
    words = shlex.split(line, comments=True)
    launcher = [sys.executable, "-m", "torch.distributed.run"]
    subprocess.run(
        [*launcher, *words[1:], *FEW, *LITTLE, "--device", "cpu"],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    (run,) = (place / "runs").iterdir()
    assert '"finished"' in (run / "run.json").read_text("utf-8")
