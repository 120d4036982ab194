"""Pictures of explained molecules on one scale, and a page of them that needs nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from nicegnn.explain.pictures import LEGENDS
from nicegnn.explain.words import advice_for, trust_words
from nicegnn.molecule.domain import INSIDE, UNKNOWN
from nicegnn.molecule.drawing import Panel, draw_panels
from nicegnn.molecule.picture import Palette, Picture
from nicegnn.pretrained.model_file import ModelCard
from nicegnn.screening.tables import TRUST, Row, bonds_in, ends_in, molecule_of, own_columns
from nicegnn.store import write_text

CARD = (240, 180)  # pixels of a picture on a card, or in a spreadsheet
Scale = dict[tuple[str, str], float]  # score of the full colour, by endpoint and unit


def scale_of(rows: Iterable[Row]) -> Scale:
    """Returns the scale of some rows: shares of the odds end at 1, others at the largest."""
    scale: Scale = {}
    for row in rows:
        scores = (*row["bond_score"], *(row.get("atom_score") or ()))
        sizes = [abs(one) for one in scores if not math.isnan(one)]
        largest = max([scale.get(scale_key(row), 0.0), *sizes])
        scale[scale_key(row)] = 1.0 if row["unit"] == "odds" else largest
    return {key: limit or 1.0 for key, limit in scale.items()} or {("", "odds"): 1.0}


def scale_key(row: Row) -> tuple[str, str]:
    """Returns what rows of the same colours have in common."""
    return "" if row["unit"] == "odds" else row.get("endpoint") or "", row["unit"]


def picture(
    row: Row, scale: Scale, size: tuple[int, int] = (460, 360), *, is_bare: bool = False
) -> Picture:
    """Returns the numbered picture of an explained molecule, or it alone, without words."""
    title = "" if str(row["id"]) in ("", str(row["row"])) else f"{row['id']}: "
    title += prediction_words(row) + f", {row['status']}" * (row["status"] != "ok")
    title += ", the model may not fit" * bool(limits_of(row))
    panel = Panel(
        ends_in(row),
        row["bond_score"],
        row.get("atom_score"),
        smiles=row["smiles"],
        title="" if is_bare else title,
        numbered=True,
    )
    return draw_panels(
        [panel],
        size=size,
        legend="" if is_bare else LEGENDS[row["unit"]],
        palette=Palette(ground=None) if is_bare else "score",
        signed=True,
        limit=scale[scale_key(row)],
    )


def prediction_words(row: Row) -> str:
    """Returns the prediction with its probability, if it has one; never one of 0 or 100 %."""
    probability = float(row["probability"])
    if math.isnan(probability) and "endpoint" in row:
        told = f"{row['endpoint']}: {row['prediction']} ± {row['spread']}"
        return f"{told} {row.get('prediction unit') or ''}".rstrip(" -")
    if math.isnan(probability):
        return str(row["prediction"])
    shown = f"{probability:.0%}" if probability <= 0.995 else "over 99%"
    return f"{row['prediction']} ({shown})"


def trust_of(row: Row, card: ModelCard) -> str:
    """Returns how far to trust the explanation of a row by a model, in words."""
    numbers = {name: float(row[name]) for name in TRUST}
    is_class = not math.isnan(float(row["probability"]))
    among = ["among molecules that the model knows"] if limits_of(row) else []
    among += ["with models that are right on nine of ten molecules"] if card.is_often_wrong else []
    return trust_words(numbers, is_class=is_class, among=" and ".join(among))


def limits_of(row: Row) -> str:
    """Returns why the model may not fit a molecule, nothing if it does or nobody knows."""
    return "" if row["applicability"] in (INSIDE, UNKNOWN) else str(row["applicability"])


def render(template: str, **values: Any) -> str:
    """Returns a page of the folder ``page``; ``asset(name)`` in it stands for a style or script."""
    folder = files("nicegnn.screening") / "page"
    made = Environment(
        loader=PackageLoader("nicegnn.screening", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals["asset"] = lambda name: Markup((folder / name).read_text(encoding="utf-8"))
    return made.get_template(template).render(**values)


def write_gallery(
    path: Path, items: list[Row], card: ModelCard, scale: Scale, num_all: int, asked: list[str]
) -> None:
    """Writes the page of some of `num_all` molecules, each as `item_of` tells of it."""
    data = json.dumps(items, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    statuses = [*dict.fromkeys(one for item in items for one in item["status"].split(", "))]
    legends = []  # bars of colours alone, each with the endpoint that it is for
    for (endpoint, unit), limit in scale.items():
        bar = draw_panels([], size=(360, 1), legend=LEGENDS[unit], signed=True, limit=limit)
        legends.append((endpoint, Markup(bar.svg)))
    page = render(
        "gallery.html",
        card=card,
        items=items,
        advice={one: advice_for(one) for one in statuses},
        asked=asked,
        groups=[*dict.fromkeys([*asked, *sorted({g for item in items for g in item["groups"]})])],
        legends=legends,
        num_all=num_all,
        data=Markup(data),
    )
    write_text(path, page)


def item_of(row: Row, card: ModelCard, scale: Scale, asked: Mapping[str, Any]) -> Row:
    """Returns what a card tells of a molecule; `asked` are patterns of substructures to name."""
    mol, bonds = molecule_of(row), sorted(bonds_in(row), key=lambda bond: int(bond["rank"]))
    has = [name for name, pattern in asked.items() if mol.HasSubstructMatch(pattern)]
    probability = float(row["probability"])
    return {
        **{name: row[name] for name in ("row", "id", "smiles", "prediction", "status")},
        "probability": None if math.isnan(probability) else round(probability, 4),
        "endpoint": row.get("endpoint") or "",
        "unit": row.get("prediction unit") or card.unit,
        "trust": trust_of(row, card),
        "limits": limits_of(row),
        "own": [f"{name}: {row[name]}" for name in own_columns(row) if row[name]],
        "groups": has + sorted({bond["groups"] for bond in bonds} - asked.keys()),
        "best": [f"{b['name']}: {b['groups']}, {b['score']:.3g}" for b in bonds[:3]],
        "drawing": picture(row, scale, CARD, is_bare=True).svg,
    }
