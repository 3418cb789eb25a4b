"""A training run, from a recipe to a finished run folder."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from mallang.console import drawing
from mallang.data.loader import Source
from mallang.data.prepared import Prepared
from mallang.errors import UserError
from mallang.evaluation.score import Score
from mallang.find import find
from mallang.kernels.dispatch import is_off
from mallang.kernels.memory import check_weights
from mallang.layers.recomputation import recompute_blocks
from mallang.models.contract import Fitted, is_fitted, longest_of
from mallang.recipe import Recipe
from mallang.runs.beginning import await_run, begin, check_place, differences, locked
from mallang.runs.folder import Run
from mallang.runs.given import locate
from mallang.runs.model import arguments_of
from mallang.runs.own_files import INFO
from mallang.runs.weights import own_weights
from mallang.tasks.contract import Cutting, Task, TextLayout, kept_weights
from mallang.tasks.own_input import Beginning
from mallang.training import distributed, fitting, precision
from mallang.training.budget import is_alone, settle
from mallang.training.defaults import fit_recipe
from mallang.training.distributed import World
from mallang.training.finishing import Outcome, final_weights, finish
from mallang.training.fit import Trial, fitted, restored, shapes_of
from mallang.training.initial import check_initial, initialize
from mallang.training.loop import Loop, Plan
from mallang.training.materials import Materials, prepare_data
from mallang.training.optimizer import copies_of
from mallang.training.options import Config
from mallang.training.pretrained import is_begun, load_pretrained
from mallang.training.record import Recorder
from mallang.training.seeding import seed_everything
from mallang.training.step import choose_engine
from mallang.training.stopping import listening


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a training run besides its recipe."""

    folder: Path
    device: str = "auto"
    fresh: bool = False
    start: Path | None = None
    """A run whose tokenizers and weights this one starts from."""
    quiet: bool = False
    console: Console | None = None


def train(recipe: Recipe, options: Options) -> Run:
    """Train a recipe in its folder to the end, resuming an unfinished run."""
    if options.fresh and distributed.may_restart():
        raise UserError("--fresh and torchrun --max-restarts: every restart would begin again", todo="--name NAME")
    is_off()  # a wrong MALLANG_KERNELS is refused before anything is written
    check_initial(recipe.train, recipe.task, options.start)
    if options.fresh or not (options.folder / INFO).exists():  # one that resumes knows more about where they are
        for name, folder in recipe.given.items():
            locate(name, folder)
    device = distributed.own_device(options.device)
    check_device(recipe.train, device)
    world = distributed.connect(device)
    console = options.console or drawing(stderr=True)
    say = Recorder(options.folder, console=console, quiet=options.quiet or not world.is_first).say
    recipe = fit_recipe(recipe, say, start=options.start)
    try:
        if is_fitted(find("models", recipe.model_name)):
            fitting.check_used(recipe, processes=world.size, started=options.start is not None)
        if not world.is_first:
            # The first process prepares the folder, the tokenizers and the arrays before it shares the run.
            info = world.share(None)
            run = await_run(options.folder, info)
            return run if run.is_finished else train_here(recipe, run, options, world, device, console)
        check_place(options.folder, recipe, fresh=options.fresh)
        # After a restart the new first process may start before the old one has exited.
        with locked(options.folder, patience=distributed.GRACE if distributed.may_restart() else 0.0):
            done = finished_already(recipe, options) if distributed.may_restart() else None
            if done is not None:
                return Run(options.folder, world.share(done.info))
            say = Recorder(options.folder, console=console, quiet=options.quiet).say
            run = begin(options.folder, recipe, fresh=options.fresh, start=options.start, say=say)
            return train_here(recipe, run, options, world, device, console)
    finally:
        distributed.disconnect()


def check_device(config: Config, device: torch.device) -> None:
    """Refuse an engine or precision that this device does not support, before any work is done."""
    choose_engine(config.engine, device)
    precision.check_device(config.precision, device)
    if config.auto_micro_batch and device.type != "cuda":
        raise UserError(
            "train.auto_micro_batch measures the memory of a GPU, but this run trains on a CPU",
            todo="train.auto_micro_batch=false",
        )


def finished_already(recipe: Recipe, options: Options) -> Run | None:
    """The run, if it finished just before the processes were restarted."""
    if not (options.folder / INFO).exists():
        return None
    run = Run.open(options.folder)
    return run if run.is_finished and not differences(run, recipe, options.start) else None


