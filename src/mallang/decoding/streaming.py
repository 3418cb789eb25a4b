"""Tokens as they are said, one after the other: what greedy search or sampling would give at the end."""

from __future__ import annotations

from collections.abc import Iterator

from mallang.data.batch import Batch
from mallang.decoding.contract import Autoregressive, Config, Rules, inference, limits
from mallang.decoding.greedy import Walk
from mallang.decoding.precision import at_precision
from mallang.decoding.runner import Plain, Reserved
from mallang.decoding.sampling import to_draw
from mallang.errors import UserError
from mallang.kernels.prepacked import PrepackedWeights

WALKS = ("greedy", "sampling")
"""The searches that never look back: what they have said stays said."""


def stream(
    model: Autoregressive, batch: Batch, config: Config, number: int = 0, rules: Rules | None = None
) -> Iterator[tuple[int, float]]:
    """The tokens of one sentence, `</s>` at the end, each with its log-probability, as soon as it is chosen.

    `number` is the sentence's place in the caller's text, as `search` has it.
    """
    if config.method not in WALKS or config.nbest > 1 or len(batch) != 1:
        raise UserError(
            f"one output can be told token by token as it grows, not {config.nbest} of the method {config.method}",
            todo="method = sampling or greedy, and nbest = 1",
        )
    if config.compile or config.runner == "static":
        raise UserError("captured and compiled steps are not told token by token", todo="leave out runner and compile")
    model = at_precision(model, config)
    (most,) = limits(batch, config, model)
    walk = (
        to_draw(model, batch, config, [number])
        if config.method == "sampling"
        else Walk.start([most], model.vocabulary, batch.tokens.device)
    )
    runner = Plain(model, config) if config.runner == "plain" else Reserved(model, config)
    weights = PrepackedWeights()
    # The mode is set for each step alone: whoever reads this stream must not find gradients turned off.
    with inference(model), weights.in_use():
        progress = runner.begin(batch, walk, rules)
    for place in range(most):
        found: Walk = progress.search  # type: ignore[assignment]
        token, score = int(found.labels[0, 0, place]), float(found.token_scores[0, 0, place])
        yield token, score
        if token == model.vocabulary.eos or place + 1 == most:
            return
        with inference(model), weights.in_use():
            progress = runner.advance(progress)
