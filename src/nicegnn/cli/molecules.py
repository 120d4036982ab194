"""Molecules: ``nicegnn explain | explain-many | summary | models``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nicegnn.cli import options
from nicegnn.cli.molecule_options import (
    MORE,
    REJECTED,
    Background,
    Classes,
    Column,
    Device,
    Featurizer,
    Method,
    Model,
    Quiet,
    Saved,
    SmilesColumn,
    Task,
    Trust,
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
    from nicegnn.screening.run import RunConfig, RunResult
    from nicegnn.screening.summary import SummaryConfig

_FEW = 5  # bonds and atoms of a typed molecule that are named
_SEEN = 0.005  # scores below it are shown as nothing

MaxAtoms = Annotated[int, opt("Reject molecules with more atoms.", min=1)]
IdColumn = Annotated[
    str, opt("Column with names of molecules; by default id or name, else the row.")
]


def explain(
    ctx: typer.Context,
    molecules: Annotated[
        Words,
        typer.Argument(
            help="SMILES in quotes, or a file: .csv .tsv .smi .sdf .mol .xlsx .parquet (also .gz)."
        ),
    ] = None,
    out: Annotated[Path | None, to_folder("Folder for tables and pictures.")] = None,
    smiles_column: SmilesColumn = "",
    id_column: IdColumn = "",
    model: Model = "",
    weights: Weights = "",
    featurizer: Featurizer = "",
    task: Task = "classification",
    classes: Classes = None,
    column: Column = "",
    background: Background = "",
    trust: Trust = False,
    explainer: Method = "",
    substructures: Annotated[
        Words,
        opt("Flag for a group: NAME=SMARTS, or a name such as amide; repeat.", "--substructure"),
    ] = None,
    svg: Annotated[bool, opt("One picture file per molecule.", "--svg")] = False,
    sdf: Annotated[bool, opt("Structures with numbers of atoms and bonds.", "--sdf")] = False,
    xlsx: Annotated[bool, opt("A spreadsheet with pictures.", "--xlsx")] = False,
    gallery: Annotated[int, opt("Most molecules with a picture in a page or sheet.", min=0)] = 2000,
    format: Annotated[str, opt("Tables as csv or parquet.")] = "csv",
    max_atoms: MaxAtoms = 1000,
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
        from nicegnn.screening.fragments import find_patterns
        from nicegnn.screening.outputs import write_outputs
        from nicegnn.screening.run import RunConfig

        config = chosen(ctx, settings, RunConfig())
        records, is_file = _molecules(config)
        if is_file and out is None:
            raise options.WordError(
                "`--out` must name a folder for the results of a file (got none)."
            )
        one_thread()
        with options.typed_words(MORE.format("explain")):
            find_patterns(config.output.substructures)
            subject = _subject(config)
            say(about(subject), json)
            if out is None:
                _show_few(records, subject, config, json)
                return
            if not is_file:
                config = config.with_(output__svg=True)
            result = _run(records, config, out, overwrite=overwrite, progress=not quiet)
        files = write_outputs(result, subject.card, config.output, progress=not quiet)
        if json:
            counts = {**result.to_dict(), "files": files}
            print_json({"model": subject.card.to_dict(), **counts})
        _end(result, files, json)


def explain_many(
    ctx: typer.Context,
    molecules: Annotated[
        Words, typer.Argument(help="File: .csv .tsv .smi .sdf .xlsx .parquet (text also .gz).")
    ] = None,
    out: Annotated[Path | None, to_folder("Folder for the shards.")] = None,
    smiles_column: SmilesColumn = "",
    id_column: IdColumn = "",
    model: Model = "",
    weights: Weights = "",
    featurizer: Featurizer = "",
    task: Task = "classification",
    classes: Classes = None,
    column: Column = "",
    background: Background = "",
    trust: Trust = False,
    explainer: Method = "",
    atoms: Annotated[bool, opt("Score atoms too, which takes longer.", "--atoms")] = False,
    student: Annotated[
        str, opt("no; yes: the explainer's student alone; auto: the teacher where it is unsure.")
    ] = "no",
    max_atoms: MaxAtoms = 1000,
    shard_size: Annotated[
        int, opt("Molecules per file; a multiple of the batch size.", min=1)
    ] = 1024,
    batch_size: Annotated[int, opt("Molecules explained together.", min=1)] = 256,
    engine: Annotated[str, opt("local (worker processes) or ray (a cluster).")] = "local",
    workers: Annotated[
        int, opt("Worker processes, or shards at a time on Ray; 0: one per processor.", min=0)
    ] = 0,
    address: Annotated[str | None, opt("Ray cluster: auto, local, or host:port.")] = None,
    gpus: Annotated[
        float | None, opt("Share of a GPU per shard on Ray; by default 1 for --device cuda.", min=0)
    ] = None,
    overwrite: Annotated[bool, opt("Delete results of another run in the folder.")] = False,
    device: Device = "cpu",
    seed: options.AnySeed = 0,
    settings: Saved = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Explain very many molecules; Parquet files with one row per molecule, no pictures.

    Reads the file as a stream, in little memory. After a stop or a crash the same command goes on.

    \b
    nicegnn explain-many library.csv.gz --out explained --workers 8
    nicegnn explain-many library.smi --model mine.safetensors --out explained --device cuda
    nicegnn explain-many library.parquet --out /shared/explained --engine ray --address auto
    """
    with readable_end():
        from nicegnn.screening.engines import make_engine
        from nicegnn.screening.run import RunConfig

        config = chosen(ctx, settings, RunConfig(atoms=False, shard_size=1024))
        if not config.molecules or out is None:
            raise options.WordError(
                f"`{'--out' if config.molecules else 'MOLECULES'}` must be named (got none). Try: "
                "nicegnn explain-many library.csv --out explained"
            )
        records, is_file = _molecules(config)
        if not is_file:
            raise options.WordError(
                f"`MOLECULES` must be one file (got {config.molecules[0]!r}). For SMILES: nicegnn "
                "explain"
            )
        where = make_engine(
            engine, workers=workers, address=address, device=config.model.device, gpus=gpus
        )
        with options.typed_words(MORE.format("explain-many")):
            result = _run(
                records, config, out, engine=where, overwrite=overwrite, progress=not quiet
            )
        if json:
            print_json(result.to_dict())
        _end(result, result.files, json, tells_rate=True)


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

        config = chosen(ctx, settings, SummaryConfig())
        need("SOURCE", config.source, "summary explained")
        folder, num_rejected = Path(config.source), 0
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
            num_rejected, folder = _explained_first(config, out, quiet), out
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
            _list_files(files)
        if num_rejected:
            raise typer.Exit(REJECTED)


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


