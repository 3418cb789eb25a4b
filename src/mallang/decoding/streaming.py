"""Streaming: the tokens of greedy search or sampling, each as soon as it is generated."""

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
"""The methods without backtracking: a generated token never changes."""


def stream(
    model: Autoregressive, batch: Batch, config: Config, number: int = 0, rules: Rules | None = None
) -> Iterator[tuple[int, float]]:
    """The tokens of one sentence, `</s>` at the end, each with its log-probability, as soon as it is chosen.

    `number` is the sentence's index in the caller's text, as in `search`.
    """
    if config.method not in WALKS or config.nbest > 1 or len(batch) != 1:
        raise UserError(
            f"only one output of greedy search or sampling can be streamed, not {config.nbest} of {config.method}",
            todo="method = sampling or greedy, and nbest = 1",
        )
    if config.compile or config.runner == "static":
        raise UserError("captured and compiled steps cannot be streamed", todo="leave out runner and compile")
    model = at_precision(model, config)
    (most,) = limits(batch, config, model)
    walk = (
        to_draw(model, batch, config, [number])
        if config.method == "sampling"
        else Walk.start([most], model.vocabulary, batch.tokens.device)
    )
    runner = Plain(model, config) if config.runner == "plain" else Reserved(model, config)
    weights = PrepackedWeights()
    # Inference mode is set for each step alone: the consumer of this generator must not find gradients disabled.
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
