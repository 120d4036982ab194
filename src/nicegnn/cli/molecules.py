"""Molecules: ``nicegnn explain | train | summary | models``."""

from __future__ import annotations

from operator import itemgetter
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from nicegnn.cli import options
from nicegnn.cli.options import Quiet, one_thread, opt, takes, to_file, to_folder
from nicegnn.screening.settings import LearnConfig, RunConfig


@takes(RunConfig)
def explain(
    config: RunConfig,
    out: Annotated[Path | None, to_folder("Folder for tables and pictures.")] = None,
    plugins: options.Plugins = None,
    quiet: Quiet = False,
) -> None:
    """Say which bonds and atoms of molecules a model's predictions rest on.

    After a stop or a crash the same command goes on.

    \b
    nicegnn explain "CC(=O)Nc1ccc(O)cc1"
    nicegnn explain mols.csv --out explained --substructure amide
    nicegnn explain mols.csv --model admet:AMES,hERG --out explained
    nicegnn explain library.csv.gz --out explained --format rows --workers 8
    """
    from nicegnn.molecule.smiles import require_rdkit

    require_rdkit()  # before anything is told
    from nicegnn.screening.fragments import find_patterns
    from nicegnn.screening.outputs import write_outputs
    from nicegnn.screening.reading import Reader, TypedSmiles, is_file_name
    from nicegnn.screening.run import load_once, run

    words, molecules = config.molecules, TypedSmiles(config.molecules)
    if any(map(is_file_name, words)):
        if len(words) > 1:
            raise options.WordError(f"`MOLECULES` must be one file, or SMILES alone (got {words}).")
        columns = {"smiles_column": config.smiles_column, "id_column": config.id_column}
        molecules = Reader(words[0], **columns)
        if out is None:
            raise options.WordError("`--out` must name a folder for results of a file (got none).")
    one_thread()
    find_patterns(config.output.substructure)
    subject, say = load_once(config.model), typer.echo
    explainer, how = subject.explainer, "without a fit"
    if (background := getattr(explainer, "background", None)) is not None:
        how = f"with a background of {background.num_graphs:,} molecules"
    elif explainer.is_fitted:
        how = "fitted"
    say(f"Model {subject.card.name}: {subject.card.in_words()}")
    say(f"Explained by {explainer.name}, {how}.")
    if out is None:
        _show_few(molecules, subject, config)
        return
    result = run(molecules, config, out, progress=not quiet)
    if config.output.format != "rows":
        write_outputs(out, result, subject.card, config.output, progress=not quiet)
    again = f" ({result.resumed} by an earlier run)" if result.resumed else ""
    say(f"{result.num_explained} of {result.num_molecules} molecules explained{again}.")
    say("\n".join(f"  {file}" for file in sorted(out.iterdir())))
    if result.num_rejected:
        _reject(f"{result.num_rejected} rejected; {out / 'rejects.csv'} says why.")


def _reject(*reasons: str, code: int = options.REJECTED) -> None:
    typer.echo("\n".join(reasons), err=True)
    raise typer.Exit(code)


def _show_few(molecules: Any, subject: Any, config: RunConfig) -> None:
    """Explains typed SMILES: words on the terminal, and one picture each, all on one scale."""
    from nicegnn.screening.explaining import explain_rows
    from nicegnn.screening.gallery import picture, scale_of
    from nicegnn.store import write_text

    rows = explain_rows(list(molecules), subject, config)
    explained = [row for row in rows if row["reason"] is None]
    scale = scale_of(explained)
    for row in explained:
        which = [str(row["row"]), row.get("endpoint")] if len(rows) > 1 else []
        path = Path(f"{'-'.join(filter(None, ['explained', *which]))}.svg")
        write_text(path, picture(row, scale).svg)
        typer.echo("\n".join([*_lines_about(row, subject), f"  picture: {path}"]))
    if reasons := [row["reason"] for row in rows if row["reason"] is not None]:
        _reject(*reasons, code=options.REJECTED if explained else 1)


