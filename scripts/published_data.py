"""Fetches published benchmark files and writes the tables that ``nicegnn lab`` reads.

Run ``python scripts/published_data.py FOLDER`` and set ``NICEGNN_DATA`` to the folder. It makes
``mutagenicity.csv.gz`` and ``graphxai_*.csv.gz``; the truth comes from the rules that reproduce the
published masks, which are pickled and not read. Nothing of a fetched file is run.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import random
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np

from nicegnn.molecule.smiles import Bond, parse_smiles
from nicegnn.store import write_whole
from nicegnn_lab.datasets.graph_tables import ATOMS_MUTAGENICITY, molecule_tables
from nicegnn_lab.datasets.rules import GROUPS, Indices, group_atoms

_TUDATASET = "https://www.chrsmrrs.com/graphkerneldatasets/Mutagenicity.zip"
_GOOGLE = (
    "https://raw.githubusercontent.com/google-research/graph-attribution/"
    "03e7495379df26a21395b25c6a14d92dc27fc3b0/data"
)
#: Set, folder in graph-attribution, rule, and negatives kept for each positive. The names of the
#: two carbonyl sets are swapped there.
GRAPHXAI: tuple[tuple[str, str, str, int | None], ...] = (
    ("benzene", "benzene", "benzene", None),
    ("alkane_carbonyl", "logic7", "fluoride-carbonyl", 2),
    ("fluoride_carbonyl", "logic8", "alkane-carbonyl", None),
)
#: Their SHA-256: of the SMILES, and of the labels.
SHA256 = {
    "benzene": (
        "aa52389639d0989dc5bb726c364fbc38ed520468d6606d67679d24b7e6720a28",
        "50d99b8c80ac19410029175787fd993d0634e7dc7b94fbc93739cd1110963d2e",
    ),
    "logic7": (
        "7915107a397240cec3daf027d713db2bed107d19d9d941b6d36a4a334a5dfae8",
        "20577c22a6975f20c033a2cf213df9108c10756e7971e83cdd6009f05f2896d5",
    ),
    "logic8": (
        "7c4d1863a2f6a026ef3dafc4c7f54519cdd75aa15ea1f298b08e64fa3b75d11d",
        "3e6a1b7e86dad945522fd9cf838d2366f785e16c73e8f37e608ef9d3d467d655",
    ),
}


def main(folder: Path) -> None:
    """Fetches all sets and writes their tables."""
    for name, place, rule, negatives in GRAPHXAI:
        files = zip((f"{place}_smiles.csv", "y_true.npz"), SHA256[place], strict=True)
        smiles, labels = (fetch(f"{_GOOGLE}/{place}/{file}", known) for file, known in files)
        rows = graphxai_rows(smiles, labels, rule, negatives)
        write_table(folder / f"graphxai_{name}.csv.gz", rows)
    write_table(folder / "mutagenicity.csv.gz", mutagenicity_rows(fetch(_TUDATASET)))


def fetch(url: str, sha256: str | None = None) -> bytes:
    """Returns all that an address holds; another content than expected is an error."""
    request = Request(url, headers={"User-Agent": "nicegnn", "Accept-Encoding": "identity"})
    with urlopen(request, timeout=30) as reply:
        content: bytes = reply.read()
    got = hashlib.sha256(content).hexdigest()
    if sha256 not in (None, got):
        raise SystemExit(f"The sha256 of {url} must be {sha256} (got {got}).")
    return content


def write_table(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Writes a gzipped csv table; equal rows give equal bytes."""
    text, every = io.StringIO(newline=""), list(rows)
    writer = csv.DictWriter(text, list(every[0]))
    writer.writeheader()
    writer.writerows(every)
    content = gzip.compress(text.getvalue().encode(), mtime=0)
    write_whole(path, lambda file: file.write_bytes(content))
    print(f"{path}: {len(every)} molecules")


def graphxai_rows(
    smiles: bytes, labels: bytes, rule: str, negatives: int | None
) -> Iterator[dict[str, Any]]:
    """Yields molecules; `negatives` for each positive are drawn as GraphXAI does, seed 0."""
    molecules = list(csv.DictReader(io.StringIO(smiles.decode(), newline="")))
    label = np.load(io.BytesIO(labels), allow_pickle=False)["y"].reshape(-1).astype(int).tolist()
    ones, zeros = ([n for n, one in enumerate(label) if one == kind] for kind in (1, 0))
    if negatives is not None:
        zeros = random.Random(0).sample(zeros, min(len(zeros), negatives * len(ones)))
    kept = {*ones, *zeros}
    for row, (cells, wanted) in enumerate(zip(molecules, label, strict=True)):
        mol = parse_smiles(cells["smiles"])
        atoms, bonds = molecule_tables(mol)
        masks = group_atoms(mol, GROUPS[rule])
        if bool(masks) != wanted:
            raise SystemExit(f"Row {row} has the label {wanted}, but the rule {rule} differs.")
        yield {
            "idx": row,
            "smiles": cells["smiles"],
            "label": wanted,
            "atoms": " ".join(atoms),
            "bonds": " ".join(f"{u}-{v}:{kind}" for u, v, kind in bonds),
            "masks": json.dumps([sorted(mask) for mask in masks]),
            "subset_1125": int(row in kept),
        }


