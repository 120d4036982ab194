"""Message scale, message norms and graph embeddings, clean and under EM and NC with true gates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from nicegnn.bench.job import Job
from nicegnn.bench.packing import STATES_KIND, load_states
from nicegnn.bench.rows import Block
from nicegnn.bench.study import Study, Variant
from nicegnn.bench.targets import TARGETS
from nicegnn.bench.task import Task
from nicegnn.errors import StoreError
from nicegnn.graph.case import make_case
from nicegnn.intervention.intervene import Mechanism, Site, intervene
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.scale import edge_gates, scale_profile
from nicegnn.seeding import mix
from nicegnn.store import save_tensors
from nicegnn.studies.bond_scores import explained_batch
from nicegnn.studies.mechanisms import right_positions
from nicegnn.target.frozen_model import Target
from nicegnn.target.inner_states import capture_readout

SETTINGS = ("clean", "em", "nc")
_NOISE = "scale_study"  # addresses the noise; another word would give other states


@dataclass(frozen=True)
class ScaleStudy(Study):
    """Message scale of every layer, with gates open on the true bonds.

    Of several true alternatives all bonds are true here, so that every graph has one configuration.
    Rows of each graph that the target gets right: ``setting`` is ``clean``, ``em`` or ``nc``,
    ``level`` the layer from 1, ``metric`` is ``scale``, ``ratio`` (to clean) or ``ratio_fixed``
    (inputs of the layer held clean). Norms and embeddings lie beside the rows, see `read_states`.

    Attributes:
        num_draws: noise draws over which the scale under NC is averaged.
    """

    name = "scale"
    title = "Message scale under EM and NC"
    max_graphs = 200
    targets = tuple(TARGETS)

    num_draws: int = 16

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        yield Variant(extra={"num_draws": self.num_draws})

    def measure(self, job: Job) -> Iterator[Block]:
        positions, _ = right_positions(job)
        batch = explained_batch(job, positions)
        gate = batch.edge_truth.float()  # [E]
        under = states_under(job.model, batch, gate, job.seed)
        states = States(
            norm={name: norm for name, (norm, _) in under.items()},
            embedding={name: embedding for name, (_, embedding) in under.items()},
            positions=positions,
        )
        states.save(job.folder.states(_name(job.task.name, job.target, job.seed)))
        profile = scale_profile(job.model, batch, gate, num_draws=self.num_draws, seed=job.seed)
        ratio = {"em": profile.em_propagated, "nc": profile.nc_propagated}
        values = {("clean", "scale"): profile.clean}
        for name, value in ratio.items():
            values[name, "scale"] = torch.where(value.isnan(), 0.0, value) * profile.clean
            values[name, "ratio"] = value
            values[name, "ratio_fixed"] = getattr(profile, f"{name}_fixed")
        for (setting, metric), value in values.items():
            for layer, row in enumerate(value, start=1):  # [B] each
                yield Block(metric, row, graph=positions, setting=setting, level=float(layer))


@dataclass(frozen=True)
class States:
    """What happens inside the target on the graphs of one cell.

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

    def save(self, path: Path) -> None:
        """Writes the states; norms with three digits, which fill a histogram."""
        tensors = {"positions": self.positions}
        for name in SETTINGS:
            tensors[f"{name}/norm"] = self.norm[name].bfloat16()
            tensors[f"{name}/embedding"] = self.embedding[name]
        save_tensors(path, tensors, {"kind": STATES_KIND})


def read_states(studies: str | Path, dataset: str, target: str, seed: int = 0) -> States:
    """Returns norms and embeddings of one cell.

    Args:
        studies: folder of all studies.
    """
    folder = Path(studies) / ScaleStudy.name
    try:
        tensors = load_states(folder, _name(dataset, target, seed))
    except StoreError as error:
        raise StoreError(
            f"There are no norms and embeddings of {target} on {dataset} with seed {seed} in "
            f"{folder}; compute them with `nicegnn experiment {ScaleStudy.name}`."
        ) from error
    return States(
        norm={name: tensors[f"{name}/norm"].float() for name in SETTINGS},
        embedding={name: tensors[f"{name}/embedding"] for name in SETTINGS},
        positions=tensors["positions"],
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
                stream=mix(seed, _NOISE),
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


def _name(dataset: str, target: str, seed: int) -> str:
    return f"{dataset}-{target}-{seed}"
