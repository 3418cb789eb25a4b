"""Where an error was raised, without its message, which may hold a text of a user."""

from __future__ import annotations

import traceback
from pathlib import Path


def place_of(error: BaseException) -> str:
    """The last places of the traceback, innermost first."""
    places = traceback.extract_tb(error.__traceback__)[-3:]
    return " < ".join(f"{Path(place.filename).name}:{place.lineno} {place.name}" for place in reversed(places))
