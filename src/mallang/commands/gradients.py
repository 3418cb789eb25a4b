"""`mallang gradients`: how the gradient of a prediction falls off with the distance of what was read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mallang.commands.options import Device, Json, Plugin, Quiet, add_plugins, check_run, complete_run, print_json
from mallang.errors import UserError

if TYPE_CHECKING:
    from mallang.inspection.gradient_by_distance import GradientCurve

EXAMPLES = (
    "mallang gradients runs/rnn-lm-miniworld runs/gpt-miniworld",
    "mallang gradients runs/sutskever-miniworld runs/transformer-miniworld --out gradients.png",
    "mallang gradients runs/gpt-miniworld --data mine.txt --rows 50 --json",
)
Runs = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN RUN …", help="Folders of finished runs.", autocompletion=complete_run, show_default=False
    ),
]
Split = Annotated[str | None, typer.Option("--split", help="The split to read; otherwise valid.", show_default=False)]
Data = Annotated[
    str | None,
    typer.Option("--data", metavar="PATH", help="Your own text, or pairs, instead of a split.", show_default=False),
]
Rows = Annotated[int, typer.Option("--rows", metavar="N", min=1, help="Lines, or pairs, to read.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="Draw a figure too: .png or .svg.", show_default=False),
]


def command(
    runs: Runs,
    split: Split = None,
    data: Data = None,
    rows: Rows = 64,
    out: Out = None,
    json: Json = False,
    plugin: Plugin = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Measure how the gradient of a predicted token falls off with the distance of the tokens read before it.

    Each log-probability is differentiated by the vector of every earlier token, and in translation of every source
    token. The table shows the norm by distance, as a share of that of the last token read. Where it falls towards zero,
    training cannot learn that a distant token matters: gradients vanish.
    """
    from mallang.inspection.gradient_by_distance import draw_gradients, gradient_by_distance
    from mallang.inspection.outputs import read_rows
    from mallang.loading import load

    add_plugins(plugin)
    for run in runs:
        check_run(run)
    if split is not None and data is not None:
        raise UserError("--split and --data were both given", todo="give one of them: a file of your own has no splits")
    if out is not None:
        from mallang.inspection.figures import check_figure

        check_figure(out)
    curves = {}
    for run in runs:
        read, _ = read_rows(run, split or "valid", data)
        curves[run.name if len({each.name for each in runs}) == len(runs) else str(run)] = gradient_by_distance(
            load(run, device), read[:rows]
        )
    if out is not None:
        draw_gradients(out, curves)
    if json:
        print_json({name: curve.to_json() for name, curve in curves.items()})
    else:
        show(curves)
    if out is not None and not quiet:
        typer.echo(str(out), err=True)


def show(curves: dict[str, GradientCurve]) -> None:
    """A column for each run, a line for each range of distances."""
    longest = max(curves.values(), key=lambda curve: len(curve.counts))
    width = max(12, *(len(name) for name in curves))
    print("distance".ljust(10), *(name.rjust(width) for name in curves), sep="  ")
    for low, high in longest.ranges():
        name = str(low) if low == high else f"{low}-{high}"
        shares = [curve.relative(low, high) for curve in curves.values()]
        print(name.ljust(10), *(("–" if share != share else f"{share:.3g}").rjust(width) for share in shares), sep="  ")
