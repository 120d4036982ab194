"""The command ``nicegnn``: parses, calls the library, prints; no logic of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nicegnn import __version__
from nicegnn.cli import options
from nicegnn.cli.bench import bench, pack, tune
from nicegnn.cli.data import data_app, targets, train_targets
from nicegnn.cli.learning import fit, train
from nicegnn.cli.many import explain_many
from nicegnn.cli.molecule_options import CODES, one_thread
from nicegnn.cli.molecules import explain, models, summary
from nicegnn.cli.options import (
    Json,
    console,
    opt,
    plain_errors,
    print_json,
    to_folder,
    typed_words,
)
from nicegnn.cli.page import serve
from nicegnn.cli.results import NamesInHelp, experiment, figure, report, table

app = typer.Typer(
    name="nicegnn",
    help="Explains graph neural networks by scale-stable noise corruption of their messages.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")


def demo(
    out: Annotated[Path, to_folder("Folder for page, picture and numbers.")] = Path("demo-output"),
    task: Annotated[str, opt("What the generated molecules are labelled by.")] = "benzene",
    num: Annotated[int, opt("Molecules to generate.", min=50)] = 2000,
    epochs: Annotated[int, opt("Training epochs of the model.", min=1)] = 15,
    steps: Annotated[int, opt("Fitting steps of the gates.", min=1)] = 150,
    seed: options.AnySeed = 0,
    json: Json = False,
) -> None:
    """Generate molecules, train a GNN, explain it, and write a page to look at.

    \b
    nicegnn demo
    nicegnn demo --task indole --out indole-demo
    """
    from nicegnn.config import check_choice
    from nicegnn.datasets import GENERATED_TASKS
    from nicegnn.report.demo import DemoConfig, run_demo

    with typed_words():
        check_choice("--task", task, GENERATED_TASKS)
    one_thread()
    config = DemoConfig(task=task, num_graphs=num, epochs=epochs, steps=steps, seed=seed)
    result = run_demo(out, config, say=(lambda _: None) if json else console.print)
    if json:
        print_json(vars(result))
        return
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
    seed: options.AnySeed = 0,
    json: Json = False,
) -> None:
    """Measure Scale Drift: message scale per layer, clean, under masking and under noise.

    \b
    nicegnn diagnose
    nicegnn diagnose --model my_code:make --graphs graphs.pt --gate 0.5
    """
    from nicegnn.studies.diagnosis import diagnose_model, load_graphs, load_model, show_diagnosis

    with typed_words("`nicegnn diagnose --help` says more."):
        chosen = load_graphs(graphs, task, num, seed)
        trained = load_model(model, chosen, seed)
        found = diagnose_model(trained, chosen, gate=gate, num_draws=draws, seed=seed)
    if json:
        typer.echo(found.to_json())
    else:
        show_diagnosis(found, console)


def explainers(
    markdown: options.Markdown = None, plugins: options.Plugins = None, json: Json = False
) -> None:
    """List all explainers: what each one is, what it costs, where it comes from.

    \b
    nicegnn explainers
    nicegnn explainers --plugin mine.py --json
    """
    from nicegnn.rivals.registry import EXPLAINERS
    from nicegnn.store import write_text
    from nicegnn.tables.inventory import explainer_table

    if markdown is not None:
        write_text(markdown, explainer_table().to_markdown())
    if json:
        told = ("group", "summary", "cost", "mechanisms", "citation")
        print_json(
            {one.name: {key: getattr(one, key) for key in told} for one in EXPLAINERS.values()}
        )
        return
    for entry in EXPLAINERS.values():
        mechanisms = f"; mechanisms {', '.join(entry.mechanisms)}" if entry.mechanisms else ""
        console.print(f"[bold]{entry.name}[/bold] ({entry.group}): {entry.summary}")
        console.print(f"    {entry.cost}{mechanisms}; {entry.citation}", style="dim")


def version(json: Json = False) -> None:
    """Print the version.

    \b
    nicegnn version
    """
    print_json({"nicegnn": __version__}) if json else typer.echo(__version__)


for first in (explain, explain_many, fit, train, summary, models):
    app.command(epilog=CODES)(first)
for command in (tune, experiment, table, figure, bench, pack, report):
    app.command(cls=NamesInHelp if command in (table, figure) else None)(command)
for other in (serve, demo, diagnose, train_targets, targets, explainers, version):
    app.command()(other)


def main() -> None:
    """Runs the command; errors of nicegnn are one readable message, not a traceback."""
    with plain_errors():
        app()


if __name__ == "__main__":
    main()