def _run(records: Molecules, config: RunConfig, out: Path, **words: Any) -> RunResult:
    from nicegnn.screening.run import run

    return run(records, config, out, **words)


def _subject(config: RunConfig) -> Pretrained:
    from nicegnn.screening.run import load_once

    return load_once(config.model)


def _explained_first(config: SummaryConfig, out: Path, quiet: bool) -> int:
    """Explains a file of molecules into a folder; returns how many were rejected."""
    from nicegnn.screening.run import RunConfig

    whole = RunConfig((config.source,), config.smiles_column, model=config.model)
    one_thread()
    with options.typed_words(MORE.format("summary")):
        return _run(_molecules(whole)[0], whole, out, progress=not quiet).num_rejected


def _molecules(config: RunConfig) -> tuple[Molecules, bool]:
    """Returns the molecules to explain, and whether they come from a file."""
    from nicegnn.molecule.smiles import require_rdkit
    from nicegnn.screening.reading import Reader, TypedSmiles, is_file_name

    require_rdkit()  # before anything is told
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


def _end(result: RunResult, files: dict[str, str], json: bool, *, tells_rate: bool = False) -> None:
    """Tells what a run did and left, and ends with the code of rejects if there are any."""
    if not json:
        again = f" ({result.resumed} by an earlier run)" if result.resumed else ""
        counts = f"{result.num_explained} of {result.num_molecules}"
        typer.echo(f"{counts} molecules explained{again}.")
        if tells_rate and result.resumed < result.num_molecules:
            shares = ", ".join(f"{name} {share:.0%}" for name, share in result.shares.items())
            typer.echo(
                f"{result.molecules_per_second:,.1f} molecules per second; time of the workers: "
                f"{shares}."
            )
        _list_files(files)
    if result.num_rejected:
        tell(f"{result.num_rejected} rejected; {result.files['rejects']} says why.")
        raise typer.Exit(REJECTED)


