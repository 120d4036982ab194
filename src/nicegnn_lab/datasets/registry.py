"""All datasets: tasks, sources of files, and readers.

A *family* is a set of files that is read once; its tasks share molecules and cache. A *layout* is
one form of these files: ``tidy`` (gzipped csv tables) or ``published`` (as downloaded).

`register_dataset` adds a table of one's own. To add other files, write a reader in
`nicegnn_lab.datasets.readers`, and add its `Family` to `FAMILIES` and the `Facts` of each task to
`DATASETS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import get_args

from nicegnn.config import check_choice
from nicegnn.molecule.smiles import (
    ATOMS_BXAIC,
    ATOMS_GRAPHXAI,
    ATOMS_MUTAGENICITY,
    CATCH_ALL,
    Unknown,
)
from nicegnn.plugins import check_name
from nicegnn_lab.datasets.data_files import RemoteFile
from nicegnn_lab.datasets.readers import FileContent, graphxai, mutagenicity, tidy_tables
from nicegnn_lab.datasets.readers.own_table import OwnTable, TruthKind


@dataclass(frozen=True)
class Layout:
    """One form of a family's files."""

    name: str
    files: Mapping[str, str]  # paths in the data folder, by role
    read: Callable[[Mapping[str, Path]], FileContent]  # reads files, by role
    is_stand_in: bool = False  # whether other molecules replace the benchmark's
    recipe: str = ""  # how a table of one's own is read; prepared data are known by it


@dataclass(frozen=True)
class Family:
    """Files that are read together."""

    name: str
    layouts: Sequence[Layout]  # in order of preference
    remote: Sequence[RemoteFile]  # sources of the published files
    vocabulary: tuple[str, ...]  # elements, one for each column of `x`
    unknown: Unknown = "error"  # treatment of other elements
    has_split: bool = False  # whether molecules have published parts; else they are drawn
    left_out: str = ""  # why the paper's set leaves out readable molecules


@dataclass(frozen=True)
class Facts:
    """One dataset: a task of a family."""

    name: str
    family: str
    meaning: str  # of label 1
    truth: str  # atoms or bonds that explain label 1
    note: str = ""  # warning for users


_SUMS = files("nicegnn_lab.datasets").joinpath("SHA256SUMS").read_text(encoding="utf-8")
#: Known SHA-256 of files, by path.
SHA256 = {path: value for value, path in map(str.split, _SUMS.splitlines())}

_TUDATASET = "https://www.chrsmrrs.com/graphkerneldatasets"
_MUTAGENICITY = Family(
    "mutagenicity",
    layouts=(
        Layout("tidy", {"table": "mutagenicity.csv.gz"}, tidy_tables.read_mutagenicity),
        Layout("published", {"zip": "Mutagenicity.zip"}, mutagenicity.read_published),
    ),
    remote=[RemoteFile("Mutagenicity.zip", (f"{_TUDATASET}/Mutagenicity.zip",))],
    vocabulary=ATOMS_MUTAGENICITY,
    left_out="class and match disagree (GraphXAI's filter)",
)

# Commits whose files have the checksums above.
_GOOGLE = (
    "https://raw.githubusercontent.com/google-research/graph-attribution/"
    "03e7495379df26a21395b25c6a14d92dc27fc3b0/data"
)
_REAL_WORLD = "graphxai/datasets/real_world"
_GRAPHXAI = (
    "https://raw.githubusercontent.com/mims-harvard/GraphXAI/"
    f"a11e65ffbc4df737f35522a8accf2283a8aeaa37/{_REAL_WORLD}"
)
#: Rule of each published GraphXAI set; the names of the two carbonyl sets are swapped.
_GRAPHXAI_RULES = {
    "benzene": "benzene",
    "alkane-carbonyl": "fluoride-carbonyl",
    "fluoride-carbonyl": "alkane-carbonyl",
}


def _graphxai(name: str, folder: str, copy: str, *, negatives: int | None = None) -> Family:
    """Returns a set with a tidy table, files of graph-attribution, and their copies in GraphXAI.

    ``folder`` is the folder in graph-attribution and the start of its csv's name; ``copy`` is the
    start of both paths in GraphXAI. ``negatives`` is the number kept for each positive.
    """
    task = name.replace("_", "-")
    rule = _GRAPHXAI_RULES[task]
    read = partial(graphxai.read_published, task=task, rule=rule, negatives_per_positive=negatives)
    ours = {"smiles": f"{folder}/{folder}_smiles.csv", "labels": f"{folder}/y_true.npz"}
    place, start = copy.rsplit("/", 1)
    theirs = {"smiles": f"{place}/{start}_smiles.csv", "labels": f"{place}/y_true.npz"}
    read_tidy = partial(tidy_tables.read_graphxai, task=task)
    return Family(
        name,
        layouts=(
            Layout("tidy", {"table": f"graphxai_{name}.csv.gz"}, read_tidy),
            Layout("published", ours, read),
        ),
        remote=[
            RemoteFile(path, (f"{_GOOGLE}/{path}", f"{_GRAPHXAI}/{theirs[role]}"), SHA256[path])
            for role, path in ours.items()
        ],
        vocabulary=ATOMS_GRAPHXAI,
        left_out="negatives not drawn by GraphXAI's two-to-one sampling (seed 0)",
    )


