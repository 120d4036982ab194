"""Memory of one process that explains many times: ``python benchmarks/endurance.py 10000``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

import torch
from torch_geometric.data import Data

from nicegnn.target.zoo import GIN
from nicegnn_lab.rivals import get_explainer

NAMES = ("nice-instant", "saliency", "gnnexplainer")


def resident() -> float:
    """Returns the resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def endure(num: int, every: int) -> Iterator[tuple[int, float]]:
    """Explains small rings of changing size; yields how many so far, and the resident memory.

    All have one seed: noise of other seeds is kept too, up to 256 MiB.
    """
    model = GIN(4, 2).eval()
    settings = {"gnnexplainer": {"steps": 3}}
    explainers = [get_explainer(name, model, **settings.get(name, {})) for name in NAMES]
    for number in range(1, num + 1):
        size = 3 + number % 8
        ends = torch.arange(size)
        there = torch.stack([ends, (ends + 1) % size])  # [2, size]
        edge_index = torch.stack([there, there.flip(0)], dim=2).view(2, -1)  # [2, 2 size]
        graph = Data(x=torch.eye(4)[ends % 4], edge_index=edge_index)
        explainers[number % len(explainers)].explain(graph)
        if number % every == 0:
            yield number, resident()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("num", type=int, nargs="?", default=10_000, help="explanations")
    num = parser.parse_args().num
    torch.set_num_threads(1)
    for number, held in endure(num, max(num // 20, 1)):
        print(f"{number:7d} explanations, {held:7.1f} MiB", flush=True)


if __name__ == "__main__":
    main()
