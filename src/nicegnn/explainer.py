"""NICE: fit the gates, explain predictions, save and load."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nicegnn.attribution import boundary_integrated_gradient
from nicegnn.boundary import (
    RISK_FLOOR,
    Boundary,
    corrupted_risk,
    find_boundary,
    optimise_logits,
)
from nicegnn.config import NICEConfig
from nicegnn.errors import GraphError, NotFittedError, StoreError, TargetError
from nicegnn.explanation import Explanation, Flag, Status, concatenate
from nicegnn.fitting import case_of, fit_gates, gate_logits
from nicegnn.gates import GateNetwork
from nicegnn.graphs import graph_list, stackable, to_batch
from nicegnn.judge import FitReport
from nicegnn.mechanisms import get_mechanism
from nicegnn.messages import Mechanism
from nicegnn.nodes import check_index, computation_graphs, spread_over_graph
from nicegnn.progress import progress_bar
from nicegnn.query import Query
from nicegnn.store import fingerprint, load_tensors, save_tensors
from nicegnn.target import Mode, ReturnType, Target

logger = logging.getLogger("nicegnn")


class NICE:
    """Explains a model's predictions by noise corruption, restoration boundary and attribution.

    Without `fit`, `explain` finds the boundary of each graph by itself (slower, training-free).

    Args:
        model: any PyG model; it is never changed.
        config: settings; ``NICEConfig.paper()`` for the paper exactly as written.
        mechanism: what happens to messages, instead of the one named in `config`.
        mode: ``multiclass``, ``binary`` or ``regression``; ``auto`` reads it off the output.
        return_type: ``raw``, ``probs`` or ``log_probs``; ``auto`` recognises probabilities.
        inputs: graph attributes to call the model with, or a callable ``(model, batch)``; by
            default read off the signature of its ``forward``.

    Example:
        >>> from nicegnn.models import GIN
        >>> graph = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> out = NICE(GIN(3, 2)).explain(graph)
        >>> out.bond_index.tolist()
        [[0, 1], [1, 2]]
    """

    def __init__(
        self,
        model: nn.Module,
        config: NICEConfig | None = None,
        *,
        mechanism: Mechanism | None = None,
        mode: Mode = "auto",
        return_type: ReturnType = "auto",
        inputs: Sequence[str] | Callable[[nn.Module, Batch], Tensor] | None = None,
    ) -> None:
        self.config = NICEConfig() if config is None else config
        self.target = Target(model, mode=mode, return_type=return_type, inputs=inputs)
        self.mechanism = (
            get_mechanism(self.config.mechanism, antithetic=self.config.attribution.antithetic)
            if mechanism is None
            else mechanism
        )
        self.gates: GateNetwork | None = None
        self.fit_report: FitReport | None = None

    @property
    def is_fitted(self) -> bool:
        """Whether a gate network was fitted or loaded."""
        return self.gates is not None

    def fit(
        self,
        graphs: Iterable[Any],
        *,
        index: int | Tensor | list[int] | None = None,
        seed: int | None = None,
        progress: bool = True,
        checkpoint: str | Path | None = None,
    ) -> NICE:
        """Fits the gate network on many graphs, by the model's own predictions only.

        Args:
            graphs: list of Data, dataset, loader, or one Data (node tasks).
            index: nodes to fit on, for models that predict nodes of one graph.
            seed: overrides ``config.seed``.
            progress: show a progress bar on stderr.
            checkpoint: file to write now and then, and to resume from if it exists.
        """
        seed = self.config.seed if seed is None else seed
        self.target.level = "graph" if index is None else "node"
        with self.target.frozen():
            units: Sequence[Data]
            if index is None:
                units = stackable(graphs)
            else:
                graph = self._one_graph(graphs)
                units, _ = self._nodes(graph, check_index(index, int(graph.num_nodes)))
            self._check_dtype(units[0])
            self.gates, self.fit_report = fit_gates(
                self.target,
                units,
                self.mechanism,
                self.config,
                seed=seed,
                progress=progress,
                checkpoint=checkpoint,
            )
        if self.fit_report.status != "ok":
            logger.warning("Gates %s: %s", self.fit_report.status, self.fit_report.advice)
        return self

    def explain(
        self,
        graphs: Data | Batch | Sequence[Data],
        *,
        target: int | Tensor | None = None,
        index: int | Tensor | list[int] | None = None,
        seed: int | None = None,
        slot: Tensor | None = None,
        progress: bool = False,
    ) -> Explanation:
        """Explains the prediction for each graph, or for each node of `index`.

        Args:
            graphs: one graph, a batch, or a list (explained in batches).
            target: class (or output) to explain, one or one per graph; by default the predicted.
            index: nodes to explain, for models that predict nodes of one graph; the result then
                has one explanation per node, each over all edges of the graph.
            seed: overrides ``config.seed``; equal seeds give equal results.
            slot: noise coordinate of each directed edge, by default its position in its graph.
            progress: show a progress bar on stderr while a list is explained.
        """
        seed = self.config.seed if seed is None else seed
        self.target.level = "graph" if index is None else "node"
        with self.target.frozen():
            if index is not None:
                return self._explain_nodes(graphs, target, index, seed)
            if isinstance(graphs, Data):  # a Batch is a Data too
                return self._explain_batch(to_batch(graphs), target, seed, slot)
            return self._explain_list(graph_list(graphs), target, seed, progress)

    def save(self, path: str | Path) -> None:
        """Writes the fitted gates, settings and the model's fingerprint to one file."""
        if self.gates is None:
            raise NotFittedError("There are no gates to save: call fit() first.")
        report = self.fit_report
        save_tensors(
            path,
            self.gates.state_dict(),
            {
                "kind": "nice",
                "version": 1,
                "config": self.config.to_dict(),
                "model": fingerprint(self.target.model),
                "mode": self.target.mode,
                "return_type": self.target.return_type,
                "fit": None
                if report is None
                else {k: asdict(v) for k, v in report.classes.items()},
            },
        )

    @classmethod
    def load(
        cls,
        path: str | Path,
        model: nn.Module,
        *,
        mechanism: Mechanism | None = None,
        inputs: Sequence[str] | Callable[[nn.Module, Batch], Tensor] | None = None,
    ) -> NICE:
        """Reads an explainer that was fitted for exactly this model."""
        tensors, description = load_tensors(path, "nice")
        found, expected = fingerprint(model), description["model"]
        if found != expected:
            raise StoreError(
                f"{path} was fitted for a model with fingerprint {expected}, but this model has "
                f"{found}: load the weights it was fitted for, or fit() anew."
            )
        nice = cls(
            model,
            NICEConfig.from_dict(description["config"]),
            mechanism=mechanism,
            mode=description["mode"],
            return_type=description["return_type"],
            inputs=inputs,
        )
        settings = nice.config.boundary
        net = GateNetwork(
            tensors["mean"].numel(), settings.hidden_size, tensors["trained"].numel(), 0.5
        )
        net.to(tensors["mean"].dtype)
        net.load_state_dict(tensors)
        nice.gates = net.to(nice.target.device)
        return nice

    def _explain_list(
        self, graphs: list[Data], target: int | Tensor | None, seed: int, progress: bool
    ) -> Explanation:
        size, parts = self.config.batch_size, []
        with progress_bar("Explaining", len(graphs), shown=progress) as advance:
            for first in range(0, len(graphs), size):
                chosen = target
                if isinstance(target, Tensor) and target.numel() > 1:
                    chosen = target.view(-1)[first : first + size]
                batch = to_batch(graphs[first : first + size])
                parts.append(self._explain_batch(batch, chosen, seed, None))
                advance(min(first + size, len(graphs)), "")
        return concatenate(parts)

    def _explain_batch(
        self, batch: Batch, target: int | Tensor | None, seed: int, slot: Tensor | None
    ) -> Explanation:
        self._check_dtype(batch)
        batch = batch.to(self.target.device)
        case = case_of(batch, self.config, slot)
        query = Query(
            self.target,
            case,
            self.mechanism,
            explained=target,
            chunk_edges=self.config.chunk_edges,
        )
        boundary, fitted = self._boundary(query, seed)
        found = boundary_integrated_gradient(query, boundary.gate, self.config.attribution, seed)
        score = found.score if self.config.score == "big" else boundary.logit
        return Explanation(
            edge_index=batch.edge_index,
            bonds=case.bonds,
            ptr=batch.ptr,
            bond_score=torch.where(case.reached, score, 0.0),
            bond_big=found.score,
            bond_stderr=found.stderr,
            bond_gate=torch.where(case.reached, boundary.gate, 0.0),
            bond_reached=case.reached,
            target=query.explained,
            prediction=query.clean,
            completeness_gap=found.completeness_gap,
            risk_corrupted=found.risk_corrupted,
            risk_boundary=found.risk_boundary,
            restored=boundary.restored,
            status=Status(
                "amortised" if self.is_fitted else "per-graph",
                self._flags(query, boundary, fitted),
                self._notes(query),
            ),
        )

    def _boundary(self, query: Query, seed: int) -> tuple[Boundary, Tensor]:
        """Returns the boundary of each graph and whether the gate network knew its class."""
        settings = self.config.boundary
        reference = corrupted_risk(query, settings, seed)
        if self.gates is None:
            fitted = torch.zeros_like(query.explained, dtype=torch.bool)
        else:
            fitted = self.gates.is_trained_for(query.explained.clamp(min=0))
        if not bool(fitted.all()):
            logit = optimise_logits(query, reference, settings, seed)
        if self.gates is not None:
            with torch.no_grad():
                learned = gate_logits(self.gates, query, self.config)
            known = fitted[query.case.bonds.batch]
            logit = learned if bool(fitted.all()) else torch.where(known, learned, logit)
        return find_boundary(query, logit, settings, seed, reference), fitted

    def _flags(self, query: Query, boundary: Boundary, fitted: Tensor) -> tuple[Flag, ...]:
        settings, case = self.config.boundary, query.case
        edges = torch.bincount(case.edge_batch, minlength=case.num_graphs)
        scale = boundary.risk_corrupted.clamp(min=RISK_FLOOR)
        rows = zip(
            (edges == 0).tolist(),
            (boundary.risk_corrupted < RISK_FLOOR).tolist(),
            (boundary.risk > 2 * settings.risk_target * scale).tolist(),
            (boundary.restored > 0.97).tolist(),
            (~fitted).tolist() if self.is_fitted else [False] * case.num_graphs,
            strict=True,
        )
        flags = []
        for empty, insensitive, left, full, unknown in rows:
            flag = Flag.NO_EDGES if empty else Flag.OK
            if insensitive and not empty:
                flag |= Flag.INSENSITIVE
            if left and not empty:
                flag |= Flag.NOT_RESTORED
            if full and not empty:
                flag |= Flag.ALL_RESTORED
            if unknown and not empty:
                flag |= Flag.UNFITTED_CLASS
            flags.append(flag)
        return tuple(flags)

    def _notes(self, query: Query) -> tuple[str, ...]:
        notes = []
        if not self.is_fitted:
            notes.append("Not fitted: each graph's boundary was found by itself.")
        if any(query.report.clean_loops.values()):
            names = ", ".join(n or "the model" for n in query.report.clean_loops)
            notes.append(f"Self-loops that layers add themselves stayed clean: {names}.")
        if query.report.excluded:
            notes.append(f"Layers left out by explain=False: {', '.join(query.report.excluded)}.")
        return tuple(notes)

    def _explain_nodes(
        self,
        graphs: Any,
        target: int | Tensor | None,
        index: int | Tensor | list[int],
        seed: int,
    ) -> Explanation:
        graph = self._one_graph(graphs)
        nodes = check_index(index, int(graph.num_nodes)).to(self.target.device)
        units, is_local = self._nodes(graph, nodes)
        compact = self._explain_batch(to_batch(units), target, seed, None)
        if not is_local:
            note = "The model reads the whole graph, so whole graphs were corrupted."
            compact = replace(
                compact, status=replace(compact.status, notes=(*compact.status.notes, note))
            )
        return spread_over_graph(compact, units, graph, nodes, self.config.undirected)

    def _nodes(self, graph: Batch, nodes: Tensor) -> tuple[list[Data], bool]:
        return computation_graphs(self.target, graph, nodes)

    def _one_graph(self, graphs: Any) -> Batch:
        if not isinstance(graphs, Data):
            raise TargetError(
                f"`index` explains nodes of one graph; pass one Data (got {type(graphs).__name__})."
            )
        return to_batch(graphs).to(self.target.device)

    def _check_dtype(self, graph: Data) -> None:
        x = graph.get("x")
        parameter = next(self.target.model.parameters(), None)
        if (
            isinstance(x, Tensor)
            and parameter is not None
            and x.is_floating_point()
            and parameter.is_floating_point()
            and x.dtype != parameter.dtype
        ):
            raise GraphError(
                f"`x` has dtype {x.dtype} but the model computes in {parameter.dtype}; convert one "
                "of them."
            )
