"""The commands ``nicegnn lab ...``: they measure explainers and show what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nicegnn.cli.options import (
    AnySeed,
    Json,
    console,
    opt,
    plain_errors,
    print_json,
    saying,
    to_folder,
    typed_words,
)
from nicegnn_lab.cli.bench import bench, pack, tune
from nicegnn_lab.cli.data import data_app, targets, train_targets
from nicegnn_lab.cli.results import NamesInHelp, experiment, figure, report, table

app = typer.Typer(
    name="lab",
    help="The laboratory: benchmarks, studies, tables and figures of explainers.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data_app, name="data")


def demo(
    out: Annotated[Path, to_folder("Folder for page, picture and numbers.")] = Path("demo-output"),
    task: Annotated[str, opt("Task of generated molecules.")] = "benzene",
    num: Annotated[int, opt("Molecules to train on.", min=50)] = 1000,
    epochs: Annotated[int, opt("Most epochs of the training.", min=1)] = 40,
    seed: AnySeed = 0,
    json: Json = False,
) -> None:
    """Generate molecules, train a GNN, explain new ones, and write a page to look at.

    \b
    nicegnn lab demo
    nicegnn lab demo --task indole --out indole-demo
    """
    import torch

    from nicegnn_lab.bench.demo import DemoConfig, run_demo

    torch.set_num_threads(1)  # more threads slow small graphs down
    with typed_words("`nicegnn lab demo --help` says more."):
        config = DemoConfig(task=task, num_molecules=num, epochs=epochs, seed=seed)
        result = run_demo(out, config, say=saying(json))
    if json:
        print_json(vars(result))
        return
    console.print(str(result))
    console.print(f"Look at {out / 'page.html'}", soft_wrap=True)


for one in (tune, experiment, table, figure, bench, pack, report):
    app.command(cls=NamesInHelp if one in (table, figure) else None)(one)
for other in (demo, train_targets, targets):
    app.command()(other)


if __name__ == "__main__":
    with plain_errors():
        app(prog_name="nicegnn lab")
