"""Defaults that fit the data, for a model that is trained by its bare name on a user's own files.

    mallang train transformer data.train=train.tsv

A recipe sets the length of training, the model size and the vocabulary size. Without a recipe they are unknown, and
values for four million pairs do not work for 500. So the training text is counted first, and its size selects one row
of TIERS. Values that the user gives take precedence; a recipe is never changed. The values depend on the text alone,
not on the machine, so the same command resumes the same run everywhere, and recipe.toml holds them all.
The rows for up to 400,000 tokens were selected on validation text, among the trials of `benchmarks.small_data_sweep`
and those of benchmarks/small-data-explored.jsonl, which a CPU can afford; the others follow the recipes here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mallang import find, schema
from mallang.data.corpus import Rows, open_corpus
from mallang.data.held_out import place_of
from mallang.errors import UserError
from mallang.recipe import Recipe, Resolved
from mallang.recipe_layers import Values
from mallang.training.fitted_shapes import SHAPES
from mallang.training.started import beneath, is_bare, like_start

MOST_ROWS = 2_000_000
"""Rows that are counted at most; further rows matter only for the held-out share: 0.05% of longer files."""
BYTES_A_TOKEN = 4
"""UTF-8 bytes per subword, about: one value for Latin letters, of one byte, and Hangul, of three."""
FEW = 1000
"""With fewer examples a model memorizes them and learns little else."""
FEWEST_TO_SPLIT = 20
"""With fewer rows none are held out for validation."""
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
"""Shares to hold out of at most FEW rows: the first that gives two rows or more, and at most half of all."""


@dataclass(frozen=True)
class Tier:
    """The defaults for training texts up to a size."""

    tokens: int
    """The maximum size of the training text, in tokens of its longer side."""
    vocabulary: int
    batch_tokens: int
    steps: int
    dropout: float
    smoothing: float
    """Label smoothing, where there is a source."""
    rate: float
    """Peak learning rate of the Transformer; other models keep theirs."""
    size: int
    """The row of the model in SHAPES."""


TIERS = (
    Tier(40_000, vocabulary=2000, batch_tokens=2048, steps=4000, dropout=0.4, smoothing=0.2, rate=2e-3, size=0),
    Tier(400_000, vocabulary=4000, batch_tokens=2048, steps=3000, dropout=0.3, smoothing=0.2, rate=4e-3, size=0),
    Tier(4_000_000, vocabulary=8000, batch_tokens=4096, steps=8000, dropout=0.3, smoothing=0.1, rate=2e-3, size=1),
    Tier(40_000_000, vocabulary=16_000, batch_tokens=8192, steps=40_000, dropout=0.2, smoothing=0.1, rate=1e-3, size=2),
    Tier(10**18, vocabulary=32_000, batch_tokens=16_384, steps=100_000, dropout=0.1, smoothing=0.1, rate=7e-4, size=2),
)
VIEWS: Values = {"size": "small", "penalty": 0.1}
ENCODERS: Mapping[str, tuple[Values, ...]] = {
    "bert": ({"size": "mini"}, {"size": "small"}, {"size": "base"}),
    "transformer_encoder": ({"size": "small"}, {"size": "small"}, {"size": "base"}),
    "self_attentive": (VIEWS, VIEWS, {"size": "base"}),
}
"""The named sizes of encoders by tier, in tasks of labels; a start from another run keeps that run's size.

