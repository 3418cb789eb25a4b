"""The entry point of decoding: searches a batch with the method, precision and coverage penalty of the options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mallang.data.batch import Batch
from mallang.decoding.contract import Autoregressive, Config, Hypothesis, NoOutputError, Rules
from mallang.decoding.coverage import covered
from mallang.decoding.precision import at_precision
from mallang.errors import UserError
from mallang.find import find

__all__ = ["search"]


def search(
    model: Autoregressive,
    batch: Batch,
    config: Config,
    numbers: Sequence[int | tuple[int, int]] | None = None,
    rules: Rules | None = None,
) -> list[list[Hypothesis]]:
    """The outputs of every sentence of a batch, best first, by the method that the configuration names.

    `numbers` are the indices of the sentences in the caller's whole text, optionally each with the index of its first
    sample; they seed sampling, so that samples do not depend on batching. `rules` are the constraints on the outputs.
    """
    model = at_precision(model, config)
    method = find("decoding", config.method)
    options: dict[str, Any] = {"rules": rules} if rules is not None else {}
    if config.method == "sampling":
        options["numbers"] = numbers

    def by_method(config: Config) -> list[list[Hypothesis]]:
        try:
            found: list[list[Hypothesis]] = method.search(model, batch, config, **options)
        except NoOutputError as error:
            if rules is None:
                raise
            raise UserError(
                "the constraints exclude every output: none has a finite score under them",
                todo="relax them; if it fails without any, check whether the training diverged",
            ) from error
        return found

    if not config.coverage:
        return by_method(config)
    return covered(model, batch, config, by_method)