def train_here(recipe: Recipe, run: Run, options: Options, world: World, device: torch.device, console: Console) -> Run:
    """The training run in this process."""
    quiet = options.quiet or not world.is_first
    board = recipe.train.tensorboard and world.is_first
    recorder = Recorder(run.folder, console=console, quiet=quiet, tensorboard=board)
    materials = prepare_data(recipe, run.folder, options.start, recorder.say)
    run = remember_data(run, materials, world)
    world = world.hurried()  # the other processes get here when they have their data too
    if recipe.train.threads is not None:
        torch.set_num_threads(recipe.train.threads)
    task = materials.task
    sizes = (*vars(recipe.model).values(), *(len(each.vocabulary) for each in task.tokenizers.values()))
    made = find("models", recipe.model_name)
    check_weights(lambda: task.build(made, recipe.model), sizes, copies_of(recipe.optimizer), device)
    seed_everything(recipe.seed, 0, 0)
    model = task.build(made, recipe.model)
    read = next(iter(task.tokenizers.values())).vocabulary  # that of the source, where there is one
    initialize(model, recipe.train, options.start, recorder.say, read)
    coverage = load_pretrained(model, recipe, run, read, options.start, recorder.say)
    if coverage is not None and world.is_first:
        run = run.update(vectors={"found": coverage.found, "words": coverage.words})
    if isinstance(task, Beginning) and options.start is None and not is_begun(run):
        task.begin(model, materials.train, recipe.seed, recorder.say)
    model.to(device)
    say_models(recipe, materials, model, device, recorder)
    valid_rows = list(materials.corpus.split("valid"))
    if isinstance(model, Fitted):
        return fit_here(recipe, run, materials, model, recorder, valid_rows)
    recipe = with_recomputation(recipe, model)
    if recipe.train.auto_micro_batch:
        recipe = with_fitted_batches(recipe, run, materials, model, world)
    loop = Loop(
        Plan(
            config=recipe.train,
            optimizer=recipe.optimizer,
            schedule=recipe.schedule,
            seed=recipe.seed,
            task=task,
            model=model,
            source=source_of(recipe, materials, device, world.size, longest_of(model)),
            validate=lambda: scores_of(task, model, materials.valid, valid_rows, recipe),
            folder=run.folder,
            device=device,
            world=world,
            recorder=recorder,
            license=materials.corpus.license,
        )
    )
    with listening() as stop:
        if is_alone(recipe.train):
            run = settle(loop, recipe, run, stop)
        is_finished = loop.run(stop)
    recorder.close()
    if not is_finished:
        recorder.say(f"stopped and saved at step {loop.step}; the same command resumes from there")
        raise SystemExit(128 + signal.SIGTERM) if stop.signal == signal.SIGTERM else KeyboardInterrupt
    if world.is_first:
        run = finish(run, recipe, outcome_of(recipe, loop))
    return run


def say_models(
    recipe: Recipe, materials: Materials, model: torch.nn.Module, device: torch.device, recorder: Recorder
) -> None:
    """Report the model with its size, and the models that it is given."""
    for name, each in materials.given.items():
        recorder.say(f"given.{name}: {type(each.model).__name__} of {each.folder}, frozen")
    # The size of a fitted model is known afterwards.
    size = "" if isinstance(model, Fitted) else f"{sum(p.numel() for p in model.parameters()):,} parameters "
    recorder.say(f"{recipe.model_name}: {size}on {device}")
    for name, corpus in (("train", materials.train), ("valid", materials.valid)):
        if isinstance(materials.task, Cutting) and (note := materials.task.note_cut(corpus)):
            recorder.say(f"{name}: {note}")


def with_recomputation(recipe: Recipe, model: torch.nn.Module) -> Recipe:
    """Let the blocks compute their activations again if the recipe says so; captured graphs could not do that."""
    if not recipe.train.gradient_checkpointing:
        return recipe
    if not recompute_blocks(model):
        raise UserError(
            f"train.gradient_checkpointing has no effect on {recipe.model_name}: it has no blocks that are trained",
            todo="leave it out",
        )
    return replace(recipe, train=replace(recipe.train, engine="eager"))


def fit_here(
    recipe: Recipe, run: Run, materials: Materials, model: Any, recorder: Recorder, rows: Sequence[tuple[str, ...]]
) -> Run:
    """Train a model that is fitted without gradients."""
    device = next(model.parameters()).device
    stream = fitting.Stream(source_of(recipe, materials, device), materials.task, device)

    def validate() -> list[Score]:
        return scores_of(materials.task, model, materials.valid, rows, recipe)

    result = fitting.fit(model, stream, recorder, validate, recipe.train.metric)
    recorder.close()
    outcome = Outcome(
        model=model,
        weights=own_weights(model),
        device=device,
        license=materials.corpus.license,
        steps=result.passes,
        tokens=result.tokens,
        seconds=result.seconds,
        best=result.best,
        best_step=result.passes,
    )
    return finish(run, recipe, outcome)


