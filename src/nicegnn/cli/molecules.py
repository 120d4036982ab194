"""Molecules: ``nicegnn explain | summary | models``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nicegnn.cli import options
from nicegnn.cli.options import Json, opt, print_json, to_folder
from nicegnn.cli.settings import REJECTED, Quiet, one_thread, takes
from nicegnn.screening.settings import RunConfig

if TYPE_CHECKING:
    from nicegnn.pretrained import Pretrained
    from nicegnn.screening.reading import TypedSmiles

_FEW = 5  # bonds and atoms of a typed molecule that are named
_SEEN = 0.005  # scores below it are shown as nothing


@takes(RunConfig)
def explain(
    config: RunConfig,
    out: Annotated[Path | None, to_folder("Folder for tables and pictures.")] = None,
    overwrite: Annotated[bool, opt("Delete results of another run there.", "--overwrite")] = False,
    plugins: options.Plugins = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say which bonds and atoms of molecules a model's predictions rest on.

    A file is read as a stream. After a stop or a crash the same command goes on.

    \b
    nicegnn explain "CC(=O)Nc1ccc(O)cc1"
    nicegnn explain mols.csv --out explained --substructure amide
    nicegnn explain mols.csv --model admet:AMES,hERG --out explained
    nicegnn explain library.csv.gz --out explained --format rows --workers 8
    nicegnn explain mols.csv --model my_code:make --weights w.safetensors --featurizer pyg --out x
    """
    from nicegnn.screening.fragments import find_patterns
    from nicegnn.screening.outputs import write_outputs
    from nicegnn.screening.run import load_once, run

    records, is_file = _molecules(config)
    if is_file and out is None:
        raise options.WordError("`--out` must name a folder for the results of a file (got none).")
    one_thread()
    find_patterns(config.output.substructures)
    subject = load_once(config.model)
    say = options.saying(json)
    say(f"Model {subject.card.name}: {subject.card.in_words()}\nExplained by {_how(subject)}.")
    if out is None:
        _show_few(records, subject, config, json)
        return
    if not is_file:
        config = config.with_(output__svg=True)
    result = run(records, config, out, overwrite=overwrite, progress=not quiet)
    files = result.files
    if config.output.format != "rows":
        files = write_outputs(result, subject.card, config.output, progress=not quiet)
    if json:
        print_json({"model": subject.card.to_dict(), **result.to_dict(), "files": files})
    again = f" ({result.resumed} by an earlier run)" if result.resumed else ""
    say(f"{result.num_explained} of {result.num_molecules} molecules explained{again}.")
    _list_files(files, say)
    if result.num_rejected:
        _tell(f"{result.num_rejected} rejected; {result.files['rejects']} says why.")
        raise typer.Exit(REJECTED)


def summary(
    folder: Annotated[Path | None, typer.Argument(help="Folder of `nicegnn explain`.")] = None,
    out: Annotated[Path | None, to_folder("Folder for the results; by default the same.")] = None,
    min_molecules: Annotated[int, opt("Leave out substructures of fewer molecules.", min=1)] = 3,
    top: Annotated[int, opt("Rows to print.", min=0)] = 15,
    json: Json = False,
) -> None:
    """Rank substructures by how much predictions for many molecules rest on them.

    \b
    nicegnn summary explained
    """
    from nicegnn.screening.summary import summarise, write_summary

    if folder is None or not folder.is_dir():
        raise options.WordError(
            f"`FOLDER` must be one of `nicegnn explain` (got {folder or 'none'}). Try: nicegnn "
            "explain mols.csv --out explained, then nicegnn summary explained"
        )
    lines = summarise(folder, min_molecules=min_molecules)
    files = write_summary(out or folder, lines, f"Substructures of {folder.name}")
    if json:
        print_json({"lines": [vars(one) for one in lines], "files": files})
        return
    for one in lines[:top]:
        typer.echo(
            f"{one.lift:+.3f}  {one.substructure}, {one.prediction}: "
            f"{one.molecules} molecules, score {one.score:.3f} ± {one.spread:.3f}"
        )
    if not lines:
        typer.echo(f"No substructure is in {min_molecules} molecules; see --min-molecules.")
    _list_files(files, typer.echo)


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


def _molecules(config: RunConfig) -> tuple[TypedSmiles, bool]:
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


def _how(subject: Pretrained) -> str:
    """Returns the explainer in words."""
    explainer = subject.explainer
    if (background := getattr(explainer, "background", None)) is not None:
        return f"{explainer.name}, with a background of {background.num_graphs:,} molecules"
    return f"{explainer.name}, {'fitted' if explainer.is_fitted else 'without a fit'}"


def _list_files(files: Mapping[str, str], say: Any) -> None:
    for what, path in files.items():
        say(f"  {what}: {path}")


def _tell(text: str) -> None:
    typer.echo(text, err=True)


def _show_few(molecules: TypedSmiles, subject: Pretrained, config: RunConfig, json: bool) -> None:
    """Explains typed SMILES: words on the terminal, and one picture each, all on one scale."""
    from nicegnn.screening.explaining import explain_rows, tables_of
    from nicegnn.screening.fragments import find_patterns
    from nicegnn.screening.gallery import Scale, picture
    from nicegnn.screening.shards import rows_of
    from nicegnn.store import write_text

    patterns = find_patterns(config.output.substructures)
    rows = list(rows_of(explain_rows(list(molecules), subject, config)))
    explained = [row for row in rows if row["reason"] is None]
    scale = Scale.of(explained)
    results = []
    for row in explained:
        tables = tables_of([row], patterns)
        (molecule,) = rows_of(tables["molecules"])
        ranked = {name: _ranked(rows_of(tables[name])) for name in ("bonds", "atoms")}
        which = [str(row["row"]), row.get("endpoint")] if len(rows) > 1 else []
        path = Path(f"{'-'.join(filter(None, ['explained', *which]))}.svg")
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
        _tell(row["reason"])
    if rejects:
        raise typer.Exit(REJECTED if results else 1)


def _ranked(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: int(row["rank"]))


def _print_molecule(
    row: Mapping[str, Any], ranked: Mapping[str, list[dict[str, Any]]], subject: Pretrained
) -> None:
    from nicegnn.explain.words import advice_for
    from nicegnn.molecule.domain import INSIDE, UNKNOWN
    from nicegnn.screening.gallery import UNITS, prediction_words, trust_of

    unit = f" {subject.card.unit}" if subject.card.unit and "endpoint" not in row else ""
    typer.echo(f"\n{row['smiles']}\n  prediction: {prediction_words(row)}{unit}")
    if row.get("percentile"):
        typer.echo(f"  percentile: {row['percentile']} among approved drugs")
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
    if trust := trust_of(row, subject.card):
        typer.echo(f"  trust: {trust}")
    if row["status"] != "ok":
        typer.echo(f"  take care: {row['status']}. {advice_for(row['status'])}")
    if row.get("warning"):
        typer.echo(f"  take care: {row['warning']}")