_BXAIC = Family(
    "bxaic",
    layouts=(
        Layout(
            "tidy",
            {"molecules": "bxaic_like.csv.gz", "graphs": "bxaic_like_graphs.csv.gz"},
            tidy_tables.read_bxaic_like,
            is_stand_in=True,
        ),
    ),
    remote=[],
    vocabulary=ATOMS_BXAIC,
    unknown="last",
    has_split=True,
)

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        _MUTAGENICITY,
        _graphxai("benzene", "benzene", "benzene/benzene_data/benzene"),
        _graphxai("alkane_carbonyl", "logic7", "alkane_carbonyl/ac_data/AC", negatives=2),
        _graphxai("fluoride_carbonyl", "logic8", "fluoride_carbonyl/fc_data/FC"),
        _BXAIC,
    )
}


def _graphxai_facts(task: str, meaning: str, truth: str) -> Facts:
    rule, family = _GRAPHXAI_RULES[task], task.replace("-", "_")
    note = (
        "GraphXAI's two carbonyl sets carry each other's name: the molecules, labels and masks "
        f"under this name follow the rule {rule!r}. The paper's figures are those of these files."
    )
    return Facts(task, family, meaning, truth, "" if rule == task else note)


def _bxaic_facts(task: str, meaning: str, truth: str, marked: str = "") -> Facts:
    note = f"B-XAIC marks {marked} for both labels; `edge_annotation` has that mask."
    return Facts(task, "bxaic", meaning, truth, note if marked else "")


DATASETS: dict[str, Facts] = {
    facts.name: facts
    for facts in (
        Facts(
            "mutagenicity",
            "mutagenicity",
            "class 1 and at least one match",
            "NH2, NO2, nitroso, azo group or halogen on a ring: all bonds at its atoms",
            "TUDataset's readme calls class 0 mutagen and class 1 nonmutagen, yet GraphXAI keeps "
            "the graphs of class 1 with a match and of class 0 without, so positives here are "
            "nonmutagens that carry a toxic group, negatives mutagens that carry none.",
        ),
        _graphxai_facts("benzene", "a benzene ring", "bonds of the ring"),
        _graphxai_facts(
            "alkane-carbonyl", "a fluorine and a carbonyl", "bonds between atoms of F and C=O"
        ),
        _graphxai_facts(
            "fluoride-carbonyl",
            "an unbranched alkane and a carbonyl",
            "bonds between atoms of the chain and C=O",
        ),
        _bxaic_facts("indole", "an indole", "bonds of all indoles, one alternative"),
        _bxaic_facts("pains", "a PAINS alert", "bonds of all alerts, one alternative"),
        _bxaic_facts("rings-count", "more than four rings", "all ring bonds", "ring bonds"),
        _bxaic_facts(
            "rings-max",
            "a ring of more than six atoms",
            "bonds of the rings of largest size",
            "the largest rings",
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
    truth_kind: TruthKind = "atoms",
    split: str = "",
    vocabulary: Sequence[str] = ATOMS_BXAIC,
) -> None:
    """Adds a csv table of molecules, so that `load_dataset` and commands know it by its name.

    Args:
        table: a csv file, plain or gzipped, with a header; it is read when it is first needed.
        meaning: of label 1, in a few words.
        smiles, label, truth: names of its columns. A label is 0 or 1. A truth explains label 1;
            it is empty for label 0, and where it is not known.
        truth_kind: what a truth is: ``"atoms"`` (``0 1 2``: the bonds between these atoms, counted
            from 0 in the order of the SMILES), ``"bonds"`` (``0-1 1-2``), or ``"smarts"`` (a
            pattern; label 0 must not match it). A semicolon parts atoms or bonds that explain the
            label each by itself.
        split: name of a column of ``train``, ``valid`` and ``test``; by default molecules are split
            at random, 80/10/10.
        vocabulary: elements, one for each column of ``x``; ``Unk`` at its end takes all others.
    """
    place = Path(table).expanduser().absolute()
    check_choice("truth_kind", truth_kind, get_args(TruthKind))
    used_by = None
    if name in DATASETS or name in FAMILIES:
        registered = FAMILIES[DATASETS[name].family if name in DATASETS else name].layouts[0]
        used_by = registered.files["table"] if registered.recipe else "a benchmark"
    check_name("dataset", name, str(place), used_by)
    reader = OwnTable(name, smiles, label, truth, truth_kind, split)
    unknown: Unknown = "last" if vocabulary[-1] in CATCH_ALL else "error"
    layout = Layout("own", {"table": str(place)}, reader, recipe=repr((reader, vocabulary)))
    FAMILIES[name] = Family(name, [layout], [], tuple(vocabulary), unknown, bool(split))
    DATASETS[name] = Facts(name, name, meaning, f"{truth_kind} of column {truth}")


def facts_of(name: str) -> Facts:
    """Returns the facts of a dataset by name."""
    check_choice("name", name, DATASETS)
    return DATASETS[name]
