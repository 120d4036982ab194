"""Explains for long and from many threads: memory stays flat, and numbers stay the same.

    python benchmarks/endurance.py --num 10500 --threads 8 --out results/speed/endurance.json

NICE with its default settings explains small molecules one by one; memory is compared with that
after the first 500. Then threads share explainers of four kinds of models, each in an order of its
own, and every score is compared with that of one thread. The command fails if memory grew by 10 MiB
or more, or if a score differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from nicegnn import NICE
from nicegnn.molecule.featurizers import FEATURIZERS
from nicegnn.pretrained import load
from nicegnn.store import write_json
from nicegnn.target.zoo import make_model

SMILES = (
    *("CCO", "CC(=O)Nc1ccc(O)cc1", "c1ccccc1", "CC(C)Cc1ccccc1", "OC(=O)C(O)=O", "ClCCl", "C#N"),
    *("CN1CCC[C@H]1c1cccnc1", "CC(=O)Oc1ccccc1C(O)=O", "NCCc1ccccc1", "C1CCCCC1", "FC(F)(F)Cl"),
)
MODELS = ("gin", "gcn", "gat", "transformer")
FIRST, EVERY, MOST = 500, 500, 10.0  # explanations before memory counts, between looks; MiB
SAME = 1e-5  # scores are shares of the odds


def resident() -> float:
    """Returns the resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def endure(num: int, every: int) -> Iterator[tuple[int, float]]:
    """Explains small molecules one by one; yields how many so far, and the resident memory."""
    subject = load("benzene")
    graphs = [subject.featurizer(smiles) for smiles in SMILES]
    for number in range(1, num + 1):
        subject.explainer.explain(graphs[number % len(graphs)].clone())
        if number % every == 0:
            yield number, resident()


def share(num_threads: int, rounds: int) -> dict[str, Any]:
    """Explains from many threads with the same explainers; returns how many results differ."""
    graphs = [FEATURIZERS["elements"](smiles) for smiles in SMILES]
    width, edge_width = graphs[0].x.size(1), graphs[0].edge_attr.size(1)
    torch.manual_seed(0)
    models = [make_model(name, width, 2, edge_size=edge_width) for name in MODELS]
    shared = [NICE(model, background=graphs) for model in models]
    work = [(kind, graph) for kind in range(len(shared)) for graph in range(len(graphs))]
    wanted = {key: _scores(NICE(models[key[0]], background=graphs), graphs[key[1]]) for key in work}
    differing: list[float] = []
    errors: list[str] = []

    def run(number: int) -> None:
        try:
            for _ in range(rounds):
                for key in random.Random(number).sample(work, len(work)):
                    found = _scores(shared[key[0]], graphs[key[1]])
                    differing.append(max(map(abs, (found - wanted[key]).tolist()), default=0.0))
        except Exception as error:  # a thread would only print it
            errors.append(f"{type(error).__name__}: {error}")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "threads": num_threads,
        "models": list(MODELS),
        "explanations": len(differing),
        "differences": sum(value > SAME for value in differing),
        "largest_difference": max(differing, default=0.0),
        "errors": errors,
    }


def _scores(nice: NICE, graph: Data) -> torch.Tensor:
    out = nice.explain(graph)
    assert out.atom_score is not None
    return torch.cat([out.bond_score, out.atom_score])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--num", type=int, default=10_500, help="explanations, one by one")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5, help="of all molecules, in each thread")
    parser.add_argument("--out", type=Path, help="JSON file for the outcome")
    given = parser.parse_args()
    torch.set_num_threads(1)
    held = {}
    for number, held[number] in endure(given.num, EVERY):
        print(f"{number:7d} explanations, {held[number]:7.1f} MiB", file=sys.stderr, flush=True)
    grown = max(held.values(), default=0.0) - held.get(FIRST, 0.0)
    found: dict[str, Any] = {
        "explanations": given.num,
        "first": FIRST,
        "grown_mib": round(grown, 2),
    }
    found["threads"] = share(given.threads, given.rounds)
    print(json.dumps(found, indent=1))
    if given.out:
        write_json(given.out, found)
    threads = found["threads"]
    sys.exit(grown >= MOST or bool(threads["differences"] or threads["errors"]))


if __name__ == "__main__":
    main()
