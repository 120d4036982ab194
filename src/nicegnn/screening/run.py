"""A screening: molecules are read, explained in shards, and left as tables and pictures.

The folder has ``molecules``, ``bonds`` and ``atoms`` as CSV or Parquet, ``rejects.csv``,
``gallery.html``, ``svg/`` on request, and ``settings.toml``. Until the end, finished parts lie in
``shards``; the same command goes on from there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import nicegnn
from nicegnn.config import Settings, check_at_least, check_count
from nicegnn.errors import ConfigError, StoreError
from nicegnn.pretrained import Pretrained
from nicegnn.progress import progress_bar
from nicegnn.screening.explaining import SCHEMAS, explain_records, schemas_for
from nicegnn.screening.fragments import find_patterns
from nicegnn.screening.loading import ModelConfig
from nicegnn.screening.reading import Molecules
from nicegnn.screening.shards import Format, ShardFolder, read_table, rows_of
from nicegnn.store import write_json, write_text

TABLES = ("molecules", "bonds", "atoms")
_RUN, RESULT = "run.json", "result.json"


@dataclass(frozen=True)
class ScreenConfig(Settings):
    """What a screening writes."""

    format: Format = "csv"  # of the tables: csv, or parquet, which is smaller and needs pyarrow
    svg: bool = False  # one picture file per molecule
    gallery: int = 5000  # most molecules in gallery.html; 0 writes none
    substructures: tuple[str, ...] = ()  # NAME=SMARTS, or names of groups.toml
    shard_size: int = 256  # molecules that are explained and written together

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "shard_size")
        check_at_least(self, 0, "gallery")
        object.__setattr__(self, "substructures", tuple(self.substructures))


@dataclass(frozen=True)
class ExplainConfig(Settings):
    """All settings of ``nicegnn explain``, as they stand in ``settings.toml``."""

    molecules: tuple[str, ...] = ()  # a file, or SMILES
    smiles_column: str = ""  # by default found
    id_column: str = ""  # by default the row
    model: ModelConfig = field(default_factory=ModelConfig)
    output: ScreenConfig = field(default_factory=ScreenConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "molecules", tuple(self.molecules))


@dataclass(frozen=True)
class ScreenResult:
    """What a screening left behind."""

    folder: str
    num_molecules: int  # records of the input
    num_explained: int
    num_rejected: int
    resumed: int  # molecules that an earlier run had explained
    files: dict[str, str]  # what is where

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def screen(
    molecules: Molecules,
    subject: Pretrained,
    out: str | Path,
    config: ScreenConfig | None = None,
    *,
    seed: int = 0,
    settings: str = "",
    overwrite: bool = False,
    progress: bool = False,
) -> ScreenResult:
    """Explains all molecules and writes tables, pictures and a gallery to the folder `out`.

    Args:
        settings: text of ``settings.toml``; by default the settings of `config`.
        overwrite: delete what an earlier run left in the folder.
    """
    config, out = config or ScreenConfig(), Path(out)
    patterns, total = find_patterns(config.substructures), molecules.count()
    if total == 0:
        raise ConfigError("There are no molecules to explain: the file has a header and no rows.")
    schemas = schemas_for(patterns)
    identity = {
        **identity_of(molecules, subject, seed),
        **{key: config.to_dict()[key] for key in ("format", "shard_size")},
        "substructures": list(config.substructures),
    }
    earlier = open_folder(out, identity, overwrite)
    write_text(out / "settings.toml", settings or config.to_toml())
    if earlier is not None and not (out / "shards").exists():
        draw(out, subject, config, progress=progress)  # pictures may be new, tables are not
        return _result(out, total, total, config)
    shards = ShardFolder(out / "shards", schemas, config.format)
    resumed, num_shards = 0, 0
    try:
        with progress_bar("Explaining", total, shown=progress) as advance:
            for number, records in enumerate(molecules.chunks(config.shard_size)):
                if shards.has(number):
                    resumed += len(records)
                else:
                    found = explain_records(records, subject, substructures=patterns, seed=seed)
                    shards.write(number, found)
                num_shards = number + 1
                advance(min(num_shards * config.shard_size, total), "molecules")
        for name in TABLES:
            shards.join(name, num_shards, out / f"{name}.{config.format}")
        shards.join("rejects", num_shards, out / "rejects.csv")
        write_json(out / RESULT, {"num_molecules": total})
    except (StoreError, OSError):
        if not (out / RESULT).is_file():
            raise  # else another process has finished the same run, and its tables are whole
    shards.remove()
    draw(out, subject, config, progress=progress)
    return _result(out, total, resumed, config)


def identity_of(molecules: Molecules, subject: Pretrained, seed: int) -> dict[str, Any]:
    """Returns what the results of a run depend on, whatever it writes."""
    return {
        "nicegnn": nicegnn.__version__,
        "molecules": molecules.digest(),
        "column": molecules.smiles_column,
        "ids": getattr(molecules, "id_column", ""),
        **subject.origin,
        "classes": list(subject.card.classes),
        "seed": seed,
    }


def open_folder(out: Path, identity: dict[str, Any], overwrite: bool) -> dict[str, Any] | None:
    """Prepares the folder; returns the stored result if the same run has finished there."""
    run = out / _RUN
    if overwrite and run.is_file():
        remove_results(out)
    if run.is_file():
        stored = _read_json(run)
        differing = [key for key, value in identity.items() if stored.get(key) != value]
        if differing:
            raise ConfigError(
                f"{out} holds the results of another run (other {', '.join(differing)}). Name "
                "another --out, or delete them with --overwrite."
            )
    else:
        write_json(run, identity)
    return _read_json(out / RESULT) if (out / RESULT).is_file() else None


def remove_results(out: Path) -> None:
    """Deletes what a screening writes, and nothing else."""
    for name in ("shards", "svg"):
        shutil.rmtree(out / name, ignore_errors=True)
    tables = [f"{name}.{ending}" for name in TABLES for ending in ("csv", "parquet")]
    for name in (*tables, "rejects.csv", "gallery.html", "settings.toml", RESULT, _RUN):
        (out / name).unlink(missing_ok=True)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} is damaged ({error}). Run again with --overwrite.") from error
    return found


def _result(out: Path, total: int, resumed: int, config: ScreenConfig) -> ScreenResult:
    names = [f"{name}.{config.format}" for name in TABLES]
    names += ["rejects.csv", "settings.toml", "gallery.html", "svg"]
    files = {Path(name).stem: str(out / name) for name in names if (out / name).exists()}
    rejected = sum(len(t["row"]) for t in read_table(out / "rejects.csv"))
    return ScreenResult(str(out), total, total - rejected, rejected, resumed, files)


def read_explained(folder: Path) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Yields each molecule of a finished screening with its bonds, one after another."""
    path = {name: _table_path(folder, name) for name in ("molecules", "bonds")}
    groups = groupby(_rows(path["bonds"], "bonds"), key=itemgetter("row"))
    row, bonds = next(groups, (None, iter(())))
    for molecule in _rows(path["molecules"], "molecules"):
        own: list[dict[str, Any]] = []
        if row == molecule["row"]:
            own = list(bonds)
            row, bonds = next(groups, (None, iter(())))
        yield molecule, own


