"""What a reader of data files hands on: one record per molecule, and a report of what it met."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

#: Parts of a split, in the order of their codes.
PARTS = ("train", "valid", "test")


@dataclass(frozen=True)
class TaskTruth:
    """Label of a molecule in one task and what explains it; see `Truth` for the rules' own form.

    Attributes:
        label: 0 or 1.
        alternatives: sets of bond numbers, each of which explains label 1; empty for label 0.
        atoms: atoms of the union of all alternatives; empty for label 0.
        annotation: bonds that the benchmark marks whatever the label, where it has such a mask.
    """

    label: int
    alternatives: Sequence[Collection[int]] = ()
    atoms: Collection[int] = ()
    annotation: Collection[int] | None = None


@dataclass(frozen=True)
class Record:
    """One molecule of a data file: atoms and bonds as tables, and its truth in every task."""

    row: int  # position in the source, from 0
    smiles: str  # empty where the source has none
    atoms: Sequence[str]  # element symbols
    bonds: Sequence[tuple[int, int, int]]  # (u, v, type), types as in `BOND_TYPES`
    tasks: Mapping[str, TaskTruth]
    splits: Sequence[str] = ()  # part of `PARTS` in each published split
    is_kept: bool = True  # whether the paper's selection has it
    remark: str = ""  # something odd about a row that is used all the same


@dataclass(frozen=True)
class Rejected:
    """A row that could not be turned into a graph."""

    row: int
    reason: str
    smiles: str = ""


@dataclass(frozen=True)
class Reading:
    """The content of one or more files on its way in.

    Attributes:
        total: rows to come.
        records: starts the work and returns one item per row, in order.
        damage: what is wrong with the files; rows before the damage are still read.
    """

    total: int
    records: Callable[[], Iterator[Record | Rejected]]
    damage: Sequence[str] = ()


@dataclass(frozen=True)
class LoadReport:
    """What was read for a dataset and what happened to each row; nothing is dropped silently.

    Attributes:
        layout: which form of the files was found.
        files: SHA-256 of each file that was read.
        num_rows: molecules in the files.
        num_graphs: molecules in the dataset.
        rejected: rows that could not be read, with the reason.
        left_out: readable molecules that are not in the dataset, by reason.
        num_twins: graphs equal to an earlier one; see `nicegnn.datasets.twins`.
        num_moved: graphs moved to train, because a published split parts equal molecules.
        num_parted: graphs that have a twin in another part, as a published split has it.
        notes: anything else worth knowing.
    """

    layout: str
    files: Mapping[str, str] = field(default_factory=dict)
    num_rows: int = 0
    num_graphs: int = 0
    rejected: Sequence[Rejected] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    num_twins: int = 0
    num_moved: int = 0
    num_parted: int = 0
    notes: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns plain dictionaries, lists and numbers."""
        return asdict(self)

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> LoadReport:
        """Returns the report that `to_json` wrote."""
        rejected = tuple(Rejected(**item) for item in plain["rejected"])
        return LoadReport(**{**plain, "rejected": rejected})

    def __str__(self) -> str:
        left_out = sum(self.left_out.values())
        lines = [
            f"{self.num_rows} rows read ({self.layout}), {self.num_graphs} graphs kept, "
            f"{len(self.rejected)} rejected, {left_out} left out, {self.num_twins} twins"
        ]
        lines += [f"left out: {count} ({reason})" for reason, count in self.left_out.items()]
        lines += [f"rejected row {item.row}: {item.reason}" for item in self.rejected[:10]]
        if len(self.rejected) > 10:
            lines.append(f"... and {len(self.rejected) - 10} more rejected rows")
        if self.num_moved:
            lines.append(f"moved to train: {self.num_moved} (equal molecules in different parts)")
        if self.num_parted:
            lines.append(f"left as published: {self.num_parted} graphs have a twin in another part")
        return "\n".join([*lines, *self.notes])
