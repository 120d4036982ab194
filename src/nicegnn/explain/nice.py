"""NICE: what a prediction loses when a bond says what other real bonds say.

One call of `NICE.explain`, from top to bottom: the call is checked, every bond of a batch is
damaged, what the prediction loses is its score, the best bonds are judged, and all is reported.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData

from nicegnn.attribution.joint_path import boundary_integrated_gradient
from nicegnn.attribution.one_by_one import (
    atom_wise_loss,
    attribute_wise_loss,
    bond_wise_loss,
)
from nicegnn.boundary.fit import FIT_ADVICE, FitReport, fit_gates
from nicegnn.boundary.gate_network import GateNetwork
from nicegnn.boundary.objective import (
    RISK_FLOOR,
    Boundary,
    corrupted_risk,
    find_boundary,
    optimise_logits,
)
from nicegnn.config import NICEConfig, check_choice
from nicegnn.errors import GraphError, NotFittedError, TargetError
from nicegnn.explain.by_student import make_lesson, student_explanation
from nicegnn.explain.call import FitWork, Work, checked_background, open_call, open_fit
from nicegnn.explain.checks import checked_config, checked_mechanism
from nicegnn.explain.explainer import Explainer, Index
from nicegnn.explain.explanation import Explanation, Unit, scores_only, share_of_odds
from nicegnn.explain.nice_file import read_nice, write_nice
from nicegnn.explain.trust import Flag, Status, Trust, flags_of, judge_scores
from nicegnn.graph.case import make_case
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.background import Background
from nicegnn.intervention.exchange import Exchange
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import get_mechanism
from nicegnn.intervention.query import Query
from nicegnn.progress import of_answers
from nicegnn.student.network import StudentNetwork
from nicegnn.student.teaching import Lesson, TeachConfig, TeachReport, teach_student
from nicegnn.target.frozen_model import Inputs
from nicegnn.target.output import Mode, ReturnType

_OWN = (
    "Damaged bonds say what other bonds of the same graph say. Pass `background`, a few hundred "
    "graphs like those that the model was trained on, and they say what bonds of any graph say."
)
Atoms = Literal[False, True, "attributes"]
_STUDENT_BATCH = 4096  # graphs of a list that the student explains at a time, on a GPU

logger = logging.getLogger("nicegnn")


class NICE(Explainer):
    """Explains a model's predictions by letting bonds say what other real bonds say.

    A bond's score is what the prediction loses when its messages, in all layers, are replaced by
    those of prototype edges, one after the other (`bond_wise_loss`). Prototypes come from
    ``background``: graphs like those that the model was trained on, or what `record_background`
    made of them. Without it, they come from each graph itself. Nothing is fitted or random.

    ``NICEConfig.paper()`` is the paper's method: noise, a fitted boundary, an integral along the
    path to it. `fit` learns gates for it, and for ``score="order"``. A ``mechanism``
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
    explain_settings = frozenset(
        {
            *("score", "boundary.risk_target", "boundary.graph_steps"),
            *("attribution.path", "attribution.anchor", "attribution.num_draws"),
            *("attribution.num_nodes", "attribution.quadrature"),
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
        config = checked_config(config)
        if isinstance(mechanism, str):
            config, mechanism = config.with_(mechanism=mechanism), None
        reading: dict[str, Any] = {"mode": mode, "return_type": return_type, "inputs": inputs}
        super().__init__(model, config, **reading, batched=batched)
        self.given_mechanism = checked_mechanism(mechanism)
        self.background: Background | None = None
        self.gates: GateNetwork | None = None  # by `fit`
        self.fit_report: FitReport | None = None
        self.student: StudentNetwork | None = None  # by `teach`
        self.teach_report: TeachReport | None = None
        if background is not None:
            self.background = checked_background(self.target, background, config.num_prototypes)
            self._fitted_for = self.background.model

    # --- check -----------------------------------------------------------------------------------

    def explain(
        self,
        graphs: Data | HeteroData | Batch | str | Sequence[Any],
        *,
        target: int | Tensor | None = None,
        index: Index = None,
        pairs: Tensor | None = None,
        seed: int | None = None,
        progress: bool = False,
        atoms: Atoms = True,
        boundary: bool = False,
        trust: bool = True,
        student: bool = False,
    ) -> Explanation:
        """Explains predictions as every explainer does, see `Explainer.explain`.

        Args:
            atoms: scores atoms too: ``atom_score``, ``atom_loss`` and ``atom_stderr`` of the result
                (see `atom_wise_loss`), and ``atom_place`` (see `two_places`); they are None along a
                joint path. False takes half the time. ``"attributes"`` scores
                every column of ``x`` of every atom too: ``attribute_score``, by that many passes.
            boundary: places each graph's boundary: ``bond_gate``, ``restored`` and
                ``risk_boundary``, nan otherwise. Along a joint path, as in the paper, there always
                is one. Without `fit` it is optimised on each graph alone.
            trust: says how likely each graph's best bond is a true one (see `Trust`); this takes no
                further pass. It needs ``path="bond"``: along a joint path there is none.
            student: lets the student predict all scores of bonds in one pass of the model (see
                `teach`). Graphs have `Flag.STUDENT`, those with a large expected error
                `Flag.UNCERTAIN`, and ``bond_stderr`` is the error bar.
        """
        check_choice("atoms", atoms, (False, True, "attributes"))
        for name, switch in (("boundary", boundary), ("trust", trust), ("student", student)):
            check_choice(name, switch, (True, False))
        if student and self.student is None:
            raise NotFittedError(
                "student=True needs a student (got none). Call teach(graphs) first, with graphs "
                "like those to explain."
            )
        asked: dict[str, Any] = {"target": target, "index": index, "pairs": pairs}
        call = open_call(self, graphs, **asked, seed=seed, progress=progress)
        size = self.config.batch_size
        if student:
            is_cpu = call.target.device.type == "cpu"
            return call.run(self._by_student, size if is_cpu else max(size, _STUDENT_BATCH))
        asked = {"atoms": atoms, "boundary": boundary, "trust": trust}
        return call.run(partial(self._explain_batch, **asked), size)

    def _by_student(self, work: Work) -> Explanation:
        assert self.student is not None  # see `explain`
        query = self._query(work)
        return student_explanation(self.student, query, self._unit(query))

    def _query(self, work: Work) -> Query:
        """Runs the model on the clean batch, and returns what answers under damage."""
        query = Query(
            work.target,
            make_case(work.batch, undirected=self.config.undirected),
            self.mechanism(),
            explained=work.explained,
            chunk_edges=self.config.chunk_edges,
            degradation=self.config.boundary.degradation,
        )
        if bool((query.explained < 0).any()) and self.config.attribution.path == "bond":
            raise TargetError(
                f"`target` must name the output to explain, 0 to {query.clean.size(1) - 1}, of a "
                "model with several values (got None). Pass target=0, for example."
            )
        known = None if self.background is None else self.background.messages.kinds
        kinds = query.case.num_kinds
        is_untold = query.case.kind is None and query.case.num_edges > 0
        if known is not None and (kinds > known or (known > 1 and is_untold)):
            raise GraphError(
                f"`graphs` must have the kinds of edges that the background has, {known} (got "
                f"{kinds}). Record a background of such graphs."
            )
        query.shared.watch = of_answers(work.advance)
        return query

    # --- damage, score, judge, report ------------------------------------------------------------

    def _explain_batch(
        self, work: Work, *, atoms: Atoms = True, boundary: bool = False, trust: bool = True
    ) -> Explanation:
        """Damages every bond, and every atom, of a batch, and reports what the prediction loses."""
        query, seed, config = self._query(work), work.seed, self.config
        case = query.case
        is_joint, unit = config.attribution.path == "joint", self._unit(query)
        order = None
        if config.needs_boundary or boundary:
            order = self._order(query, seed, is_placed=boundary or is_joint)
        if is_joint:
            assert order is not None  # see `NICEConfig.needs_boundary`
            lost = boundary_integrated_gradient(query, order.gate, config.attribution, seed)
        else:
            lost = bond_wise_loss(query, config.attribution, seed)
        score = share_of_odds(lost.score) if unit == "odds" else lost.score
        if config.score == "order":
            assert order is not None  # see `NICEConfig.needs_boundary`
            score = order.logit
        judged = None
        if trust and not is_joint:
            is_usual = isinstance(query.mechanism, Exchange) and self.background is not None
            is_checked = is_usual and unit == "odds" and query.target.is_of_wide_bench
            judged = judge_scores(query, lost.score, is_checked=is_checked)
        out = replace(
            scores_only(case, score, query.explained, query.clean),
            bond_loss=lost.score,
            bond_change=lost.change,
            bond_stderr=lost.stderr,
            completeness_gap=lost.completeness_gap,
            status=self._status(query, order, judged),
            unit=unit,
            trust=judged,
        )
        if order is not None:
            gate = torch.where(case.reached | order.gate.isnan(), order.gate, 0.0)
            risk0, risk = order.risk_corrupted, order.risk
            if is_joint:  # those that the scores add up to
                risk0, risk = lost.risk_corrupted, lost.risk_boundary
            placed = replace(out, bond_gate=gate, restored=order.restored)
            out = replace(placed, risk_corrupted=risk0, risk_boundary=risk)
        if atoms and not is_joint:
            of_atoms = atom_wise_loss(query, self.background, config.num_prototypes)
            out = replace(
                out,
                atom_score=_signed(of_atoms.loss, query),
                atom_loss=of_atoms.loss,
                atom_stderr=of_atoms.stderr,
                atom_place=of_atoms.place,
            )
            if atoms == "attributes":
                loss = attribute_wise_loss(query, self.background, config.num_prototypes)
                out = replace(out, attribute_score=_signed(loss, query))
        return out

    def _unit(self, query: Query) -> Unit:
        """Returns the unit of scores."""
        settings, is_loss = self.config.attribution, self.config.score == "loss"
        if settings.path == "joint" or settings.degradation == "log-prob" or not is_loss:
            return "own"
        return "value" if query.target.mode == "regression" else "odds"

    def mechanism(self, *, learning: bool = False) -> Mechanism:
        """Returns the mechanism that bonds are damaged by, or that gates are learned under."""
        if self.given_mechanism is not None:
            return self.given_mechanism
        config, background = self.config, self.background
        anchor = config.boundary.anchor if learning else config.attribution.anchor
        if config.mechanism != "exchange":
            return get_mechanism(config.mechanism, anchor)
        each, prototypes = "graph", None if background is None else background.messages
        if learning or config.attribution.path == "joint":  # many edges are damaged at once
            each, prototypes = "edge", None if background is None else background.sample
        return Exchange(prototypes, num=config.num_prototypes, each=each, anchor=anchor)

    def _order(self, query: Query, seed: int, *, is_placed: bool) -> Boundary:
        """Returns the order of the bonds by their gates, and the boundary if it is to be placed.

        Gates that were not fitted for a graph's class say nothing about it: logits are then
        optimised on this graph alone.
        """
        settings, query = self.config.boundary, query.under(self.mechanism(learning=True))
        reference = corrupted_risk(query, settings, seed)
        is_fitted = torch.zeros_like(reference, dtype=torch.bool)  # [B]
        if self.gates is not None:
            is_fitted = self.gates.is_trained_for(query.explained.clamp(min=0))
            with torch.no_grad():
                learned: Tensor = self.gates(query)
                logit = learned
        if not bool(is_fitted.all()):
            logit = optimise_logits(query, reference, settings, seed)
            if self.gates is not None:
                logit = torch.where(is_fitted[query.case.bonds.batch], learned, logit)
        if is_placed:
            return find_boundary(query, logit, settings, seed, reference)
        unknown = torch.full_like(reference, torch.nan)
        return Boundary(torch.full_like(logit, torch.nan), logit, unknown, unknown, reference)

    def _status(self, query: Query, order: Boundary | None, trust: Trust | None) -> Status:
        """Returns how the bonds were put in order, the flags of each graph, and notes."""
        case, settings = query.case, self.config.boundary
        edges = torch.bincount(case.edge_batch, minlength=case.num_graphs)
        flags, notes = torch.zeros_like(edges) if trust is None else trust.flag_numbers, []
        made = "none" if order is None else "amortised" if self.is_fitted else "per-graph"
        if self.background is None and isinstance(query.mechanism, Exchange):
            notes.append(_OWN)
        if order is not None:
            risk0 = order.risk_corrupted
            limit = 2 * settings.risk_target * risk0.clamp(min=RISK_FLOOR)
            noticed = {
                Flag.INSENSITIVE: (risk0 < RISK_FLOOR) & (trust is None),
                Flag.NOT_RESTORED: order.risk > limit,
                Flag.ALL_RESTORED: (order.restored > 0.97) & (settings.objective == "penalty"),
            }
            if self.gates is None:
                notes.append("Not fitted: bonds were put in order on each graph alone.")
            else:
                is_fitted = self.gates.is_trained_for(query.explained.clamp(min=0))
                noticed[Flag.UNFITTED_CLASS] = ~is_fitted
            for flag, is_so in noticed.items():
                flags = flags + int(flag) * is_so
        if any(query.report.clean_loops.values()):
            loops = query.report.clean_loops
            names = ", ".join(name or "the model" for name, number in loops.items() if number)
            notes.append(f"Self-loops that layers add themselves stayed clean: {names}.")
        if query.report.excluded:
            notes.append(f"Layers left out by explain=False: {', '.join(query.report.excluded)}.")
        notes += query.notes
        flags = torch.where(edges == 0, int(Flag.NO_EDGES), flags)
        return Status(made, flags_of(flags), tuple(notes))

    # --- learn -----------------------------------------------------------------------------------

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

    def _fit_units(self, work: FitWork) -> None:
        self.student, self.teach_report = None, None  # they learned from the scores before
        self.gates, self.fit_report = fit_gates(
            work.target,
            work.units,
            self.mechanism(learning=True),
            self.config,
            seed=work.seed,
            progress=work.progress,
        )
        for label, status in self.fit_report.classes.items():
            if status != "ok":
                logger.warning("Gates of class %d are %s: %s", label, status, FIT_ADVICE[status])

    def teach(
        self,
        graphs: Iterable[Any],
        *,
        target: int | None = None,
        index: Index = None,
        pairs: Tensor | None = None,
        config: TeachConfig | None = None,
        seed: int | None = None,
        progress: bool = True,
    ) -> TeachReport:
        """Teaches a student to predict the losses, and their errors, in one pass of the model.

        The teacher explains the graphs; a fifth of them is held out, to judge the student and to
        calibrate its error bars. For ``graphs``, ``target`` and ``index`` see `fit`, which forgets
        the student.
        """
        self.check_model()
        asked: dict[str, Any] = {"target": target, "index": index, "pairs": pairs, "seed": seed}
        work = open_fit(self, graphs, **asked, progress=progress)
        report = self._teach_units(work, config)
        self._learned_with(work.target)
        return report

    def _teach_units(self, work: FitWork, config: TeachConfig | None = None) -> TeachReport:
        stack = GraphStack(work.units, work.target.device)
        usable = (stack.num_edges > 0).nonzero().view(-1).cpu()

        def explain(chosen: Tensor) -> Lesson:
            part = Work(stack.take(usable[chosen]), work.target, work.seed)
            teacher = self._explain_batch(part, atoms=False, trust=False)
            return make_lesson(self._query(part), teacher)

        self.student, self.teach_report = teach_student(
            explain,
            usable.numel(),
            TeachConfig() if config is None else config,
            is_ordered=not self.config.undirected,
            seed=work.seed,
            progress=work.progress,
            chunk=self.config.batch_size,
        )
        return self.teach_report

    def save(self, path: str | Path) -> None:
        """Writes what was learned, the settings and the model's fingerprint to one file."""
        if not self._has_learned():
            raise NotFittedError("There is nothing to save. Pass `background`, or call fit().")
        self.check_model()
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


def _signed(loss: Tensor, query: Query) -> Tensor:
    """Returns losses with their sign as scores: shares of the odds, or values as they are."""
    is_value = query.target.mode == "regression"
    return loss if is_value else loss.sign() * share_of_odds(loss.abs())
