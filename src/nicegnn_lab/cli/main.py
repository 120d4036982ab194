"""The commands ``nicegnn lab ...``: they measure explainers and show what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nicegnn.cli.options import AnySeed, Json, console, opt, plain_errors, typed_words
from nicegnn_lab.cli.bench import bench, pack, tune
from nicegnn_lab.cli.data import data_app, targets, train_targets
from nicegnn_lab.cli.results import NamesInHelp, experiment, figure, report, table

app = typer.Typer(
    name="lab",
    help="The laboratory: benchmarks, studies, tables and figures of explainers.",
    no_args_is_help=True,
    add_completion=False,
)
app.add_typer(data_app, name="data")


def diagnose(
    model: Annotated[
        str,
        typer.Option(
            help="A reference model trained here (gin, gcn, sage, gat, gine, transformer), or "
            "your own as package.module:function, which returns a trained model."
        ),
    ] = "gin",
    graphs: Annotated[Path | None, opt("torch.save()d list of Data; else generated ones.")] = None,
    task: Annotated[str, opt("Task of generated molecules.")] = "benzene",
    num: Annotated[int, opt("Molecules to generate.", min=20)] = 600,
    gate: Annotated[
        str, opt("Gates: 'truth' (edge_truth), 'random' (as many), or a number.")
    ] = "truth",
    draws: Annotated[int, opt("Noise draws.", min=1)] = 50,
    seed: AnySeed = 0,
    json: Json = False,
) -> None:
    """Measure Scale Drift: message scale per layer, clean, under masking and under noise.

    \b
    nicegnn lab diagnose
    nicegnn lab diagnose --model my_code:make --graphs graphs.pt --gate 0.5
    """
    from nicegnn_lab.studies.diagnosis import (
        diagnose_model,
        load_graphs,
        load_model,
        show_diagnosis,
    )

    with typed_words("`nicegnn lab diagnose --help` says more."):
        chosen = load_graphs(graphs, task, num, seed)
        trained = load_model(model, chosen, seed)
        found = diagnose_model(trained, chosen, gate=gate, num_draws=draws, seed=seed)
    if json:
        typer.echo(found.to_json())
    else:
        show_diagnosis(found, console)


for one in (tune, experiment, table, figure, bench, pack, report):
    app.command(cls=NamesInHelp if one in (table, figure) else None)(one)
for other in (diagnose, train_targets, targets):
    app.command()(other)


if __name__ == "__main__":
    with plain_errors():
        app(prog_name="nicegnn lab")
