"""Scale Drift of a model on graphs: the table of ``nicegnn lab diagnose``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from nicegnn.boundary.fit_report import shuffle_within_graphs
from nicegnn.errors import ConfigError, GraphError
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import make_case
from nicegnn.intervention.background import record_background
from nicegnn.screening.loading import import_named
from nicegnn.target.frozen_model import Target
from nicegnn.target.training import TrainConfig, train_classifier
from nicegnn.target.zoo import MODELS, make_model
from nicegnn_lab.metrics.scale import perturbation_distances, scale_profile
from nicegnn_lab.studies.mechanisms import DAMAGES, damages_of

if TYPE_CHECKING:
    from rich.console import Console


_TITLES = {"em": "EM", "nc": "NC", "exchange": "exchange"}


@dataclass(frozen=True)
class Diagnosis:
    """Means over graphs; lists have one entry per message-passing layer."""

    model: str
    num_graphs: int
    gate: str
    layers: list[str]
    clean_scale: list[float]
    em_fixed: list[float]
    em_propagated: list[float]
    nc_fixed: list[float]
    nc_propagated: list[float]
    exchange_fixed: list[float]
    exchange_propagated: list[float]
    em_log_drift: list[float]
    em_log_drift_fixed: list[float]
    drift_bound: float
    clean_loops: dict[str, int]
    representation_distance: dict[str, float]
    prediction_degradation: dict[str, float]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def diagnose_model(
    model: nn.Module,
    graphs: Sequence[Data],
    *,
    gate: str = "0.5",
    num_draws: int = 50,
    seed: int = 0,
) -> Diagnosis:
    """Measures scale, drift and distances of EM, NC and exchange with the same gates.

    Exchange takes its messages from the graphs themselves.

    Args:
        gate: of all edges, or ``truth`` for 1 on ``edge_truth`` and 0 elsewhere, or ``random`` for
            as many random bonds of each graph; the last two skip graphs without true edges.
    """
    chosen, rho = _gates(graphs, gate, seed)
    sample = record_background(Target(model, mode="regression"), chosen).sample
    given: dict[str, Any] = {"num_draws": num_draws, "seed": seed}
    profile = scale_profile(model, chosen, rho, exchange=sample, **given)
    moved = {
        name: perturbation_distances(model, chosen, rho, mechanism, **given)
        for name, mechanism in damages_of(sample, "propagated", seed).items()
    }
    ratios = [f"{name}_{way}" for name in DAMAGES for way in ("fixed", "propagated")]
    return Diagnosis(
        model=type(model).__name__,
        num_graphs=len(chosen),
        gate=gate,
        layers=profile.layers,
        clean_scale=profile.clean.mean(1).tolist(),
        **{name: getattr(profile, name).nanmean(1).tolist() for name in ratios},
        em_log_drift=profile.log_drift("em_propagated").nanmean(1).tolist(),
        em_log_drift_fixed=profile.log_drift("em_fixed").nanmean(1).tolist(),
        drift_bound=float(profile.drift_bound.mean()),
        clean_loops=profile.clean_loops,
        representation_distance={k: float(v.representation.mean()) for k, v in moved.items()},
        prediction_degradation={k: float(v.prediction.mean()) for k, v in moved.items()},
    )


def show_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Prints a diagnosis as tables."""
    from rich.table import Table

    title = f"Message scale of {diagnosis.model}, {diagnosis.num_graphs} graphs, gates: "
    table = Table(title=title + diagnosis.gate)
    table.add_column("layer")
    columns = {"clean scale": diagnosis.clean_scale}
    for name in DAMAGES:
        columns[f"{_TITLES[name]} fixed"] = getattr(diagnosis, f"{name}_fixed")
        columns[_TITLES[name]] = getattr(diagnosis, f"{name}_propagated")
    columns["EM log-drift"] = diagnosis.em_log_drift
    for heading in columns:
        table.add_column(heading, justify="right")
    for layer, *row in zip(diagnosis.layers, *columns.values(), strict=True):
        table.add_row(layer or "(model)", *(f"{value:.3f}" for value in row))
    console.print(table)
    console.print(
        "Ratios are perturbed over clean scale: 1 is no drift. 'fixed' keeps each layer's inputs "
        f"clean (Theorem 1). Corollary: the fixed drift {diagnosis.em_log_drift_fixed[-1]:.3f} is "
        f"at least {diagnosis.drift_bound:.3f}."
    )
    for name in DAMAGES:
        console.print(
            f"{_TITLES[name]}: representation moves by "
            f"{diagnosis.representation_distance[name]:.3f}, log-probability falls by "
            f"{diagnosis.prediction_degradation[name]:.3f}"
        )
    if any(diagnosis.clean_loops.values()):
        console.print("Self-loops that layers add themselves stay clean and are not counted.")


