"""What `import mallang` gives, and what it does not load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mallang

HEAVY = {"torch", "numpy", "pydantic", "sacrebleu", "tokenizers", "safetensors", "matplotlib"}


def loaded_by(code):
    """The modules that a fresh Python holds after running some code."""
    tell = "import sys; print(sorted(sys.modules), file=sys.stderr)"
    script = f"import atexit\natexit.register(lambda: exec({tell!r}))\n{code}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(ast.literal_eval(done.stderr.strip().splitlines()[-1]))


@pytest.mark.parametrize("name", mallang.__all__)
def test_every_exported_name_is_there(name):
    assert getattr(mallang, name).__name__ == {"read_recipe": "read"}.get(name, name)


def test_the_names_a_type_checker_sees_are_those_that_exist():
    tree = ast.parse(Path(mallang.__file__).read_text("utf-8"))
    typed = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    } - {"annotations", "TYPE_CHECKING", "Any"}
    assert typed == set(mallang.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="translate"):
        mallang.translate  # noqa: B018 - looking it up is the test


def test_importing_mallang_loads_nothing_heavy():
    assert not HEAVY & loaded_by("import mallang")


def test_help_loads_nothing_heavy():
    code = "import sys; sys.argv = ['mallang', '--help']\nfrom mallang.commands.main import main\nmain()"
    assert not HEAVY & loaded_by(code)


def test_the_check_sees_what_is_loaded():
    assert "numpy" in loaded_by("import numpy")
