"""Capabilities are declared, not guessed: what the syntax trees of src/mallang may not hold.

A guess is `hasattr(model, "fit")`, `getattr(task, "unread", ())`, a look at a constructor's signature, or a comparison
of a task's name with a text. Each has a declared form: a protocol of models/contract.py or tasks/contract.py.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "mallang"
FILES = sorted(SOURCE.rglob("*.py"))
NO_MODEL = {
    ("find.py", "reads_source"): "the place where a plugin is checked to declare it",
    ("streams.py", "flat"): "a corpus of one column",
    ("loader.py", "gather"): "a dataset",
    ("loader.py", "many"): "a dataset",
    ("loader.py", "_shutdown_workers"): "torch's iterator over batches",
    ("storage.py", "reason"): "an error of urllib",
    ("main.py", "filename"): "an OSError",
    ("doctor.py", "sched_getaffinity"): "the operating system",
    ("allocator.py", "mallopt"): "the C library",
    ("cache.py", "_fields"): "a nest of tensors that may be a named tuple",
    ("prepacked.py", "weights"): "a thread-local variable",
}
"""What is asked for an attribute by name though it is no model, task or verbs: file name and attribute, and why."""
TASK_NAMES = ("task", "task_name")


def guesses(tree: ast.AST, file: str) -> Iterator[str]:
    """The guesses of a file, one line each."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from guessed_attribute(node, file)
        if isinstance(node, ast.Compare) and is_task(node.left) and any(map(is_text, node.comparators)):
            yield f"{file}:{node.lineno} compares the name of a task: {ast.unparse(node)}"
        if isinstance(node, ast.Match) and is_task(node.subject):
            yield f"{file}:{node.lineno} compares the name of a task: match {ast.unparse(node.subject)}"


def guessed_attribute(call: ast.Call, file: str) -> Iterator[str]:
    """A call that looks for an attribute which may be missing, or at the signature of something."""
    called = ast.unparse(call.func)
    if called in ("signature", "inspect.signature") and file != "options.py":  # a command's own options
        yield f"{file}:{call.lineno} looks at a signature: {ast.unparse(call)}"
    if called == "hasattr" or (called == "getattr" and len(call.args) == 3):
        name = call.args[1].value if isinstance(call.args[1], ast.Constant) else None
        is_checked_declaration = file == "find.py" and ast.unparse(call.args[0]) == "module"
        if (file, name) not in NO_MODEL and not is_checked_declaration:
            yield f"{file}:{call.lineno} guesses: {ast.unparse(call)}"


def is_task(node: ast.AST) -> bool:
    """Whether this is the name of a task: `task_name`, `run.task`, `model.task_name`."""
    return (node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")) in TASK_NAMES


def is_text(node: ast.AST) -> bool:
    """Whether this is a text, or several."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(map(is_text, node.elts))
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def is_verb(tree: ast.Module) -> bool:
    """Whether a file of commands/ is a verb: it defines what runs."""
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assigned = {ast.unparse(target) for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}
    return "command" in defined or "app" in assigned


def imported(tree: ast.AST, typing: bool = True) -> Iterator[str]:
    """The dotted names below mallang that a file imports, also inside functions; without `typing`, those that run."""
    left_out: set[ast.AST] = set()
    for node in ast.walk(tree):
        if not typing and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            left_out |= set(ast.walk(node))
        if node in left_out:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mallang":
            base = (node.module or "").split(".")[1:]
            yield from (".".join([*base, alias.name]) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name[8:] for alias in node.names if alias.name.startswith("mallang."))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("find", "find.find") and len(node.args) == 2:
            stage, name = node.args
            if isinstance(stage, ast.Constant) and isinstance(name, ast.Constant):
                yield f"{stage.value}.{name.value}"


def verbs_imported(trees: dict[str, ast.Module]) -> list[str]:
    """Which commands import another verb, given the trees of commands/ by name."""
    verbs = {name for name, tree in trees.items() if is_verb(tree)}
    found = ((name, path.split(".")) for name, tree in trees.items() for path in imported(tree))
    return [
        f"{name} imports the verb {path[1]}"
        for name, path in found
        if path[0] == "commands" and len(path) > 1 and path[1] in verbs - {name}
    ]


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Files that import each other in a circle, if any do."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_nothing_is_guessed():
    found = [line for path in FILES for line in guesses(ast.parse(path.read_text("utf-8")), path.name)]
    assert not found, "\n".join(found)


def test_no_command_imports_another():
    trees = {path.stem: ast.parse(path.read_text("utf-8")) for path in (SOURCE / "commands").glob("*.py")}
    assert {name for name, tree in trees.items() if not is_verb(tree)} == {
        "__init__", "main", "options", "inputs", "outputs", "judged", "inspected", "inspected_roles", "rewritten",
        "starts",
    }  # fmt: skip
    assert not verbs_imported(trees)


def test_no_files_import_each_other():
    names = {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in FILES if path.stem[0] != "_"}

    def targets(path: Path) -> Iterator[str]:
        for name in imported(ast.parse(path.read_text("utf-8")), typing=False):
            yield from (known for known in (name, name.rpartition(".")[0]) if known in names)

    graph = {name: set(targets(path)) - {name} for name, path in names.items()}
    assert sum(map(len, graph.values())) > 500
    assert not (found := cycle(graph)), " → ".join(found)


def test_what_is_guessed_is_named():
    """The checks above can fail."""
    wrong = """
def ask(model, task, run, name):
    if hasattr(model, "fit") or getattr(task, "unread", ()):
        inspect.signature(model.Model).parameters
    if run.task == "translation" or task_name in ("dialogue", "translation"):
        match model.task_name:
            case "translation": pass
    return getattr(model, name), isinstance(model, Fitted), run.task == name
"""
    found = list(guesses(ast.parse(wrong), "wrong.py"))
    assert sorted(int(line.split(":")[1].split()[0]) for line in found) == [3, 3, 4, 5, 5, 6]
    assert {line.split(" ", 1)[1].split(":")[0] for line in found} == {
        "guesses", "looks at a signature", "compares the name of a task",
    }  # fmt: skip
    assert not list(guesses(ast.parse('getattr(examples, "many", None)'), "loader.py"))


def test_commands_and_circles_are_named():
    align = "from mallang.commands.score import File\napp = 1"
    trees = {"score": "def command(): ...", "shared": "x = 1", "align": align}
    assert verbs_imported({name: ast.parse(code) for name, code in trees.items()}) == ["align imports the verb score"]
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) and not cycle({"a": {"b"}, "b": set()})
    lazy = ast.parse("def f():\n    from mallang.tasks import x\nif TYPE_CHECKING:\n    import mallang.models.gpt")
    assert list(imported(lazy, typing=False)) == ["tasks.x"]
    assert set(imported(lazy)) == {"tasks.x", "models.gpt"}