def load_graphs(path: Path | None, task: str, num: int, seed: int) -> list[Data]:
    """Reads a list of graphs from a file, or generates labelled molecules."""
    if path is None:
        from nicegnn_lab.datasets.generator import generate_dataset

        return generate_dataset(task, num, seed=seed)
    kinds = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
    try:
        with torch.serialization.safe_globals(kinds):  # tensors and graphs, no other objects
            graphs = torch.load(path, weights_only=True)
    except Exception as error:
        raise GraphError(
            f"Cannot read graphs from {path} ({type(error).__name__}: {error}). Write them with "
            "torch.save([data, ...], path)."
        ) from error
    graphs = [graphs] if isinstance(graphs, Data) else graphs
    if not isinstance(graphs, list | tuple) or not all(isinstance(g, Data) for g in graphs):
        raise GraphError(f"{path} must hold a list of torch_geometric Data.")
    return list(graphs)


def load_model(name: str, graphs: Sequence[Data], seed: int) -> nn.Module:
    """Trains a reference model on the graphs' labels, or calls the user's function."""
    if name in MODELS:
        return _train(name, graphs, seed)
    if ":" not in name:
        raise ConfigError(
            f"`model` must be one of {tuple(MODELS)} or package.module:function (got {name!r})."
        )
    made = import_named("model", name)()
    if not isinstance(made, nn.Module):
        raise ConfigError(f"{name!r} must return a torch model (got {type(made).__name__}).")
    return made


def _train(name: str, graphs: Sequence[Data], seed: int) -> nn.Module:
    first = graphs[0]
    if first.get("y") is None:
        raise GraphError("`y` must be a label of each graph, to train a model on (got None).")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        edge_size = 0 if first.get("edge_attr") is None else first.edge_attr.size(1)
        classes = int(max(int(graph.y.max()) for graph in graphs)) + 1
        model = make_model(name, first.x.size(1), classes, edge_size=edge_size)
    cut = max(1, int(0.8 * len(graphs)))
    config = TrainConfig(batch_size=64, epochs=30, patience=5, stop_after=15, seed=seed)
    train_classifier(model, graphs[:cut], graphs[cut:] or graphs, config)
    return model


def _gates(graphs: Sequence[Data], gate: str, seed: int) -> tuple[list[Data], Tensor | float]:
    if gate not in ("truth", "random"):
        try:
            value = float(gate)
        except ValueError:
            raise ConfigError(
                f"`gate` must be 'truth', 'random' or a number in [0, 1] (got {gate!r})."
            ) from None
        return list(graphs), value
    if any(graph.get("edge_truth") is None for graph in graphs):
        raise GraphError(f"gate='{gate}' needs `edge_truth` on all graphs. Give a number instead.")
    chosen = [graph for graph in graphs if bool(graph.edge_truth.any())]
    if not chosen:
        raise GraphError(f"gate='{gate}' needs at least one graph with true edges.")
    truth = torch.cat([graph.edge_truth for graph in chosen]).float()
    if gate == "truth":
        return chosen, truth
    case = make_case(to_batch(chosen))
    bond_truth = case.bonds.mean(truth)
    return chosen, shuffle_within_graphs(bond_truth, case, seed)[case.bonds.edge_bond]
