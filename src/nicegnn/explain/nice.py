"""NICE: fit the gates, explain predictions, save and load."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nicegnn.attribution.atom_by_atom import atom_wise_loss
from nicegnn.attribution.bond_by_bond import bond_wise_gradient, removal_loss
from nicegnn.attribution.joint_path import Attribution, boundary_integrated_gradient
from nicegnn.boundary.fit import fit_gates
from nicegnn.boundary.fit_report import FIT_ADVICE, FitReport
from nicegnn.boundary.gate_network import GateNetwork
from nicegnn.boundary.objective import (
    RISK_FLOOR,
    Boundary,
    corrupted_risk,
    find_boundary,
    no_boundary,
)
from nicegnn.config import NICEConfig
from nicegnn.errors import ConfigError, NotFittedError
from nicegnn.explain.explainer import Explainer, check_fingerprint, mechanism_name
from nicegnn.explain.explanation import Explanation, Flag, Status, smiles_of
from nicegnn.explain.score_parts import (
    Comparison,
    View,
    combine,
    combine_atoms,
    compare_mechanisms,
    make_views,
    noise_fails,
)
from nicegnn.explain.trust import Part, Trust, judge_scores
from nicegnn.graph.case import make_case
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.one_bond import can_remove
from nicegnn.intervention.query import Query
from nicegnn.store import load_tensors, save_tensors
from nicegnn.target.frozen_model import Inputs, Mode, ReturnType, fingerprint

_ONLY_MESSAGES = (
    "Of atoms, only the messages that they send were damaged: the model reads neither a floating "
    "point `x` nor an nn.Embedding of whole numbers."
)

logger = logging.getLogger("nicegnn")


class NICE(Explainer):
    """Explains a model's predictions by noise corruption, restoration boundary and attribution.

    By default there are two views: noise corrupts messages in one, the other masks them. Scores
    join both; the boundary, its risk and ``bond_big`` are those of noise. Without `fit`, `explain`
    optimises the boundary of each graph on that graph alone, which is slower.

    ``NICEConfig.paper()`` is the paper's method. A ``mechanism`` that is passed becomes the only
    view; a name (``nc``, ``em`` or ``both``) replaces that of the configuration.

    Example:
        >>> from nicegnn.target.zoo import GIN
        >>> graph = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> out = NICE(GIN(3, 2)).explain(graph)
        >>> out.bond_index.tolist()
        [[0, 1], [1, 2]]
    """

    config: NICEConfig
    name = "nice"
    learns = True
    explain_settings = frozenset(
        {
            *("score", "boundary.risk_target"),
            *("boundary.graph_learning_rate", "boundary.graph_steps"),
            *("attribution.path", "attribution.anchor", "attribution.context"),
            *("attribution.num_draws", "attribution.draws", "attribution.num_nodes"),
            *("attribution.quadrature", "attribution.take_out"),
        }
    )

    def __init__(
        self,
        model: nn.Module,
        config: NICEConfig | None = None,
        *,
        mechanism: str | Mechanism | None = None,
        mode: Mode = "auto",
        return_type: ReturnType = "auto",
        inputs: Inputs = None,
        batched: bool | None = None,
    ) -> None:
        config = NICEConfig() if config is None else checked_config(config)
        if isinstance(mechanism, str):
            config, mechanism = config.with_(mechanism=mechanism), None
        reading: dict[str, Any] = {"mode": mode, "return_type": return_type, "inputs": inputs}
        super().__init__(model, config, **reading, batched=batched)
        self.views = make_views(config) if mechanism is None else [View(mechanism, mechanism)]
        self._mechanism_name = None if mechanism is None else mechanism_name(mechanism)
        self._aside: list[View] = []  # views that `fit` replaced by masking
        self.comparison: dict[int, Comparison] = {}
        self.fit_report: FitReport | None = None
        self._scores_atoms, self._tells_trust = False, True

    @property
    def mechanism(self) -> Mechanism:
        """Mechanism of the first view."""
        return self.views[0].mechanism

    @property
    def gates(self) -> GateNetwork | None:
        """Gates of the first view."""
        return self.views[0].gates

    @property
    def is_fitted(self) -> bool:
        """Whether a gate network was fitted or loaded."""
        return self.gates is not None

    def _learned(self) -> list[nn.Module]:
        return [view.gates for view in self.views if view.gates is not None]

    @property
    def fell_back(self) -> bool:
        """Whether `fit` replaced noise by masking."""
        return bool(self._aside)

    def fit_settings(self) -> dict[str, Any]:
        """Returns the settings that `fit` reads, with the name of a mechanism that was passed."""
        settings = super().fit_settings()
        if self._mechanism_name is not None:
            settings["mechanism"] = self._mechanism_name
        return settings

    def _fit_units(
        self, units: Sequence[Data], seed: int, progress: bool, checkpoint: str | Path | None
    ) -> None:
        self._choose_views(units, seed)
        nets, self.fit_report = fit_gates(
            self.target,
            units,
            [view.boundary_mechanism for view in self.views],
            self.config,
            fit_settings=self.fit_settings(),
            seed=seed,
            progress=progress,
            checkpoint=checkpoint,
        )
        self.views = [replace(view, gates=net) for view, net in zip(self.views, nets, strict=True)]
        if self.fit_report.status == "insensitive":
            logger.warning("Gates are insensitive: %s", self.fit_report.advice)
        for view, classes in zip(self.views, self.fit_report.views, strict=True):
            for label, judgement in classes.items():
                status = judgement.status
                if status not in ("ok", "insensitive"):
                    found = label, status, view.boundary_mechanism, FIT_ADVICE[status]
                    logger.warning("Gates of class %d are %s under %r: %s", *found)

    def _choose_views(self, units: Sequence[Data], seed: int) -> None:
        if self._aside:  # by an earlier fit
            self.views, self._aside = self._aside, []
        self.comparison = {}
        if not (self.config.fallback and isinstance(self.mechanism, NoiseCorruption)):
            return
        self.comparison = compare_mechanisms(self.target, units, self.config, seed)
        if not noise_fails(self.comparison):
            return
        self._mask_instead()
        for label, found in self.comparison.items():
            if found.favours_masking:
                words = (
                    "Noise raises the probability of class %d instead of lowering it. The bonds "
                    "that noise ranks best keep %.1f %% of the probability, those that masking "
                    "ranks best %.1f %%. Messages are only masked; fallback=False keeps noise."
                )
                logger.warning(words, label, 100 * found.nc, 100 * found.em)

    def _mask_instead(self) -> None:
        self.views, self._aside = make_views(self.config.with_(mechanism="em")), self.views

    def save(self, path: str | Path) -> None:
        """Writes the fitted gates, the settings and the model's fingerprint to one file."""
        if self.gates is None:
            raise NotFittedError("There are no gates to save: call fit() first.")
        self._check_model()
        report = [
            {label: asdict(judgement) for label, judgement in view.items()}
            for view in (self.fit_report.views if self.fit_report else ())
        ]
        tensors: dict[str, Tensor] = {}
        for number, view in enumerate(self.views):
            weights = {} if view.gates is None else view.gates.state_dict()
            tensors |= {f"{number}.{key}": value for key, value in weights.items()}
        description = {
            "kind": "nice",
            "version": 2,
            "config": self.config.to_dict(),
            "model": fingerprint(self.target.model),
            "mode": self.target.mode,
            "return_type": self.target.return_type,
            "label": self.target.label,
            "fell_back": self.fell_back,
            "fit": report or None,
        }
        save_tensors(path, tensors, description)

    @classmethod
    def load(
        cls,
        path: str | Path,
        model: nn.Module,
        *,
        mechanism: Mechanism | None = None,
        inputs: Inputs = None,
        batched: bool | None = None,
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
            batched=batched,
        )
        nice.target.label = description.get("label")
        if mechanism is None and description.get("fell_back", False):
            nice._mask_instead()
        if description["version"] == 1:  # one view, whose names have no number
            tensors = {f"0.{key}": value for key, value in tensors.items()}
        for number, view in enumerate(nice.views):
            own = {k.partition(".")[2]: v for k, v in tensors.items() if k.startswith(f"{number}.")}
            settings = nice.config.boundary
            sizes = own["mean"].numel(), settings.hidden_size, own["trained"].numel()
            net = GateNetwork(*sizes, 0.5, is_standardised=settings.standardise)
            net.to(own["mean"].dtype)
            net.load_state_dict(own)
            view.gates = net.to(nice.target.device)
        nice._fitted_for = description["model"]
        return nice

    def explain(
        self,
        graphs: Data | Batch | str | Sequence[Data] | Sequence[str],
        *,
        target: int | Tensor | None = None,
        index: int | Tensor | list[int] | None = None,
        seed: int | None = None,
        slot: Tensor | None = None,
        progress: bool = False,
        atoms: bool = False,
        trust: bool = True,
    ) -> Explanation:
        """Explains predictions as every explainer does, see `Explainer.explain`.

        With ``atoms=True`` atoms are scored too: ``atom_score``, ``atom_loss`` and ``atom_stderr``
        of the result (see `atom_wise_loss`). This takes one and a half to two times as long.

        Without ``trust=False``, ``trust`` of the result says how far to trust the scores of each
        graph, and some of its flags come from there (see `Trust`). It needs ``path="bond"``: along
        a joint path there is none.
        """
        asked = copy.copy(self)  # threads may ask one explainer for different things
        asked._scores_atoms, asked._tells_trust = atoms, trust
        given: dict[str, Any] = {"target": target, "index": index, "seed": seed, "slot": slot}
        return Explainer.explain(asked, graphs, **given, progress=progress)

    def _explain_batch(
        self, batch: Batch, target: int | Tensor | None, seed: int, slot: Tensor | None
    ) -> Explanation:
        case = make_case(batch, undirected=self.config.undirected, slot=slot)
        query = Query(
            self.target,
            case,
            self.mechanism,
            explained=target,
            chunk_edges=self.config.chunk_edges,
            degradation=self.config.boundary.degradation,
        )
        is_joint = self.config.attribution.path == "joint"
        boundary = self._boundary(self.views[0], query, seed)
        found = self._attribution(query, boundary.gate, seed)
        orders, losses = [Part(boundary.logit)], [Part(found.score, found.stderr)]
        for view in self.views[1:]:
            seen, gate = query.under(view.mechanism), boundary.gate
            if is_joint:
                own = self._boundary(view, seen, seed)
                gate = own.gate
                orders.append(Part(own.logit))
            elif self.config.needs_boundary:  # only its order
                damaged = seen.under(view.boundary_mechanism)
                orders.append(Part(view.order(damaged, self.config, seed)))
            other = self._attribution(seen, gate, seed)
            losses.append(Part(other.score, other.stderr))
        only_masked = self._takes_out and not can_remove(query)
        if self._takes_out and not only_masked:
            losses += [
                Part(removal_loss(query, self.config.attribution.degradation, loss.value))
                for view, loss in zip(self.views, losses, strict=True)
                if isinstance(view.mechanism, ElementMask)
            ]
        parts = {"big": losses, "gate": orders, "both": orders + losses}[self.config.score]
        values = [part.value for part in parts]
        score = values[0] if len(values) == 1 else combine(case, *values)
        trust = None
        if self._tells_trust and not is_joint:
            seen_by = [query.under(view.mechanism) for view in self.views]
            trust = judge_scores(seen_by, score, parts, seed)
        atoms = self._atoms(query, seed) if self._scores_atoms else {}
        notes = self._notes(query, only_masked)
        if atoms and not atoms.pop("reached"):
            notes += (_ONLY_MESSAGES,)
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
            status=Status(self._how, self._flags(query, boundary, trust), notes),
            smiles=smiles_of(batch),
            trust=trust,
            **atoms,
        )

    def _atoms(self, query: Query, seed: int) -> dict[str, Any]:
        """Returns scores of atoms, and whether their features could be damaged."""
        found = [
            atom_wise_loss(query.under(view.mechanism), self.config.attribution, seed)
            for view in self.views
        ]
        losses, first = [one.score for one in found], found[0]
        joined = combine_atoms(query.case.batch, *losses) if len(losses) > 1 else first.score
        return {
            "atom_score": joined,
            "atom_loss": first.score,
            "atom_stderr": first.stderr,
            "reached": all(one.reaches_features for one in found),
        }

    def _boundary(self, view: View, query: Query, seed: int) -> Boundary:
        settings, query = self.config.boundary, query.under(view.boundary_mechanism)
        reference = corrupted_risk(query, settings, seed)
        if not (self.config.needs_boundary or self.is_fitted):
            return no_boundary(query, reference)
        order = view.order(query, self.config, seed, reference)
        return find_boundary(query, order, settings, seed, reference)

    def _attribution(self, query: Query, gate: Tensor, seed: int) -> Attribution:
        settings = self.config.attribution
        if settings.path == "joint":
            return boundary_integrated_gradient(query, gate, settings, seed)
        return bond_wise_gradient(query, settings, seed)

    @property
    def _how(self) -> str:
        """How the boundary was found."""
        if self.is_fitted:
            return "amortised"
        return "per-graph" if self.config.needs_boundary else "none"

    @property
    def _takes_out(self) -> bool:
        """Whether the settings also take bonds out of the graph."""
        settings = self.config.attribution
        is_masked = any(isinstance(view.mechanism, ElementMask) for view in self.views)
        wanted = settings.take_out and settings.path == "bond" and self.config.score != "gate"
        return wanted and is_masked

    def _flags(
        self, query: Query, boundary: Boundary, trust: Trust | None = None
    ) -> tuple[Flag, ...]:
        settings, case = self.config.boundary, query.case
        known = self.views[0].knows(query)
        edges = torch.bincount(case.edge_batch, minlength=case.num_graphs)
        scale = boundary.risk_corrupted.clamp(min=RISK_FLOOR)
        noticed = {
            Flag.INSENSITIVE: boundary.risk_corrupted < RISK_FLOOR,
            Flag.NOT_RESTORED: boundary.risk > 2 * settings.risk_target * scale,
            Flag.ALL_RESTORED: boundary.restored > 0.97,
            Flag.UNFITTED_CLASS: ~known & self.is_fitted,
        }
        total = torch.zeros_like(edges)
        for flag, is_so in noticed.items():
            total += int(flag) * is_so
        if trust is not None:
            total += torch.tensor([int(flag) for flag in trust.flags], device=total.device)
        flags = torch.where(edges == 0, int(Flag.NO_EDGES), total)
        return tuple(Flag(flag) for flag in flags.tolist())

    def _notes(self, query: Query, only_masked: bool) -> tuple[str, ...]:
        notes = []
        if self._how == "per-graph":
            notes.append("Not fitted: each boundary was optimised on its own graph alone.")
        if self.fell_back:
            notes.append("Messages were only masked: the fit found that noise ranks bonds worse.")
        if any(query.report.clean_loops.values()):
            names = ", ".join(n or "the model" for n in query.report.clean_loops)
            notes.append(f"Self-loops that layers add themselves stayed clean: {names}.")
        if only_masked:
            notes.append(
                "Bonds were only masked, not taken out of the graph: the model may read attributes "
                "that belong to no node, edge or graph. Name what it reads with inputs=[...]."
            )
        if query.report.excluded:
            notes.append(f"Layers left out by explain=False: {', '.join(query.report.excluded)}.")
        return tuple(notes)


def checked_config(config: object) -> NICEConfig:
    """Returns a configuration; raises `ConfigError` for a name, a dict or something else."""
    if isinstance(config, NICEConfig):
        return config
    advice = "NICEConfig().with_(...)"
    if isinstance(config, str) and config in ("paper", "quick", "instant"):
        advice = f"NICEConfig.{config}()"
    elif isinstance(config, str | Path):
        advice = "NICEConfig.from_toml(path)"
    elif isinstance(config, dict):
        advice = "NICEConfig.from_dict(...)"
    raise ConfigError(f"`config` must be a NICEConfig (got {config!r}). Pass {advice}.")
