"""A run over molecules: read as a stream, explained by workers, left as one row per molecule.

The folder has ``shards/000000.parquet`` and so on (see `explaining.ROW`), ``rejects.csv``,
``settings.toml``, and ``result.json`` when all is done; `nicegnn explain` also leaves tables and
pictures (see `outputs`). A shard appears when it is whole. After a kill at any moment the same
command goes on with the shards that are missing, and several processes may write the same run. What
is in a row depends on the molecule, the model and the seed: batches are cut at fixed places of the
input, so not even rounding depends on workers, shards or stops.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import nicegnn
from nicegnn.config import Settings, check_at_least, check_count
from nicegnn.errors import ConfigError, StoreError
from nicegnn.explain.nice import NICE
from nicegnn.pretrained import Pretrained
from nicegnn.progress import progress_bar
from nicegnn.screening.engines import Block, Engine, HereEngine
from nicegnn.screening.explaining import (
    ATOMS,
    MOST_ATOMS,
    ROW,
    SCHEMAS,
    Seconds,
    asked_words,
    explain_rows,
    own_names,
)
from nicegnn.screening.loading import PROBE, ModelConfig, load_words
from nicegnn.screening.reading import Molecules
from nicegnn.screening.shards import Format, Table, num_rows, read_table, write_table
from nicegnn.store import check_fields, write_json, write_text

_RUN, RESULT, SETTINGS = "run.json", "result.json", "settings.toml"
#: What a run, and what `nicegnn explain` makes of it, leaves in a folder.
_LEFT = (
    *("shards", "svg", "rejects.csv", "gallery.html", "molecules.sdf", "molecules.xlsx"),
    *(f"{t}.{kind}" for t in ("molecules", "bonds", "atoms") for kind in ("csv", "parquet")),
    *(SETTINGS, RESULT, _RUN),
)


@dataclass(frozen=True)
class OutputConfig(Settings):
    """What ``nicegnn explain`` makes of its rows."""

    format: Format = "csv"  # of the tables: csv or parquet
    svg: bool = False  # one picture file per molecule
    sdf: bool = False  # structures with the numbers of their atoms and bonds
    xlsx: bool = False  # a spreadsheet with pictures
    gallery: int = 2000  # most molecules with a picture in gallery and spreadsheet
    substructures: tuple[str, ...] = ()  # NAME=SMARTS, or names of groups.toml

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 0, "gallery")
        object.__setattr__(self, "substructures", tuple(self.substructures))


@dataclass(frozen=True)
class RunConfig(Settings):
    """All settings of ``nicegnn explain`` and ``explain-many``, as in ``settings.toml``."""

    molecules: tuple[str, ...] = ()  # a file, or SMILES
    smiles_column: str = ""  # by default found
    id_column: str = ""  # by default the row
    atoms: bool = True  # score atoms too, which takes twice as long
    student: Literal["no", "yes", "auto"] = "no"  # the explainer's student, alone or as a first try
    max_atoms: int = MOST_ATOMS  # larger molecules are rejected
    shard_size: int = 256  # molecules of one file; what a kill can lose, for each worker
    batch_size: int = 256  # molecules that are explained together
    model: ModelConfig = field(default_factory=ModelConfig)
    output: OutputConfig = field(default_factory=OutputConfig)  # of `nicegnn explain`

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "max_atoms", "shard_size", "batch_size")
        object.__setattr__(self, "molecules", tuple(self.molecules))
        if self.shard_size % self.batch_size:
            raise ConfigError(
                f"`shard_size` must be a multiple of `batch_size`, {self.batch_size} (got "
                f"{self.shard_size}), so that batches do not depend on shards. Try "
                f"{max(1, self.shard_size // self.batch_size) * self.batch_size}."
            )

    def schema(self, own: Iterable[str]) -> dict[str, type]:
        """Returns the columns of the run's rows; ``own`` are those of the input."""
        return {**ROW, **(ATOMS if self.atoms else {}), **dict.fromkeys(own, str)}


@dataclass(frozen=True)
class RunResult:
    """What a run left behind."""

    folder: str
    num_molecules: int  # records of the input
    num_explained: int
    num_rejected: int
    resumed: int  # molecules that an earlier run had finished
    num_shards: int
    num_bytes: int  # of all shards
    seconds: float  # of this run, from the first block to the last
    molecules_per_second: float  # of this run
    shares: dict[str, float]  # of the workers' time: reading SMILES, explaining, writing
    files: dict[str, str]  # what is where

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Shard:
    """What a worker tells of a shard that it has written."""

    num: int  # molecules
    seconds: Seconds