def _table_path(folder: Path, name: str) -> Path:
    for ending in ("csv", "parquet"):
        if (folder / f"{name}.{ending}").is_file():
            return folder / f"{name}.{ending}"
    raise StoreError(
        f"There is no {name}.csv or {name}.parquet in {folder}. Run `nicegnn explain MOLECULES "
        f"--out {folder}` first."
    )


def _rows(path: Path, name: str) -> Iterator[dict[str, Any]]:
    for table in read_table(path, SCHEMAS[name]):
        yield from rows_of(table)


def draw(out: Path, subject: Pretrained, config: ScreenConfig, *, progress: bool = False) -> None:
    """Draws what the tables of a folder hold: the gallery, and a file per molecule if asked for."""
    from nicegnn.screening.gallery import Gallery, picture

    if not config.svg and not config.gallery:
        return
    total = _read_json(out / RESULT)["num_molecules"]
    with (
        Gallery(out / "gallery.html", subject.card, config.gallery) as gallery,
        progress_bar("Drawing", total, shown=progress) as advance,
    ):
        for molecule, bonds in read_explained(out):
            gallery.add(molecule, bonds)
            if config.svg:
                path = out / "svg" / f"{molecule['row']:06d}{_safe(molecule)}.svg"
                write_text(path, picture(molecule, bonds).svg)
            elif gallery.is_full:
                break
            advance(molecule["row"], "molecules")


def _safe(molecule: dict[str, Any]) -> str:
    """Returns the id of a molecule as part of a file name; nothing where it is the row."""
    name = str(molecule["id"])
    if name == str(molecule["row"]):
        return ""
    return "-" + "".join(c if c.isalnum() or c in "-_." else "_" for c in name)[:60]
