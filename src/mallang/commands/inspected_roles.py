"""What `mallang inspect` shows of a role labeler: who does what to whom, as a page or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mallang.commands.options import print_json
from mallang.commands.outputs import is_page, make_folder, say_paths
from mallang.errors import UserError


def is_role_labeler(model: Any) -> bool:
    """Whether a model labels semantic roles."""
    from mallang.tasks import semantic_roles

    return isinstance(model, semantic_roles.Verbs)


def show_roles(model: Any, texts: Sequence[str], where: Path | None, json: bool, quiet: bool) -> None:
    """Write who does what to whom in texts as a page, or print it as JSON."""
    from dataclasses import asdict

    from mallang.inspection.role_figures import write_page

    found = model.roles(texts)
    if json:
        print_json([asdict(each) for each in found])
    if where is not None:
        if not is_page(where):
            raise UserError(f"semantic roles are shown on a page, and {where} is none", todo="--out NAME.html")
        make_folder(where.parent)
        say_paths([write_page(where, found)], json, quiet)
