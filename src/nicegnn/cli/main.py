"""The command ``nicegnn``: parses, calls the library, prints; no logic of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from nicegnn.cli.bench import bench
from nicegnn.cli.data import data_app
from nicegnn.cli.pack import pack
from nicegnn.cli.report import report
from nicegnn.cli.results import experiment, figure, table
from nicegnn.cli.tune import tune
from nicegnn.errors import NicegnnError

app = typer.Typer(
    name="nicegnn",
    help="Explains graph neural networks by scale-stable noise corruption of their messages.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")
app.command()(tune)
app.command()(experiment)
app.command()(table)
app.command()(figure)
app.command()(bench)
app.command()(pack)
app.command()(report)
console = Console()


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page, picture and numbers.")] = Path(
        "demo-output"
    ),
    task: Annotated[str, typer.Option(help="What the generated molecules are labelled by.")] = (
        "benzene"
    ),
    num: Annotated[int, typer.Option(min=50, help="Molecules to generate.")] = 2000,
    epochs: Annotated[int, typer.Option(min=1, help="Training epochs of the model.")] = 15,
    steps: Annotated[int, typer.Option(min=1, help="Fitting steps of the gates.")] = 150,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
) -> None:
    """Generate molecules, train a GNN, explain it, and write a page to look at."""
    import torch

    from nicegnn.report.demo import DemoConfig, run_demo

    torch.set_num_threads(1)  # molecules are small: more threads mostly wait for each other
    config = DemoConfig(task=task, num_graphs=num, epochs=epochs, steps=steps, seed=seed)
    result = run_demo(out, config, say=console.print)
    best, chance = result.metrics["NICE"], result.metrics["random"]
    console.print(
        f"\n[bold]Found[/bold]: the model is right on {result.accuracy:.1%} of test molecules; "
        f"NICE ranks the true bonds with ROC-AUC {best['roc_auc']:.3f} (chance "
        f"{chance['roc_auc']:.3f}) on {result.num_explained} of them."
    )
    console.print(
        f"Under masking the last layer keeps {result.scale['EM'][-1]:.0%} of its message scale, "
        f"under noise corruption {result.scale['NC'][-1]:.0%}. "
        f"{sum(result.seconds.values()):.0f} s in all."
    )
    console.print(f"[bold]Look at[/bold] {result.page} and {result.picture}", soft_wrap=True)


@app.command()
def diagnose(
    model: Annotated[
        str,
        typer.Option(
            help="A reference model trained here (gin, gcn, sage, gat, gine, transformer), or "
            "your own as package.module:function, which returns a trained model."
        ),
    ] = "gin",
    graphs: Annotated[
        Path | None, typer.Option(help="torch.save()d list of Data; without it, generated ones.")
    ] = None,
    task: Annotated[str, typer.Option(help="Task of generated molecules.")] = "benzene",
    num: Annotated[int, typer.Option(min=20, help="Molecules to generate.")] = 600,
    gate: Annotated[
        str, typer.Option(help="Gates: 'truth' (edge_truth), 'random' (as many), or a number.")
    ] = "truth",
    draws: Annotated[int, typer.Option(min=1, help="Noise draws.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print numbers as JSON.")] = False,
) -> None:
    """Measure Scale Drift: message scale per layer, clean, under masking and under noise."""
    from nicegnn.studies.diagnosis import diagnose_model, load_graphs, load_model, show_diagnosis

    chosen = load_graphs(graphs, task, num, seed)
    found = diagnose_model(
        load_model(model, chosen, seed), chosen, gate=gate, num_draws=draws, seed=seed
    )
    if json:
        typer.echo(found.to_json())
    else:
        show_diagnosis(found, console)


@app.command()
def train(
    datasets: Annotated[
        list[str] | None, typer.Option("--dataset", "-d", help="Benchmark; repeat, or a,b.")
    ] = None,
    targets: Annotated[
        list[str] | None,
        typer.Option("--target", "-t", help="gin, gin-mean, gcn, gat; repeat, or a,b."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for weights and manifests.")] = Path(
        "results/targets"
    ),
    epochs: Annotated[int, typer.Option(min=1, help="Most epochs.")] = 1000,
    stop_after: Annotated[
        int, typer.Option(min=1, help="Epochs without a better checkpoint before it ends.")
    ] = 300,
    seed: Annotated[int, typer.Option(help="First seed of weights and order.")] = 0,
    num_seeds: Annotated[
        int, typer.Option(min=1, help="Seeds to try; the best on validation is kept.")
    ] = 1,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default what is there.")] = (
        None
    ),
) -> None:
    """Train target models on the benchmarks; finished ones are skipped, broken-off ones go on."""
    from nicegnn.bench.targets import TARGETS, train_target
    from nicegnn.bench.task import list_molecule_tasks
    from nicegnn.cli.options import split_commas
    from nicegnn.datasets import load_dataset
    from nicegnn.target.training import TrainConfig
    from nicegnn.target.zoo import device_of

    config = TrainConfig(epochs=epochs, stop_after=stop_after, seed=seed)
    for name in split_commas(datasets) or list_molecule_tasks():
        dataset = load_dataset(name, progress=True)
        for target in split_commas(targets) or list(TARGETS):
            console.print(f"{dataset.title}, {target}")
            found = train_target(
                dataset, target, out, config, num_seeds=num_seeds, device=device_of(device)
            )
            test = found.manifest["test"]
            console.print(
                f"  test accuracy {test['accuracy']:.2%} (95% {test['interval'][0]:.2%} to "
                f"{test['interval'][1]:.2%}), ECE {test['ece']:.3f}, best epoch "
                f"{found.manifest['best_epoch']} of {found.manifest['epochs']}"
            )


@app.command()
def targets(
    folder: Annotated[Path, typer.Argument(help="Folder of trained targets.")] = Path(
        "results/targets"
    ),
    check: Annotated[
        bool, typer.Option("--check", help="Load the data and repeat each test accuracy.")
    ] = False,
    markdown: Annotated[Path | None, typer.Option(help="Write the table to this file.")] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw confidence histograms into this file.")
    ] = None,
) -> None:
    """Show the trained targets beside the paper's, and check that they reproduce."""
    from nicegnn.tables.inventory import check_targets, read_manifests, target_table

    text = target_table(folder).to_markdown()
    if figure is not None:
        from nicegnn.figures.confidence import calibration_figure
        from nicegnn.figures.drawing import save_figure

        save_figure(calibration_figure(read_manifests(folder)), figure)
    if markdown is not None:
        markdown.write_text(text, encoding="utf-8")
    console.print(text, soft_wrap=True)
    if check:
        for line in check_targets(folder):
            console.print(line)


@app.command()
def explainers(
    markdown: Annotated[Path | None, typer.Option(help="Write the table to this file.")] = None,
) -> None:
    """List all explainers: what each one is, what it costs, where it comes from."""
    from nicegnn.rivals.registry import EXPLAINERS
    from nicegnn.tables.inventory import explainer_table

    if markdown is not None:
        markdown.write_text(explainer_table().to_markdown(), encoding="utf-8")
    for entry in EXPLAINERS.values():
        mechanisms = f"; mechanisms {', '.join(entry.mechanisms)}" if entry.mechanisms else ""
        console.print(f"[bold]{entry.name}[/bold] ({entry.group}): {entry.summary}")
        console.print(f"    {entry.cost}{mechanisms}; {entry.citation}", style="dim")


@app.command()
def version() -> None:
    """Print the version."""
    import nicegnn

    typer.echo(nicegnn.__version__)


def main() -> None:
    """Runs the command; errors of nicegnn are one readable message, not a traceback."""
    try:
        app()
    except NicegnnError as error:
        Console(stderr=True).print(f"[bold red]Error[/bold red]: {escape(str(error))}")
        sys.exit(1)
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped.")
        sys.exit(130)


if __name__ == "__main__":
    main()
