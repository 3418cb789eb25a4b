"""What a call is given and gives back is checked against its annotations, shapes too, while the tests run.

jaxtyping's own decorator does that for any checker: it binds the arguments of every call to their names and looks at
them twice, which took half of the time of the tests. Here beartype looks at every value once, and only functions with
shapes get a scope for the sizes of their axes. Where that would not be the same, jaxtyping's decorator stays.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import partial, update_wrapper, wraps
from types import FunctionType
from typing import Any, get_args, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray, TypeCheckError

AS_JAXTYPING = jaxtyping.jaxtyped
SCOPE = AS_JAXTYPING("context")
look = beartype(conf=BeartypeConf(violation_type=TypeCheckError))
MOST = 30
"""The calls of a function with shapes that are looked at in one test: all would take as long as what they compute."""
CALLS: Counter[Any] = Counter()
"""How often each function was called in the test that runs."""
WRITTEN: dict[tuple[Any, ...], tuple[Any, bool]] = {}
"""The checks of functions that stand within functions, and whether they have shapes."""


def install() -> None:
    """Check whatever of mallang is imported from now on."""
    jaxtyping.jaxtyped = checked  # type: ignore[assignment]  # the hook writes this name above every function
    jaxtyping.install_import_hook("mallang", "beartype.beartype")


def checked(what: Any = None, *, typechecker: Any) -> Any:
    """A function whose calls are checked, or a dataclass whose making is."""
    if what is None:
        return partial(checked, typechecker=typechecker)
    if inspect.isclass(what):
        if is_dataclass(what) and not hasattr(what.__init__, "is_checked"):
            what.__init__ = checked(what.__init__, typechecker=typechecker)  # type: ignore[method-assign]
        return what
    if inspect.isgeneratorfunction(what):  # beartype sees its arguments only when the generator begins
        made = AS_JAXTYPING(what, typechecker=typechecker)
    else:
        made = seen_once(what) or AS_JAXTYPING(what, typechecker=typechecker)
    made.is_checked = True
    return made


def begin_test() -> None:
    """Calls are counted anew."""
    CALLS.clear()


def seen_once(function: Any) -> Any | None:
    """A function whose values beartype sees; none where the size of an axis is computed from arguments by name."""
    key = (function.__module__, function.__code__, str(function.__annotations__))
    if key in WRITTEN:
        checks, has_shapes = WRITTEN[key]
        made = same_checks(checks, function)
    else:
        hints = {name: meant(text, function.__globals__) for name, text in function.__annotations__.items()}
        shapes = [shape for hint in hints.values() for shape in shapes_in(hint)]
        if any("{" in shape.dim_str for shape in shapes):
            return None
        made, has_shapes = with_hints(function, hints), bool(shapes)
        if "<locals>" in function.__qualname__ and "__beartype_func" in (made.__kwdefaults__ or ()):
            WRITTEN[key] = made, has_shapes
    return in_a_scope(made, function) if has_shapes else made


def with_hints(function: Any, hints: dict[str, Any]) -> Any:
    """Checked by beartype, which looks no names up itself: what jaxtyping cannot find is anything here too."""
    written = function.__annotations__
    function.__annotations__ = hints
    made = look(function)
    function.__annotations__ = made.__annotations__ = written
    return made


def same_checks(checks: Any, function: Any) -> Any:
    """A function within a function is made whenever that one is called; its checks, which take longer, only once."""
    made = FunctionType(checks.__code__, checks.__globals__)
    made.__kwdefaults__ = {**checks.__kwdefaults__, "__beartype_func": function}
    return update_wrapper(made, function)


def in_a_scope(made: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The sizes of axes are those of one call; of the many calls of a test the first are looked at."""
    code = function.__code__  # a function within a function is made anew, and its calls counted together

    @wraps(made)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        CALLS[code] += 1
        if CALLS[code] > MOST:
            return function(*args, **kwargs)
        with SCOPE:
            return made(*args, **kwargs)

    return call


def meant(annotation: Any, names: dict[str, Any]) -> Any:
    """What an annotation stands for; anything, where it has a name that is not there, or not there yet."""

    def holder() -> None: ...

    holder.__annotations__ = {"return": annotation}
    try:
        return get_type_hints(holder, names, include_extras=True)["return"]
    except Exception:
        return Any


def shapes_in(hint: Any) -> list[Any]:
    """The shapes in an annotation, at whatever depth."""
    if inspect.isclass(hint) and issubclass(hint, AbstractArray):
        return [hint]
    parts = hint if isinstance(hint, list) else get_args(hint)
    return [shape for part in parts for shape in shapes_in(part)]
