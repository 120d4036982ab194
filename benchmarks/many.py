"""Many molecules on one device, from tensors: ``pack`` them once, then ``run`` an explainer.

    python benchmarks/many.py pack molecules.csv.gz packed.npz --model benzene --workers 2
    python benchmarks/many.py run packed.npz --model benzene --device cuda --student yes
    python benchmarks/many.py watch molecules.csv.gz out --workers 2   # from SMILES: memory, rate

``--json FILE`` adds what is measured to a file such as ``results/speed/many.json``.

A packed file needs no RDKit and holds a few bytes per atom: the distinct rows of ``x`` and of
``edge_attr`` once, and the number of its row for every atom and bond. ``run`` puts these numbers on
the device and builds each batch there by indexing, without a loop over molecules.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.explain.nice import NICE
from nicegnn.graph.minibatches import gather_items
from nicegnn.pretrained import NAMES, card_of, load
from nicegnn.screening.tables import num_rows
from nicegnn.store import write_json

Array = NDArray[Any]
KEYS = ("atoms", "bonds", "atom_code", "bond_code", "begin", "step")
_WHO = {"no": "teacher", "yes": "student"}
CHUNK = 1000  # molecules that a process reads at a time
TAUGHT = 2000  # molecules that a student learns from, where the model comes without one


# --- pack -----------------------------------------------------------------------------------------


def pack(
    source: Path, out: Path, featurizer: str, workers: int, most: int | None
) -> dict[str, Any]:
    """Reads SMILES with several processes and writes one packed file; returns counts and rates."""
    from nicegnn.screening.reading import Reader

    start = time.perf_counter()
    records = ((record.row, record.smiles) for record in islice(Reader(source), most))
    chunks = iter(lambda: tuple(islice(records, CHUNK)), ())
    with multiprocessing.get_context("spawn").Pool(workers, _start, (featurizer,)) as pool:
        tensors = joined(pool.imap(_read, chunks))
    seconds = time.perf_counter() - start
    np.savez_compressed(out, **tensors)
    packed, missing = len(tensors["atoms"]), len(tensors["missing"])
    return {
        "molecules": packed + missing,
        "packed": packed,
        "seconds": round(seconds, 1),
        "molecules_per_second": round((packed + missing) / seconds, 1),
        "workers": workers,
        "megabytes": round(out.stat().st_size / 1e6, 2),
        "atom_rows": len(tensors["atom_rows"]),
    }


def joined(parts: Iterable[dict[str, Array]]) -> dict[str, Array]:
    """Returns the arrays of all molecules, and in ``missing`` the rows that could not be read."""
    books = {"atom": Codebook(), "bond": Codebook()}
    lists: dict[str, list[Array]] = {key: [] for key in (*KEYS, "missing")}
    start, done = time.perf_counter(), 0
    for found in parts:
        for name, book in books.items():
            found[f"{name}_code"] = book.merge(found[f"{name}_rows"], found[f"{name}_code"])
        for key, some in lists.items():
            some.append(found[key])
        done += len(found["atoms"]) + len(found["missing"])
        if done % (50 * CHUNK) == 0:
            rate = done / (time.perf_counter() - start)
            print(f"{done} molecules, {rate:.0f}/s", file=sys.stderr, flush=True)
    tensors = {key: np.concatenate(some) for key, some in lists.items()}
    for name, book in books.items():
        tensors[f"{name}_rows"] = book.table()
        tensors[f"{name}_code"] = _small(tensors[f"{name}_code"])
    return tensors


class Codebook:
    """Distinct rows in the order in which they were first met."""

    def __init__(self) -> None:
        self._number: dict[bytes, int] = {}
        self._rows: list[Array] = []

    def merge(self, rows: Array, code: Array) -> Array:
        """Returns codes of this book for codes of the given rows."""
        place = np.empty(len(rows), dtype=np.int64)
        for own, row in enumerate(rows):
            key = row.tobytes()
            if key not in self._number:
                self._number[key] = len(self._rows)
                self._rows.append(row)
            place[own] = self._number[key]
        found = place[code]
        return found.astype(np.uint16) if len(self._rows) < 2**16 else found.astype(np.uint32)

    def table(self) -> Array:
        return np.stack(self._rows)


def _small(values: Array) -> Array:
    """Returns whole numbers in one byte each, if they fit."""
    return values.astype(np.uint8) if values.size and values.max() < 2**8 else values


def _start(featurizer: str) -> None:
    global _featurizer
    from nicegnn.molecule.featurizers import FEATURIZERS

    torch.set_num_threads(1)
    _featurizer = FEATURIZERS[featurizer]


def _read(chunk: Sequence[tuple[int, str]]) -> dict[str, Array]:
    """Returns the arrays of some molecules; those that cannot be read are left out."""
    from nicegnn.molecule.smiles import MoleculeError

    graphs, missing = [], []
    for number, smiles in chunk:
        try:
            graphs.append(_featurizer(smiles))
        except MoleculeError:
            missing.append(number)
    x = np.concatenate([graph.x.numpy() for graph in graphs])
    attr = np.concatenate([graph.edge_attr.numpy() for graph in graphs])
    ends = np.concatenate([graph.edge_index.numpy() for graph in graphs], axis=1)  # [2, E]
    there, back = ends[:, ::2], ends[:, 1::2]
    if not np.array_equal(there, back[::-1]) or not np.array_equal(attr[::2], attr[1::2]):
        raise ValueError("The two directions of a bond must be neighbours with equal features.")
    atom_rows, atom_code = _distinct(x)
    bond_rows, bond_code = _distinct(attr[::2])
    kind = np.uint8 if max(int(graph.num_nodes) for graph in graphs) < 2**7 else np.int16
    return {
        "missing": np.array(missing, dtype=np.int64),
        "atoms": np.array([graph.num_nodes for graph in graphs], dtype=np.uint16),
        "bonds": np.array([graph.num_edges // 2 for graph in graphs], dtype=np.uint16),
        "begin": there[0].astype(kind),
        "step": (there[1] - there[0]).astype(np.int16 if kind == np.int16 else np.int8),
        "atom_rows": atom_rows,
        "atom_code": atom_code,
        "bond_rows": bond_rows,
        "bond_code": bond_code,
    }


def _distinct(rows: Array) -> tuple[Array, Array]:
    """Returns the distinct rows, and the number of each row among them."""
    whole = np.ascontiguousarray(rows)
    keys = whole.view(np.dtype((np.void, whole.dtype.itemsize * whole.shape[1]))).ravel()
    _, first, code = np.unique(keys, return_index=True, return_inverse=True)
    return whole[first], code.ravel()


# --- run ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PackedGraphs:
    """Graphs of a packed file on a device; batches are cut out by indexing."""

    ptr: Tensor  # first atom of each graph, [G + 1]
    bond_ptr: Tensor  # first bond of each graph, [G + 1]
    atom_code: Tensor  # row of each atom's features, [V]
    bond_code: Tensor  # row of each bond's features, [M]
    begin: Tensor  # first atom of each bond, counted in its graph, [M]
    step: Tensor  # from there to the second, [M]
    atom_rows: Tensor  # distinct rows of ``x``, [K, F]
    bond_rows: Tensor  # distinct rows of ``edge_attr``, [L, D]

    @classmethod
    def load(cls, path: Path, device: str) -> PackedGraphs:
        with np.load(path) as file:
            found = {key: file[key] for key in (*KEYS, "atom_rows", "bond_rows")}
        put = {
            key: torch.from_numpy(_signed(value)).to(device)
            for key, value in found.items()
            if key not in ("atoms", "bonds")
        }
        return cls(
            **put,
            ptr=_starts(found["atoms"]).to(device),
            bond_ptr=_starts(found["bonds"]).to(device),
        )

    def __len__(self) -> int:
        return self.ptr.numel() - 1

    def batch(self, first: int, last: int) -> Batch:
        """Returns graphs `first` to `last` as one batch; both directions of a bond side by side."""
        chosen = torch.arange(first, last, device=self.ptr.device)
        atoms, ptr = gather_items(self.ptr, chosen)
        bonds, bond_ptr = gather_items(self.bond_ptr, chosen)
        begin = self.begin[bonds].long() + ptr[:-1].repeat_interleave(bond_ptr.diff())  # [M]
        ends = torch.stack([begin, begin + self.step[bonds]])  # [2, M]
        out = Batch(
            x=self.atom_rows[self.atom_code[atoms].long()],
            edge_index=torch.stack([ends, ends.flip(0)], dim=2).view(2, -1),
            edge_attr=self.bond_rows[self.bond_code[bonds].long()].repeat_interleave(2, 0),
            batch=(chosen - first).repeat_interleave(ptr.diff()),
            ptr=ptr,
        )
        out._num_graphs = last - first
        return out


def _signed(values: Array) -> Array:
    """Returns unsigned numbers of two bytes as four: torch cannot index by the former."""
    return values.astype(np.int32) if values.dtype in (np.uint16, np.uint32) else values


def _starts(sizes: Array) -> Tensor:
    return torch.from_numpy(np.concatenate([[0], sizes.astype(np.int64).cumsum()]))


def run(
    path: Path, model: str, device: str, size: int, student: bool, most: int | None
) -> dict[str, Any]:
    """Explains all graphs of a packed file, keeps all scores, and returns rates."""
    start = time.perf_counter()
    graphs = PackedGraphs.load(path, device)
    loaded = time.perf_counter() - start
    explainer = load(model, device).explainer
    total = min(len(graphs), most or len(graphs))
    asked: dict[str, Any] = {"student": True} if student else {}
    if student and isinstance(explainer, NICE) and explainer.student is None:
        single = (graphs.batch(place, place + 1) for place in range(min(TAUGHT, total)))
        taught = [Data(x=g.x, edge_index=g.edge_index, edge_attr=g.edge_attr) for g in single]
        explainer.teach(taught, seed=0, progress=False)  # not counted
    explainer.explain(graphs.batch(0, min(size, total)), seed=0, **asked)  # not counted
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    reading, kept, num_bonds = 0.0, [], 0
    start = _settled(device)
    for first in range(0, total, size):
        before = _settled(device)
        batch = graphs.batch(first, min(first + size, total))
        reading += _settled(device) - before
        found = explainer.explain(batch, seed=0, **asked)
        kept.append(found.bond_score.cpu())
        num_bonds += found.bond_score.numel()
    seconds = _settled(device) - start
    scores = torch.cat(kept)
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "student": student,
        "graphs": total,
        "bonds": num_bonds,
        "load_seconds": round(loaded, 2),
        "seconds": round(seconds, 2),
        "graphs_per_second": round(total / seconds, 1),
        "share_of_reading": round(reading / seconds, 4),
        "peak_mebibytes": round(_peak(device), 1),
        "finite": bool(torch.isfinite(scores).all()),
        "mean_score": float(scores.double().mean()),
    }


def _settled(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _peak(device: str) -> float:
    """Returns the most memory so far in MiB: tensors on a GPU, else of the process."""
    import resource

    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


# --- watch ----------------------------------------------------------------------------------------


def watch(source: Path, out: Path, model: str, workers: int, student: str) -> dict[str, Any]:
    """Runs ``nicegnn explain`` and looks at its memory; returns its result and the peaks."""
    words = [str(source), "--out", str(out), "--model", model, "--student", student]
    command = [sys.executable, "-m", "nicegnn.cli.main", "explain", *words, "--format", "rows"]
    command += ["--workers", str(workers), "--quiet"]
    start = time.perf_counter()
    import psutil

    held: list[tuple[int, float, float]] = []  # shards so far, MiB of the driver, of all workers
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            driver = psutil.Process(process.pid)
            with suppress(psutil.NoSuchProcess):
                done = len(list(out.glob("shards/*.parquet")))
                those = [one.memory_info().rss / 2**20 for one in driver.children(recursive=True)]
                own = driver.memory_info().rss / 2**20
                if not held or done >= held[-1][0] + 2:
                    print(f"{done} shards: {own:.0f} + {sum(those):.0f} MiB", file=sys.stderr)
                    held.append((done, own, sum(those)))
            time.sleep(0.5)
    seconds, shards = time.perf_counter() - start, sorted(out.glob("shards/*.parquet"))
    number = sum(max(0, num_rows(shard)) for shard in shards)
    return {
        "molecules": number,
        "seconds": round(seconds, 1),  # with the start of all processes
        "molecules_per_second": round(number / seconds, 1),
        "workers": workers,
        "driver_mebibytes": [round(own) for _, own, _ in held],
        "worker_mebibytes": [round(those) for _, _, those in held],
        "cpu_seconds": round(sum(os.times()[2:4]), 1),  # of the run and its workers
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    packing.add_argument("source", type=Path)
    packing.add_argument("out", type=Path)
    packing.add_argument("--workers", type=int, default=2)
    running = commands.add_parser("run")
    running.add_argument("packed", type=Path)
    running.add_argument("--device", default="cpu")
    running.add_argument("--batch-size", type=int, default=4096)
    running.add_argument("--student", choices=tuple(_WHO), default="no")
    watching = commands.add_parser("watch")
    watching.add_argument("source", type=Path)
    watching.add_argument("out", type=Path)
    watching.add_argument("--workers", type=int, default=2)
    watching.add_argument("--student", choices=tuple(_WHO), default="no")
    for one in (packing, running, watching):
        one.add_argument("--model", choices=NAMES, default="benzene")
        one.add_argument("--json", type=Path, help="file to which the result is added")
    for one in (packing, running):
        one.add_argument("--most", type=int, help="molecules; by default all")
    given = parser.parse_args()
    if given.command == "pack":
        featurizer = card_of(given.model).featurizer
        found = pack(given.source, given.out, featurizer, given.workers, given.most)
        title = f"SMILES to tensors, {given.workers} CPU processes"
    elif given.command == "watch":
        found = watch(given.source, given.out, given.model, given.workers, given.student)
        title = f"{_WHO[given.student]} from SMILES, {given.workers} CPU workers"
    else:
        torch.set_num_threads(1)
        student = given.student == "yes"
        found = run(given.packed, given.model, given.device, given.batch_size, student, given.most)
        title = f"{_WHO[given.student]} from tensors, {found['device']}"
    print(json.dumps(found))
    if given.json:
        kept = json.loads(given.json.read_text()) if given.json.is_file() else {}
        write_json(given.json, {**kept, title: {"model": given.model, **found}})


if __name__ == "__main__":
    main()