@dataclass(frozen=True)
class ShardWork:
    """Explains a block and writes its shard; can be sent to another process."""

    config: RunConfig
    folder: Path  # of the shards
    origin: tuple[tuple[str, str], ...]  # hashes of model and explainer
    own: tuple[str, ...] = ()  # the user's columns, by their names in rows

    def __call__(self, block: Block) -> Shard:
        config, subject = self.config, load_once(self.config.model)
        if tuple(sorted(subject.origin.items())) != self.origin:
            raise StoreError(
                f"The model {config.model.model} or its explainer differs from the one at the "
                "start of the run. Let all workers read the same files."
            )
        rows, seconds = explain_rows(
            block.records,
            subject,
            batch_size=config.batch_size,
            seed=config.model.seed,
            words=asked_words(subject, atoms=config.atoms, student=config.student),
            max_atoms=config.max_atoms,
        )
        start = time.perf_counter()
        write_table(shard_path(self.folder, block.number), [rows], config.schema(self.own))
        return Shard(len(block.records), replace(seconds, writing=time.perf_counter() - start))


@lru_cache(maxsize=1)
def load_once(config: ModelConfig) -> Pretrained:
    """Returns the model with its explainer, loaded once in each process."""
    return load_words(config)


def shard_path(folder: Path, number: int) -> Path:
    """Returns where a shard is, or will be."""
    return folder / f"{number:06d}.parquet"


