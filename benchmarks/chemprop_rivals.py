"""Chemprop models: NICE beside Myerson values, AUC of true bonds and atoms, seconds per molecule.

    python benchmarks/chemprop_rivals.py --pool chembl_pool.csv.gz --out results/speed/chemprop.json

For each group an MPNN learns whether a molecule has it. Explained are test molecules that have it
and are predicted so; true are the bonds inside of it, and its atoms. Myerson values are of atoms,
and a bond has the mean of its two. Seconds are those of the processor.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from chemprop import nn as parts
from chemprop.data import BatchMolGraph, MoleculeDatapoint, MoleculeDataset
from chemprop.models import MPNN
from myerson.chemprop_explain import MyersonSamplingExplainer
from rdkit import Chem
from sklearn.metrics import roc_auc_score

from nicegnn import NICE
from nicegnn.store import write_json

GROUPS = {"nitro": "[NX3+](=O)[O-]", "lactam": "[#6;R][CX3;R](=O)[NX3;R]"}
_SIZE = range(10, 31)  # atoms


class Answer:
    """What Myerson values share out: the log-odds of a model, or its probability."""

    device = torch.device("cpu")

    def __init__(self, mpnn: MPNN, kind: str) -> None:
        self.mpnn, self.kind = mpnn, kind

    def __call__(self, bmg: BatchMolGraph) -> torch.Tensor:
        odds = self.mpnn.predictor.train_step(self.mpnn.fingerprint(bmg))
        return odds if self.kind == "odds" else odds.sigmoid()


def chosen(pool: Path, pattern: Any, number: int, seed: int) -> tuple[list[str], list[int]]:
    """Returns molecules in a random order, half of them with a group, and their labels."""
    table = pd.read_csv(pool, usecols=["smiles", "n_atoms"])
    listed = table["smiles"][table["n_atoms"].isin(_SIZE)].tolist()
    random.Random(seed).shuffle(listed)
    found: dict[bool, list[str]] = {True: [], False: []}
    for smiles in listed:
        mol = None if "." in smiles else Chem.MolFromSmiles(smiles)
        if mol is not None and len(found[kind := mol.HasSubstructMatch(pattern)]) < number // 2:
            found[kind].append(smiles)
        if all(len(one) == number // 2 for one in found.values()):
            break
    both = [(smiles, int(kind)) for kind, some in found.items() for smiles in some]
    random.Random(seed).shuffle(both)
    return [smiles for smiles, _ in both], [label for _, label in both]


def trained(smiles: list[str], labels: list[int], epochs: int, width: int) -> MPNN:
    """Returns an MPNN that was trained for some epochs."""
    torch.manual_seed(0)
    block = parts.BondMessagePassing(d_h=width)
    head = parts.BinaryClassificationFFN(input_dim=width, hidden_dim=width)
    mpnn = MPNN(block, parts.NormAggregation(norm=20), head)
    data = MoleculeDataset([MoleculeDatapoint.from_smi(one) for one in smiles])
    graphs, wanted = [one.mg for one in data], torch.tensor(labels).float().unsqueeze(1)
    optimiser = torch.optim.Adam(mpnn.parameters(), 1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(graphs)).split(64):
            out = head.train_step(mpnn.fingerprint(BatchMolGraph([graphs[k] for k in rows])))
            loss = torch.nn.functional.binary_cross_entropy_with_logits(out, wanted[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return mpnn.eval()


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Trains on a group, and explains molecules that have it."""
    pattern = Chem.MolFromSmarts(GROUPS[name])
    smiles, labels = chosen(options.pool, pattern, options.molecules, options.seed)
    cut = len(smiles) * 4 // 5
    mpnn = trained(smiles[:cut], labels[:cut], options.epochs, options.width)
    data = MoleculeDataset([MoleculeDatapoint.from_smi(one) for one in smiles[cut:]])
    with torch.no_grad():
        odds = Answer(mpnn, "odds")(BatchMolGraph([one.mg for one in data])).view(-1)
    right = ((odds > 0) == (torch.tensor(labels[cut:]) == 1)).float().mean().item()
    places = [
        k
        for k, (odd, label) in enumerate(zip(odds, labels[cut:], strict=True))
        if label and odd > 0
    ]
    points = [data.data[k] for k in places[: options.explained]]
    truth = [_truth(point.mol, pattern) for point in points]
    background = smiles[:cut:4][:400]
    rows = []
    for mechanism in ("exchange", "em", "nc"):
        explainer = NICE(mpnn, background=background, mechanism=mechanism)
        explainer.explain(points[:2])

        def ours(chunk: list[Any], explainer: NICE = explainer, atoms: bool = True) -> list[Any]:
            out = explainer.explain(chunk, target=1, atoms=atoms)
            return [(one.bond_loss, one.bond_index.t(), one.atom_score) for one in out.split()]

        label = {"exchange": "exchange", "em": "masking", "nc": "noise"}[mechanism]
        alone = timed(lambda: [ours([p], atoms=False) for p in points])[1] / len(points)
        scores, seconds = timed(lambda: ours(points, atoms=False))
        both, with_atoms = timed(lambda: ours(points))
        row = quality([one[0] for one in scores], [one[1] for one in scores], None, truth)
        row |= {"explainer": f"NICE, {label}", "seconds": seconds / len(points), "alone": alone}
        if mechanism == "exchange":
            row |= {"seconds_with_atoms": with_atoms / len(points)}
            row |= quality(None, None, [one[2] for one in both], truth)
        rows.append(row)
    for kind in ("odds", "probability"):
        for steps in options.steps:
            values, seconds = timed(
                lambda steps=steps, kind=kind: [
                    _myerson(mpnn, kind, p, steps, data) for p in points
                ]
            )
            bonds = [bonds_of(point.mol) for point in points]
            shared = [value[pairs].mean(1) for value, pairs in zip(values, bonds, strict=True)]
            row = quality(shared, bonds, values, truth)
            row |= {"explainer": f"Myerson, {kind}, {steps} steps", "alone": seconds / len(points)}
            rows.append(row)
            print(name, row, flush=True)
    return {"group": name, "accuracy": right, "explained": len(points), "rows": rows}


