"""Molecules: ``nicegnn explain | summary | models``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nicegnn.cli import options
from nicegnn.cli.molecule_options import (
    MORE,
    OF_MODEL,
    REJECTED,
    Classes,
    Device,
    Featurizer,
    Method,
    Model,
    Quiet,
    Saved,
    SmilesColumn,
    Task,
    Weights,
    about,
    chosen,
    need,
    one_thread,
    readable_end,
    say,
    tell,
)
from nicegnn.cli.options import Json, Words, opt, print_json, to_folder

if TYPE_CHECKING:
    from nicegnn.pretrained import Pretrained
    from nicegnn.screening.reading import Molecules
    from nicegnn.screening.run import ExplainConfig
    from nicegnn.screening.summary import SummaryConfig


def explain(
    ctx: typer.Context,
    molecules: Annotated[
        Words,
        typer.Argument(
            help="SMILES in quotes, or a file: .csv .tsv .smi .sdf .parquet (also .gz)."
        ),
    ] = None,
    out: Annotated[Path | None, to_folder("Folder for tables and pictures.")] = None,
    smiles_column: SmilesColumn = "",
    id_column: Annotated[str, opt("Column with names of molecules; by default the row.")] = "",
    model: Model = "",
    weights: Weights = "",
    featurizer: Featurizer = "",
    task: Task = "classification",
    classes: Classes = None,
    explainer: Method = "",
    substructures: Annotated[
        Words,
        opt("Flag for a group: NAME=SMARTS, or a name such as amide; repeat.", "--substructure"),
    ] = None,
    svg: Annotated[bool, opt("One picture file per molecule.", "--svg")] = False,
    gallery: Annotated[int, opt("Most molecules in gallery.html; 0 writes none.", min=0)] = 5000,
    format: Annotated[str, opt("Tables as csv or parquet.")] = "csv",
    shard_size: Annotated[int, opt("Molecules explained and written together.", min=1)] = 256,
    overwrite: Annotated[bool, opt("Delete results of another run in the folder.")] = False,
    device: Device = "cpu",
    seed: options.AnySeed = 0,
    settings: Saved = None,
    plugins: options.Plugins = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say which bonds and atoms of molecules a model's predictions rest on.

    \b
    nicegnn explain "CC(=O)Nc1ccc(O)cc1"
    nicegnn explain mols.csv --out explained --substructure amide
    nicegnn explain mols.csv --model my_code:make --weights w.safetensors --featurizer pyg --out x
    """
    with readable_end():
        from nicegnn.screening.loading import load_words
        from nicegnn.screening.run import ExplainConfig, screen

        config = chosen(
            ctx,
            settings,
            ExplainConfig(),
            {
                **{name: name for name in ("molecules", "smiles_column", "id_column")},
                **{name: f"model__{name}" for name in OF_MODEL},
                "explainer": "model__explainer",
                **{n: f"output__{n}" for n in ("svg", "gallery", "format", "shard_size")},
                "substructures": "output__substructures",
            },
        )
        molecules_, is_file = _molecules(config)
        if is_file and out is None:
            raise options.WordError(
                "`--out` must name a folder for the results of a file (got none)."
            )
        one_thread()
        with options.typed_words(MORE.format("explain")):
            subject = load_words(config.model)
        if out is None:
            _show_few(molecules_, subject, config, json)
            return
        if not is_file:
            config = config.with_(output__svg=True)
        say(about(subject), json)
        found = screen(
            molecules_,
            subject,
            out,
            config.output,
            seed=config.model.seed,
            settings=config.to_toml(),
            overwrite=overwrite,
            progress=not quiet,
        )
        if json:
            print_json({"model": subject.card.to_dict(), **found.to_dict()})
        else:
            again = f" ({found.resumed} by an earlier run)" if found.resumed else ""
            typer.echo(
                f"{found.num_explained} of {found.num_molecules} molecules explained{again}."
            )
            for what, path in found.files.items():
                typer.echo(f"  {what}: {path}")
        if found.num_rejected:
            tell(f"{found.num_rejected} rejected; {found.files['rejects']} says why.")
            raise typer.Exit(REJECTED)


