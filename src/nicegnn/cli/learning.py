"""Learning from molecules: ``nicegnn fit | train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nicegnn.cli import options
from nicegnn.cli.molecule_options import (
    MORE,
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

        config = chosen(ctx, settings, FitConfig())
        need("MOLECULES", config.molecules, "fit mols.csv --help")
        reader = Reader(config.molecules, smiles_column=config.smiles_column)
        one_thread()
        with options.typed_words(MORE.format("fit")):
            subject = load_words(config.model)
            fitted, rejects = fit_explainer(reader, subject, config, progress=not quiet)
        fitted.save(out)
        write_settings(out, config)
        report = getattr(fitted, "fit_report", None)
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
    label: Annotated[
        str, opt("Column of the labels or values; a,b trains a model for each.", "--label", "-y")
    ] = "",
    out: Annotated[Path, to_file("File for the model.")] = Path("model.safetensors"),
    smiles_column: SmilesColumn = "",
    task: Annotated[str, opt("auto (as the column looks), classification or regression.")] = "auto",
    kind: Annotated[str, opt("gine, or gin, which reads no bond features.")] = "gine",
    featurizer: Annotated[str, opt("How SMILES become graphs: rich, elements or pyg.")] = "rich",
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
    overwrite: Annotated[bool, opt("Replace a model that has the same file.")] = False,
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

        config = chosen(ctx, settings, LearnConfig())
        need("MOLECULES", config.molecules, "train mols.csv --help")
        names = {"smiles_column": config.smiles_column}
        labels = options.split_commas([config.label])
        if not labels:
            columns = tuple(Reader(config.molecules, **names).columns)
            raise options.WordError(f"`--label` must be one of {columns} (got none).")
        reader = Reader(config.molecules, columns=labels, **names)
        places = [_place(out, label if len(labels) > 1 else "") for label in labels]
        for place in places:
            if place.exists() and not overwrite:
                raise options.WordError(
                    f"`--out` must be a new file (got {place}, which exists). Name another, or add "
                    "--overwrite."
                )
        one_thread()
        results = []
        for label, place in zip(labels, places, strict=True):
            wanted = config.with_(label=label)
            learned = learn(reader, place, wanted, progress=not quiet, say=lambda t: say(t, json))
            write_settings(place, wanted)
            results.append(learned)
            if not json:
                card = learned.card
                typer.echo(f"{card.name}: {card.in_words()}")
                for line in (f"Split: {card.split}", card.note):
                    typer.echo(line) if line else None
                for what, path in learned.files.items():
                    typer.echo(f"  {what}: {path}")
                typer.echo(f"Next: nicegnn explain MOLECULES --model {place} --out explained")
        if json:
            models = [
                {"card": f.card.to_dict(), "files": f.files, "num_rejected": len(f.rejects)}
                for f in results
            ]
            print_json(models[0] if len(models) == 1 else {"models": models})
        end_with([reject for learned in results for reject in learned.rejects])


def _place(out: Path, label: str) -> Path:
    """Returns the file of a model; where there are several, each has its label in its name."""
    if not label:
        return out
    plain = "".join(sign if sign.isalnum() else "_" for sign in label)
    return out.with_name(f"{out.name.removesuffix('.safetensors')}-{plain}.safetensors")
