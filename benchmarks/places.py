"""Counts what `two_places` says of molecules with one copy of a group, and with two.

    python benchmarks/places.py --out results/studies/places.json     # a few minutes

GIN targets of the wide bench and of `pharmacophore`, seed 0, as their studies train them. Of test
and validation molecules of the class that a target gets right, it counts whether the summary speaks
of two places, and whether both hold true atoms. Of those with one copy, 40 are taken for each rule.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from nicegnn import NICE
from nicegnn.explain.explanation import Explanation
from nicegnn.store import write_json
from nicegnn.target.training import predict
from nicegnn_lab.studies import wide
from nicegnn_lab.studies.atoms import AtomStudy, AtomTask
from nicegnn_lab.studies.wide import WideTask

ONE_GROUP = ("nitro", "ester", "acid", "nitrile", "primary-amide", "phenol", "aniline", "sulfone")
TWO_GROUPS = ("two-amides", "two-fluorines")
ONE_COPY, BACKGROUND, PHARMACOPHORE = 40, 400, 240


def told(out: Explanation, true: Sequence[Tensor]) -> list[str]:
    """Returns for each graph what is said of two places, and whether both hold true atoms."""
    words = []
    assert out.atom_place is not None  # its atoms were scored
    for place, is_true in zip(out.atom_place.split([*map(len, true)]), true, strict=True):
        if not bool(place.any()):
            words.append("nothing")
            continue
        kind = "either" if bool((place > 0).any()) else "both"
        is_right = all(bool(is_true[place.abs() == number].any()) for number in (1, 2))
        words.append(f"{kind}, {'right' if is_right else 'wrong'}")
    return words


def counted(
    model: nn.Module, graphs: Sequence[Data], train: Sequence[Data], true: Sequence[Tensor]
) -> list[str]:
    """Explains graphs of class 1 and returns what is said of each."""
    out = NICE(model, background=list(train)[:BACKGROUND]).explain(list(graphs), target=1)
    return told(out.to("cpu"), true)


def of_rule(name: str) -> dict[str, Counter[str]]:
    """Returns counts by the number of copies of a group that share no atom."""
    task = WideTask(name, seed=0)
    model = task.trained("gin", task.model("gin", Path()), wide.TRAINING)
    known = [graph for graph in (*task.test, *task.valid) if int(graph.y) == 1]
    is_right = (predict(model, known).argmax(1) == 1).tolist()
    known = [graph for graph, is_it in zip(known, is_right, strict=True) if is_it]
    graphs = [graph for graph in known if int(graph.copies) == 1][:ONE_COPY]
    graphs += [graph for graph in known if int(graph.copies) > 1]
    true = []
    for graph in graphs:
        atom = torch.zeros(int(graph.num_nodes or 0), dtype=torch.bool)
        atom[graph.edge_index[:, graph.edge_truth]] = True
        true.append(atom)
    found: dict[str, Counter[str]] = {}
    said = counted(model, graphs, task.train, true)
    for graph, word in zip(graphs, said, strict=True):
        copies = min(int(graph.copies), 2)
        found.setdefault(f"{copies} or more copies" if copies > 1 else "1 copy", Counter())[
            word
        ] += 1
    return found


def of_pharmacophore() -> Counter[str]:
    """Returns counts on validation molecules of the task whose rule needs two groups far apart."""
    task = AtomTask("pharmacophore", seed=0)
    model = task.model("gin", Path())
    task.train(model, AtomStudy().training_config)
    graphs = [task.parts.valid[n] for n in task.right(model, "valid").tolist()][:PHARMACOPHORE]
    true = [graph.atom_truth > 0 for graph in graphs]
    return Counter(counted(model.eval(), graphs, task.parts.train, true))


def run(rules: Sequence[str], *, pharmacophore: bool = True) -> dict[str, Any]:
    """Returns all counts, by rule and number of copies, and their sums."""
    found: dict[str, Any] = {}
    sums: dict[str, Counter[str]] = {}
    for name in rules:
        found[name] = of_rule(name)
        print(name, {key: dict(count) for key, count in found[name].items()}, flush=True)
        for copies, count in found[name].items():
            group = "rules of two" if name in TWO_GROUPS else copies
            sums.setdefault(group, Counter()).update(count)
    if pharmacophore:
        sums["pharmacophore"] = of_pharmacophore()
    return {"sums": {key: dict(count) for key, count in sums.items()}, "rules": found}


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="JSON file of the counts")
    parser.add_argument("--rules", nargs="+", default=[*ONE_GROUP, *TWO_GROUPS])
    options = parser.parse_args()
    found = run(options.rules)
    print(found["sums"])
    if options.out:
        write_json(options.out, found)


if __name__ == "__main__":
    main()
