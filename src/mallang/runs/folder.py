"""The run folder: all that is needed to use a model again, in open file formats.

recipe.toml            every value, resolved          model.safetensors     the weights, as model.* and head.*
run.json               status, seed, versions, sums    tokenizer.json        how text becomes ids (and text.json)
metrics.jsonl          the log of training             labels.COLUMN.json    the names of the labels of a column
card.md                the model card                  calibration.json      the temperature fitted on the dev set
adapter.safetensors    what LoRA has trained, alone
checkpoints/           where an unfinished run resumes
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from mallang import recipe as recipes
from mallang.data import corpus as corpora
from mallang.errors import UserError
from mallang.find import names, no_run
from mallang.recipe import Recipe
from mallang.runs.data_places import located, places_of
from mallang.runs.files import load_tensors, replace_file, sha256, to_json
from mallang.runs.own_files import INFO, RECIPE, WEIGHTS, has_checkpoint
from mallang.runs.weights import from_file, to_file
from mallang.text.tokenizer import Tokenizer

FORMAT = 1
KINDS: dict[str, Any] = {
    **dict.fromkeys(("status", "task", "model", "recipe", "mallang"), str),
    **dict.fromkeys(("format", "seed", "steps", "parameters", "tokens"), int),
    **dict.fromkeys(("seconds", "flops"), int | float),
    **dict.fromkeys(("versions", "data", "tokenizers", "vocabularies", "labels", "given"), dict),
    **dict.fromkeys(("best", "fitted", "budget", "imported", "layer_mix", "features_mix"), dict),
    **dict.fromkeys(("from", "weights"), str | None),
}
"""The types of the values of run.json; it may hold others."""


@dataclass(frozen=True)
class Run:
    """The folder of a training run, finished or not."""

    folder: Path
    info: dict[str, Any]

    @classmethod
    def open(cls, folder: Path | str) -> Run:
        """The run in a folder; raises a UserError that says what is wrong where there is none."""
        folder = Path(folder)
        if not folder.is_dir():
            raise no_run(folder)
        try:
            info = json.loads((folder / INFO).read_text("utf-8"))
        except FileNotFoundError as error:
            raise UserError(f"{folder} is no run folder: it has no {INFO}") from error
        except (ValueError, RecursionError) as error:
            raise UserError(f"{folder / INFO} is damaged: {error}", todo="restore the file, or train again") from error
        if isinstance(info, dict) and isinstance(info.get("format"), int) and info["format"] > FORMAT:
            raise UserError(f"{folder} was written by a newer mallang ({info.get('mallang')})", todo="upgrade mallang")
        wrong = wrong_kind(info)
        if wrong is not None:
            raise UserError(f"{folder / INFO} is damaged: {wrong}", todo="restore the file, or train again")
        return cls(folder, info)

    @property
    def task(self) -> str:
        """The task it was trained for."""
        return str(self.info["task"])

    @property
    def is_finished(self) -> bool:
        """Whether training has finished."""
        return bool(self.info["status"] == "finished")

    def recipe(self) -> Recipe:
        """The recipe it was trained with."""
        model = str(self.info.get("model", ""))
        if model and model not in names("models"):
            raise UserError(
                f"there is no model {model!r}, which {self.folder} was trained with",
                todo="--plugin FILE.py, if it is a model of your own",
            )
        with naming_recipe(self.folder):
            return written_recipe(self.folder).build()

    def data(self) -> corpora.Config:
        """The data config of the run, with the current paths of its files; an imported run has none."""
        if self.info.get("imported"):
            raise UserError(
                f"{self.folder} was imported: what it was trained on is not known here",
                todo="give a text: --data FILE, or --corpus FILE where that is what to look in",
            )
        return located(self.recipe().data, places_of(self.folder, self.info))

    def update(self, **changes: Any) -> Run:
        """Write changed values to run.json."""
        info = {**self.info, **changes}
        replace_file(self.folder / INFO, to_json(info))
        return Run(self.folder, info)

    def write_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Write the final weights."""
        named = {name: value.detach().cpu().contiguous() for name, value in to_file(weights).items()}
        replace_file(self.folder / WEIGHTS, safetensors.torch.save(named, metadata={"format": "pt"}))

    def read_weights(self) -> dict[str, Tensor]:
        """The final weights, after checking their sha256 sum."""
        path = self.folder / WEIGHTS
        if not path.exists():
            if self.is_finished:
                raise UserError(f"{path} is missing", todo="restore the file, or train again")
            how = "it resumes" if has_checkpoint(self.folder) else "nothing is learned yet, it starts over"
            raise UserError(
                f"{self.folder} is not finished: it has no weights yet", todo=f"run its train command again: {how}"
            )
        expected = self.info.get("weights")
        if expected is not None and sha256(path) != expected:
            raise UserError(f"{path} is damaged: its sha256 sum is not the one in {INFO}", todo="restore the file")
        return from_file(load_tensors(path))

    def tokenizers(self, columns: tuple[str, ...]) -> dict[str, Tokenizer]:
        """The tokenizer of each column; one for all where they share it."""
        main = Tokenizer.load(self.folder)
        own = {column: self.folder / f"tokenizer.{column}.json" for column in columns}
        found = {
            column: Tokenizer.load(self.folder, f"tokenizer.{column}") if path.exists() else main
            for column, path in own.items()
        }
        known = self.info.get("tokenizers", {})
        for column, tokenizer in found.items():
            if known.get(column, tokenizer.fingerprint) != tokenizer.fingerprint:
                raise UserError(
                    f"the tokenizer of the {column} is damaged: it is not the one that the run was trained with",
                    where=f"{self.folder}, tokenizer.json or text.json",
                    todo="restore the files, or train again",
                )
        return found


def wrong_kind(info: Any) -> str | None:
    """A sentence that says which value of a run.json is wrong; None if all are right."""
    if not isinstance(info, dict):
        return "it is not a JSON object"
    for key in ("status", "task"):
        if key not in info:
            return f"it has no {key}"
    for key, kind in KINDS.items():
        value = info.get(key)
        if key in info and (not isinstance(value, kind) or isinstance(value, bool)):
            return f"its {key} is {json.dumps(value)[:80]}"
    return None


def written_recipe(folder: Path) -> recipes.Resolved:
    """The recipe in a run folder; read by its absolute path, since a folder may have the name of a recipe."""
    with naming_recipe(folder):
        found = recipes.read(str(folder.resolve()))
        if f"[{found.sections[-1]}]" not in (folder / RECIPE).read_text("utf-8"):
            raise UserError(
                f"{folder / RECIPE} is damaged: its end is missing", todo="restore the file, or train again"
            )
        return found


@contextmanager
def naming_recipe(folder: Path) -> Iterator[None]:
    """Add the path of the recipe to errors that the block raises."""
    try:
        yield
    except UserError as error:
        if str(folder / RECIPE) in str(error):
            raise
        todo = error.todo or "restore the file, or train again"
        raise UserError(error.what, where=str(folder / RECIPE), todo=todo) from error
