"""Message scale, message norms and graph embeddings, clean and under EM and NC with true gates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from nicegnn.bench.study_rows import has_part, part_path, write_part
from nicegnn.bench.subject import TARGETS_FOLDER, Subject, subjects
from nicegnn.bench.targets import TARGETS
from nicegnn.errors import ConfigError, StoreError
from nicegnn.graph.case import make_case
from nicegnn.intervention.intervene import Mechanism, Site, intervene
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.scale import edge_gates, scale_profile
from nicegnn.metrics import Truth, selected_graphs
from nicegnn.progress import progress_bar
from nicegnn.seeding import mix
from nicegnn.store import load_tensors, save_tensors
from nicegnn.tables.methods import datasets_in
from nicegnn.tables.study_rows import number, read_one_run
from nicegnn.tables.table import Table
from nicegnn.target.frozen_model import Target
from nicegnn.target.inner_states import capture_readout
from nicegnn.target.training import predict

if TYPE_CHECKING:
    import pandas as pd

EXPERIMENT = "scale_study"
VERSION = 1  # raise it when the same settings give other rows
SETTINGS = ("clean", "em", "nc")
_KIND = "scale-states"


@dataclass(frozen=True)
class States:
    """What happens inside the target on the graphs of one part.

    Attributes:
        norm: norm of each message in each layer by setting, ``[L, E]``.
        embedding: graph representation by setting, ``[B, F]``; one noise draw for NC.
        positions: of the graphs in the test part, ``[B]``.
    """

    norm: dict[str, Tensor]
    embedding: dict[str, Tensor]
    positions: Tensor

    @property
    def num_graphs(self) -> int:
        return int(self.positions.numel())


def compute(
    datasets: Sequence[str],
    *,
    targets: Sequence[str] = tuple(TARGETS),
    seeds: Sequence[int] = (0,),
    out: str | Path,
    device: str | None = None,
    max_graphs: int | None = 200,
    progress: bool = True,
    targets_folder: str | Path = TARGETS_FOLDER,
    num_draws: int = 16,
) -> None:
    """Writes the message scale of every layer and graph; finished parts are skipped.

    Rows: ``setting`` is ``clean``, ``em`` or ``nc``; ``level`` is the graph's position in the test
    part; ``metric`` is ``scale@l``, ``ratio@l`` (to clean) or ``ratio_fixed@l`` (inputs of the
    layer held clean) for layer l from 1. Norms and embeddings lie beside them, see `read_states`.

    Args:
        max_graphs: most graphs of a dataset; only those that the target classifies correctly count.
        seeds: of the noise.
        num_draws: noise draws over which the scale under NC is averaged.
    """
    settings = {"version": VERSION, "num_draws": num_draws}
    total = len(datasets) * len(targets) * len(seeds)
    found = subjects(
        datasets, targets, targets_folder=targets_folder, device=device, max_graphs=max_graphs
    )
    with progress_bar(EXPERIMENT, total, shown=progress) as advance:
        pairs = ((subject, seed) for subject in found for seed in seeds)
        for done, (subject, seed) in enumerate(pairs):
            advance(done, f"{subject.dataset.name} {subject.target} seed {seed}")
            key = subject.key(seed, settings)
            if has_part(out, EXPERIMENT, key):
                continue
            rows, states = measure(subject, num_draws, seed)
            _save(_states_path(out, key), states)  # first, for rows say that a part is finished
            write_part(out, EXPERIMENT, key, rows)
        advance(total, "")


def measure(subject: Subject, num_draws: int, seed: int) -> tuple[list[dict[str, Any]], States]:
    """Returns rows and inner states of the correctly classified graphs of label 1.

    Gates are 1 on the true bonds and 0 elsewhere. Of several alternatives all bonds are true here,
    so that every graph has one configuration.
    """
    test = subject.dataset.test
    predicted = predict(subject.model, test.index_select(subject.positions)).cpu().argmax(1)
    truth = Truth.from_dataset(test, subject.positions)
    correct = selected_graphs(test.y[subject.positions], predicted, truth, "strict")
    positions = subject.positions[correct]
    if positions.numel() == 0:
        raise ConfigError(
            f"The target {subject.target} classifies no graph of {subject.dataset.name} correctly."
        )
    batch = test.batch(positions)
    gate = batch.edge_truth.float()  # [E]
    states = states_under(subject.model, batch, gate, seed)
    return list(_rows(subject, batch, gate, positions, num_draws, seed)), States(
        norm={name: norm for name, (norm, _) in states.items()},
        embedding={name: embedding for name, (_, embedding) in states.items()},
        positions=positions,
    )


def states_under(
    model: nn.Module, batch: Batch, gate: Tensor, seed: int = 0
) -> dict[str, tuple[Tensor, Tensor]]:
    """Returns message norms ``[L, E]`` and graph representations ``[B, F]``, clean, under EM, NC.

    Args:
        gate: one per directed edge, ``[E]``.
    """
    target = Target(model, mode="regression")  # the output itself is not read
    batch = batch.to(target.device)
    case = make_case(batch)
    rho = edge_gates(gate.to(target.device), case)
    ways: dict[str, tuple[Mechanism, Tensor]] = {
        "clean": (ElementMask(), torch.ones_like(rho)),
        "em": (ElementMask(), rho),
        "nc": (NoiseCorruption(seed), rho),
    }
    found = {}
    with (
        target.frozen(),
        torch.no_grad(),
        capture_readout(model, case.num_graphs) as readout,
    ):
        for name, (mechanism, gates) in ways.items():
            recorder = _Recorder(mechanism)
            with intervene(
                model,
                recorder,
                gates,
                edge_index=batch.edge_index,
                slot=case.slot,
                stream=mix(seed, EXPERIMENT),
            ):
                target.call(batch)
            found[name] = torch.stack(recorder.norms).cpu(), readout.value.cpu()
    return found


class _Recorder:
    """Passes messages through a mechanism and keeps their norms, ``[E]`` for each layer."""

    def __init__(self, mechanism: Mechanism) -> None:
        self.mechanism = mechanism
        self.norms: list[Tensor] = []

    def __call__(self, message: Tensor, gate: Tensor, site: Site) -> Tensor:
        out = self.mechanism(message, gate, site)
        self.norms.append(torch.linalg.vector_norm(out, dim=1))
        return out


def _rows(
    subject: Subject, batch: Batch, gate: Tensor, positions: Tensor, num_draws: int, seed: int
) -> Iterator[dict[str, Any]]:
    profile = scale_profile(subject.model, batch, gate, num_draws=num_draws, seed=seed)
    ratio = {"em": profile.em_propagated, "nc": profile.nc_propagated}
    values = {("clean", "scale"): profile.clean}
    for name, value in ratio.items():
        values[name, "scale"] = torch.where(value.isnan(), 0.0, value) * profile.clean
        values[name, "ratio"] = value
        values[name, "ratio_fixed"] = getattr(profile, f"{name}_fixed")
    for (setting, metric), value in values.items():
        for layer, row in enumerate(value.tolist(), start=1):  # [B] each
            for place, one in zip(positions.tolist(), row, strict=True):
                yield subject.row(setting, f"{metric}@{layer}", one, seed=seed, level=place)


def read_scales(out: str | Path, metric: str = "scale") -> pd.DataFrame:
    """Returns one row per dataset, target, setting, layer and graph.

    Args:
        metric: ``scale``, ``ratio`` or ``ratio_fixed``.
    """
    rows = read_one_run(out, EXPERIMENT)
    parts = rows["metric"].str.partition("@")
    rows = rows.assign(layer=parts[2].astype(int), graph=rows["level"].astype(int))
    rows = rows[parts[0] == metric]
    return rows[["dataset", "target", "setting", "seed", "layer", "graph", "value"]]


def read_states(out: str | Path, dataset: str, target: str, seed: int = 0) -> States:
    """Returns norms and embeddings of one part."""
    folder = Path(out) / EXPERIMENT
    files = sorted(folder.glob(f"{dataset}-{target}-{seed}-*.safetensors"))
    if len(files) != 1:
        raise StoreError(
            f"Expected one file of norms and embeddings of {target} on {dataset} with seed {seed} "
            f"in {folder} (got {len(files)}); compute them with `nicegnn experiment {EXPERIMENT}`, "
            "or delete those you do not want."
        )
    tensors, _ = load_tensors(files[0], _KIND)
    return States(
        norm={name: tensors[f"{name}/norm"].float() for name in SETTINGS},
        embedding={name: tensors[f"{name}/embedding"] for name in SETTINGS},
        positions=tensors["positions"],
    )


def table(out: str | Path) -> Table:
    """Returns the message scale under EM and NC over the clean one, layer by layer."""
    rows = read_scales(out, "ratio")
    layers = sorted(rows["layer"].unique())
    means = rows.groupby(["dataset", "target", "setting", "layer"])["value"].mean()
    last = rows[rows["layer"] == layers[-1]]
    last = last.assign(value=last["value"].map(lambda ratio: abs(math.log10(max(ratio, 1e-30)))))
    distance = last.groupby(["dataset", "target", "setting"])["value"].median()
    lines = []
    for dataset in datasets_in(rows):
        here = rows[rows["dataset"] == dataset]
        for target in targets_in(here):
            num = here[here["target"] == target]["graph"].nunique()
            cells = [
                number(float(means.get((dataset, target, setting, layer), torch.nan)))
                for setting in ("em", "nc")
                for layer in layers
            ]
            far = [
                number(float(distance.get((dataset, target, setting), torch.nan)))
                for setting in ("em", "nc")
            ]
            lines.append([dataset, target, str(num), *cells, *far])
    heads = [f"{name} {layer}" for name in ("EM", "NC") for layer in layers]
    return Table(
        name=EXPERIMENT,
        title="Message scale over clean scale by layer, gates open on the true bonds",
        columns=["dataset", "target", "graphs", *heads, "EM off", "NC off"],
        rows=lines,
        notes=[
            "Mean over correctly classified test graphs of label 1 of the mean squared message "
            "norm of a layer over its clean value; 1 is no drift. The perturbation runs through "
            "all layers. Off is the median of the absolute decimal logarithm of the last layer's "
            "ratio, 0 being clean: it counts growth and shrinkage alike."
        ],
    )


def targets_in(rows: pd.DataFrame) -> list[str]:
    """Returns the targets that rows hold, in the order of `TARGETS`."""
    found = {str(name) for name in rows["target"].unique()}
    return [name for name in TARGETS if name in found] + sorted(found - set(TARGETS))


def _states_path(out: str | Path, key: str) -> Path:
    return part_path(out, EXPERIMENT, key).with_suffix(".safetensors")


def _save(path: Path, states: States) -> None:
    tensors = {"positions": states.positions}
    for name in SETTINGS:
        tensors[f"{name}/norm"] = states.norm[name].bfloat16()  # three digits fill a histogram
        tensors[f"{name}/embedding"] = states.embedding[name]
    save_tensors(path, tensors, {"kind": _KIND})
