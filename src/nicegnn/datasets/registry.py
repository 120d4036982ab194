"""Which datasets there are: what they ask, where their files come from, and who reads them.

A *family* is a set of files that is read once; its tasks share molecules and cache. A *layout* is
one form these files come in: ``tidy`` (gzipped csv tables) or ``published`` (as upstream has them).

To add a dataset, write a reader in `nicegnn.datasets.readers`, and add its `Family` to `FAMILIES`
and the `Facts` of each task to `DATASETS`. Nothing else knows datasets by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nicegnn.config import check_choice
from nicegnn.datasets.readers import FileContent, Record, bxaic, graphxai, mutagenicity, tidy_tables
from nicegnn.datasets.rules import MoleculeTruth
from nicegnn.datasets.rules.substructures import ELEMENTS, element_truth, truth_of
from nicegnn.datasets.rules.toxicophores import toxicophore_matches, toxicophore_truth
from nicegnn.molecule.smiles import ATOMS_BXAIC, ATOMS_GRAPHXAI, ATOMS_MUTAGENICITY, Unknown


@dataclass(frozen=True)
class RemoteFile:
    """A file to fetch."""

    path: str  # where it goes, inside the data folder
    urls: tuple[str, ...]  # addresses of the same bytes, tried in order
    sha256: str | None = None  # expected content; None where we could not learn it
    note: str = ""  # what we could not check


@dataclass(frozen=True)
class Layout:
    """One form of a family's files; only ``nicegnn data verify`` reads the role ``masks``."""

    name: str
    candidates: Sequence[Mapping[str, str]]  # paths by role; the first complete set is used
    read: Callable[[Mapping[str, Path]], FileContent]  # from these files, by role, to molecules
    truth: str = "labels and masks of the table"  # where the files state labels and true bonds
    is_stand_in: bool = False  # whether other molecules stand in for the benchmark's own


@dataclass(frozen=True)
class Family:
    """Files that are read together."""

    name: str
    layouts: Sequence[Layout]  # in order of preference
    remote: Sequence[RemoteFile]  # where the published files come from
    vocabulary: tuple[str, ...]  # elements, one for each column of `x`
    unknown: Unknown = "error"  # what happens to other elements
    num_splits: int = 0  # published splits
    has_smiles: bool = True
    left_out: str = ""  # why readable molecules are not in the paper's set
    why_never: str = ""  # why those left out cannot be used at all; empty if they can


@dataclass(frozen=True)
class Facts:
    """One dataset: a task of a family."""

    name: str
    family: str
    meaning: str  # what label 1 says
    truth: str  # what explains it
    derive: Callable[[Record], MoleculeTruth]  # label and truth, from the molecule alone
    note: str = ""  # what a user must know
    has_bond_truth: bool = True
    has_one_mask: bool = False  # whether the benchmark has a single mask for all alternatives


#: SHA-256 of the files that we know.
SHA256 = {
    path: value
    for value, path in map(
        str.split,
        """
3d172f43f30a1650c0760db9e574efbc5451eb595bca6194cfe4daf97830d6fd  mutagenicity.csv.gz
5482cba1c5fe2e9f0bc113f63355fff6a2f2eeaa59026fcee5a119eb3d44c440  Mutagenicity_raw.zip
6a6dfdfd59e17202e52aea7f2f2b54f4ad151937e8752451b7de314cb00a209d  graphxai_benzene.csv.gz
1d60536fc214aed34568c9d4560917a4aa2c54d96ef966af0ee4a7b904a65c22  graphxai_alkane_carbonyl.csv.gz
ad4283ff639522c2cefab961263a4c5b1bb2ab07985361a17b9e66837d17824c  graphxai_fluoride_carbonyl.csv.gz
533996af2c6fc456ef3c4744dc4c7f408c1056cedcaa5fc2d4805b591e28003f  bxaic_like.csv.gz
0bddf808b57a3555cfbf4fbab2ac0f6a9f4bc9cbe6dc7464c22d80ec7b213ab2  bxaic_like_graphs.csv.gz
aa52389639d0989dc5bb726c364fbc38ed520468d6606d67679d24b7e6720a28  benzene/benzene_smiles.csv
50d99b8c80ac19410029175787fd993d0634e7dc7b94fbc93739cd1110963d2e  benzene/y_true.npz
92db47ac62eecf9bcbb015ec1c5bfe6a7d32d5bdedd9a81ac4d42225acb68a9c  benzene/true_raw_attribution_datadicts.npz
7915107a397240cec3daf027d713db2bed107d19d9d941b6d36a4a334a5dfae8  logic7/logic7_smiles.csv
7915107a397240cec3daf027d713db2bed107d19d9d941b6d36a4a334a5dfae8  ac_data/AC_smiles.csv
20577c22a6975f20c033a2cf213df9108c10756e7971e83cdd6009f05f2896d5  logic7/y_true.npz
842a6985ee45f8a85a5e7294199cfa7fc866365357ff1bae371a7a23467b00b2  logic7/true_raw_attribution_datadicts.npz
7c4d1863a2f6a026ef3dafc4c7f54519cdd75aa15ea1f298b08e64fa3b75d11d  logic8/logic8_smiles.csv
7c4d1863a2f6a026ef3dafc4c7f54519cdd75aa15ea1f298b08e64fa3b75d11d  fc_data/FC_smiles.csv
3e6a1b7e86dad945522fd9cf838d2366f785e16c73e8f37e608ef9d3d467d655  logic8/y_true.npz
749d6f00695f799aeb1a0e7194a5caa0a68d8c0e99b5f05ff9161ced03bf84b2  logic8/true_raw_attribution_datadicts.npz
""".strip().splitlines(),  # noqa: E501
    )
}

