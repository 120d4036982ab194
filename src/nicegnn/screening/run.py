"""A run over molecules: read as a stream, explained by workers, left as one row per molecule.

A shard appears when it is whole. After a kill at any moment the same command goes on, and several
processes may write the same run: not even rounding depends on workers or stops.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import nicegnn
from nicegnn.errors import ConfigError, StoreError
from nicegnn.explain.nice import NICE
from nicegnn.pretrained.ensemble import Ensemble
from nicegnn.progress import progress_bar
from nicegnn.screening import tables
from nicegnn.screening.engines import Block, do_all
from nicegnn.screening.explaining import answers, explain_rows
from nicegnn.screening.loading import PROBE, load_words
from nicegnn.screening.reading import TypedSmiles
from nicegnn.screening.settings import RunConfig
from nicegnn.screening.tables import ROW, num_rows, own_names
from nicegnn.store import check_fields, write_json

_RUN = "run.json"


@dataclass(frozen=True)
class RunResult:
    """What a run left behind."""

    num_molecules: int  # records of the input
    num_explained: int
    num_rejected: int
    resumed: int  # molecules that an earlier run had finished
    num_outputs: int  # rows of a molecule, more than one for several endpoints


@dataclass(frozen=True)
class ShardWork:
    """Explains a block, writes its shard and returns the number of its molecules."""

    config: RunConfig
    folder: Path  # of the shards
    origin: Mapping[str, str]  # hashes of model and explainer
    start: Path  # folder that names of files and modules are meant from

    def __call__(self, block: Block) -> int:
        os.chdir(self.start)  # a worker of Ray may be elsewhere
        config, subject = self.config, load_once(self.config.model)
        if subject.origin != self.origin:
            raise StoreError(
                f"The model {config.model.model} or its explainer differs from that at the start "
                "of the run. Let all workers read the same files."
            )
        own = own_names(block.records[0].values).values()
        schema = {**ROW, **(tables.ATOMS if config.atoms else {}), **dict.fromkeys(own, str)}
        if isinstance(subject.explainer, Ensemble):
            schema |= {**tables.ENSEMBLE, **dict.fromkeys(subject.explainer.columns, str)}
        rows = explain_rows(block.records, subject, config)
        tables.write_table(self.folder / f"{block.number:06d}.parquet", rows, schema)
        return len(block.records)


load_once = lru_cache(maxsize=1)(load_words)  # in each process


def run(
    molecules: TypedSmiles, config: RunConfig, out: str | Path, *, progress: bool = False
) -> RunResult:
    """Explains all molecules into the folder `out`, or goes on with what an earlier run left."""
    out, subject = Path(out), load_once(config.model)
    if config.student != "no" and not isinstance(subject.explainer, NICE):
        raise ConfigError(
            f"`student` needs the explainer nice (got {subject.explainer.name!r}). Leave it out."
        )
    # rows of a molecule; an error that all molecules would have ends the run here
    each = len(answers(subject, [subject.featurizer(PROBE)], config))
    total, size, shards = molecules.count(), config.shard_size, out / "shards"
    if total == 0:
        raise ConfigError("There are no molecules to explain: the file has a header and no rows.")
    paths = [shards / f"{number:06d}.parquet" for number in range(-(-total // size))]
    identity = {  # what the rows of a run depend on
        "nicegnn": nicegnn.__version__,
        "molecules": molecules.digest(),
        "column": molecules.smiles_column,
        "ids": molecules.id_column,
        **subject.origin,
        "classes": list(subject.card.classes),
        "seed": config.model.seed,
        "shards": len(paths),
        **{name: getattr(config, name) for name in ("atoms", "student", "max_atoms", "shard_size")},
    }
    stored = _read_identity(out) if (out / _RUN).is_file() else identity
    if stored is identity:
        write_json(out / _RUN, {**identity, "settings": config.to_dict()})
    elif differing := [key for key, value in identity.items() if stored.get(key) != value]:
        raise ConfigError(
            f"{out} holds the results of another run (other {', '.join(differing)}). Name another "
            "--out, or delete this folder."
        )
    work = ShardWork(config, shards.absolute(), subject.origin, Path.cwd())
    missing = {  # a shard that is not whole counts as missing
        number
        for number, path in enumerate(paths)
        if num_rows(path) != each * min(size, total - number * size)
    }

    def blocks() -> Iterator[Block]:
        for number, records in enumerate(molecules.chunks(size)):
            # another process may have done it by now
            if number in missing and num_rows(paths[number]) != each * len(records):
                yield Block(number, records)

    num_missing = min(total, len(missing) * size)
    done, start = 0, time.perf_counter()
    try:
        with progress_bar("Explaining", total, shown=progress) as advance:
            where = config.engine, num_missing, config.model.device
            for num in do_all(blocks(), work, *where) if missing else ():
                done += num
                rate = done / (time.perf_counter() - start)
                advance(total - num_missing + done, f"molecules, {rate:,.1f}/s")
    finally:
        for part in shards.glob(".*.part"):  # of workers that were killed
            part.unlink(missing_ok=True)
    schema = tables.SCHEMAS["rejects"] | dict.fromkeys(own_names(molecules.values).values(), str)
    every = (row for path in paths for row in tables.read_table(path, [*schema]))
    rejects = {row["row"]: row for row in every if row["reason"] is not None}  # once each
    num_rejected = tables.write_table(out / "rejects.csv", rejects.values(), schema)
    return RunResult(total, total - num_rejected, num_rejected, total - done, each)


def _read_identity(folder: Path) -> dict[str, Any]:
    try:
        table = json.loads((folder / _RUN).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise StoreError(
            f"{folder / _RUN} is damaged ({error}). Delete its folder, and run again."
        ) from error
    return check_fields(folder / _RUN, table, {"molecules": str, "shards": int})


def stored_shards(folder: Path) -> list[Path]:
    """Returns the shards of a finished run, in order."""
    there = sorted((folder / "shards").glob("*.parquet"))
    number = _read_identity(folder)["shards"] if (folder / _RUN).is_file() else None
    if len(there) != number:
        raise StoreError(
            f"There must be a finished run in {folder} (got {len(there)} shards of "
            f"{number or 'none'}). Run `nicegnn explain MOLECULES --out {folder}` to its end."
        )
    return there