def _myerson(mpnn: MPNN, kind: str, point: Any, steps: int, data: MoleculeDataset) -> np.ndarray:
    graph = data.featurizer(point.mol)
    with torch.no_grad():
        sampler = MyersonSamplingExplainer(
            graph, Answer(mpnn, kind), seed=0, number_of_samples=steps
        )
        return np.asarray(sampler.sample_all_myerson_values(), dtype=float)


def bonds_of(mol: Any) -> np.ndarray:
    return np.array([(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in mol.GetBonds()])


def _truth(mol: Any, pattern: Any) -> tuple[set[int], set[frozenset[int]]]:
    """Returns the atoms of a group, and the bonds inside of it."""
    atoms, bonds = set(), set()
    for match in mol.GetSubstructMatches(pattern):
        atoms |= set(match)
        bonds |= {frozenset(map(int, p)) for p in bonds_of(mol) if set(map(int, p)) <= set(match)}
    return atoms, bonds


def quality(scores: Any, pairs: Any, atoms: Any, truth: list[Any]) -> dict[str, float]:
    """Returns mean AUC in percent of true bonds and of true atoms."""
    out = {}
    if scores is not None:
        aucs = [
            roc_auc_score([frozenset(map(int, p)) in bonds for p in pair], np.asarray(score))
            for score, pair, (_, bonds) in zip(scores, pairs, truth, strict=True)
        ]
        out["bond_auc"] = 100 * float(np.mean(aucs))
    if atoms is not None:
        aucs = [
            roc_auc_score([k in wanted for k in range(len(score))], np.asarray(score))
            for score, (wanted, _) in zip(atoms, truth, strict=True)
        ]
        out["atom_auc"] = 100 * float(np.mean(aucs))
    return out


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    out = call()
    return out, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", type=Path, required=True, help="csv with smiles and n_atoms")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--molecules", type=int, default=2000)
    parser.add_argument("--explained", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--steps", type=int, nargs="*", default=[20, 1000])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    groups = [measure(name, options) for name in GROUPS]
    settings = {k: v for k, v in vars(options).items() if k not in ("pool", "out")}
    write_json(options.out, {"settings": settings, "groups": groups})


if __name__ == "__main__":
    main()
