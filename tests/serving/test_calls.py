"""What a request may ask for is what the verbs of every task take: nothing reaches a model that it does not know."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import pytest

from mallang import tasks
from mallang.serving.requests import REQUESTS

ANSWERED = {("mallang.tasks.generation", "score"): {"domain"}}
"""Options that a verb of a task does not have, and calls.py refuses."""


def verbs_of_all_tasks() -> list[tuple[str, Any, str]]:
    """Every class of verbs with each of its verbs that is served."""
    found = []
    for module in pkgutil.iter_modules(tasks.__path__, "mallang.tasks."):
        for each in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(each) and "verbs" in vars(each) and each.__module__ == module.name:
                found += [(module.name, each, verb) for verb in each.verbs if verb in REQUESTS]
    return found


@pytest.mark.parametrize(("module", "kind", "verb"), verbs_of_all_tasks())
def test_every_option_of_a_request_is_one_of_the_verb(module: str, kind: Any, verb: str) -> None:
    parameters = inspect.signature(getattr(kind, verb)).parameters
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return  # options of a search, which are checked by name where they are read
    options = set(REQUESTS[verb].model_fields) - {"run", "stream", *REQUESTS[verb].reads}
    assert options - set(parameters) == ANSWERED.get((module, verb), set())


def test_every_served_verb_belongs_to_a_task() -> None:
    assert {verb for _, _, verb in verbs_of_all_tasks()} == set(REQUESTS)
