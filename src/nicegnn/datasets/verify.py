"""Do the published labels and masks follow from chemistry? Every molecule is checked.

The files say which bonds are true; the rules (`rules.py`, `toxicophores.py`, `elements.py`) derive
them from the molecule alone. Both must agree on the label and on every alternative.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from nicegnn.datasets.elements import ELEMENTS, element_truths
from nicegnn.datasets.errors import DamagedFileError
from nicegnn.datasets.files import Found, find_files
from nicegnn.datasets.folders import data_folder, sha256_of
from nicegnn.datasets.graphxai import published_masks, task_truth
from nicegnn.datasets.parallel import ordered_map
from nicegnn.datasets.records import Reading, Record, TaskTruth
from nicegnn.datasets.registry import DATASETS, FAMILIES, facts_of
from nicegnn.datasets.rules import GRAPHXAI_RULES, truth_of
from nicegnn.datasets.sources import known_checksums
from nicegnn.datasets.tidy import masks_truth
from nicegnn.datasets.toxicophores import toxicophore_matches, toxicophore_truth
from nicegnn.molecule.smiles import MoleculeError, parse_smiles
from nicegnn.progress import progress_bar

_RULE_OF = {name.replace("_", "-"): rule for name, rule in GRAPHXAI_RULES.items()}
_MERGED = ("indole", "pains", "rings-count", "rings-max")  # the benchmark has one mask for all


@dataclass(frozen=True)
class Disagreement:
    """A molecule whose published truth is not the derived one."""

    row: int
    smiles: str
    what: str


@dataclass(frozen=True)
class Agreement:
    """Result for one dataset.

    Attributes:
        checksums: for each file whether it is the one we know: "known", "other" or "no record".
        compared: what the derived truth was compared with.
        num_unreadable: rows that no graph could be made of; not among the checked.
    """

    name: str
    layout: str
    checksums: dict[str, str]
    compared: str
    num_checked: int
    num_unreadable: int
    disagreements: tuple[Disagreement, ...]

    @property
    def num_agreeing(self) -> int:
        """Molecules with the same label and the same true bonds."""
        return self.num_checked - len(self.disagreements)


def verify_dataset(
    name: str,
    *,
    root: str | Path | None = None,
    layout: str | None = None,
    every: int = 1,
    progress: bool = False,
) -> Agreement:
    """Compares published labels and masks with the derived ones.

    Args:
        every: check only every n-th molecule.

    Raises:
        MissingDataError: If the files, or the masks of a published set, are not there.
        DamagedFileError: If a file is damaged.
    """
    facts = facts_of(name)
    found = find_files(FAMILIES[facts.family], data_folder(root), layout)
    reading = found.layout.read(found.files)
    if reading.damage:
        raise DamagedFileError(" ".join(reading.damage))
    records, compared = _published(name, found, reading)
    chosen = [record for record in islice(records, 0, None, every) if isinstance(record, Record)]
    num_rows = len(range(0, reading.total, every))
    found_out: list[Disagreement] = []
    results = ordered_map(partial(_check, name), chosen)
    with progress_bar(f"verifying {name}", len(chosen), shown=progress) as advance:
        for position, result in enumerate(results):
            if result is not None:
                found_out.append(result)
            if position % 200 == 0 or position + 1 == len(chosen):
                advance(position + 1, f"{len(found_out)} differ")
    paths = [*found.files.values(), *found.extras.values()]
    return Agreement(
        name,
        found.layout.name + (" stand-in" if found.layout.is_stand_in else ""),
        {path.name: _checksum_state(path) for path in paths},
        compared,
        len(chosen),
        num_rows - len(chosen),
        tuple(found_out),
    )


def _published(name: str, found: Found, reading: Reading) -> tuple[Iterator[object], str]:
    """Records that carry the published truth, and what it is."""
    if found.layout.name == "tidy":
        return reading.records(), "labels and masks of the table"
    if name == "mutagenicity":
        return reading.records(), "nothing: the raw files have no masks, the truth is derived"
    if DATASETS[name].family == "bxaic":
        return reading.records(), "labels of data.csv and masks of explanations.sdf"
    if "masks" not in found.extras:
        return reading.records(), "labels only: true_raw_attribution_datadicts.npz is not there"
    masks = published_masks(found.extras["masks"])
    return _with_masks(name, reading, masks), "labels of y_true.npz and the published masks"


def _with_masks(
    name: str, reading: Reading, masks: Sequence[Sequence[Collection[int]]]
) -> Iterator[object]:
    if len(masks) != reading.total:
        raise DamagedFileError(
            f"{name}: expected masks for {reading.total} molecules, got {len(masks)}. Take all "
            "files from the same place."
        )
    for record in reading.records():
        if isinstance(record, Record):
            label = record.tasks[name].label
            truth = masks_truth(label, masks[record.row], record.bonds)
            record = replace(record, tasks={name: truth})
        yield record


def _check(name: str, record: Record) -> Disagreement | None:
    published = record.tasks[name]
    try:
        derived = _derive(name, record)
    except MoleculeError as error:
        return Disagreement(record.row, record.smiles, str(error))
    if derived.label != published.label:
        what = f"label {published.label} is published, {derived.label} derived"
    elif set(published.atoms) != set(derived.atoms):
        what = f"atoms {sorted(published.atoms)} are published, {sorted(derived.atoms)} derived"
    elif _bond_sets(name, published) != _bond_sets(name, derived):
        what = (
            f"{len(published.alternatives)} alternatives are published, "
            f"{len(derived.alternatives)} derived, and they differ"
        )
    else:
        return None
    return Disagreement(record.row, record.smiles, what)


def _derive(name: str, record: Record) -> TaskTruth:
    if name in ELEMENTS:
        return element_truths(record.atoms)[name]
    if name == "mutagenicity":
        matches = [atoms for _, atoms in toxicophore_matches(record.atoms, record.bonds)]
        label = record.tasks[name].label  # the class is measured, not derived
        return toxicophore_truth(label, matches, record.bonds)
    truth = truth_of(parse_smiles(record.smiles), _RULE_OF.get(name, name))
    return task_truth(truth, truth.label)


def _bond_sets(name: str, truth: TaskTruth) -> set[frozenset[int]]:
    sets = {frozenset(bonds) for bonds in truth.alternatives}
    return {frozenset().union(*sets)} if name in _MERGED else sets


def _checksum_state(path: Path) -> str:
    known = known_checksums(path.name)
    if not known:
        return "no record"
    return "known" if sha256_of(path) in known else "other"
