"""NICE: fit the gates, explain predictions, save and load."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

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
from nicegnn.errors import NotFittedError
from nicegnn.explainer import Explainer, Inputs, check_fingerprint
from nicegnn.explanation import Explanation, Flag, Status
from nicegnn.fallback import Comparison, compare_mechanisms, noise_fails
from nicegnn.fitting import case_of, fit_gates, gate_logits
from nicegnn.gates import GateNetwork
from nicegnn.judge import FIT_ADVICE, FitReport
from nicegnn.mechanisms import ElementMask, NoiseCorruption, get_mechanism
from nicegnn.messages import Mechanism
from nicegnn.necessity import bond_wise_gradient
from nicegnn.query import Case, Query
from nicegnn.store import fingerprint, load_tensors, save_tensors
from nicegnn.target import Mode, ReturnType

logger = logging.getLogger("nicegnn")


class NICE(Explainer):
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

    name = "nice"
    learns = True
    explain_settings = frozenset({"score", "batch_size", "chunk_edges"})

    def __init__(
        self,
        model: nn.Module,
        config: NICEConfig | None = None,
        *,
        mechanism: Mechanism | None = None,
        mode: Mode = "auto",
        return_type: ReturnType = "auto",
        inputs: Inputs = None,
    ) -> None:
        self.config = NICEConfig() if config is None else config
        super().__init__(model, self.config, mode=mode, return_type=return_type, inputs=inputs)
        self.mechanism: Mechanism = (
            get_mechanism(self.config.mechanism, antithetic=self.config.attribution.antithetic)
            if mechanism is None
            else mechanism
        )
        self.comparison: dict[int, Comparison] = {}
        self._noise: Mechanism | None = None  # what masking stands in for
        self.gates: GateNetwork | None = None
        self.fit_report: FitReport | None = None

    @property
    def is_fitted(self) -> bool:
        """Whether a gate network was fitted or loaded."""
        return self.gates is not None

    @property
    def fell_back(self) -> bool:
        """Whether messages are masked because noise could not judge the model."""
        return self._noise is not None

    def _fit_units(
        self, units: Sequence[Data], seed: int, progress: bool, checkpoint: str | Path | None
    ) -> None:
        self._choose_mechanism(units, seed)
        self.gates, self.fit_report = fit_gates(
            self.target,
            units,
            self.mechanism,
            self.config,
            seed=seed,
            progress=progress,
            checkpoint=checkpoint,
        )
        if self.fit_report.status == "insensitive":
            logger.warning("Gates insensitive: %s", self.fit_report.advice)
        for label, judgement in self.fit_report.classes.items():
            if judgement.status not in ("ok", "insensitive"):
                advice = FIT_ADVICE[judgement.status]
                logger.warning("Gates of class %d %s: %s", label, judgement.status, advice)

    def _choose_mechanism(self, units: Sequence[Data], seed: int) -> None:
        if self._noise is not None:  # of an earlier fit
            self.mechanism, self._noise = self._noise, None
        self.comparison = {}
        if not (self.config.fallback and isinstance(self.mechanism, NoiseCorruption)):
            return
        self.comparison = compare_mechanisms(self.target, units, self.config, seed)
        if not noise_fails(self.comparison):
            return
        self._mask_instead()
        for label, found in self.comparison.items():
            if found.favours_masking:
                logger.warning(
                    "Noise speaks for class %d instead of damaging it: bonds that it ranks best "
                    "keep %.1f %% of the probability, bonds ranked by masking %.1f %%. Messages "
                    "are masked instead; fallback=False keeps to noise.",
                    label,
                    100 * found.nc,
                    100 * found.em,
                )

    def _mask_instead(self) -> None:
        self.mechanism, self._noise = ElementMask(), self.mechanism

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
                "fell_back": self.fell_back,
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
        inputs: Inputs = None,
    ) -> NICE:
        """Reads an explainer that was fitted for exactly this model."""
        tensors, description = load_tensors(path, "nice")
        check_fingerprint(path, model, description["model"])
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
        if mechanism is None and description.get("fell_back", False):
            nice._mask_instead()
        return nice

    def _explain_batch(
        self, batch: Batch, target: int | Tensor | None, seed: int, slot: Tensor | None
    ) -> Explanation:
        case = case_of(batch, self.config, slot)
        query = Query(
            self.target,
            case,
            self.mechanism,
            explained=target,
            chunk_edges=self.config.chunk_edges,
            degradation=self.config.boundary.degradation,
        )
        boundary, fitted = self._boundary(query, seed)
        settings = self.config.attribution
        is_joint = settings.path == "joint"
        if is_joint:
            found = boundary_integrated_gradient(query, boundary.gate, settings, seed)
        else:
            found = bond_wise_gradient(query, settings, seed)
        score = {
            "big": lambda: found.score,
            "gate": lambda: boundary.logit,
            "both": lambda: combine(case, boundary.logit, found.score),
        }[self.config.score]()
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
            risk_corrupted=found.risk_corrupted if is_joint else boundary.risk_corrupted,
            risk_boundary=found.risk_boundary if is_joint else boundary.risk,
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
        if self.fell_back:
            notes.append("Messages were masked: the fit found that noise cannot judge this model.")
        if any(query.report.clean_loops.values()):
            names = ", ".join(n or "the model" for n in query.report.clean_loops)
            notes.append(f"Self-loops that layers add themselves stayed clean: {names}.")
        if query.report.excluded:
            notes.append(f"Layers left out by explain=False: {', '.join(query.report.excluded)}.")
        return tuple(notes)


def combine(case: Case, *values: Tensor) -> Tensor:
    r"""Joins several scores of the same bonds into one in (0, 1), ``[M]``.

    .. math:: s_e = \sigma\Big(\sum_k \frac{v_{ke} - \bar v_k}{\mathrm{std}(v_k)}\Big)

    Symbols: :math:`v_k` -> ``values``, ``[M]`` each; mean and spread are taken over the reached
    bonds of a graph. Each part counts the same whatever its scale; an average bond has 1/2. The
    boundary's order says what suffices to restore the prediction, the attribution what it cannot
    do without; a bond that is both comes first.
    """
    total = torch.zeros_like(values[0])
    for value in values:
        centred = value - case.per_graph_mean(value)[case.bonds.batch]
        spread = case.per_graph_mean(centred.square()).sqrt()[case.bonds.batch]
        total = total + torch.where(spread > 1e-12, centred / spread.clamp(min=1e-12), 0.0)
    return total.sigmoid()
