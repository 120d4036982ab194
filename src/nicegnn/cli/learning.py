"""Learning from molecules: ``nicegnn fit | train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nicegnn.cli import options
from nicegnn.cli.molecule_options import (
    MORE,
    OF_MODEL,
    Classes,
    Device,
    Featurizer,
    Model,
    Quiet,
    Saved,
    SmilesColumn,
    Task,
    Weights,
    chosen,
    end_with,
    need,
    one_thread,
    readable_end,
    say,
    write_settings,
)
from nicegnn.cli.options import Json, opt, print_json, to_file


def fit(
    ctx: typer.Context,
    molecules: Annotated[str, typer.Argument(help="File of molecules like those to explain.")] = "",
    out: Annotated[Path, to_file("File for the fitted explainer.")] = Path("explainer.safetensors"),
    smiles_column: SmilesColumn = "",
    model: Model = "",
    weights: Weights = "",
    featurizer: Featurizer = "",
    task: Task = "classification",
    classes: Classes = None,
    explainer: Annotated[str, opt("NICE, or a method that learns.", "--explainer", "-e")] = "nice",
    most: Annotated[int, opt("Most molecules to read.", min=1)] = 2000,
    device: Device = "cpu",
    seed: options.AnySeed = 0,
    settings: Saved = None,
    plugins: options.Plugins = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Prepare an explainer for a model of your own, from molecules like those to explain.

    They become the background of NICE; a method that learns is fitted on them.

    \b
    nicegnn fit mols.csv --model my_code:make --weights w.safetensors --featurizer pyg
    nicegnn explain mols.csv --model my_code:make ... --explainer explainer.safetensors --out x
    """
    with readable_end():
        from nicegnn.screening.learning import FitConfig, fit_explainer
        from nicegnn.screening.loading import load_words
        from nicegnn.screening.reading import Reader

        config = chosen(
            ctx,
            settings,
            FitConfig(),
            {
                **{n: n for n in ("molecules", "smiles_column", "explainer", "most")},
                **{name: f"model__{name}" for name in OF_MODEL},
            },
        )
        need("MOLECULES", config.molecules, "fit mols.csv --help")
        reader = Reader(config.molecules, smiles_column=config.smiles_column)
        one_thread()
        with options.typed_words(MORE.format("fit")):
            subject = load_words(config.model)
            found, rejects = fit_explainer(reader, subject, config, progress=not quiet)
        found.save(out)
        write_settings(out, config)
        report = getattr(found, "fit_report", None)
        status = "" if report is None else str(report.status)
        result = {
            "explainer": str(out),
            "method": config.explainer,
            "model": subject.card.name,
            "num_rejected": len(rejects),
            **({"status": status} if status else {}),
        }
        if json:
            print_json(result)
        else:
            typer.echo(f"Model {subject.card.name}: {subject.card.in_words()}")
            typer.echo(f"Explainer {config.explainer}: {out}")
            if status:
                typer.echo(f"Its gates are {status}. {report.advice if report else ''}".strip())
        end_with(rejects)


def train(
    ctx: typer.Context,
    molecules: Annotated[str, typer.Argument(help="File of molecules with labels.")] = "",
    label: Annotated[str, opt("Column of the labels or values.", "--label", "-y")] = "",
    out: Annotated[Path, to_file("File for the model.")] = Path("model.safetensors"),
    smiles_column: SmilesColumn = "",
    task: Annotated[str, opt("auto (as the column looks), classification or regression.")] = "auto",
    kind: Annotated[str, opt("gine, or gin, which reads no bond features.")] = "gine",
    featurizer: Annotated[
        str, opt("How SMILES become graphs: a name, or module:function.")
    ] = "rich",
    split: Annotated[
        str, opt("scaffold (test molecules have rare scaffolds) or random.")
    ] = "scaffold",
    hidden_size: Annotated[int, opt("Width of the layers.", min=1)] = 32,
    epochs: Annotated[int, opt("Most epochs.", min=1)] = 100,
    stop_after: Annotated[int, opt("Epochs without improvement before it ends.", min=1)] = 20,
    teach: Annotated[bool, opt("Also teach a student, for `explain-many --student yes`.")] = False,
    name: Annotated[str, opt("Name on the model's card.")] = "",
    question: Annotated[str, opt("What it predicts, in words, for its card.")] = "",
    classes: Classes = None,
    unit: Annotated[str, opt("Unit of a value.")] = "",
    device: Device = "cpu",
    seed: options.AnySeed = 0,
    settings: Saved = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a model on molecules with labels, and judge it on held-out ones.

    \b
    nicegnn train mols.csv --label active --out active.safetensors
    nicegnn explain new.csv --model active.safetensors --out explained
    """
    with readable_end():
        from nicegnn.screening.learning import LearnConfig, learn
        from nicegnn.screening.reading import Reader

        names = [*("molecules", "label", "smiles_column", "task", "kind", "featurizer", "split")]
        names += [
            "hidden_size",
            "epochs",
            "stop_after",
            "teach",
            "name",
            "question",
            "classes",
        ]
        config = chosen(
            ctx, settings, LearnConfig(), {n: n for n in (*names, "unit", "device", "seed")}
        )
        need("MOLECULES", config.molecules, "train mols.csv --help")
        if not config.label:
            columns = Reader(config.molecules, smiles_column=config.smiles_column).columns
            raise options.WordError(f"`--label` must be one of {tuple(columns)} (got none).")
        reader = Reader(
            config.molecules, smiles_column=config.smiles_column, columns=(config.label,)
        )
        one_thread()
        found = learn(reader, out, config, progress=not quiet, say=lambda text: say(text, json))
        write_settings(out, config)
        card = found.card
        if json:
            parts = {"card": card.to_dict(), "files": found.files}
            print_json({**parts, "num_rejected": len(found.rejects)})
        else:
            typer.echo(f"{card.name}: {card.in_words()}")
            typer.echo(f"Split: {card.split}")
            for what, path in found.files.items():
                typer.echo(f"  {what}: {path}")
            typer.echo(f"Next: nicegnn explain MOLECULES --model {out} --out explained")
        end_with(found.rejects)
