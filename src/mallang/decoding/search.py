"""Search for the outputs of a batch: by the method, precision and coverage penalty that the options name."""

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
    """The outputs for every sentence of a batch, best first, by the method that the configuration names.

    `numbers` are the sentences' places in the caller's whole text, perhaps each with the number of its first sample;
    sampling draws for them, so that it does not matter how the text was cut into batches. `rules` say what the outputs
    must or must not contain.
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
                "the rules leave nothing to say: no output has a probability under them",
                todo="ask for less; if it is the same without any, see whether the training diverged",
            ) from error
        return found

    if not config.coverage:
        return by_method(config)
    return covered(model, batch, config, by_method)
