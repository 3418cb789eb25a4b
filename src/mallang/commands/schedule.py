"""`mallang schedule`: the learning-rate curve of a recipe, before anything is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mallang import recipe as recipes
from mallang.commands.options import Json, Overrides, Plugin, Quiet, RecipeName, add_plugins, note_renamed, print_json

EXAMPLES = (
    "mallang schedule transformer-miniworld",
    "mallang schedule transformer-multi30k schedule.warmup=1000 --out rate.png",
    "mallang schedule transformer schedule.name=noam optimizer.learning_rate=1 train.steps=20000",
)
LINES, BAR = 16, 40
Out = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE", help="Draw it: .png or .svg.", show_default=False)
]


def command(
    recipe: RecipeName,
    overrides: Overrides = None,
    out: Out = None,
    json: Json = False,
    plugin: Plugin = None,
    quiet: Quiet = False,
) -> None:
    """Show the learning rate of a recipe by step: how it warms up and how it decays.

    A recipe that counts epochs needs its data, to know how many updates they are. With the schedule `plateau` the rate
    also decays when validation stops improving, which is not known beforehand. --json prints the rate of every step.
    """
    add_plugins(plugin)
    if out is not None:
        from mallang.inspection.figures import check_figure

        check_figure(out)
    resolved = recipes.read(recipe, overrides or [])
    note_renamed(resolved, quiet)
    from mallang.inspection.schedule_curve import draw_schedules, schedule_curve
    from mallang.training.defaults import fit_recipe

    checked = fit_recipe(resolved.build(), lambda text: None)  # as training would: its schedule is the one to name
    curve = schedule_curve(checked)
    if out is not None:
        draw_schedules(out, {f"{resolved.name}: {checked.schedule.name}": curve})
    if json:
        print_json({"schedule": checked.schedule.name, "steps": len(curve.rates), "rates": list(curve.rates)})
    else:
        highest = max(curve.rates)
        for step, rate in curve.points(LINES):
            print(f"{step:>8}  {rate:<10.4g}  {'█' * round(BAR * rate / highest)}".rstrip())
    if out is not None and not quiet:
        typer.echo(str(out), err=True)
