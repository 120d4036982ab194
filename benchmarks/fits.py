"""Compares fits of several lengths: seconds, and the loss that is left on held-out graphs.

    python benchmarks/fits.py benzene/gin mutagenicity/gcn --out results/speed/fits.json

The loss is that of the fit itself, at five shares of restored bonds, on validation graphs; no truth
is read. Each length has two seeds.
"""

from __future__ import annotations

import argparse
import logging
import time
from pathlib import Path
from typing import Any

import torch
from timing import machine

from nicegnn import NICE, NICEConfig
from nicegnn.boundary.fit import gate_logits
from nicegnn.boundary.objective import corrupted_risk, srb_loss
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.query import Query
from nicegnn.store import write_json
from nicegnn_lab import load_dataset
from nicegnn_lab.bench.targets import load_target, target_path

#: Steps, graphs of a step, learning rate and its schedule.
FITS: dict[str, tuple[int, int, float, str]] = {
    "former": (500, 256, 0.003, "constant"),
    "default": (200, 512, 0.01, "linear"),
    "half the graphs": (200, 256, 0.01, "linear"),
    "more steps": (250, 512, 0.01, "linear"),
    "lower rate": (200, 512, 0.003, "linear"),
    "quick, former": (150, 64, 0.003, "constant"),
    "quick": (150, 64, 0.01, "linear"),
}
_SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
_SEEDS = (0, 1)
_MOST_GRAPHS = 400


def measure(dataset: str, target: str) -> dict[str, Any]:
    """Returns seconds and held-out loss of each fit on one target."""
    data = load_dataset(dataset)
    model = load_target(target_path("results/targets", dataset, target)).model.eval()
    held_out = data.valid[list(range(min(_MOST_GRAPHS, len(data.valid))))]
    found: dict[str, Any] = {}
    for name, (steps, size, rate, schedule) in FITS.items():
        config = NICEConfig().with_(
            boundary__steps=steps,
            boundary__batch_size=size,
            boundary__learning_rate=rate,
            boundary__schedule=schedule,
        )
        seconds, losses = [], []
        for seed in _SEEDS:
            started = time.perf_counter()
            nice = NICE(model, config).fit(data.train, seed=seed, progress=False)
            seconds.append(time.perf_counter() - started)
            losses.append(loss_of(nice, list(held_out)))
        found[name] = {"seconds": seconds, "loss": losses}
        print(f"{dataset}/{target} {name}: {seconds} s, loss {losses}", flush=True)
    return found


@torch.no_grad()
def loss_of(nice: NICE, graphs: list[Any]) -> float:
    """Returns the mean loss of fitted gates over graphs and restored shares."""
    settings, case = nice.config.boundary, make_case(to_batch(graphs))
    with nice.target.frozen():
        query = Query(nice.target, case, ElementMask(), degradation=settings.degradation)
        assert nice.gates is not None  # it was fitted
        logit = gate_logits(nice.gates, query, nice.config)
        reference = corrupted_risk(query, settings, 0)
        losses = [
            srb_loss(
                *(query, logit, reference, settings),
                share=torch.full((case.num_graphs,), share),
                stream=0,
            )[0].mean()
            for share in _SHARES
        ]
    return float(torch.stack(losses).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="+", help="dataset/target, such as benzene/gin")
    parser.add_argument("--out", type=Path, help="JSON file for the numbers")
    given = parser.parse_args()
    logging.getLogger("nicegnn").setLevel(logging.ERROR)
    result: dict[str, Any] = {
        "machine": machine(torch.device("cpu")),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "fits": {name: list(about) for name, about in FITS.items()},
        "targets": {},
    }
    for one in given.targets:
        result["targets"][one] = measure(*one.split("/"))
        if given.out is not None:
            write_json(given.out, result)


if __name__ == "__main__":
    main()
