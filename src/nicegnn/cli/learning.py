"""Learning from molecules: ``nicegnn train``."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from nicegnn.cli import options
from nicegnn.cli.options import Json, opt, print_json, to_file
from nicegnn.cli.settings import REJECTED, Quiet, one_thread, takes
from nicegnn.screening.settings import LearnConfig


@takes(LearnConfig)
def train(
    config: LearnConfig,
    out: Annotated[Path, to_file("File for the model.")] = Path("model.safetensors"),
    overwrite: Annotated[bool, opt("Replace a model of this name.", "--overwrite")] = False,
    json: Json = False,
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
    from nicegnn.store import write_text

    if not config.molecules:
        raise options.WordError(
            "`MOLECULES` must be a file (got none). Try: nicegnn train mols.csv --label active"
        )
    reader = Reader(config.molecules, smiles_column=config.smiles_column)
    if not config.label:
        raise options.WordError(f"`--label` must be one of {tuple(reader.columns)} (got none).")
    if out.exists() and not overwrite:
        raise options.WordError(
            f"`--out` must be a new file (got {out}, which exists). Name another, or add "
            "--overwrite."
        )
    one_thread()
    say = options.saying(json)
    learned = learn(reader, out, config, progress=not quiet, say=say)
    stem = out.name.removesuffix(".safetensors")
    write_text(out.with_name(f"{stem}.settings.toml"), config.to_toml())
    for card in learned.cards.values():
        say(f"{card.name}: {card.in_words()}\nSplit: {card.split}")
        if (gap := card.test.get("calibration_error")) is not None:
            say(f"Calibration: shares of right answers and probabilities differ by {gap:.3f}.")
        say(card.note) if card.note else None
    for what, path in learned.files.items():
        say(f"  {what}: {path}")
    label = f":{next(iter(learned.cards))}" if len(learned.cards) > 1 else ""
    say(f"Next: nicegnn explain MOLECULES --model {quote(f'{out}{label}')} --out explained")
    if json:
        cards = {label: card.to_dict() for label, card in learned.cards.items()}
        some = {"files": learned.files, "num_rejected": len(learned.rejects)}
        print_json({"card": learned.card.to_dict(), "cards": cards, **some})
    for record, reason in learned.rejects[:5]:
        typer.echo(f"Row {record.row} was left out: {reason}", err=True)
    if learned.rejects:
        typer.echo(f"{len(learned.rejects)} molecules were left out.", err=True)
        raise typer.Exit(REJECTED)
