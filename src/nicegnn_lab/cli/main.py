"""The commands ``nicegnn lab ...``: they measure explainers and show what was measured."""

import typer

from nicegnn.cli.options import plain_errors
from nicegnn_lab.cli.bench import bench, experiment, pack, tune
from nicegnn_lab.cli.data import data_app, targets, train_targets
from nicegnn_lab.cli.results import figure, table

app = typer.Typer(
    name="lab",
    help="The laboratory: benchmarks, studies, tables and figures of explainers.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data_app, name="data")


for one in (tune, experiment, table, figure, bench, pack, train_targets, targets):
    app.command()(one)


if __name__ == "__main__":
    with plain_errors():
        app(prog_name="nicegnn lab")