_TU_DATASETS = "https://www.chrsmrrs.com/graphkerneldatasets"
_MUTAGENICITY = Family(
    "mutagenicity",
    layouts=(
        Layout("tidy", [{"table": "mutagenicity.csv.gz"}], tidy_tables.read_mutagenicity),
        Layout(
            "published",
            [
                {role: f"{folder}/{name}" for role, name in mutagenicity.FILE_NAMES.items()}
                for folder in ("Mutagenicity/raw", "Mutagenicity")
            ]
            + [{"zip": "Mutagenicity.zip"}, {"zip": "Mutagenicity_raw.zip"}],
            mutagenicity.read_published,
            truth="nothing: the raw files have no masks, the truth is derived",
        ),
    ),
    remote=[RemoteFile("Mutagenicity.zip", (f"{_TU_DATASETS}/Mutagenicity.zip",))],
    vocabulary=ATOMS_MUTAGENICITY,
    has_smiles=False,
    left_out="class and match disagree (GraphXAI's filter)",
    why_never="The class of the other 2,569 graphs contradicts their matches: they have no truth.",
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
#: Rule behind each published GraphXAI set; the two carbonyl sets carry each other's name.
_GRAPHXAI_RULES = {
    "benzene": "benzene",
    "alkane-carbonyl": "fluoride-carbonyl",
    "fluoride-carbonyl": "alkane-carbonyl",
}


def _graphxai(
    name: str, google: str, copy: str, start: str, *, negatives: int | None = None
) -> Family:
    """A set in its tidy table, in graph-attribution, or, the same bytes, in GraphXAI.

    The folder of graph-attribution is ``google``, and its csv begins so; in GraphXAI it is
    ``copy``, and the csv begins with ``start``. So many ``negatives`` are kept for each positive.
    """
    task = name.replace("_", "-")
    read_tidy = partial(tidy_tables.read_graphxai, task=task)
    read = partial(
        graphxai.read_published,
        task=task,
        rule=_GRAPHXAI_RULES[task],
        negatives_per_positive=negatives,
    )

    def files(begin: str) -> dict[str, str]:
        masks = "true_raw_attribution_datadicts.npz"
        return {"smiles": f"{begin}_smiles.csv", "labels": "y_true.npz", "masks": masks}

    places = [(google, google), (f"data/{google}", google)]
    places += [(copy.rsplit("/", 1)[-1], start), (f"{_REAL_WORLD}/{copy}", start)]
    published = [
        {role: f"{folder}/{file}" for role, file in files(begin).items()}
        for folder, begin in places
    ]
    truth = "labels of y_true.npz and the published masks"
    same = zip(files(google).values(), files(start).values(), strict=True)
    return Family(
        name,
        layouts=(
            Layout("tidy", [{"table": f"graphxai_{name}.csv.gz"}], read_tidy),
            Layout("published", published, read, truth),
        ),
        remote=[
            RemoteFile(
                f"{google}/{ours}",
                (f"{_GOOGLE}/{google}/{ours}", f"{_GRAPHXAI}/{copy}/{theirs}"),
                SHA256[f"{google}/{ours}"],
            )
            for ours, theirs in same
        ],
        vocabulary=ATOMS_GRAPHXAI,
        left_out="negatives not drawn by GraphXAI's two-to-one sampling (seed 0)",
    )


_BXAIC = Family(
    "bxaic",
    layouts=(
        Layout(
            "published",
            [
                {"table": f"{folder}data.csv", "molecules": f"{folder}explanations.sdf"}
                for folder in ("B-XAIC/", "data/", "")
            ],
            bxaic.read_published,
            truth="labels of data.csv and masks of explanations.sdf",
        ),
        Layout(
            "tidy",
            [{"molecules": "bxaic_like.csv.gz", "graphs": "bxaic_like_graphs.csv.gz"}],
            tidy_tables.read_bxaic_like,
            is_stand_in=True,
        ),
    ),
    remote=[
        RemoteFile(
            f"B-XAIC/{name}",
            (f"https://huggingface.co/datasets/mproszewska/B-XAIC/resolve/main/{name}",),
            note="The file name is the one that B-XAIC's own loader reads; the listing on Hugging "
            "Face could not be checked. If it comes as an archive there, unpack it into the folder "
            "B-XAIC.",
        )
        for name in ("data.csv", "explanations.sdf")
    ],
    vocabulary=ATOMS_BXAIC,
    unknown="last",
    num_splits=5,
)

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        _MUTAGENICITY,
        _graphxai("benzene", "benzene", "benzene/benzene_data", "benzene"),
        _graphxai("alkane_carbonyl", "logic7", "alkane_carbonyl/ac_data", "AC", negatives=2),
        _graphxai("fluoride_carbonyl", "logic8", "fluoride_carbonyl/fc_data", "FC"),
        _BXAIC,
    )
}


