"""The house rules: who may import whom, how long a function may be, what a model file holds."""

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "mallang"
FILES = sorted(path for path in SOURCE.rglob("*.py"))
RANKS = {
    "text": 0, "data": 1, "kernels": 1, "layers": 2, "models": 3, "decoding": 4, "evaluation": 4, "runs": 5,
    "tasks": 6, "training": 7, "interop": 8, "inspection": 8, "serving": 9, "commands": 10,
}  # fmt: skip
FREE = {"console", "errors", "find", "notebook", "renamed"}
"""Root modules that anyone may import."""
ABOVE = {"recipe": 5, "recipe_layers": 5, "schema": 5, "toml": 5, "loading": 8}
"""Root modules and the lowest rank that may import them."""
LONGEST_FUNCTION, LONGEST_MODEL, LONGEST_FILE, MOST_ARGUMENTS = 60, 300, 400, 8


def name_of(path):
    return str(path.relative_to(SOURCE))


def imports(tree):
    """What a file imports of mallang when it is loaded, and inside functions too; typing-only imports apart."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mallang":
            parts = node.module.split(".")
            yield from ([parts[1:]] if len(parts) > 1 else [[alias.name] for alias in node.names])
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1:] for alias in node.names if alias.name.startswith("mallang."))


def without_typing_block(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = [ast.Pass()]
    return tree


def may_import(importer, imported):
    if imported in FREE or not imported:
        return True
    if importer not in RANKS:
        return True  # root modules load what they need when it is asked for
    if imported in ABOVE:
        return RANKS[importer] >= ABOVE[imported]
    return importer == imported or RANKS[imported] < RANKS[importer]


def wrong_imports(path):
    """What a file may not import, one line each."""
    folder = path.relative_to(SOURCE).parts[0] if path.parent != SOURCE else ""
    tree = without_typing_block(ast.parse(path.read_text("utf-8")))
    for parts in imports(tree):
        imported = parts[0]
        if imported.startswith("_"):
            continue
        if not (imported in RANKS or (SOURCE / f"{imported}.py").exists() or not folder):
            yield f"{name_of(path)} imports mallang.{imported}, which has no rank"
        elif not may_import(folder, imported):
            yield f"{name_of(path)} may not import mallang.{'.'.join(parts)}"
        if folder == "models" and imported == "models":
            yield f"{name_of(path)} imports another model: parts are shared, wiring is not"


def too_long(path):
    """What of a file is too long, one line each."""
    text = path.read_text("utf-8")
    lines = len(text.splitlines())
    is_model = path.parent.name == "models" and path.stem != "contract"  # which lists protocols, and is no paper
    if lines > (LONGEST_MODEL if is_model else LONGEST_FILE):
        yield f"{name_of(path)} has {lines} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = node.end_lineno - node.lineno + 1
            if length > LONGEST_FUNCTION:
                yield f"{name_of(path)}: {node.name} has {length} lines"
            arguments = [a for a in [*node.args.args, *node.args.kwonlyargs] if a.arg not in ("self", "cls")]
            is_kernel = any(ast.unparse(decorator).startswith("triton.jit") for decorator in node.decorator_list)
            # A command's arguments are options of the command line, a kernel's are addresses and strides.
            if path.parent.name != "commands" and not is_kernel and len(arguments) > MOST_ARGUMENTS:
                yield f"{name_of(path)}: {node.name} has {len(arguments)} arguments"


def test_imports_go_down_the_ranks():
    wrong = [line for path in FILES for line in wrong_imports(path)]
    assert len(FILES) > 200 and not wrong, "\n".join(wrong)


def test_functions_and_files_stay_readable():
    wrong = [line for path in FILES for line in too_long(path)]
    assert not wrong, "\n".join(wrong)


def test_what_breaks_the_rules_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path)
    (tmp_path / "models").mkdir()
    path = tmp_path / "models" / "wrong.py"
    long = "\n".join(["    pass"] * 60)
    path.write_text(
        f"from mallang.models import gpt\nfrom mallang.decoding import beam\ndef f(a,b,c,d,e,g,h,i,j):\n{long}\n"
    )
    assert [line.split("wrong.py")[1] for line in wrong_imports(path)] == [
        " imports another model: parts are shared, wiring is not", " may not import mallang.decoding",
    ]  # fmt: skip
    assert [line.split("wrong.py")[1] for line in too_long(path)] == [": f has 61 lines", ": f has 9 arguments"]


def test_the_tree_is_two_deep_and_names_are_plain():
    for path in FILES:
        assert len(path.relative_to(SOURCE).parts) <= 2, path
        assert path.stem not in {"utils", "helpers", "common", "base", "misc", "core"}, path


def test_ranks_forbid_what_they_should():
    assert not may_import("layers", "models") and not may_import("models", "decoding")
    assert not may_import("decoding", "evaluation") and not may_import("text", "recipe")
    assert not may_import("runs", "tasks") and not may_import("runs", "loading") and not may_import("models", "recipe")
    assert may_import("runs", "recipe") and may_import("commands", "loading")
    assert may_import("training", "recipe") and may_import("models", "layers") and may_import("tasks", "errors")


SWITCHES = {
    "a device": r"\bis_cuda\b|\bis_cpu\b|device\.type|cuda\.is_available",
    "a float type": r"torch\.(bfloat16|float16|half)\b|autocast",
    "a compiler": r"is_compiling|torch\.compile\(|custom_op",
    "a kernel's implementation": r"\btriton\b|\bctypes\b|"
    r"kernels(\.| import )(c_|fp8|fused|stable|decode_|prepacked)",
}
"""What layers and models leave to kernels/: a reader of a paper's file meets none of it."""


def switches(path):
    """Where a file asks what runs it, one line each."""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        for what, pattern in SWITCHES.items():
            if re.search(pattern, line):
                yield f"{path.parent.name}/{path.name}:{number} depends on {what}: {line.strip()}"


def test_layers_and_models_read_as_papers_do():
    wrong = [line for path in FILES if path.parent.name in ("layers", "models") for line in switches(path)]
    assert not wrong, "\n".join(wrong)


def test_a_switch_in_a_layer_is_named(tmp_path):
    path = tmp_path / "layer.py"
    path.write_text("if x.is_cuda:\n    y = x.to(torch.bfloat16)\nfrom mallang.kernels.fp8 import linear\nz = x + 1\n")
    found = [line.split(" depends on ")[1].split(":")[0] for line in switches(path)]
    assert found == ["a device", "a float type", "a kernel's implementation"]


def test_attention_is_a_dozen_lines():
    tree = ast.parse((SOURCE / "layers" / "attention.py").read_text("utf-8"))
    [attend] = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "attend"]
    assert attend.end_lineno - attend.body[0].lineno + 1 <= 12


def test_all_tests_run_with_kernels_and_without() -> None:
    root = SOURCE.parents[1]
    made = (root / "Makefile").read_text("utf-8").replace("\\\n", " ")
    either_way = re.search(r"^EITHER_WAY := (.*)$", made, re.M)
    assert either_way is not None and all((root / path).exists() for path in either_way[1].split())
    lines = re.search(r"^test-all:.*\n((?:\t.*\n)+)", made, re.M)
    assert lines is not None
    whole = "$(BIN)/python -m pytest -n 2 $(APART)"
    assert [line.strip() for line in lines[1].splitlines()] == [whole, f"MALLANG_KERNELS=off {whole}"]