def summary(
    ctx: typer.Context,
    source: Annotated[
        str, typer.Argument(help="Folder of `nicegnn explain`, or a file of molecules.")
    ] = "",
    out: Annotated[Path | None, to_folder("Folder for the results; by default the source.")] = None,
    model: Model = "",
    smiles_column: SmilesColumn = "",
    min_molecules: Annotated[int, opt("Leave out substructures of fewer molecules.", min=1)] = 3,
    top: Annotated[int, opt("Rows to print.", min=0)] = 15,
    settings: Saved = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Rank substructures by how much predictions for many molecules rest on them.

    \b
    nicegnn summary explained
    nicegnn summary mols.csv --model mutagenicity --out explained
    """
    with readable_end():
        from nicegnn.screening.summary import SummaryConfig, summarise, write_summary
        from nicegnn.store import write_text

        names = {name: name for name in ("source", "smiles_column", "min_molecules", "top")}
        config = chosen(ctx, settings, SummaryConfig(), {**names, "model": "model__model"})
        need("SOURCE", config.source, "summary explained")
        folder, rejected = Path(config.source), 0
        if not folder.exists():
            raise options.WordError(
                "`SOURCE` must be a folder of `nicegnn explain`, or a file of molecules (got "
                f"{folder}, which does not exist). Name another."
            )
        if not folder.is_dir():
            if out is None:
                raise options.WordError(
                    f"`--out` must name a folder for the explanations of {folder} (got none)."
                )
            rejected, folder = _explained_first(config, out, quiet), out
        lines = summarise(folder, min_molecules=config.min_molecules)
        title = f"Substructures of {Path(config.source).name}"
        files = write_summary(out or folder, lines, title)
        write_text((out or folder) / "summary.settings.toml", config.to_toml())
        if json:
            print_json({"lines": [vars(one) for one in lines], "files": files})
        else:
            for one in lines[: config.top]:
                typer.echo(
                    f"{one.lift:+.3f}  {one.fragment} ({one.kind}), {one.prediction}: "
                    f"{one.molecules} molecules, score {one.score:.3f} ± {one.spread:.3f}"
                )
            if not lines:
                typer.echo(
                    f"No substructure is in {config.min_molecules} molecules; see --min-molecules."
                )
            for what, path in files.items():
                typer.echo(f"  {what}: {path}")
        if rejected:
            raise typer.Exit(REJECTED)


def _explained_first(config: SummaryConfig, out: Path, quiet: bool) -> int:
    """Explains a file of molecules into a folder; returns how many were rejected."""
    from nicegnn.screening.loading import load_words
    from nicegnn.screening.reading import Reader
    from nicegnn.screening.run import ExplainConfig, screen

    source, column = config.source, config.smiles_column
    reader = Reader(source, smiles_column=column)
    one_thread()
    with options.typed_words(MORE.format("summary")):
        subject = load_words(config.model)
        whole = ExplainConfig(molecules=(source,), smiles_column=column, model=config.model)
        found = screen(reader, subject, out, settings=whole.to_toml(), progress=not quiet)
    return found.num_rejected


def models(
    name: Annotated[str, typer.Argument(help="One of them, to see its card.")] = "",
    json: Json = False,
) -> None:
    """List the trained models that come with nicegnn, or show the card of one.

    \b
    nicegnn models
    nicegnn models benzene
    """
    from nicegnn.config import check_choice
    from nicegnn.pretrained import DEFAULT, NAMES, card_of

    if name:
        with options.typed_words():
            check_choice("name", name, NAMES)
    cards = {one: card_of(one) for one in NAMES if name in ("", one)}
    if json:
        print_json({one: card.to_dict() for one, card in cards.items()})
    elif name:
        typer.echo(cards[name].to_toml().rstrip())
    else:
        for one, card in cards.items():
            note = " (default)" if one == DEFAULT else ""
            typer.echo(f"{one}{note}: {card.in_words()}")


def _molecules(config: ExplainConfig) -> tuple[Molecules, bool]:
    """Returns the molecules to explain, and whether they come from a file."""
    from nicegnn.screening.reading import Reader, TypedSmiles, is_file_name

    words = config.molecules
    if not words:
        raise options.WordError(
            "`MOLECULES` must be a SMILES in quotes or a file (got none). Try: nicegnn explain "
            '"CC(=O)Nc1ccc(O)cc1"'
        )
    if not any(is_file_name(word) for word in words):
        return TypedSmiles(words), False
    if len(words) > 1:
        raise options.WordError(f"`MOLECULES` must be one file, or SMILES alone (got {words}).")
    columns = {"smiles_column": config.smiles_column, "id_column": config.id_column}
    return Reader(words[0], **columns), True


def _show_few(molecules: Molecules, subject: Pretrained, config: ExplainConfig, json: bool) -> None:
    """Explains typed SMILES: words on the terminal, and one picture each."""
    from nicegnn.screening.explaining import explain_records
    from nicegnn.screening.fragments import find_patterns
    from nicegnn.screening.gallery import picture, prediction_words
    from nicegnn.screening.shards import rows_of
    from nicegnn.store import write_text

    records = list(molecules)
    patterns = find_patterns(config.output.substructures)
    tables = explain_records(records, subject, substructures=patterns, seed=config.model.seed)
    say(about(subject), json)
    results = []
    for molecule in rows_of(tables["molecules"]):
        own = {
            name: sorted(
                (row for row in rows_of(tables[name]) if row["row"] == molecule["row"]),
                key=lambda row: int(row["rank"]),
            )
            for name in ("bonds", "atoms")
        }
        path = Path(f"explained-{molecule['row']}.svg" if len(records) > 1 else "explained.svg")
        write_text(path, picture(molecule, own["bonds"]).svg)
        results.append({**molecule, **own, "picture": str(path)})
        if not json:
            _print_molecule(
                molecule, own["bonds"], own["atoms"], prediction_words(molecule), subject
            )
            typer.echo(f"  picture: {path}")
    rejects = list(rows_of(tables["rejects"]))
    if json:
        print_json({"model": subject.card.to_dict(), "molecules": results, "rejects": rejects})
    for one in rejects:
        tell(one["reason"])
    if rejects:
        raise typer.Exit(REJECTED if results else 1)


def _print_molecule(
    molecule: Mapping[str, Any],
    bonds: Sequence[Mapping[str, Any]],
    atoms: Sequence[Mapping[str, Any]],
    prediction: str,
    subject: Pretrained,
) -> None:
    from nicegnn.explain.words import advice_for, trust_words
    from nicegnn.screening.explaining import TRUST

    is_class = subject.card.task != "regression"
    unit = f" {subject.card.unit}" if subject.card.unit else ""
    typer.echo(f"\n{molecule['smiles']}\n  prediction: {prediction}{unit}")
    if bonds:
        typer.echo("  bonds it rests on most:")
    for bond in bonds[:5]:
        where = f", {bond['groups']}" if bond["groups"] else ""
        typer.echo(f"    {bond['name']:<10} {bond['score']:.3f}  {bond['type']}{where}")
    if atoms:
        named = ", ".join(_atom_words(atom, is_class) for atom in atoms[:5])
        typer.echo(f"  atoms it rests on most: {named}")
    trust = trust_words({name: molecule[name] for name in TRUST}, is_class=is_class)
    if trust:
        typer.echo(f"  trust: {trust}")
    if molecule["status"] != "ok":
        typer.echo(f"  take care: {molecule['status']}. {advice_for(molecule['status'])}")


def _atom_words(atom: Mapping[str, Any], is_class: bool) -> str:
    """Returns name and score of an atom, and for values how far it raises or lowers them."""
    named = f"{atom['element']}{atom['atom']} {atom['score']:.3f}"
    verb = "raises" if atom["loss"] >= 0 else "lowers"
    return named if is_class else f"{named} ({verb} it by {abs(atom['loss']):.2f})"