def with_fitted_batches(recipe: Recipe, run: Run, materials: Materials, model: torch.nn.Module, world: World) -> Recipe:
    """The recipe with micro-batches that fit into memory: searched for when the run starts, and kept from then on."""
    known = run.info.get("fitted")
    if known is None and world.is_first:
        trial = Trial(materials.task, model, materials.train, recipe.train, next(model.parameters()).device)
        found = fitted(recipe.train, trial.fits, trial.longest)
        known = {"batch_tokens": found.batch_tokens, "accumulation": found.gradient_accumulation}
        run.update(fitted=known)
    return replace(recipe, train=restored(recipe.train, world.share(known)))


def source_of(
    recipe: Recipe, materials: Materials, device: torch.device, processes: int = 1, longest: int | None = None
) -> Source:
    """The source of the loop's batches; an engine that captures or compiles per shape gets a short list of shapes.

    No shape is wider than `longest`, the number of positions that the model has.
    """
    task, config = materials.task, recipe.train
    few_shapes = device.type == "cuda" and choose_engine(config.engine, device) != "eager"
    # Batches with carried state must know the number of micro-batches per update.
    is_carried = isinstance(task, TextLayout) and task.carries
    streams = {"streams": config.micro_batches or config.gradient_accumulation * processes} if is_carried else {}
    shapes = shapes_of(task, config.batch_tokens, config.batch_sentences, longest) if few_shapes else None
    return Source(
        examples=lambda epoch: task.examples(materials.train, recipe.seed, epoch),
        plan=lambda epoch: task.plan(
            materials.train,
            tokens=config.batch_tokens,
            sentences=config.batch_sentences,
            multiple=shapes.multiple if shapes else 1,
            seed=recipe.seed,
            epoch=epoch,
            **streams,
        ),
        prepare=task.prepare,
        seed=recipe.seed,
        shapes=shapes,
    )


def scores_of(
    task: Task, model: torch.nn.Module, corpus: Prepared, rows: Sequence[tuple[str, ...]], recipe: Recipe
) -> list[Score]:
    """The scores of a model on held-out text, in eval mode."""
    model.eval()
    with torch.inference_mode():
        scores: list[Score] = task.validate(model, corpus, rows, recipe.train.metric)
    model.train()
    return scores


def remember_data(run: Run, materials: Materials, world: World) -> Run:
    """Record the fingerprints of the data in run.json, and refuse to resume with other data."""
    data = {"corpus": materials.corpus.name, "train": materials.train.fingerprint, "valid": materials.valid.fingerprint}
    before = run.info.get("data")
    if before is not None and before != data:
        raise UserError(
            f"the data of {run.folder} has changed since the run started",
            todo="--name NAME for another run, --fresh to train it from the start"
            if world.is_first
            else "give every machine the same data",
        )
    if not world.is_first:
        return run
    sums = {column: tokenizer.fingerprint for column, tokenizer in materials.task.tokenizers.items()}
    labels = {column: each.fingerprint for column, each in materials.labels.items()}
    given = {name: each.fingerprint for name, each in materials.given.items()}
    vocabularies = arguments_of(list(sums), reads_source=find("models", str(run.info["model"])).Model.reads_source)
    graph = None if materials.graph is None else materials.graph.fingerprint
    more = {key: values for key, values in {"labels": labels, "given": given, "graph": graph}.items() if values}
    run = run.update(data=data, tokenizers=sums, vocabularies=vocabularies, **more)
    world.share(run.info)
    return run


def outcome_of(recipe: Recipe, loop: Loop) -> Outcome:
    """The result of the loop, with the weights that `train.final` selects."""
    plan, progress = loop.plan, loop.progress
    final = final_weights(plan.folder / "checkpoints", recipe.train, progress.best_step, plan.recorder.say)
    return Outcome(
        model=loop.model,
        weights=kept_weights(type(plan.task), final),
        device=plan.device,
        license=plan.license,
        steps=loop.step,
        tokens=progress.tokens,
        seconds=progress.seconds,
        best=progress.best,
        best_step=progress.best_step,
        skipped_updates=progress.skipped_updates,
    )