def run(
    molecules: Molecules,
    config: RunConfig,
    out: str | Path,
    *,
    engine: Engine | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> RunResult:
    """Explains all molecules into the folder `out`, or goes on with what an earlier run left.

    Args:
        engine: where blocks are explained; by default in this process.
        overwrite: delete what another run left in the folder.
    """
    out, engine = Path(out), engine or HereEngine()
    config = config.with_(model=_absolute(config.model))
    subject = load_once(config.model)
    _try(subject, config)
    total = molecules.count()
    if total == 0:
        raise ConfigError("There are no molecules to explain: the file has a header and no rows.")
    _open_folder(out, _identity(molecules, subject, config), overwrite)
    write_text(out / SETTINGS, config.to_toml())
    shards, origin = out / "shards", tuple(sorted(subject.origin.items()))
    own = tuple(own_names(molecules.values).values())
    work = ShardWork(config, shards.absolute(), origin, own)
    counted = _Count()
    start = time.perf_counter()
    try:
        with progress_bar("Explaining", total, shown=progress) as advance:
            blocks = _missing(molecules, shards, config.shard_size, counted)
            head = [*islice(blocks, 1)]  # without any, no worker need start
            for shard in engine.run(chain(head, blocks), work) if head else ():
                counted.done += shard.num
                counted.seconds += shard.seconds
                rate = counted.done / (time.perf_counter() - start)
                advance(counted.resumed + counted.done, f"molecules, {rate:,.1f}/s")
    finally:
        for part in shards.glob(".*.part"):  # of workers that were killed
            part.unlink(missing_ok=True)
    return _finish(out, total, counted, time.perf_counter() - start, own)


@dataclass
class _Count:
    """What is done so far."""

    shards: int = 0  # of the input, finished or not
    resumed: int = 0  # molecules
    done: int = 0  # molecules
    seconds: Seconds = field(default_factory=Seconds)


def _missing(molecules: Molecules, shards: Path, size: int, counted: _Count) -> Iterator[Block]:
    """Yields blocks without a shard, one at a time; a file that is not whole counts as missing."""
    for number, records in enumerate(molecules.chunks(size)):
        counted.shards = number + 1
        if num_rows(shard_path(shards, number)) == len(records):
            counted.resumed += len(records)
        else:
            yield Block(number, records)


def _absolute(config: ModelConfig) -> ModelConfig:
    """Returns the settings with full paths: workers may be elsewhere."""
    names = ("model", "weights", "explainer", "background")
    words = {name: getattr(config, name) for name in names}
    paths = {k: str(Path(w).absolute()) for k, w in words.items() if w and Path(w).is_file()}
    kind, _, path = config.model.partition(":")
    if kind == "chemprop":
        paths["model"] = f"chemprop:{Path(path).absolute()}"
    return config.with_(**paths)


def _try(subject: Pretrained, config: RunConfig) -> None:
    """Raises what the explainer says of a small molecule, before all are rejected for it."""
    if config.student != "no" and not isinstance(subject.explainer, NICE):
        raise ConfigError(
            f"`student` needs the explainer nice (got {subject.explainer.name!r}). Leave it out."
        )
    words = asked_words(subject, atoms=config.atoms, student=config.student)
    subject.explainer.explain([subject.featurizer(PROBE)], seed=config.model.seed, **words)


def _identity(molecules: Molecules, subject: Pretrained, config: RunConfig) -> dict[str, Any]:
    """Returns what the rows of a run depend on."""
    settings = ("atoms", "student", "max_atoms", "shard_size", "batch_size")
    return {
        "nicegnn": nicegnn.__version__,
        "molecules": molecules.digest(),
        "column": molecules.smiles_column,
        "ids": molecules.id_column,
        **subject.origin,
        "classes": list(subject.card.classes),
        "seed": config.model.seed,
        **{name: getattr(config, name) for name in settings},
    }


def _open_folder(out: Path, identity: dict[str, Any], overwrite: bool) -> None:
    """Prepares the folder for this run; one with the rows of another run is refused."""
    path = out / _RUN
    if overwrite and path.is_file():
        remove_results(out)
    if not path.is_file():
        write_json(path, identity)
        return
    stored = read_json(path, {"molecules": str})
    differing = [key for key, value in identity.items() if stored.get(key) != value]
    if differing:
        raise ConfigError(
            f"{out} holds the results of another run (other {', '.join(differing)}). Name another "
            "--out, or delete them with --overwrite."
        )


def remove_results(out: Path) -> None:
    """Deletes what a run leaves, and nothing else."""
    for name in _LEFT:
        if (out / name).is_dir():
            shutil.rmtree(out / name, ignore_errors=True)
        else:
            (out / name).unlink(missing_ok=True)


def read_json(path: Path, wanted: Mapping[str, type]) -> dict[str, Any]:
    """Returns what a run has written as JSON, with these fields."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} is damaged ({error}). Run again with --overwrite.") from error
    return check_fields(path, table, wanted)


def _finish(
    out: Path, total: int, counted: _Count, seconds: float, own: Sequence[str]
) -> RunResult:
    """Writes the rejected molecules and the result."""
    paths = [shard_path(out / "shards", number) for number in range(counted.shards)]
    schema = SCHEMAS["rejects"] | dict.fromkeys(own, str)
    num_rejected = write_table(out / "rejects.csv", _rejects(paths, [*schema]), schema)
    busy = asdict(counted.seconds)
    all_busy = sum(busy.values())
    names = ("shards", "rejects.csv", SETTINGS)
    result = RunResult(
        folder=str(out),
        num_molecules=total,
        num_explained=total - num_rejected,
        num_rejected=num_rejected,
        resumed=counted.resumed,
        num_shards=counted.shards,
        num_bytes=sum(path.stat().st_size for path in paths),
        seconds=round(seconds, 3),
        molecules_per_second=round(counted.done / seconds, 2),
        shares={name: round(own / all_busy, 4) if all_busy else 0.0 for name, own in busy.items()},
        files={Path(name).stem: str(out / name) for name in names},
    )
    if counted.done or not (out / RESULT).is_file():
        write_json(out / RESULT, result.to_dict())
    return result


def _rejects(paths: list[Path], columns: list[str]) -> Iterator[Table]:
    """Yields the rejected molecules of each shard."""
    for path in paths:
        for table in read_table(path, columns=columns):
            chosen = [place for place, reason in enumerate(table["reason"]) if reason is not None]
            yield {name: [values[place] for place in chosen] for name, values in table.items()}


def stored_shards(folder: Path) -> list[Path]:
    """Returns the shards of a finished run, in order."""
    if not (folder / RESULT).is_file():
        raise StoreError(
            f"There is no finished run in {folder}. Run `nicegnn explain MOLECULES --out {folder}` "
            "first."
        )
    number = read_json(folder / RESULT, {"num_shards": int})["num_shards"]
    return [shard_path(folder / "shards", place) for place in range(number)]