The base of `self_attentive` has 54 million weights above its views. On 1,000 sentences of miniworld 77.7 % of the dev
set were right, in 25 times the time of its small size with a penalty of 0.1; that had 77.7 % too, the mean over three
seeds, and 75.8 % with the paper's penalty of 1.0.
"""
UNITS = {"unit", "source_unit", "target_unit"}
"""Keys that fix the tokenizer: a user who sets one of them sets the vocabulary too."""
LONG = 64
"""The mean number of tokens per line from which a text is read as one stream."""
WINDOW = 128
"""Tokens per window of a stream, where model and batch size allow as many."""
UNPAIRED = ("unsupervised_translation",)
"""Tasks that begin with pre-training, and whose best weights are chosen by their own metric."""
PAIRED = ("translation", "dialogue")
"""Tasks whose outputs still improve while the validation loss rises: their runs end with the last weights."""
LABELED = ("batch_tokens", ((2000, 30, 5, 1024), (20_000, 15, 5, 2048), (10**18, 6, 5, 4096)))
PASSES: Mapping[str, tuple[str, tuple[tuple[int, int, int, int], ...]]] = {
    **dict.fromkeys(("classification", "pairs", "similarity"), LABELED),
    "tagging": ("batch_sentences", ((2000, 60, 20, 8), (20_000, 25, 8, 32), (10**18, 10, 5, 128))),
}
"""Up to how many examples, passes over them, patience, and the size of a batch; taggers find no span at first."""
VALIDATIONS = {True: 10, False: 20}
"""Validations per run: with pairs, and otherwise, where early stopping applies."""
PATIENCE = 5
"""Early stopping: validations without improvement that end a run whose metric is the loss."""


@dataclass(frozen=True)
class Counted:
    """The size of the training text."""

    name: str
    examples: int
    tokens: int
    """The approximate number of tokens of the longer side."""
    kind: str
    """The kind of an example: pair or line."""
    places: tuple[float, ...] = field(default=(), repr=False)
    """The hash values of the rows, between 0 and 1, of a file of up to FEW rows: those below a share are held out."""

    def __str__(self) -> str:
        more = " or more" if self.examples >= MOST_ROWS else ""
        return f"{self.examples:,} {self.kind}{'' if self.examples == 1 else 's'}{more}"


def with_defaults(resolved: Resolved, *, start: Path | None = None) -> tuple[Resolved, list[str]]:
    """The recipe with fitted defaults beneath the given values, and messages for the user; often nothing changes.

    A run that starts from another run's weights keeps the model size and tokenizer of that run.
    """
    if not is_bare(resolved):
        return resolved, []
    if start is not None:
        resolved = like_start(resolved, start)
    return with_fitted(resolved, is_started=start is not None)


def with_fitted(resolved: Resolved, *, is_started: bool) -> tuple[Resolved, list[str]]:
    """The recipe with defaults that fit the size of its training text."""
    recipe = resolved.build()
    if recipe.data.train is None or recipe.data.corpora is not None:
        return resolved, []
    counted = count(open_corpus(recipe.data, find.find("tasks", recipe.task_name).Task.columns).split("train"))
    values = fitted(counted, recipe.model_name, resolved.values)
    if is_started:
        values = {section: keys for section, keys in values.items() if section not in ("model", "text")}
    if not values:
        return resolved, []
    values = agreeing(values, resolved)
    return beneath(resolved, values, f"fitted to {counted}"), messages(counted, values)


def agreeing(values: Values, resolved: Resolved) -> Values:
    """The fitted values without those that contradict the given ones, which are valid by themselves.

    `nplm model.dim=300` cannot tie weights with the fitted embedding_dim of 128: the single value whose removal makes
    the recipe valid is left out; where there is none, whole sections are, the model's first.
    """
    if builds(beneath(resolved, values)):
        return values
    sections = sorted(values, key=lambda section: section != "model")
    for section in sections:
        for key in reversed(values[section]):
            fewer = {**values, section: {name: value for name, value in values[section].items() if name != key}}
            if builds(beneath(resolved, fewer)):
                return fewer
    for section in sections:
        values = {name: keys for name, keys in values.items() if name != section}
        if builds(beneath(resolved, values)):
            break
    return values


def builds(resolved: Resolved) -> bool:
    """Whether the values of a recipe are consistent."""
    try:
        resolved.build()
    except UserError:
        return False
    return True


def fit_recipe(recipe: Recipe, say: Callable[[str], None], *, start: Path | None = None) -> Recipe:
    """`with_defaults` for a recipe that is already built, such as one read by Python code; `say` gets the messages."""
    resolved, lines = with_defaults(recipe.resolved, start=start)
    for line in lines:
        say(line)
    return recipe if resolved is recipe.resolved else resolved.build()


def count(rows: Rows) -> Counted:
    """Count the rows, and the bytes of their longer side."""
    sides = [0] * len(rows.columns)
    examples = 0
    places: list[float] = []
    for row in itertools.islice(rows, MOST_ROWS):
        examples += 1
        if examples <= FEW:
            places.append(place_of(row))
        for place, text in enumerate(row):
            sides[place] += len(text.encode(errors="surrogatepass"))
    is_labeled = len(rows.columns) == 2 and rows.columns[-1] in ("label", "tags")
    kind = "line" if len(rows.columns) == 1 else "labeled text" if is_labeled else "pair"
    known = tuple(places) if examples <= FEW else ()
    return Counted(rows.name, examples, max(sides) // BYTES_A_TOKEN + examples, kind, known)


def fitted(counted: Counted, model: str, given: Mapping[str, Any]) -> Values:
    """The defaults for a text of this size, without what was given and what would contradict it."""
    values: Values = {}
    if not given["data"].get("valid") and "hold_out" not in given["data"]:
        values["data"] = {"hold_out": held_out_share(counted)}
    if given["task"]["name"] in PASSES and trains(model):
        values |= labeled(counted, model, given)
        return {section: kept for section, keys in values.items() if (kept := less(keys, given.get(section, {})))}
    if not has_gradients(model):
        return values
    tier, is_paired = tier_of(counted), given["task"]["name"] in PAIRED
    is_unpaired = given["task"]["name"] in UNPAIRED
    values |= {
        "task": {"label_smoothing": tier.smoothing} if is_paired else layout(counted, model, given),
        "text": {} if UNITS & set(given.get("text", {})) else {"vocabulary": tier.vocabulary},
        "model": shape(tier, model, given),
        "train": lengths(tier, given.get("train", {}), is_paired=is_paired),
        "optimizer": rates(tier, model, given),
        "schedule": {} if "name" in given.get("schedule", {}) else {"name": "cosine"},
    }
    total = values["train"].get("steps") or updates(counted, tier, given.get("train", {}))
    if total is not None:
        values["schedule"]["warmup"] = max(1, total // 10)
        values["train"]["validate_every"] = max(1, total // VALIDATIONS[is_paired or is_unpaired])
        if is_unpaired:
            values["task"] = {"denoising_updates": total // 10}
            values["train"].pop("patience", None)
    return {section: kept for section, keys in values.items() if (kept := less(keys, given.get(section, {})))}


def labeled(counted: Counted, model: str, given: Mapping[str, Any]) -> Values:
    """The defaults of classifiers and taggers: small files are read more often, in smaller batches."""
    unit, rows = PASSES[given["task"]["name"]]
    _, epochs, patience, batch = next(row for row in rows if counted.examples <= row[0])
    given_length = {"steps", "epochs", "seconds"} & set(given.get("train", {}))
    train: Values = {unit: batch} | ({} if given_length else {"epochs": epochs, "patience": patience})
    text = {} if UNITS & set(given.get("text", {})) else {"vocabulary": tier_of(counted).vocabulary}
    sized = ENCODERS[model][tier_of(counted).size] if model in ENCODERS and "size" not in given["model"] else {}
    return {"model": sized, "train": train, "text": text, "optimizer": {"max_grad_norm": 1.0}}


def trains(model: str) -> bool:
    """Whether a model is trained by gradients."""
    from mallang.models.contract import is_fitted  # which needs torch

    return not is_fitted(find.find("models", model))


def has_gradients(model: str) -> bool:
    """Whether a model is trained by gradient updates; others are fitted to their text in one call."""
    if model in SHAPES or model not in find.PLUGINS:
        return model in SHAPES
    return trains(model)


def less(values: Values, given: Mapping[str, Any]) -> Values:
    """The values whose keys were not given."""
    return {key: value for key, value in values.items() if key not in given}


def tier_of(counted: Counted) -> Tier:
    """The first tier that is large enough."""
    return next(tier for tier in TIERS if counted.tokens <= tier.tokens)


def shape(tier: Tier, model: str, given: Mapping[str, Any]) -> Values:
    """The defaults of the model: its sizes, unless `size` was given, and its dropout where it has one."""
    chosen = {} if "size" in given["model"] or model not in SHAPES else dict(SHAPES[model][tier.size])
    if given.get("text", {}).get("shared") is False:
        chosen.pop("tie_weights", None)
    if "max_length" in given["data"]:  # longer lines might not fit into the fitted model
        chosen.pop("max_length", None)
    if "dropout" in schema.part("model", model)["properties"]:
        chosen["dropout"] = tier.dropout
    return chosen


def layout(counted: Counted, model: str, given: Mapping[str, Any]) -> Values:
    """Long lines are read as one stream, not as sentences, of which those beyond `data.max_length` would be dropped."""
    task, data = given["task"], given["data"]
    if task["name"] != "language_modeling" or set(task) != {"name"} or counted.tokens < LONG * counted.examples:
        return {}
    if {"min_length", "max_length"} & set(data):  # lengths of sentences have no meaning in a stream
        return {}
    bounds = (given["model"].get("max_length"), given.get("train", {}).get("batch_tokens"))
    values: Values = {"layout": "stream", "context": min((WINDOW, *filter(None, bounds)))}
    return {**values, "order": "shuffled"} if model in ("gpt", "modern_gpt") else values


def lengths(tier: Tier, given: Mapping[str, Any], *, is_paired: bool) -> Values:
    """The length of training, the batch size, and the final weights."""
    values: Values = {"batch_tokens": tier.batch_tokens}
    if not {"steps", "epochs", "seconds"} & set(given):
        values["steps"] = tier.steps
    if is_paired and not {"final", "keep", "ema", "patience", "metric"} & set(given):
        values["final"] = "last"
    if not is_paired and "seconds" not in given:  # a user who gives a time wants it used
        values["patience"] = PATIENCE
    return values


def rates(tier: Tier, model: str, given: Mapping[str, Any]) -> Values:
    """Gradient clipping, and the learning rate of the fitted Transformer; other models keep the default rate."""
    if "name" in given.get("optimizer", {}):
        return {}
    is_fitted = model in ("transformer", "unsupervised_transformer") and not {"size", "dim"} & set(given["model"])
    return {"max_grad_norm": 1.0, "learning_rate": tier.rate} if is_fitted else {"max_grad_norm": 1.0}


def updates(counted: Counted, tier: Tier, given: Mapping[str, Any]) -> int | None:
    """The approximate number of updates of the given steps or epochs; None where only `seconds` is given."""
    steps, epochs = given.get("steps"), given.get("epochs")
    if steps is not None or not isinstance(epochs, int):
        return steps if isinstance(steps, int) else None
    batch = int(given.get("batch_tokens", tier.batch_tokens)) * int(given.get("accumulation", 1))
    return max(1, epochs * counted.tokens // batch)


def held_out_share(counted: Counted) -> float:
    """A tenth for validation; about a thousand rows of large files; of small ones the first share with two rows."""
    if counted.examples < FEWEST_TO_SPLIT:
        raise UserError(
            f"{counted.name} holds {counted}, too few to keep some of them for validation",
            todo="give data.valid=FILE; the same file is allowed, and shows how well it is memorized",
        )
    if not counted.places:
        return float(f"{min(0.1, 1000 / counted.examples):.1g}")
    for share in SHARES:
        if 2 <= sum(place < share for place in counted.places) <= counted.examples / 2:
            return share
    raise UserError(
        f"{counted.name} holds {counted}, too many of them equal to keep some for validation",
        todo="give data.valid=FILE; the same file is allowed, and shows how well it is memorized",
    )


def messages(counted: Counted, values: Values) -> list[str]:
    """Messages for the user before training."""
    lines = []
    if "data" in values:
        share = values["data"]["hold_out"]
        lines.append(f"{counted.name}: {share:.2%} of the rows are held out for validation (data.hold_out)")
    if len(values) > 1 + ("data" in values):
        flat = [
            f"{section}.{key}={value}"
            for section, keys in values.items()
            for key, value in keys.items()
            if key not in ("name", "hold_out") or section == "schedule"
        ]
        lines.append(f"fitted to {counted}: {' '.join(flat)}")
    if counted.examples < FEW and len(values) > 1:
        lines.append(
            f"warning: {counted} are few: the model will memorize them and generate little else well; "
            "use some thousand at least"
        )
    return lines
