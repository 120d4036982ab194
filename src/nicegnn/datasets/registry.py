"""The benchmark datasets by name: what they ask, where their files may lie, what the paper states.

A *family* is a set of files that is read once; its tasks share molecules and cache. A *layout* is
one form these files come in: ``tidy`` (gzipped csv tables) or ``published`` (as upstream has them).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nicegnn.datasets import bxaic, graphxai, tidy, tudataset
from nicegnn.datasets.elements import ELEMENTS
from nicegnn.datasets.records import Reading
from nicegnn.datasets.rules import GRAPHXAI_RULES
from nicegnn.errors import ConfigError
from nicegnn.molecule.smiles import ATOMS_BXAIC, ATOMS_GRAPHXAI, ATOMS_MUTAGENICITY, Unknown

Files = Mapping[str, Path]


@dataclass(frozen=True)
class Layout:
    """One form of a family's files.

    Attributes:
        candidates: file paths inside the data folder, by role; the first complete set is used.
        extras: roles that are only needed by ``data verify``.
        is_stand_in: whether other molecules stand in for the benchmark's own.
    """

    name: str
    candidates: Sequence[Mapping[str, str]]
    read: Callable[[Files], Reading]
    extras: tuple[str, ...] = ()
    is_stand_in: bool = False


@dataclass(frozen=True)
class Family:
    """Files that are read together."""

    name: str
    layouts: Sequence[Layout]  # in order of preference
    vocabulary: tuple[str, ...]
    unknown: Unknown = "error"
    num_splits: int = 0  # published splits
    left_out: str = ""  # why readable molecules are not in the paper's set


@dataclass(frozen=True)
class Facts:
    """One dataset: a task of a family."""

    name: str
    family: str
    meaning: str  # what label 1 says
    truth: str  # what explains it
    note: str = ""  # what a user must know
    has_bond_truth: bool = True


def _graphxai(name: str, folders: Mapping[str, str], *, negatives: int | None = None) -> Family:
    """Both forms of a GraphXAI set; ``folders`` maps a folder to the beginning of its csv."""
    task = name.replace("_", "-")
    rule = GRAPHXAI_RULES[name]
    published = [
        {
            "smiles": f"{folder}/{start}_smiles.csv",
            "labels": f"{folder}/y_true.npz",
            "masks": f"{folder}/true_raw_attribution_datadicts.npz",
        }
        for folder, start in folders.items()
    ]
    read_published = partial(
        graphxai.read_published, task=task, rule=rule, negatives_per_positive=negatives
    )
    return Family(
        name,
        layouts=(
            Layout(
                "tidy",
                [{"table": f"graphxai_{name}.csv.gz"}],
                partial(tidy.read_graphxai, task=task),
            ),
            Layout("published", published, read_published, extras=("masks",)),
        ),
        vocabulary=ATOMS_GRAPHXAI,
        left_out="negatives not drawn by GraphXAI's two-to-one sampling (seed 0)",
    )


_IN_GRAPHXAI = "graphxai/datasets/real_world"
_TU_FOLDERS = ("Mutagenicity/raw", "Mutagenicity")

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            "mutagenicity",
            layouts=(
                Layout("tidy", [{"table": "mutagenicity.csv.gz"}], tidy.read_mutagenicity),
                Layout(
                    "published",
                    [
                        *(
                            {p: f"{folder}/Mutagenicity_{p}.txt" for p in tudataset.PARTS}
                            for folder in _TU_FOLDERS
                        ),
                        {"zip": "Mutagenicity.zip"},
                        {"zip": "Mutagenicity_raw.zip"},
                    ],
                    tudataset.read_published,
                ),
            ),
            vocabulary=ATOMS_MUTAGENICITY,
            left_out="class and match disagree (GraphXAI's filter)",
        ),
        _graphxai(
            "benzene",
            {
                "benzene": "benzene",
                "data/benzene": "benzene",
                "benzene_data": "benzene",
                f"{_IN_GRAPHXAI}/benzene/benzene_data": "benzene",
            },
        ),
        _graphxai(
            "alkane_carbonyl",
            {
                "logic7": "logic7",
                "data/logic7": "logic7",
                "ac_data": "AC",
                f"{_IN_GRAPHXAI}/alkane_carbonyl/ac_data": "AC",
            },
            negatives=2,
        ),
        _graphxai(
            "fluoride_carbonyl",
            {
                "logic8": "logic8",
                "data/logic8": "logic8",
                "fc_data": "FC",
                f"{_IN_GRAPHXAI}/fluoride_carbonyl/fc_data": "FC",
            },
        ),
        Family(
            "bxaic",
            layouts=(
                Layout(
                    "published",
                    [
                        {"table": f"{folder}data.csv", "molecules": f"{folder}explanations.sdf"}
                        for folder in ("B-XAIC/", "data/", "")
                    ],
                    bxaic.read_published,
                ),
                Layout(
                    "tidy",
                    [
                        {
                            "molecules": "bxaic_like.csv.gz",
                            "graphs": "bxaic_like_graphs.csv.gz",
                        }
                    ],
                    tidy.read_bxaic_like,
                    is_stand_in=True,
                ),
            ),
            vocabulary=ATOMS_BXAIC,
            unknown="last",
            num_splits=5,
        ),
    )
}

_SWAPPED = (
    "GraphXAI's two carbonyl sets carry each other's name: the molecules, labels and masks under "
    "this name follow the rule {rule!r}. The paper's figures are those of these files."
)

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
        Facts("benzene", "benzene", "a benzene ring", "bonds of the ring"),
        Facts(
            "alkane-carbonyl",
            "alkane_carbonyl",
            "a fluorine and a carbonyl",
            "bonds between atoms of F and C=O",
            _SWAPPED.format(rule=GRAPHXAI_RULES["alkane_carbonyl"]),
        ),
        Facts(
            "fluoride-carbonyl",
            "fluoride_carbonyl",
            "an unbranched alkane and a carbonyl",
            "bonds between atoms of the chain and C=O",
            _SWAPPED.format(rule=GRAPHXAI_RULES["fluoride_carbonyl"]),
        ),
        Facts("indole", "bxaic", "an indole", "bonds of all indoles, one alternative"),
        Facts("pains", "bxaic", "a PAINS alert", "bonds of all alerts, one alternative"),
        Facts(
            "rings-count",
            "bxaic",
            "more than four rings",
            "all ring bonds",
            "B-XAIC marks ring bonds for both labels; `edge_annotation` has that mask.",
        ),
        Facts(
            "rings-max",
            "bxaic",
            "a ring of more than six atoms",
            "bonds of the rings of largest size",
            "B-XAIC marks the largest rings for both labels; `edge_annotation` has that mask.",
        ),
        *(
            Facts(
                task,
                "bxaic",
                f"an atom of {', '.join(sorted(elements))}",
                "these atoms; no bonds",
                has_bond_truth=False,
            )
            for task, elements in ELEMENTS.items()
        ),
    )
}


def facts_of(name: str) -> Facts:
    """Returns what is known of a dataset, or says which names there are.

    >>> facts_of("benzene").meaning
    'a benzene ring'
    """
    facts = DATASETS.get(name)
    if facts is None:
        raise ConfigError(f"name: expected one of {', '.join(DATASETS)}, got {name!r}.")
    return facts