def mutagenicity_rows(content: bytes) -> Iterator[dict[str, Any]]:
    """Yields the graphs of TUDataset's zip; atoms without a bond are removed, as in GraphXAI."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        inside = {name.rsplit("/", 1)[-1]: name for name in archive.namelist()}

        def numbers(role: str) -> np.ndarray:
            text = archive.read(inside[f"Mutagenicity_{role}.txt"]).decode()
            return np.array(text.replace(",", " ").split(), dtype=np.int64)

        ends, graph = numbers("A").reshape(-1, 2) - 1, numbers("graph_indicator") - 1
        labels, symbol, kind = (numbers(f"{of}_labels") for of in ("graph", "node", "edge"))
    forward = ends[:, 0] < ends[:, 1]
    pairs, types = ends[forward], kind[forward] + 1
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    pairs, types = pairs[order], types[order]
    first_bond = np.searchsorted(graph[pairs[:, 0]], np.arange(len(labels) + 1))
    for index, label in enumerate(labels.tolist()):
        mine = slice(first_bond[index], first_bond[index + 1])
        used = np.unique(pairs[mine])  # atoms with a bond, in order
        atoms = [ATOMS_MUTAGENICITY[number] for number in symbol[used].tolist()]
        ends_of = np.searchsorted(used, pairs[mine]).tolist()
        bonds = [(u, v, t) for (u, v), t in zip(ends_of, types[mine].tolist(), strict=True)]
        matches = toxicophore_matches(atoms, bonds)
        yield {
            "tu_index": index,
            "label": label,
            "kept": int((label == 1) == bool(matches)),
            "atoms": " ".join(atoms),
            "bonds": " ".join(f"{u}-{v}:{t}" for u, v, t in bonds),
            "matches": json.dumps([[name, sorted(match)] for name, match in matches]),
        }


def toxicophore_matches(atoms: Sequence[str], bonds: Sequence[Bond]) -> list[tuple[str, Indices]]:
    """Returns kind and atoms of every group that explains Mutagenicity in GraphXAI.

    Kinds come in GraphXAI's order. Hydrogens are explicit atoms; the degree of an atom is its
    number of neighbours.

    * ``NH2``: N of degree 3 with two H of degree 1;
    * ``NO2``: N of degree 3 with two O of degree 1;
    * ``nitroso``: N of degree 2 bonded to an O of degree 1;
    * ``azo``: two bonded N, both of degree 2;
    * ``ring_halide``: F, Cl, Br or I of degree 1 whose neighbour has a ring bond, the smallest ring
      of which has more than 4 atoms. GraphXAI's search depends on the order of atoms; both agree on
      all 4,337 published graphs (see the tests).

    >>> toxicophore_matches(["C", "N", "O"], [(0, 1, 1), (1, 2, 2)])
    [('nitroso', frozenset({1, 2}))]
    """
    near: list[list[int]] = [[] for _ in atoms]
    for u, v, _ in bonds:
        near[u].append(v)
        near[v].append(u)

    def ends(atom: int, symbol: str) -> list[int]:
        """Neighbours of an element that have no other neighbour."""
        return sorted(a for a in near[atom] if atoms[a] == symbol and len(near[a]) == 1)

    nitrogens = [n for n, symbol in enumerate(atoms) if symbol == "N"]
    matches: list[tuple[str, Indices]] = []
    for kind, symbol in (("NH2", "H"), ("NO2", "O")):
        for n in nitrogens:
            if len(near[n]) == 3:
                pairs = combinations(ends(n, symbol), 2)
                matches += [(kind, frozenset((n, *pair))) for pair in pairs]
    twofold = [n for n in nitrogens if len(near[n]) == 2]
    matches += [("nitroso", frozenset((n, o))) for n in twofold for o in ends(n, "O")]
    azo = [(n, m) for n in twofold for m in near[n] if m > n and m in twofold]
    matches += [("azo", frozenset(pair)) for pair in azo]
    halogens = [a for a, symbol in enumerate(atoms) if symbol in ("F", "Cl", "Br", "I")]
    for a in halogens:
        if len(near[a]) == 1 and _is_on_ring(near[a][0], near):
            matches.append(("ring_halide", frozenset((a,))))
    return matches


def _is_on_ring(atom: int, near: Sequence[Sequence[int]]) -> bool:
    return any(_smallest_ring(atom, other, near) > 4 for other in near[atom])


def _smallest_ring(u: int, v: int, near: Sequence[Sequence[int]]) -> int:
    """Atoms of the smallest ring through a bond, by a breadth-first search around it; 0 if none."""
    seen, front, size = {u}, [a for a in near[u] if a != v], 2
    while front:
        if v in front:
            return size
        seen.update(front)
        front = sorted({other for a in front for other in near[a]} - seen)
        size += 1
    return 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
