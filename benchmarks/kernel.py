"""Times the damage of one bond at a time: kernel, differences, whole graphs.

    python benchmarks/kernel.py --out results/speed/kernel.json      # on a GPU
    python benchmarks/kernel.py --device cpu --graphs 64             # the CPU's kernel
    python benchmarks/kernel.py --dataset benzene                  # the stored target

Random molecules have about 21 atoms and 23 bonds. For every model the answers of all paths are
compared, then each path is timed: ``answers`` is the call that explanations make, on a query that
is ready, ``from graphs`` also builds the query. On a GPU, layouts of the kernel are tried and
listed with their errors, fastest first.
"""

from __future__ import annotations

import argparse
import itertools
import json
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from timing import machine
from torch import Tensor
from torch_geometric.data import Batch, Data

from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention.fused import WORTH, Fused, Fusion, find_fused
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.one_part import damage_each_bond
from nicegnn.intervention.query import Query
from nicegnn.target.frozen_model import Target
from nicegnn.target.zoo import device_of, make_model

PATHS = ("kernel", "difference", "whole")
FEATURES, EDGE_FEATURES = 14, 4
Row = dict[str, Any]


def molecule(seed: int) -> Data:
    """Returns a random molecule: a tree of atoms with a few rings closed."""
    rng = torch.Generator().manual_seed(seed)
    size = int(torch.randint(12, 31, (1,), generator=rng))
    back = [int(torch.randint(1, min(n, 3) + 1, (1,), generator=rng)) for n in range(1, size)]
    pairs = [(n - step, n) for n, step in enumerate(back, start=1)]
    pairs += [(n, n + 5) for n in range(0, size - 5, 7)]
    one_way = torch.tensor(sorted(set(pairs))).t()
    edge_index = torch.stack([one_way, one_way.flip(0)], dim=2).view(2, -1)
    kind = torch.randint(0, FEATURES, (size,), generator=rng)
    order = torch.randint(0, EDGE_FEATURES, (one_way.size(1),), generator=rng)
    return Data(
        x=torch.eye(FEATURES)[kind],
        edge_index=edge_index,
        edge_attr=torch.eye(EDGE_FEATURES)[order.repeat_interleave(2)],
    )


def random_target(name: str, graphs: list[Data], readout: str, **sizes: int) -> torch.nn.Module:
    """Returns an untrained model whose normalisations have seen some graphs."""
    torch.manual_seed(0)
    settings = {"readout": readout, "edge_size": EDGE_FEATURES, **sizes}
    model = make_model(name, FEATURES, 2, **settings).train()
    batch = to_batch(graphs[:64])
    with torch.no_grad():
        for _ in range(20):
            model(batch.x, batch.edge_index, batch.batch, batch.edge_attr)
    return model.eval()


def choose(target: Target, path: str) -> None:
    """Makes a target use one path, or a slower one if that is impossible."""
    weights = target.weights()
    if path == "kernel":
        if target.fusion is not None and target.fusion.reason == "told":
            target.fusion = None
    else:
        target.fusion = Fusion(weights, reason="told")
    told = "told" if path == "whole" else ""
    target.not_followed = {"damage": told, "removal": told}
    target.followed_for = weights if path == "whole" else None


def answers(query: Query, draws: int, *, fresh: bool = False) -> Tensor:
    """Returns all raw answers, ``[N, M, C]``."""
    bonds = query.case.bonds.batch.numel()
    out = query.clean.new_zeros(draws, bonds, query.clean.size(1))
    for some in damage_each_bond(query, draws, 7, fresh=fresh):
        out[some.draw, some.bond] = some.output
    return out