def _lines_about(row: dict[str, Any], subject: Any) -> list[str]:
    """Returns what the terminal shows of a molecule."""
    from nicegnn.explain.pictures import LEGENDS
    from nicegnn.explain.words import advice_for
    from nicegnn.molecule.domain import INSIDE
    from nicegnn.screening.gallery import limits_of, prediction_words, trust_of
    from nicegnn.screening.tables import atoms_in, bonds_in

    best, top = (  # the first five, without those whose score would be shown as nothing
        [one for one in sorted(parts, key=itemgetter("rank"))[:5] if abs(one["score"]) >= 0.005]
        for parts in (bonds_in(row), atoms_in(row))
    )
    unit = f" {subject.card.unit}" if subject.card.unit and "endpoint" not in row else ""
    lines = [f"\n{row['smiles']}", f"  prediction: {prediction_words(row)}{unit}"]
    if row.get("percentile"):
        lines.append(f"  percentile: {row['percentile']} among approved drugs")
    what = LEGENDS[row["unit"]].partition(";")[0]
    if best:
        lines.append(f"  bonds it rests on most ({what}):")
        lines += [f"    {b['name']:<10} {b['score']:.3f}  {b['type']}, {b['groups']}" for b in best]
    elif row["bond_score"]:
        lines.append("  it rests on no bond: without any of them it stays as it is")
    if top:
        against = "; minus: speaks against it" if any(one["score"] < 0 for one in top) else ""
        words = (f"{one['element']}{one['atom']} {one['score']:.3f}" for one in top)
        lines += [f"  atoms it rests on most ({what}{against}):", f"    {', '.join(words)}"]
    if row["applicability"] == INSIDE:
        lines.append(f"  nearest training molecule: similarity {row['similarity']:.2f}")
    about = {"the model may not fit": limits_of(row), "trust": trust_of(row, subject.card)}
    care = f"{row['status']}. {advice_for(row['status'])}" if row["status"] != "ok" else ""
    lines += [f"  {name}: {words}" for name, words in about.items() if words]
    return lines + [f"  take care: {words}" for words in (care, row.get("warning")) if words]


@takes(LearnConfig)
def train(
    config: LearnConfig,
    out: Annotated[Path, to_file("File for the model.")] = Path("model.safetensors"),
    quiet: Quiet = False,
) -> None:
    """Train a model on molecules with labels, and judge it on held-out ones.

    Labels that are named together share one model; name one of them as `model.safetensors:label`.

    \b
    nicegnn train mols.csv --label active --out active.safetensors
    nicegnn explain new.csv --model active.safetensors --out explained
    nicegnn train tox.csv --label NR-AR --label SR-p53 --out tox.safetensors
    """
    from nicegnn.screening.learning import learn
    from nicegnn.screening.reading import Reader

    reader = Reader(config.molecules, smiles_column=config.smiles_column)
    if not config.label:
        raise options.WordError(f"`--label` must be one of {tuple(reader.columns)} (got none).")
    if out.exists():
        raise options.WordError(
            f"`--out` must be a new file (got {out}, which exists). Name another, or delete it."
        )
    one_thread()
    learned, say = learn(reader, out, config, progress=not quiet), typer.echo
    for card in learned.cards.values():
        say(f"{card.name}: {card.in_words()}\nSplit: {card.split}")
        if (gap := card.test.get("calibration_error")) is not None:
            say(f"Calibration: shares of right answers and probabilities differ by {gap:.3f}.")
        if card.note:
            say(card.note)
    say("\n".join(f"  {file}" for file in learned.files))
    label = f":{next(iter(learned.cards))}" if len(learned.cards) > 1 else ""
    say(f"Next: nicegnn explain MOLECULES --model {quote(f'{out}{label}')} --out explained")
    if learned.rejects:
        few = [f"Row {one.row} was left out: {reason}" for one, reason in learned.rejects[:5]]
        _reject(*few, f"{len(learned.rejects)} molecules were left out.")


def summary(
    folder: Annotated[Path | None, typer.Argument(help="Folder of `nicegnn explain`.")] = None,
    min_molecules: Annotated[int, opt("Leave out substructures of fewer molecules.", min=1)] = 3,
) -> None:
    """Rank substructures by how much predictions for many molecules rest on them.

    \b
    nicegnn summary explained
    """
    from nicegnn.screening.summary import summarise, write_summary

    if folder is None or not folder.is_dir():
        raise options.WordError(
            f"`FOLDER` must be one of `nicegnn explain` (got {folder or 'none'}). Try: nicegnn "
            "explain mols.csv --out explained"
        )
    lines = summarise(folder, min_molecules=min_molecules)
    files = write_summary(folder, lines, f"Substructures of {folder.name}")
    for one in lines[:15]:
        typer.echo(
            f"{one.lift:+.3f}  {one.substructure}, {one.prediction}: "
            f"{one.molecules} molecules, score {one.score:.3f} ± {one.spread:.3f}"
        )
    if not lines:
        typer.echo(f"No substructure is in {min_molecules} molecules; see --min-molecules.")
    typer.echo("\n".join(f"  {file}" for file in files))


def models(name: Annotated[str, typer.Argument(help="One, to see its card.")] = "") -> None:
    """List the trained models that come with nicegnn, or show the card of one.

    \b
    nicegnn models
    nicegnn models benzene
    """
    from nicegnn.pretrained import DEFAULT, NAMES, card_of

    cards = {one: card_of(one) for one in ([name] if name else NAMES)}
    for one, card in cards.items():
        note = " (default)" if one == DEFAULT else ""
        typer.echo(card.to_toml().rstrip() if name else f"{one}{note}: {card.in_words()}")