def _by_rule(record: Record, rule: str) -> MoleculeTruth:
    is_element = rule in ELEMENTS
    return element_truth(record.atoms, rule) if is_element else truth_of(record.smiles, rule)


def _by_toxicophores(record: Record) -> MoleculeTruth:
    matches = [atoms for _, atoms in toxicophore_matches(record.atoms, record.bonds)]
    label = record.tasks["mutagenicity"].label  # the class is measured, not derived
    return toxicophore_truth(label, matches, record.bonds)


def _graphxai_facts(task: str, meaning: str, truth: str) -> Facts:
    rule = _GRAPHXAI_RULES[task]
    note = (
        "GraphXAI's two carbonyl sets carry each other's name: the molecules, labels and masks "
        f"under this name follow the rule {rule!r}. The paper's figures are those of these files."
    )
    derive = partial(_by_rule, rule=rule)
    family = task.replace("-", "_")
    return Facts(task, family, meaning, truth, derive, "" if rule == task else note)


def _bxaic_facts(task: str, meaning: str, truth: str, marked: str = "") -> Facts:
    note = f"B-XAIC marks {marked} for both labels; `edge_annotation` has that mask."
    derive = partial(_by_rule, rule=task)
    return Facts(task, "bxaic", meaning, truth, derive, note if marked else "", has_one_mask=True)


def _element_facts(task: str) -> Facts:
    meaning, truth = f"an atom of {', '.join(sorted(ELEMENTS[task]))}", "these atoms; no bonds"
    derive = partial(_by_rule, rule=task)
    return Facts(task, "bxaic", meaning, truth, derive, has_bond_truth=False)


DATASETS: dict[str, Facts] = {
    facts.name: facts
    for facts in (
        Facts(
            "mutagenicity",
            "mutagenicity",
            "class 1 and at least one match",
            "NH2, NO2, nitroso, azo group or halogen on a ring: all bonds at its atoms",
            _by_toxicophores,
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
        *map(_element_facts, ELEMENTS),
    )
}


def facts_of(name: str) -> Facts:
    """Returns what is known of a dataset, or says which names there are."""
    check_choice("name", name, DATASETS)
    return DATASETS[name]


def known_checksums(file_name: str) -> set[str]:
    """Returns the checksums a file of this name may have; empty if we know none.

    >>> len(known_checksums("y_true.npz")), len(known_checksums("data.csv"))
    (3, 0)
    """
    return {value for path, value in SHA256.items() if path.rsplit("/", 1)[-1] == file_name}
