"""What visitors ask for: models by name, typed SMILES and sent files, all within limits."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from threading import Lock

from torch_geometric.data import Data

from nicegnn.config import Settings, check_choice
from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.pretrained import DEFAULT, NAMES, Pretrained, card_of
from nicegnn.pretrained.model_file import ModelCard
from nicegnn.screening.explaining import empty_tables, explain_records, graph_of
from nicegnn.screening.loading import ModelConfig, load_words
from nicegnn.screening.reading import InputError, Reader, Record
from nicegnn.screening.shards import Table

#: Endings of files that visitors may send; packed ones could be larger than they look.
KINDS = (".csv", ".tsv", ".smi", ".sdf")
_IDS = ("id", "name")  # columns whose words are shown beside a molecule
_TOGETHER = 64  # molecules explained between two looks at the clock


class PageError(NicegnnError, ValueError):
    """What a visitor sent cannot be explained."""


@dataclass(frozen=True)
class Limits(Settings):
    """How much one visitor may ask for at once."""

    megabytes: int = 5  # size of a file
    molecules: int = 1000  # of a file; later ones are left out
    atoms: int = 200  # of one molecule
    letters: int = 2000  # of one SMILES
    seconds: int = 120  # for the molecules of a file, or for the methods side by side

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in self.to_dict().items():
            if value < 1:
                raise ConfigError(f"`{name}` must be at least 1 (got {value}).")


class Shelf:
    """Models by name, each loaded when it is first asked for; threads may share a shelf.

    Args:
        own: a model that was named on the command line, which comes first.
        seed: of everything random.
    """

    def __init__(self, own: ModelConfig | None = None, seed: int = 0) -> None:
        self.seed = seed
        self._lock = Lock()
        self._loaded: dict[str, Pretrained] = {}
        self.names: tuple[str, ...] = NAMES
        self.first = DEFAULT
        if own is not None:
            subject = load_words(own)
            self.first = own.model
            if own.model not in NAMES:
                name = subject.card.name
                self.first = Path(own.model).name if name in NAMES else name
                self.names = (self.first, *NAMES)
            self._loaded[self.first] = subject

    def __getitem__(self, name: str) -> Pretrained:
        check_choice("model", name, self.names)
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = load_words(ModelConfig(model=name))
            return self._loaded[name]

    def card(self, name: str) -> ModelCard:
        """Returns the card of a model; those that come with nicegnn are not loaded for it."""
        check_choice("model", name, self.names)
        return card_of(name) if name not in self._loaded else self._loaded[name].card


def typed_record(text: str) -> Record:
    """Returns the record of a typed line: a SMILES, and a name after it if there is one.

    >>> typed_record(" CCO  alcohol ").id
    'alcohol'
    """
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    if not lines:
        raise PageError("Type a SMILES first, such as c1ccccc1O, or click an example.")
    if len(lines) > 1:
        raise PageError(f"Type one SMILES (got {len(lines)} lines). Send a file for more of them.")
    smiles, *name = lines[0].split(maxsplit=1)
    return Record(1, name[0] if name else "molecule", smiles, {})


def graph_within(record: Record, subject: Pretrained, limits: Limits) -> Data:
    """Returns the graph of a record, or raises `PageError`: unreadable, too long or too large."""
    if len(record.smiles) > limits.letters:
        raise PageError(
            f"A SMILES must have at most {limits.letters} letters (got {len(record.smiles)}). Use "
            "`nicegnn explain` for large molecules."
        )
    graph, reason = graph_of(record, subject.featurizer)
    if graph is None:
        raise PageError(reason)
    if graph.num_nodes > limits.atoms:
        raise PageError(
            f"A molecule must have at most {limits.atoms} atoms (got {graph.num_nodes}). Use "
            "`nicegnn explain` for large molecules."
        )
    return graph


@dataclass(frozen=True)
class Sent:
    """A file that was read: its records, and what was left out."""

    name: str
    records: tuple[Record, ...]
    note: str = ""


def read_sent(path: str | Path, column: str, limits: Limits) -> Sent:
    """Returns the molecules of a file that a visitor sent."""
    path = Path(path)
    if path.suffix.lower() not in KINDS:
        raise PageError(f"The file must end in {', '.join(KINDS)} (got {path.name!r}).")
    if path.stat().st_size > limits.megabytes * 2**20:
        raise PageError(
            f"{path.name} must have at most {limits.megabytes} MB (got "
            f"{path.stat().st_size / 2**20:.1f}). Use `nicegnn explain` for large files."
        )
    try:
        reader = Reader(path, smiles_column=column.strip())
        named = next((name for name in reader.columns if name.strip().lower() in _IDS), "")
        if named and not reader.id_column:
            reader = Reader(path, smiles_column=column.strip(), id_column=named)
        records = tuple(islice(reader, limits.molecules + 1))
    except InputError as error:  # in the words of the page, not of the command
        text = str(error).replace(str(path), path.name)
        raise PageError(text.replace("with --smiles-column", "in the box above")) from error
    if not records:
        raise PageError(f"{path.name} must hold at least one molecule (got only a header).")
    note = ""
    if len(records) > limits.molecules:
        note = f"Only the first {limits.molecules} molecules were taken."
    return Sent(path.name, records[: limits.molecules], note)


def explain_sent(
    sent: Sent,
    subject: Pretrained,
    limits: Limits,
    *,
    seed: int = 0,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Table]:
    """Returns the tables of `explain_records`; what is beyond the limits is in ``rejects``."""
    tables, ends = empty_tables(), time.monotonic() + limits.seconds
    total = len(sent.records)
    for first in range(0, total, _TOGETHER):
        some = [*sent.records[first : first + _TOGETHER]]
        if time.monotonic() < ends:
            some = [_checked(record, subject, limits) for record in some]
        else:
            reason = f"The time of {limits.seconds} s was over. Use `nicegnn explain`."
            some = [replace(record, problem=reason) for record in some]
        for name, part in explain_records(some, subject, seed=seed).items():
            for key, values in part.items():
                tables[name][key] += values
        tell(min(first + _TOGETHER, total), total)
    return tables


def _checked(record: Record, subject: Pretrained, limits: Limits) -> Record:
    """Returns the record, with the reason why it cannot be explained if there is one."""
    try:
        graph_within(record, subject, limits)
    except PageError as error:
        return replace(record, problem=str(error))
    return record


def find_record(records: Sequence[Record], row: int) -> Record:
    """Returns the record of a row of the file."""
    for record in records:
        if record.row == row:
            return record
    raise PageError(f"The file must have a row {row} (got {len(records)} rows). Send it again.")