def _list_files(files: Mapping[str, str]) -> None:
    for what, path in files.items():
        typer.echo(f"  {what}: {path}")


def _show_few(molecules: Molecules, subject: Pretrained, config: RunConfig, json: bool) -> None:
    """Explains typed SMILES: words on the terminal, and one picture each, all on one scale."""
    from nicegnn.screening.explaining import explain_rows, tables_of
    from nicegnn.screening.fragments import find_patterns
    from nicegnn.screening.gallery import Scale, picture
    from nicegnn.screening.shards import rows_of
    from nicegnn.store import write_text

    patterns = find_patterns(config.output.substructures)
    table, _ = explain_rows(
        list(molecules), subject, seed=config.model.seed, max_atoms=config.max_atoms
    )
    rows = list(rows_of(table))
    explained = [row for row in rows if row["reason"] is None]
    scale = Scale.of(explained)
    results = []
    for row in explained:
        tables = tables_of([row], patterns)
        (molecule,) = rows_of(tables["molecules"])
        ranked = {name: _ranked(rows_of(tables[name])) for name in ("bonds", "atoms")}
        path = Path(f"explained-{row['row']}.svg" if len(rows) > 1 else "explained.svg")
        write_text(path, picture(row, scale).svg)
        results.append({**molecule, **ranked, "picture": str(path)})
        if not json:
            _print_molecule(row, ranked, subject)
            typer.echo(f"  picture: {path}")
    rejects = [row for row in rows if row["reason"] is not None]
    if json:
        why = [{name: row[name] for name in ("row", "id", "smiles", "reason")} for row in rejects]
        print_json({"model": subject.card.to_dict(), "molecules": results, "rejects": why})
    for row in rejects:
        tell(row["reason"])
    if rejects:
        raise typer.Exit(REJECTED if results else 1)


def _ranked(rows: Any) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: int(row["rank"]))


def _print_molecule(
    row: Mapping[str, Any], ranked: Mapping[str, list[dict[str, Any]]], subject: Pretrained
) -> None:
    from nicegnn.explain.words import advice_for
    from nicegnn.molecule.domain import INSIDE, UNKNOWN
    from nicegnn.screening.gallery import UNITS, prediction_words, trust_of

    unit = f" {subject.card.unit}" if subject.card.unit else ""
    typer.echo(f"\n{row['smiles']}\n  prediction: {prediction_words(row)}{unit}")
    bonds = [one for one in ranked["bonds"][:_FEW] if abs(one["score"]) >= _SEEN]
    if bonds:
        typer.echo(f"  bonds it rests on most ({UNITS[row['unit']]}):")
    elif ranked["bonds"]:
        typer.echo("  it rests on no bond: without any of them it stays as it is")
    for bond in bonds:
        typer.echo(f"    {bond['name']:<10} {bond['score']:.3f}  {bond['type']}, {bond['groups']}")
    atoms = [one for one in ranked["atoms"][:_FEW] if abs(one["score"]) >= _SEEN]
    if atoms:
        words = (f"{one['element']}{one['atom']} {one['score']:.3f}" for one in atoms)
        against = "; minus: speaks against it" if any(one["score"] < 0 for one in atoms) else ""
        typer.echo(f"  atoms it rests on most ({UNITS[row['unit']]}{against}):")
        typer.echo(f"    {', '.join(words)}")
    if row["applicability"] == INSIDE:
        typer.echo(f"  nearest training molecule: similarity {row['similarity']:.2f}")
    elif row["applicability"] != UNKNOWN:
        typer.echo(f"  the model may not fit: {row['applicability']}")
    if trust := trust_of(row):
        typer.echo(f"  trust: {trust}")
    if row["status"] != "ok":
        typer.echo(f"  take care: {row['status']}. {advice_for(row['status'])}")