def seconds(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Returns the fastest of several calls, in seconds; the first is not counted."""
    from timing import fastest

    return fastest(call, device, repeats)


def mechanism_of(name: str) -> Any:
    return ElementMask() if name == "em" else NoiseCorruption(3, antithetic=True)


def compare(model: Any, batch: Batch, chunk: int) -> list[Row]:
    """Returns the largest difference of each path's answers from those of whole graphs."""
    rows = []
    for name, fresh in (("em", False), ("nc", False), ("nc", True)):
        found = {}
        for path in PATHS:
            target = Target(model)
            query = Query(target, make_case(batch), mechanism_of(name), chunk_edges=chunk)
            choose(target, path)
            found[path] = answers(query, query.draws(3), fresh=fresh)
            if path == "kernel":
                reason = "none" if target.fusion is None else target.fusion.reason
                ran = isinstance(query.shared.fused, Fused) and not reason
        whole = found["whole"]
        rows.append(
            {
                "mechanism": name,
                "fresh": fresh,
                "kernel_ran": ran,
                "reason": reason,
                "effect": float((whole - whole.mean(1, keepdim=True)).std()),
                **{f"error_{p}": float((found[p] - whole).abs().max()) for p in PATHS[:2]},
            }
        )
    return rows


def rates(model: Any, batch: Batch, chunk: int, draws: tuple[int, ...], repeats: int) -> list[Row]:
    """Times all paths, in graphs per second."""
    rows, device, graphs = [], batch.x.device, int(batch.num_graphs)
    for path, (name, number) in itertools.product(PATHS, [("em", 1), *(("nc", n) for n in draws)]):
        target = Target(model)
        query = Query(target, make_case(batch), mechanism_of(name), chunk_edges=chunk)
        choose(target, path)

        def ready(query: Query = query, number: int = number) -> None:
            for some in damage_each_bond(query, number, 7):
                query.loss_of(some.output, query.case.bonds.batch[some.bond])

        def anew(target: Target = target, name: str = name, number: int = number) -> None:
            case = make_case(batch)
            query = Query(target, case, mechanism_of(name), chunk_edges=chunk)
            for some in damage_each_bond(query, number, 7):
                query.loss_of(some.output, case.bonds.batch[some.bond])

        row = {
            "path": path,
            "mechanism": name,
            "draws": number,
            "answers": graphs / seconds(ready, device, repeats),
            "from_graphs": graphs / seconds(anew, device, repeats),
        }
        fused = query.shared.fused if path == "kernel" else None
        if isinstance(fused, Fused):
            row["kernel_only"] = graphs / seconds(launch(query, fused, number), device, repeats)
        rows.append(row)
        print("   ", {k: round(v) if isinstance(v, float) else v for k, v in row.items()})
    return rows


def launch(query: Query, fused: Fused, draws: int, tuning: Any = None) -> Callable[[], Tensor]:
    """Returns a call that runs the kernel alone, on all bonds."""
    bond = query.case.reached.nonzero().view(-1)
    bond = bond[fused.fits(query, bond)]
    damage = fused.damages(query, bond, draws, 7, torch.zeros_like(bond))
    return lambda: fused.runner.pooled(damage, tuning) if tuning else fused.runner.pooled(damage)


def tune(model: Any, batch: Batch, chunk: int, repeats: int) -> list[Row]:
    """Times layouts of the GPU's kernel; errors are those of pooled states against "ieee"."""
    from nicegnn.kernels.triton_pass import Tuning

    query = Query(Target(model), make_case(batch), mechanism_of("nc"), chunk_edges=chunk)
    fused = find_fused(query, 0)
    if fused is None:
        return []
    expected, rows = launch(query, fused, 16)(), []
    # precision, warps, draws in one program
    tried = [("ieee", w, 4) for w in (1, 2, 4, 8)]
    tried += [(p, w, 4) for p in ("tf32x3", "tf32") for w in (1, 2, 4)]
    tried += [("ieee", 2, d) for d in (1, 2, 8, 16)] + [("tf32x3", 2, d) for d in (1, 16)]
    for precision, warps, draws in tried:
        row: Row = {"precision": precision, "warps": warps, "draws": draws}
        try:
            call = launch(query, fused, 16, Tuning(warps, draws, precision))
            row["error"] = float((call() - expected).abs().max())
            row["graphs_per_s"] = int(batch.num_graphs) / seconds(call, batch.x.device, repeats)
        except Exception as error:  # what a machine cannot compile or hold is part of the result
            row["failed"] = f"{type(error).__name__}: {error}"[:300]
        rows.append(row)
        print("   ", row, flush=True)
    return sorted(rows, key=lambda row: -row.get("graphs_per_s", 0.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=None)
    parser.add_argument("--graphs", type=int, default=1024)
    parser.add_argument("--models", nargs="*", default=["gin", "gcn", "sage", "gine"])
    parser.add_argument("--dataset", help="real graphs and their stored GIN instead")
    parser.add_argument("--draws", type=int, nargs="*", default=[4, 16])
    parser.add_argument("--chunk-edges", type=int, default=8_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--no-tune", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    device = device_of(args.device)
    WORTH[device.type] = 0  # use kernels at once
    result: dict[str, Any] = {"machine": machine(device), "torch": torch.__version__, "runs": []}
    print(result)
    if args.dataset:
        from material import stored

        real = stored(args.dataset, "gin", 8, args.graphs, str(device))
        runs = [(f"{args.dataset} gin", real.model, real.test)]
    else:
        graphs = [molecule(seed) for seed in range(args.graphs)]
        runs = []
        for name in args.models:
            model = random_target(name, graphs, "sum", hidden_size=args.hidden).to(device)
            runs.append((name, model, graphs))
    for title, model, graphs in runs:
        batch = to_batch(list(graphs)).to(device)
        sizes = f"{batch.num_graphs} graphs, {batch.num_nodes} atoms, {batch.num_edges} edges"
        print(f"{title}: {sizes}", flush=True)
        run: dict[str, Any] = {"model": title, "sizes": sizes}
        small = to_batch(list(graphs[:48])).to(device)
        parts = {
            "compared": partial(compare, model, small, args.chunk_edges),
            "rates": partial(rates, model, batch, args.chunk_edges, (*args.draws,), args.repeats),
        }
        if device.type == "cuda" and not args.no_tune and title.split()[-1] == "gin":
            parts["tuned"] = partial(tune, model, batch, args.chunk_edges, args.repeats)
        for key, part in parts.items():
            try:
                run[key] = part()
            except Exception:  # the other parts are still worth having
                run[key] = {"failed": traceback.format_exc()[-2000:]}
            print(f"  {key}: {json.dumps(run[key], indent=1)}", flush=True)
        result["runs"].append(run)
        if args.out:
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(result, indent=1))
    table(result)


def table(result: dict[str, Any]) -> None:
    """Prints rates as Markdown."""
    print("\n| model | mechanism, draws | path | answers, graphs/s | from graphs | kernel only |")
    print("| --- | --- | --- | ---: | ---: | ---: |")
    for run in result["runs"]:
        for row in run["rates"] if isinstance(run["rates"], list) else []:
            cells = [f"{row.get(k, 0):,.0f}" for k in ("answers", "from_graphs", "kernel_only")]
            name = f"{row['mechanism']}, {row['draws']}"
            print(f"| {run['model']} | {name} | {row['path']} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
