"""Write docs/map.md: every file of src/mallang with the first sentence of its docstring, in the order of the journey.

    python docs/make_map.py

docs/map.template holds the headings and all that is written by hand. A line `{{ data: corpus local * }}` becomes a
list of files of that folder: those that are named, in this order, and for `*` all others that no line names. A folder
that the template does not know follows at the end, so that nothing is ever missing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

DOCS = Path(__file__).parent
SOURCE = DOCS.parent / "src" / "mallang"
PAGE, TEMPLATE = DOCS / "map.md", DOCS / "map.template"
LIST = re.compile(r"^\{\{ (\w+|\.): ?(.*?) ?\}\}$", re.MULTILINE)
LEFT_OUT = ("recipes", "__pycache__")
"""Folders that hold no stage."""
COMMENT = re.compile(r"\A\s*(?:/\*|//|<!--)\s*(.+)")


def text(source: Path = SOURCE, template: str | None = None) -> str:
    """The page as it should be."""
    template = TEMPLATE.read_text("utf-8") if template is None else template
    known = {folder for folder, _ in LIST.findall(template)}
    new = [folder.name for folder in sorted(source.iterdir()) if folder.is_dir() and folder.name not in LEFT_OUT]
    more = "".join(f"\n## Also: `{name}/`\n\n{{{{ {name}: * }}}}\n" for name in new if name not in known)
    template += more
    named = [(folder, name) for folder, names in LIST.findall(template) for name in names.split() if name != "*"]

    def listed(found: re.Match[str]) -> str:
        folder = source / found[1]
        lines = []
        for name in found[2].split():
            others = (path for path in files(folder) if (found[1], path.stem) not in named)
            lines += [line_of(path, source) for path in (others if name == "*" else named_files(folder, name))]
        return "\n".join(lines)

    return re.sub(r"\n{3,}", "\n\n", LIST.sub(listed, template)).rstrip() + "\n"


def files(folder: Path) -> Iterator[Path]:
    """The files of a folder that a reader may look for; its `__init__.py` only where it holds code."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        is_empty = path.name == "__init__.py" and path.read_text("utf-8").count("\n") < 3
        if path.suffix in (".py", ".c", ".html") and not is_empty:
            yield path


def named_files(folder: Path, name: str) -> list[Path]:
    """The file of this name, as long as there is one."""
    path = folder / f"{name}.py"
    return [path] if path.is_file() else []


def line_of(path: Path, source: Path) -> str:
    """One file as an item of a list."""
    where = path.relative_to(source).as_posix()
    said = first_sentence(path)
    return f"- [{path.name}](../src/mallang/{where})" + (f": {said}" if said else "")


def first_sentence(path: Path) -> str:
    """What a file says of itself: the first sentence of its docstring, or its first comment."""
    code = path.read_text("utf-8")
    if path.suffix == ".py":
        said = ast.get_docstring(ast.parse(code)) or ""
    else:
        found = COMMENT.match(code)
        said = found[1].removesuffix("*/").removesuffix("-->") if found else ""
    paragraph = " ".join(said.split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.?!]) (?=[^a-z\d(])", paragraph)[0]
    return sentence if not sentence or sentence.endswith((".", "?", "!")) else f"{sentence}."


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
