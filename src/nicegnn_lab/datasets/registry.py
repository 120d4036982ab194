"""All datasets: tasks, their files, and readers.

A *family* is a set of files that is read once; its tasks share molecules and cache.
`register_dataset` adds a table of one's own. Other files need a reader in `datasets.readers`, a
`Family` in `FAMILIES` and the `Facts` of each task in `DATASETS`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nicegnn.config import check_choice
from nicegnn.explain.registry import check_name
from nicegnn.molecule.smiles import ATOMS
from nicegnn_lab.datasets.graph_tables import ATOMS_BXAIC, ATOMS_MUTAGENICITY
from nicegnn_lab.datasets.readers import Files, Reading, tidy_tables
from nicegnn_lab.datasets.readers.own_table import OwnTable


@dataclass(frozen=True)
class Family:
    """Files that are read together."""

    name: str
    files: Mapping[str, str]  # paths in the data folder, by role
    read: Callable[[Files], Reading]  # reads files, by role
    vocabulary: tuple[str, ...]  # elements, one for each column of `x`
    has_split: bool = False  # whether molecules have published parts; else they are drawn
    left_out: str = ""  # why the paper's set leaves out readable molecules
    is_stand_in: bool = False  # whether other molecules replace the benchmark's
    recipe: str = ""  # how a table of one's own is read; prepared data are known by it

    @property
    def form(self) -> str:
        """Form of the files, in the names of prepared data."""
        return "own" if self.recipe else "tidy"


@dataclass(frozen=True)
class Facts:
    """One dataset: a task of a family."""

    name: str
    family: str
    meaning: str  # of label 1
    truth: str  # atoms or bonds that explain label 1


FAMILIES: dict[str, Family] = {
    "mutagenicity": Family(
        "mutagenicity",
        {"table": "mutagenicity.csv.gz"},
        tidy_tables.read_mutagenicity,
        ATOMS_MUTAGENICITY,
        left_out="class and match disagree (GraphXAI's filter)",
    ),
    **{
        name: Family(
            name,
            {"table": f"graphxai_{name}.csv.gz"},
            partial(tidy_tables.read_graphxai, task=name.replace("_", "-")),
            ATOMS,
            left_out="negatives not drawn by GraphXAI's two-to-one sampling (seed 0)",
        )
        for name in ("benzene", "alkane_carbonyl", "fluoride_carbonyl")
    },
    "bxaic": Family(
        "bxaic",
        {"molecules": "bxaic_like.csv.gz", "graphs": "bxaic_like_graphs.csv.gz"},
        tidy_tables.read_bxaic_like,
        ATOMS_BXAIC,
        has_split=True,
        is_stand_in=True,
    ),
}


#: All datasets by name. GraphXAI's two carbonyl sets carry each other's name, see `rules`.
DATASETS: dict[str, Facts] = {
    facts.name: facts
    for facts in (
        Facts(
            "mutagenicity",
            "mutagenicity",
            "class 1, the nonmutagens, and at least one match",
            "NH2, NO2, nitroso, azo group or halogen on a ring: all bonds at its atoms",
        ),
        Facts("benzene", "benzene", "a benzene ring", "bonds of the ring"),
        Facts(
            "alkane-carbonyl",
            "alkane_carbonyl",
            "a fluorine and a carbonyl",
            "bonds between atoms of F and C=O",
        ),
        Facts(
            "fluoride-carbonyl",
            "fluoride_carbonyl",
            "an unbranched alkane and a carbonyl",
            "bonds between atoms of the chain and C=O",
        ),
        Facts("indole", "bxaic", "an indole", "bonds of all indoles, one alternative"),
        Facts("pains", "bxaic", "a PAINS alert", "bonds of all alerts, one alternative"),
        Facts("rings-count", "bxaic", "more than four rings", "all ring bonds"),
        Facts(
            "rings-max", "bxaic", "a ring of more than six atoms", "bonds of rings of largest size"
        ),
    )
}


def register_dataset(
    name: str,
    table: str | Path,
    *,
    meaning: str = "label 1 of the table",
    smiles: str = "smiles",
    label: str = "label",
    truth: str = "truth",
    split: str = "",
    vocabulary: Sequence[str] = ATOMS_BXAIC,
) -> None:
    """Adds a csv table of molecules, so that `load_dataset` and commands know it by its name.

    Args:
        table: a csv file, plain or gzipped, with a header; it is read when it is first needed.
        meaning: of label 1, in a few words.
        smiles, label, truth: names of its columns. A label is 0 or 1. A truth explains label 1 and
            is empty where it is not known: ``0 1 2`` are the bonds between these atoms, counted
            from 0 in the order of the SMILES; a semicolon parts groups that explain the label each
            by itself.
        split: name of a column of ``train``, ``valid`` and ``test``; by default molecules are split
            at random, 80/10/10.
        vocabulary: elements, one for each column of ``x``; ``Unk`` at its end takes all others.
    """
    place = Path(table).expanduser().absolute()
    used_by = None
    if name in DATASETS or name in FAMILIES:
        family = FAMILIES[DATASETS[name].family if name in DATASETS else name]
        used_by = family.files["table"] if family.recipe else "a benchmark"
    check_name("dataset", name, str(place), used_by)
    reader, atoms = OwnTable(name, smiles, label, truth, split), tuple(vocabulary)
    recipe, files = repr((reader, vocabulary)), {"table": str(place)}
    FAMILIES[name] = Family(name, files, reader, atoms, bool(split), recipe=recipe)
    DATASETS[name] = Facts(name, name, meaning, f"atoms of column {truth}")


def facts_of(name: str) -> Facts:
    """Returns the facts of a dataset by name."""
    check_choice("name", name, DATASETS)
    return DATASETS[name]
