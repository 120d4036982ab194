"""NICE: what a prediction loses when a bond says what other real bonds say."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nicegnn.attribution.atom_by_atom import atom_wise_loss
from nicegnn.attribution.bond_by_bond import bond_wise_loss
from nicegnn.attribution.joint_path import Attribution, boundary_integrated_gradient
from nicegnn.boundary.fit import fit_gates
from nicegnn.boundary.fit_report import FIT_ADVICE, FitReport
from nicegnn.boundary.gate_network import GateNetwork
from nicegnn.boundary.objective import RISK_FLOOR, Boundary, corrupted_risk, find_boundary
from nicegnn.config import NICEConfig
from nicegnn.errors import ConfigError, NotFittedError, TargetError
from nicegnn.explain.by_student import (
    make_lesson,
    replace_graphs,
    student_explanation,
    take_graphs,
    uncertain_graphs,
)
from nicegnn.explain.checks import switch
from nicegnn.explain.explainer import Call, Explainer, mechanism_name
from nicegnn.explain.explanation import (
    Explanation,
    Flag,
    Status,
    Unit,
    flags_of,
    share_of_odds,
    smiles_of,
)
from nicegnn.explain.joined import join_scores, order_bonds
from nicegnn.explain.nice_file import read_nice, write_nice
from nicegnn.explain.trust import judge_scores
from nicegnn.graph.case import make_case
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.background import Background, record_background
from nicegnn.intervention.exchange import Exchange
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import get_mechanism
from nicegnn.intervention.query import Query
from nicegnn.progress import Turns
from nicegnn.student.network import StudentNetwork
from nicegnn.student.teaching import Lesson, TeachConfig, TeachReport, teach_rounds
from nicegnn.target.frozen_model import Inputs, Mode, ReturnType, Target, fingerprint

_OWN = (
    "Damaged bonds say what other bonds of the same graph say. Pass `background`, a few hundred "
    "graphs like those that the model was trained on, and they say what bonds of any graph say."
)
_STUDENT_BATCH = 4096  # graphs of a list that the student explains at a time, on a GPU

logger = logging.getLogger("nicegnn")

ByStudent = Literal[False, True, "auto"]


@dataclass(frozen=True)
class Wanted:
    """What a call of `NICE.explain` asks for beside scores of bonds."""

    atoms: bool = True
    boundary: bool = False
    trust: bool = True
    student: ByStudent = False

    def __post_init__(self) -> None:
        for name in ("atoms", "boundary", "trust"):
            switch(name, getattr(self, name))
        if self.student != "auto":
            switch("student", self.student)


class NICE(Explainer):
    """Explains a model's predictions by letting bonds say what other real bonds say.

    A bond's score is what the prediction loses when its messages, in all layers, are replaced by
    those of prototype edges, one after the other (`bond_wise_loss`). Prototypes come from
    ``background``: graphs like those that the model was trained on, or what `record_background`
    made of them. Without it, they come from each graph itself. Nothing is fitted or random.

    ``NICEConfig.paper()`` is the paper's method: noise, a fitted boundary, an integral along the
    path to it. `fit` learns gates for it, and for ``score="order"`` and ``"both"``. A ``mechanism``
    that is passed, an object or a name, replaces that of the configuration.

    Example:
        >>> from nicegnn.target.zoo import GIN
        >>> graph = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> out = NICE(GIN(3, 2), background=[graph]).explain(graph)
        >>> out.bond_index.tolist()
        [[0, 1], [1, 2]]
    """

    config: NICEConfig
    name = "nice"
    learns = True
    defaults_version = 7
    explain_settings = frozenset(
        {
            *("score", "boundary.risk_target"),
            *("boundary.graph_learning_rate", "boundary.graph_steps"),
            *("attribution.path", "attribution.anchor", "attribution.context"),
            *("attribution.num_draws", "attribution.draws", "attribution.num_nodes"),
            *("attribution.quadrature",),
        }
    )

    def __init__(
        self,
        model: nn.Module,
        config: NICEConfig | None = None,
        *,
        background: Background | Iterable[Any] | None = None,
        mechanism: str | Mechanism | None = None,
        mode: Mode = "auto",
        return_type: ReturnType = "auto",
        inputs: Inputs = None,
        batched: bool | None = None,
    ) -> None:
        config = NICEConfig() if config is None else checked_config(config)
        if isinstance(mechanism, str):
            config, mechanism = config.with_(mechanism=mechanism), None
        if mechanism is not None and not callable(mechanism):
            raise ConfigError(
                "`mechanism` must be 'exchange', 'nc', 'em' or a callable such as ElementMask() "
                f"(got {mechanism!r})."
            )
        reading: dict[str, Any] = {"mode": mode, "return_type": return_type, "inputs": inputs}
        super().__init__(model, config, **reading, batched=batched)
        self.own_mechanism = mechanism
        self.gates: GateNetwork | None = None
        self.fit_report: FitReport | None = None
        self.student: StudentNetwork | None = None
        self.teach_report: TeachReport | None = None
        self.background: Background | None = None
        if background is not None:
            self.background = self._checked(background)
            self._fitted_for = self.background.model

    @property
    def is_fitted(self) -> bool:
        """Whether a gate network was fitted or loaded."""
        return self.gates is not None

    def to(self, device: torch.device | str) -> NICE:
        """Moves what was learned, and the background, to a device, and returns the explainer."""
        super().to(device)
        if self.background is not None:
            self.background = self.background.to(torch.device(device))
        return self

    def _learned(self) -> list[nn.Module]:
        return [net for net in (self.gates, self.student) if net is not None]

    def _has_learned(self) -> bool:
        return self.background is not None or super()._has_learned()

    def _checked(self, background: Background | Iterable[Any]) -> Background:
        """Returns the background of this very model, recorded if graphs are given."""
        if not isinstance(background, Background):
            known = self._read(background)
            return record_background(self.target, known, self.config.num_prototypes)
        own = fingerprint(self.target.model)
        if background.model != own:
            raise ConfigError(
                "`background` must be recorded with the weights of this model (fingerprint "
                f"{own}, got {background.model}). Pass graphs, or record it again."
            )
        return background.to(self.target.device)

    def mechanism(self, *, learning: bool = False) -> Mechanism:
        """Returns the mechanism that bonds are damaged by, or that gates are learned under."""
        if self.own_mechanism is not None:
            return self.own_mechanism
        config = self.config
        anchor = config.boundary.anchor if learning else config.attribution.anchor
        if config.mechanism != "exchange":
            antithetic = config.attribution.antithetic
            return get_mechanism(config.mechanism, antithetic=antithetic, anchor=anchor)
        known, each = self.background, "graph"
        prototypes = None if known is None else known.messages
        if learning or config.attribution.path == "joint":
            prototypes, each = None if known is None else known.sample, "edge"
        return Exchange(prototypes, num=config.num_prototypes, each=each, anchor=anchor)

    def fit_settings(self) -> dict[str, Any]:
        """Returns the settings that `fit` reads, with the name of a mechanism that was passed."""
        settings = super().fit_settings()
        if self.own_mechanism is not None:
            settings["mechanism"] = mechanism_name(self.own_mechanism)
        return settings

    def _fit_units(
        self,
        target: Target,
        units: Sequence[Data],
        seed: int,
        progress: bool,
        checkpoint: str | Path | None,
    ) -> None:
        self.student, self.teach_report = None, None  # they learned from the scores before
        self.gates, self.fit_report = fit_gates(
            target,
            units,
            self.mechanism(learning=True),
            self.config,
            fit_settings=self.fit_settings(),
            seed=seed,
            progress=progress,
            checkpoint=checkpoint,
        )
        for label, judgement in self.fit_report.classes.items():
            status = judgement.status
            if status != "ok":
                logger.warning("Gates of class %d are %s: %s", label, status, FIT_ADVICE[status])

    def teach(
        self,
        graphs: Iterable[Any],
        *,
        target: int | None = None,
        index: int | Tensor | list[int] | None = None,
        config: TeachConfig | None = None,
        seed: int | None = None,
        progress: bool = True,
    ) -> TeachReport:
        """Teaches a student to predict the losses, and their errors, in one pass of the model.

        The teacher explains graphs in rounds, four times as many each. A fifth is held out.
        Teaching stops when their bonds are ranked well enough, or no better than in the round
        before. Interrupted, it leaves the student of the last whole round. For ``graphs``,
        ``target`` and ``index`` see `fit`, which forgets the student.
        """
        self._check_model()
        seed = self._seed(seed)
        work, units = self._ready(graphs, target, index)
        try:
            return self._teach_units(work, units, seed, progress, config)
        finally:
            self._learned_with(work)

    def _teach_units(
        self,
        target: Target,
        units: Sequence[Data],
        seed: int,
        progress: bool,
        config: TeachConfig | None = None,
    ) -> TeachReport:
        stack = GraphStack(units, target.device)
        usable = (stack.num_edges > 0).nonzero().view(-1).cpu()
        call = Call(target, seed, wanted=Wanted(trust=False, atoms=False))

        def explain(some: Tensor) -> Lesson:
            batch = stack.take(usable[some])
            query = self._query(batch, call)
            found = self._explain_query(query, call)
            return make_lesson(query, found)

        rounds = teach_rounds(
            explain,
            usable.numel(),
            TeachConfig() if config is None else config,
            is_ordered=not self.config.undirected,
            seed=seed,
            progress=progress,
            chunk=self.config.batch_size,
        )
        for student, report in rounds:
            self.student, self.teach_report = student, report
        return report

    def save(self, path: str | Path) -> None:
        """Writes what was learned, the settings and the model's fingerprint to one file."""
        if not self._has_learned():
            raise NotFittedError("There is nothing to save. Pass `background`, or call fit().")
        self._check_model()
        write_nice(self, path)

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
        """Reads an explainer that was saved for exactly this model."""
        return read_nice(cls, path, model, mechanism=mechanism, inputs=inputs, batched=batched)

    def explain(
        self,
        graphs: Data | Batch | str | Sequence[Data] | Sequence[str],
        *,
        target: int | Tensor | None = None,
        index: int | Tensor | list[int] | None = None,
        seed: int | None = None,
        slot: Tensor | None = None,
        progress: bool = False,
        atoms: bool = True,
        boundary: bool = False,
        trust: bool = True,
        student: ByStudent = False,
    ) -> Explanation:
        """Explains predictions as every explainer does, see `Explainer.explain`.

        Args:
            atoms: scores atoms too: ``atom_score``, ``atom_loss`` and ``atom_stderr`` of the result
                (see `atom_wise_loss`); they are None along a joint path. False takes half the time.
            boundary: places each graph's boundary: ``bond_gate``, ``restored`` and
                ``risk_boundary``, nan otherwise. Along a joint path, as in the paper, there always
                is one. Without `fit` it is optimised on each graph alone.
            trust: says how likely each graph's best bond is a true one (see `Trust`); this takes no
                further pass. It needs ``path="bond"``: along a joint path there is none.
            student: True lets the student predict all scores in one pass of the model (see
                `teach`); with ``"auto"`` it sends graphs with a large expected error to its
                teacher, those whose flag is then `Flag.UNCERTAIN` otherwise. Graphs that it scored
                have `Flag.STUDENT`, and ``bond_stderr`` is its error bar.
        """
        wanted = Wanted(atoms, boundary, trust, student)
        if student and self.student is None:
            raise NotFittedError(
                f"student={student!r} needs a student (got none). Call teach(graphs) first, with "
                "graphs like those to explain."
            )
        return self._answer(graphs, target, index, seed, slot, progress, wanted)

    def _explain_batch(self, batch: Batch, call: Call) -> Explanation:
        query = self._query(batch, call)
        if not call.wanted.student:
            return self._explain_query(query, call)
        assert self.student is not None  # see `explain`
        found = student_explanation(self.student, query, self._unit(query))
        sent = uncertain_graphs(found)
        if call.wanted.student != "auto" or sent.numel() == 0:
            return found
        slot = call.slot
        if slot is not None:
            slot = slot[torch.isin(query.case.edge_batch, sent)]
        again = replace(call, explained=query.explained[sent], slot=slot)
        some = take_graphs(batch, sent)
        return replace_graphs(found, self._explain_query(self._query(some, again), again), sent)

    def _query(self, batch: Batch, call: Call) -> Query:
        """Checks the clean answers of a batch, and returns a query of them."""
        query = Query(
            call.target,
            make_case(batch, undirected=self.config.undirected, slot=call.slot),
            self.mechanism(),
            explained=call.explained,
            chunk_edges=self.config.chunk_edges,
            degradation=self.config.boundary.degradation,
        )
        if bool((query.explained < 0).any()) and self.config.attribution.path == "bond":
            raise TargetError(
                f"`target` must name the output to explain, 0 to {query.clean.size(1) - 1}, of a "
                "model with several values (got None)."
            )
        query.shared.watch = Turns(call.advance, 1)
        return query

    def _explain_query(self, query: Query, call: Call) -> Explanation:
        """Damages, scores, judges and reports."""
        config, case, seed = self.config, query.case, call.seed
        settings, is_joint = config.attribution, config.attribution.path == "joint"
        boundary = self._boundary(query, call)
        if is_joint:
            assert boundary is not None  # a joint path needs one
            found = boundary_integrated_gradient(query, boundary.gate, settings, seed)
        else:
            found = bond_wise_loss(query, settings, seed)
        score, unit = self._score(query, found, boundary), self._unit(query)
        trust = None
        if call.wanted.trust and not is_joint:
            is_checked = isinstance(query.mechanism, Exchange) and unit == "odds"
            trust = judge_scores(query, found.score, is_checked=is_checked)
        empty = torch.full_like(query.clean[:, 0], torch.nan)
        no_gate = torch.full_like(found.score, torch.nan)
        gate = no_gate if boundary is None or not self._places(call) else boundary.gate
        return Explanation(
            edge_index=case.batch.edge_index,
            bonds=case.bonds,
            ptr=case.batch.ptr,
            bond_score=torch.where(case.reached, score, 0.0),
            bond_loss=found.score,
            bond_change=found.change,
            bond_stderr=found.stderr,
            bond_gate=torch.where(case.reached | gate.isnan(), gate, 0.0),
            bond_reached=case.reached,
            target=query.explained,
            prediction=query.clean,
            completeness_gap=found.completeness_gap,
            risk_corrupted=empty if boundary is None else boundary.risk_corrupted,
            risk_boundary=empty if boundary is None else boundary.risk,
            restored=empty if boundary is None else boundary.restored,
            status=Status(
                self._how(boundary),
                self._flags(query, boundary, None if trust is None else trust.flag_numbers),
                self._notes(query, boundary),
            ),
            unit=unit,
            smiles=smiles_of(case.batch),
            trust=trust,
            **(self._atoms(query) if call.wanted.atoms and not is_joint else {}),
        )

    def _score(self, query: Query, found: Attribution, boundary: Boundary | None) -> Tensor:
        """Returns the score of each bond, ``[M]``, in its `_unit`."""
        if self.config.score != "loss":
            assert boundary is not None  # see `NICEConfig.needs_boundary`
            if self.config.score == "order":
                return boundary.logit
            return join_scores(query.case, boundary.logit, found.score)
        return share_of_odds(found.score) if self._unit(query) == "odds" else found.score

    def _unit(self, query: Query) -> Unit:
        """Returns the unit of scores."""
        settings = self.config.attribution
        is_own = settings.path == "joint" or settings.degradation == "log-prob"
        if is_own or self.config.score != "loss":
            return "own"
        return "value" if query.target.mode == "regression" else "odds"

    def _atoms(self, query: Query) -> dict[str, Any]:
        """Returns scores of atoms."""
        found = atom_wise_loss(query, self.background, self.config.num_prototypes)
        is_value = query.target.mode == "regression"
        share = found.loss.sign() * share_of_odds(found.loss.abs())
        return {
            "atom_score": found.loss if is_value else share,
            "atom_loss": found.loss,
            "atom_stderr": found.stderr,
        }

    def _places(self, call: Call) -> bool:
        """Whether a boundary is placed, and not only an order of bonds learned."""
        return bool(call.wanted.boundary) or self.config.attribution.path == "joint"

    def _boundary(self, query: Query, call: Call) -> Boundary | None:
        """Returns order and boundary of the bonds under the mechanism of the gates, if wanted."""
        settings, seed = self.config.boundary, call.seed
        if not (self.config.needs_boundary or self._places(call)):
            return None
        seen = query.under(self.mechanism(learning=True))
        reference = corrupted_risk(seen, settings, seed)
        order = order_bonds(self.gates, seen, self.config, seed, reference)
        if self._places(call):
            return find_boundary(seen, order, settings, seed, reference)
        unknown = torch.full_like(reference, torch.nan)
        return Boundary(torch.full_like(order, torch.nan), order, unknown, unknown, reference)

    def _how(self, boundary: Boundary | None) -> str:
        """Returns how the order of bonds was found."""
        if boundary is None:
            return "none"
        return "amortised" if self.is_fitted else "per-graph"

    def _flags(
        self, query: Query, boundary: Boundary | None, judged: Tensor | None
    ) -> tuple[Flag, ...]:
        case = query.case
        edges = torch.bincount(case.edge_batch, minlength=case.num_graphs)
        total = torch.zeros_like(edges) if judged is None else judged
        if boundary is not None:
            settings, risk0 = self.config.boundary, boundary.risk_corrupted
            limit = 2 * settings.risk_target * risk0.clamp(min=RISK_FLOOR)
            noticed = {
                Flag.INSENSITIVE: (risk0 < RISK_FLOOR) & (judged is None),
                Flag.NOT_RESTORED: boundary.risk > limit,
                Flag.ALL_RESTORED: (boundary.restored > 0.97) & (settings.objective == "penalty"),
            }
            if self.gates is not None:
                known = self.gates.is_trained_for(query.explained.clamp(min=0))
                noticed[Flag.UNFITTED_CLASS] = ~known
            for flag, is_so in noticed.items():
                total = total + int(flag) * is_so
        return flags_of(torch.where(edges == 0, int(Flag.NO_EDGES), total))

    def _notes(self, query: Query, boundary: Boundary | None) -> tuple[str, ...]:
        notes = []
        if self.background is None and isinstance(query.mechanism, Exchange):
            notes.append(_OWN)
        if boundary is not None and not self.is_fitted:
            notes.append("Not fitted: bonds were put in order on each graph alone.")
        if any(query.report.clean_loops.values()):
            names = ", ".join(n or "the model" for n in query.report.clean_loops)
            notes.append(f"Self-loops that layers add themselves stayed clean: {names}.")
        if query.report.excluded:
            notes.append(f"Layers left out by explain=False: {', '.join(query.report.excluded)}.")
        return tuple(notes)

    def _list_size(self, call: Call) -> int:
        size = super()._list_size(call)
        is_fast = call.wanted is not None and call.wanted.student
        return max(size, _STUDENT_BATCH) if is_fast and call.target.device.type != "cpu" else size


def checked_config(config: object) -> NICEConfig:
    """Returns a configuration; raises `ConfigError` for a name, a dict or something else."""
    if isinstance(config, NICEConfig):
        return config
    advice = "NICEConfig().with_(...)"
    if config == "paper":
        advice = "NICEConfig.paper()"
    elif isinstance(config, str | Path):
        advice = "NICEConfig.from_toml(path)"
    elif isinstance(config, dict):
        advice = "NICEConfig.from_dict(...)"
    raise ConfigError(f"`config` must be a NICEConfig (got {config!r}). Pass {advice}.")
