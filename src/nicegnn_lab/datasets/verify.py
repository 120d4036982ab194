"""Compares published labels and masks with those that our rules derive from the molecule."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from nicegnn.errors import ConfigError
from nicegnn.molecule.smiles import MoleculeError
from nicegnn.progress import progress_bar
from nicegnn_lab.datasets.data_files import DamagedFileError, data_folder, sha256_of
from nicegnn_lab.datasets.prepare import find_files
from nicegnn_lab.datasets.readers import Record, ordered_map
from nicegnn_lab.datasets.registry import DATASETS, FAMILIES, facts_of, known_checksums
from nicegnn_lab.datasets.rules import (
    ELEMENTS,
    MoleculeTruth,
    element_truth,
    toxicophore_matches,
    toxicophore_truth,
    truth_of,
)


@dataclass(frozen=True)
class Disagreement:
    """A molecule whose published truth is not the derived one."""

    row: int
    smiles: str
    what: str


@dataclass(frozen=True)
class VerifyReport:
    """Result for one dataset."""

    name: str
    layout: str
    checksums: dict[str, str]  # "known", "other" or "no record", by file
    compared: str  # source of the published truth
    num_checked: int
    num_unreadable: int  # rows without a graph; they are not checked
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
) -> VerifyReport:
    """Compares published labels and masks with the derived ones, of every n-th molecule."""
    if not facts_of(name).rule:
        raise ConfigError(
            f"`name` must be a benchmark whose truth follows a rule (got {name!r}). The truth of a "
            "table of your own is checked against its molecules when it is read."
        )
    found = find_files(FAMILIES[facts_of(name).family], data_folder(root), layout)
    files, compared = dict(found.files), found.layout.truth
    if found.masks:
        files["masks"] = found.masks
    elif masks := found.layout.candidates[0].get("masks"):
        compared = f"labels only: {Path(masks).name} is missing"
    content = found.layout.read(files)
    if content.damage:
        raise DamagedFileError(" ".join(content.damage))
    records = islice(content.records(), 0, None, every)
    chosen = [record for record in records if isinstance(record, Record)]
    disagreements: list[Disagreement] = []
    results = ordered_map(partial(_check, name), chosen)
    with progress_bar(f"verifying {name}", len(chosen), shown=progress) as advance:
        for position, result in enumerate(results):
            disagreements += [result] if result else []
            if position % 200 == 0 or position + 1 == len(chosen):
                advance(position + 1, f"{len(disagreements)} differ")
    states = {}
    for path in files.values():
        known = known_checksums(path.name)
        is_known = sha256_of(path) in known
        states[path.name] = ("known" if is_known else "other") if known else "no record"
    unreadable = len(range(0, content.num_rows, every)) - len(chosen)
    differing = tuple(disagreements)
    return VerifyReport(name, found.title, states, compared, len(chosen), unreadable, differing)


def _check(name: str, record: Record) -> Disagreement | None:
    published = record.tasks[name]
    try:
        derived = _derived(DATASETS[name].rule, record)
    except MoleculeError as error:
        return Disagreement(record.row, record.smiles, str(error))
    is_same = set(published.alternatives) == set(derived.alternatives)
    if DATASETS[name].has_one_mask:
        is_same = published.union == derived.union
    if derived.label != published.label:
        what = f"label {published.label} is published, {derived.label} derived"
    elif published.atoms != derived.atoms:
        what = f"atoms {sorted(published.atoms)} are published, {sorted(derived.atoms)} derived"
    elif not is_same:
        what = (
            f"{len(published.alternatives)} alternatives are published, "
            f"{len(derived.alternatives)} derived, and they differ"
        )
    else:
        return None
    return Disagreement(record.row, record.smiles, what)


def _derived(rule: str, record: Record) -> MoleculeTruth:
    if rule in ELEMENTS:
        return element_truth(record.atoms, rule)
    if rule != "toxicophores":
        return truth_of(record.smiles, rule)
    matches = [atoms for _, atoms in toxicophore_matches(record.atoms, record.bonds)]
    label = record.tasks["mutagenicity"].label  # measured, so it cannot be derived
    return toxicophore_truth(label, matches, record.bonds)
