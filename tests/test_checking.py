"""The checks of the tests themselves: they refuse what jaxtyping's own decorator refuses, and nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from beartype import beartype
from jaxtyping import Float, Int, TypeCheckError
from torch import Tensor

from checking import AS_JAXTYPING, MOST, begin_test, checked
from mallang.data.batch import Batch, pad_rows
from mallang.layers.attention import Attention
from mallang.layers.head import Projection

Vectors = Float[Tensor, "rows dim"]


def product(left: Float[Tensor, "rows inner"], right: Float[Tensor, "inner columns"]) -> Float[Tensor, "rows columns"]:
    return (left @ right) if len(left) < 9 else left


def named(vectors: Vectors, *others: Vectors, ids: Int[Tensor, " rows"] | None = None) -> tuple[Vectors, int]:
    return vectors, len(others)


def nested(parts: Sequence[Vectors], by: dict[str, Int[Tensor, " rows"]]) -> list[Vectors]:
    return [part.int() if "bad" in by else part for part in parts]


def computed(size: int, extra: int = 0) -> Float[Tensor, "{size} 2*{size}"]:
    return torch.zeros(size, 2 * size + extra)


def plain(count: int, words: list[str] | None = None) -> str:
    return "word" if words is None else words  # type: ignore[return-value]


def unknown(there: Nowhere, count: int) -> Nowhere:  # type: ignore[name-defined]
    return count


def calling(vectors: Vectors, rows: int) -> Vectors:
    return product(vectors, torch.zeros(vectors.shape[1], vectors.shape[1] + rows))


def inner(vectors: Vectors, bias: Any) -> Vectors:
    def add(more: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows dim"]:
        return more + bias

    return checked(add, typechecker=beartype)(vectors)


def generated(count: int, vectors: Vectors) -> Iterator[int]:
    yield from range(count)


@dataclass
class Held:
    vectors: Vectors
    ids: Int[Tensor, " rows"]
    name: str = ""


@dataclass
class Kept(Held):
    count: int = 0


def floats(*shape: int) -> Tensor:
    return torch.zeros(*shape)


def ids(count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.long)


CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any], bool]] = [
    (product, (floats(2, 3), floats(3, 4)), {}, True),
    (product, (floats(2, 3),), {"right": floats(3, 4)}, True),
    (product, (floats(2, 3), floats(2, 4)), {}, False),
    (product, (floats(2, 3), floats(3, 4, 1)), {}, False),
    (product, (ids(2), floats(3, 4)), {}, False),
    (product, (floats(2, 3).int(), floats(3, 4)), {}, False),
    (product, (floats(9, 3), floats(3, 4)), {}, False),  # what comes back has the wrong shape
    (named, (floats(2, 3), floats(2, 3)), {"ids": ids(2)}, True),
    (named, (floats(2, 3), floats(2, 4)), {}, False),
    (named, (floats(2, 3),), {"ids": ids(3)}, False),
    (named, (floats(2, 3),), {"ids": "two"}, False),
    (nested, ([floats(2, 3)], {"a": ids(2)}), {}, True),
    (nested, ([floats(2, 3)], {"a": ids(4)}), {}, False),
    (nested, ([floats(2, 3)], {"bad": ids(2)}), {}, False),
    (computed, (3,), {}, True),
    (computed, (3,), {"extra": 1}, False),
    (plain, (1,), {}, True),
    (plain, ("1",), {}, False),
    (plain, (1, [2]), {}, False),
    (plain, (1, ["a"]), {}, False),
    (unknown, ("anything", 1), {}, True),
    (unknown, ("anything", "1"), {}, False),
    (calling, (floats(2, 3), 0), {}, True),  # the sizes of one call are not those of another
    (calling, (floats(2, 3), 1), {}, False),
    (generated, (2, floats(2, 3)), {}, True),
    (generated, ("2", floats(2, 3)), {}, False),  # before it begins
    (Held, (floats(2, 3), ids(2)), {}, True),
    (Held, (floats(2, 3), ids(3)), {}, False),
    (Held, (floats(2, 3), ids(2), 5), {}, False),
    (Kept, (floats(2, 3), ids(2)), {"count": 1}, True),
    (Kept, (floats(2, 3), ids(2)), {"count": "1"}, False),
    (Kept, (floats(2, 3), ids(3)), {}, False),
]


def decorated(what: Any, decorator: Callable[..., Any]) -> Any:
    """A function or a class of its own, checked by this decorator."""
    if inspect.isclass(what):
        what = dataclass(type(what.__name__, what.__bases__, {**vars(what)}))
    return decorator(what, typechecker=beartype)


@pytest.mark.parametrize("decorator", [AS_JAXTYPING, checked], ids=["jaxtyping", "here"])
@pytest.mark.parametrize(("what", "arguments", "named", "fits"), CALLS)
def test_both_refuse_the_same(
    what: Any, arguments: tuple[Any, ...], named: dict[str, Any], fits: bool, decorator: Callable[..., Any]
) -> None:
    made = decorated(what, decorator)
    for _ in range(2):
        if fits:
            made(*arguments, **named)
        else:
            with pytest.raises(TypeCheckError):
                made(*arguments, **named)


def test_a_function_within_a_function_is_checked_every_time() -> None:
    made = checked(inner, typechecker=beartype)
    for bias in (1.0, 2.0):
        assert made(floats(2, 3), bias).unique().item() == bias  # its own function, not that of the first call
        with pytest.raises(TypeCheckError):
            made(floats(2, 3), floats(1, 2, 3))


def test_a_checked_function_looks_like_itself() -> None:
    for what in (product, plain, unknown):
        made = checked(what, typechecker=beartype)
        assert (made.__name__, made.__qualname__, inspect.unwrap(made)) == (what.__name__, what.__qualname__, what)
        assert made.__annotations__ == what.__annotations__ and inspect.signature(made) == inspect.signature(what)


def test_what_is_imported_is_checked() -> None:
    with pytest.raises(TypeCheckError):
        Batch(tokens=ids(4), lengths=ids(4))  # type: ignore[call-arg]
    with pytest.raises(TypeCheckError):
        pad_rows(3)  # type: ignore[arg-type]
    for method in (Attention.attend, Projection.forward, Attention.split_heads):
        assert hasattr(method, "is_checked")


def test_the_first_calls_of_a_test_are_looked_at_and_those_of_the_next_again() -> None:
    add = checked(product, typechecker=beartype)
    begin_test()
    for _ in range(MOST):
        with pytest.raises(TypeCheckError):
            add(torch.zeros(9, 3), torch.zeros(3, 2))
    assert len(add(torch.zeros(9, 3), torch.zeros(3, 2))) == 9, "it is not looked at any more"
    begin_test()
    with pytest.raises(TypeCheckError):
        add(torch.zeros(9, 3), torch.zeros(3, 2))
