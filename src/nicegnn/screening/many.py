"""Very many molecules: read as a stream, explained by workers, left as Parquet shards.

The folder has ``shards/000000.parquet`` and so on with one row per molecule (see `compact`),
``rejects.csv``, ``settings.toml``, and ``result.json`` when all is done. A shard appears when it is
whole. After a kill at any moment the same command goes on with the shards that are missing. What is
in a row depends on the molecule, the model and the seed. Batches are cut at fixed places of the
input and start with the same knowledge about the model (see `compact.Memory`), so not even rounding
depends on workers, shards or stops.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from nicegnn.config import Settings, check_count
from nicegnn.errors import ConfigError, StoreError
from nicegnn.explain.nice import NICE
from nicegnn.pretrained import Pretrained
from nicegnn.progress import progress_bar
from nicegnn.screening.compact import Memory, Seconds, explain_compactly, schema_for
from nicegnn.screening.engines import Block, Engine, HereEngine
from nicegnn.screening.loading import PROBE, ModelConfig, load_words
from nicegnn.screening.reading import Molecules, Record
from nicegnn.screening.run import RESULT, identity_of, open_folder
from nicegnn.screening.shards import Schema, Table, num_rows, read_table, write_table
from nicegnn.store import write_json, write_text

_FIRST = 64  # molecules by which every process gets to know the model
_MANY = 256  # molecules in all, from which on kernels are used: loading them takes seconds
REJECTS: Schema = {"row": int, "id": str, "smiles": str, "reason": str}


@dataclass(frozen=True)
class ManyConfig(Settings):
    """All settings of ``nicegnn explain-many``, as they stand in ``settings.toml``."""

    molecules: str = ""  # a file
    smiles_column: str = ""  # by default found
    id_column: str = ""  # by default the row
    atoms: bool = False  # score atoms too, which takes one and a half times as long or more
    student: Literal["no", "yes", "auto"] = "no"  # the explainer's student, alone or as a first try
    shard_size: int = 1024  # molecules of one file; what a kill can lose, for each worker
    batch_size: int = 256  # molecules that are explained together
    model: ModelConfig = field(default_factory=ModelConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "shard_size", "batch_size")
        if self.shard_size % self.batch_size:
            raise ConfigError(
                f"`shard_size` must be a multiple of `batch_size`, {self.batch_size} (got "
                f"{self.shard_size}), so that batches do not depend on shards. Try "
                f"{max(1, self.shard_size // self.batch_size) * self.batch_size}."
            )

    @property
    def asked(self) -> dict[str, Any]:
        """Words of `explain`; only those that are set."""
        words: dict[str, Any] = {"atoms": True} if self.atoms else {}
        if self.student != "no":
            words["student"] = True if self.student == "yes" else self.student
        return words


@dataclass(frozen=True)
class ManyResult:
    """What a run over many molecules left behind."""

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

    config: ManyConfig
    folder: Path  # of the shards
    origin: tuple[tuple[str, str], ...]  # hashes of model and explainer
    first: tuple[str, ...] = ()  # SMILES at the start of the input
    kernels: bool = False  # whether to use kernels, where the model allows it

    def __call__(self, block: Block) -> Shard:
        (subject, memory), config = _loaded(self.config, self.first, self.kernels), self.config
        if tuple(sorted(subject.origin.items())) != self.origin:
            raise StoreError(
                f"The model {config.model.model} or its explainer differs from the one at the "
                "start of the run. Let all workers read the same files."
            )
        table, seconds = explain_compactly(
            block.records,
            subject,
            batch_size=config.batch_size,
            seed=config.model.seed,
            asked=config.asked,
            memory=memory,
        )
        start = time.perf_counter()
        path = shard_path(self.folder, block.number)
        write_table(path, [table], schema_for(config.atoms))
        return Shard(len(block.records), replace(seconds, writing=time.perf_counter() - start))


@lru_cache(maxsize=1)
def _loaded(config: ManyConfig, first: tuple[str, ...], kernels: bool) -> tuple[Pretrained, Memory]:
    """Returns the model with its explainer, and what that knows; once in each process."""
    subject = load_words(config.model)
    records = [Record(row, str(row), smiles, {}) for row, smiles in enumerate(first, start=1)]
    seed, asked = config.model.seed, config.asked
    return subject, Memory.of_first(records, subject, seed=seed, asked=asked, kernels=kernels)


def shard_path(folder: Path, number: int) -> Path:
    """Returns where a shard is, or will be."""
    return folder / f"{number:06d}.parquet"


def explain_many(
    molecules: Molecules,
    config: ManyConfig,
    out: str | Path,
    *,
    engine: Engine | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> ManyResult:
    """Explains all molecules and writes one Parquet file per shard to the folder `out`.

    Args:
        engine: where molecules are explained, by default in this process.
        overwrite: delete what an earlier run left in the folder.
    """
    out, engine = Path(out), engine or HereEngine()
    config = config.with_(model=_absolute(config.model))
    subject = load_words(config.model)
    _try(subject, config)
    total = molecules.count()
    if total == 0:
        raise ConfigError("There are no molecules to explain: the file has a header and no rows.")
    identity = {
        **identity_of(molecules, subject, config.model.seed),
        "command": "explain-many",
        **{key: config.to_dict()[key] for key in ("atoms", "student", "shard_size", "batch_size")},
    }
    open_folder(out, identity, overwrite)
    write_text(out / "settings.toml", config.to_toml())
    shards = out / "shards"
    first = next(molecules.chunks(_FIRST))
    work = ShardWork(
        config,
        shards.absolute(),
        tuple(sorted(subject.origin.items())),
        first=tuple(record.smiles for record in first if not record.problem),
        kernels=total >= _MANY,
    )
    counted = _Count()
    start = time.perf_counter()
    try:
        with progress_bar("Explaining", total, shown=progress) as advance:
            blocks = _missing(molecules, shards, config.shard_size, counted)
            head = [*islice(blocks, 1)]  # without any, no worker need start
            for shard in engine.run(chain(head, blocks), work) if head else ():
                counted.add(shard)
                rate = counted.done / (time.perf_counter() - start)
                advance(counted.resumed + counted.done, f"molecules, {rate:,.1f}/s")
    finally:
        for part in shards.glob(".*.part"):  # of workers that were killed
            part.unlink(missing_ok=True)
    seconds = time.perf_counter() - start
    return _finish(out, total, counted, seconds)


@dataclass
class _Count:
    """What is done so far."""

    shards: int = 0  # of the input, finished or not
    resumed: int = 0  # molecules
    done: int = 0  # molecules
    seconds: Seconds = field(default_factory=Seconds)

    def add(self, shard: Shard) -> None:
        self.done += shard.num
        self.seconds += shard.seconds


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
    words = {name: getattr(config, name) for name in ("model", "weights", "explainer")}
    found = {k: str(Path(w).absolute()) for k, w in words.items() if w and Path(w).is_file()}
    return config.with_(**found)


def _try(subject: Pretrained, config: ManyConfig) -> None:
    """Raises what the explainer says of a small molecule, before all are rejected for it."""
    if config.asked and not isinstance(subject.explainer, NICE):
        raise ConfigError(
            f"`atoms` and `student` need the explainer nice (got {subject.explainer.name!r}). Leave"
            " them out."
        )
    subject.explainer.explain([subject.featurizer(PROBE)], seed=config.model.seed, **config.asked)


def _finish(out: Path, total: int, counted: _Count, seconds: float) -> ManyResult:
    """Writes the rejected molecules and the result."""
    paths = [shard_path(out / "shards", number) for number in range(counted.shards)]
    num_rejected = write_table(out / "rejects.csv", _rejects(paths), REJECTS)
    busy = asdict(counted.seconds)
    all_busy = sum(busy.values())
    result = ManyResult(
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
        files={
            "shards": str(out / "shards"),
            "rejects": str(out / "rejects.csv"),
            "settings": str(out / "settings.toml"),
        },
    )
    if counted.done or not (out / RESULT).is_file():
        write_json(out / RESULT, result.to_dict())
    return result


def _rejects(paths: list[Path]) -> Iterator[Table]:
    """Yields the rejected molecules of each shard."""
    for path in paths:
        for table in read_table(path, columns=[*REJECTS]):
            chosen = [place for place, reason in enumerate(table["reason"]) if reason is not None]
            yield {name: [values[place] for place in chosen] for name, values in table.items()}
