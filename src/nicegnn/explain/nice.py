"""NICE: what a prediction loses when a bond says what other real bonds say."""

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
from nicegnn.attribution.one_by_one import atom_wise_loss, attribute_wise_loss, bond_wise_loss
from nicegnn.boundary.srb import FIT_ADVICE, FitReport, GateNetwork, fit_gates
from nicegnn.config import NICEConfig, check_choice
from nicegnn.errors import ConfigError, GraphError, NotFittedError, TargetError
from nicegnn.explain.call import Asked, FitWork, Work, checked_background, explain_batches, open_fit
from nicegnn.explain.checks import checked_config, shown
from nicegnn.explain.explainer import Explainer, Index
from nicegnn.explain.explanation import Explanation, Unit, scores_of, scores_only
from nicegnn.explain.nice_file import read_nice, write_nice
from nicegnn.explain.trust import Flag, boundary_flags, judge_scores
from nicegnn.graph.case import make_case, merge_equal
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.background import Background
from nicegnn.intervention.exchange import Exchange
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import get_mechanism
from nicegnn.intervention.query import Query
from nicegnn.student.teaching import (
    Lesson,
    StudentNetwork,
    TeachConfig,
    TeachReport,
    graph_error,
    teach_student,
    view_bonds,
)
from nicegnn.target.frozen_model import Inputs
from nicegnn.target.output import Mode, ReturnType

Atoms = Literal[False, True, "attributes"]
_STUDENT_BATCH = 4096  # graphs of a list that the student explains at a time, on a GPU

logger = logging.getLogger("nicegnn")


class NICE(Explainer):
    """Explains a model's predictions by letting bonds say what other real bonds say.

    A bond's score is what the prediction loses when its messages, in all layers, are replaced by
    those of prototype edges, one after the other (`bond_wise_loss`). Prototypes come from
    ``background``: graphs like those that the model was trained on, or what `record_background`
    made of them. Without it, they come from each graph itself. Nothing is fitted or random.

    ``NICEConfig.paper()`` is the paper's method: noise, a boundary that `fit` learns, an integral
    along the path to it. A ``mechanism`` that is passed, an object or a name, replaces that of the
    configuration.

        >>> from nicegnn.target.zoo import GIN
        >>> graph = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]))
        >>> out = NICE(GIN(3, 2), background=[graph]).explain(graph)
        >>> out.bond_index.tolist()
        [[0, 1], [1, 2]]
    """

    config: NICEConfig
    name = "nice"
    learns = True

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
        if mechanism is not None and not callable(mechanism):
            raise ConfigError(
                "`mechanism` must be 'exchange', 'nc', 'em' or a callable such as ElementMask() "
                f"(got {shown(mechanism)}). Pass one of them."
            )
        self.given_mechanism = mechanism
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
        student: bool = False,
    ) -> Explanation:
        """Explains predictions as every explainer does, see `Explainer.explain`.

        Args:
            atoms: scores atoms too (see `atom_wise_loss` and `two_places`), but for a joint path.
                False takes half the time. ``"attributes"`` scores every column of ``x`` of every
                atom too: ``attribute_score``, by that many passes.
            student: lets the student predict all scores of bonds in one pass of the model (see
                `teach`). Graphs with a large expected error have `Flag.UNCERTAIN`, and
                ``bond_stderr`` is the error bar.
        """
        check_choice("atoms", atoms, (False, True, "attributes"))
        check_choice("student", student, (True, False))
        asked, size = Asked(target, index, pairs, seed, progress), self.config.batch_size
        if not student:
            explain = partial(self._explain_batch, atoms=atoms)
            return explain_batches(self, graphs, asked, explain, size)
        if self.student is None:
            raise NotFittedError(
                "student=True needs a student (got none). Call teach(graphs) first, with graphs "
                "like those to explain."
            )
        size = size if self.target.device.type == "cpu" else max(size, _STUDENT_BATCH)
        return explain_batches(self, graphs, asked, partial(self._by_student, self.student), size)

    def _query(self, work: Work) -> Query:
        """Runs the model on the clean batch, and returns what answers under damage."""
        query = Query(
            work.target,
            make_case(work.batch, undirected=self.config.undirected),
            self.mechanism(),
            explained=work.explained,
            chunk_edges=self.config.chunk_edges,
        )
        if bool((query.explained < 0).any()) and not self.config.needs_fit:
            raise TargetError(
                f"`target` must name the output to explain, 0 to {query.clean.size(1) - 1}, of a "
                "model with several values (got None). Pass target=0, for example."
            )
        known = None if self.background is None else self.background.messages.kinds
        kinds, is_untold = query.case.num_kinds, query.case.kind is None and query.case.num_edges
        if known is not None and (kinds > known or (known > 1 and is_untold)):
            raise GraphError(
                f"`graphs` must have the kinds of edges that the background has, {known} (got "
                f"{kinds}). Record a background of such graphs."
            )
        query.shared.watch = work.watch
        return query

    # --- damage, score, judge, report ------------------------------------------------------------

    def _explain_batch(self, work: Work, *, atoms: Atoms = True) -> Explanation:
        """Damages every bond, and every atom, of a batch, and reports what the prediction loses."""
        config, background, query = self.config, self.background, self._query(work)
        if config.needs_fit:
            return self._along_path(query, work.seed)
        lost = bond_wise_loss(query, config.attribution.num_draws, work.seed)
        unit: Unit = "value" if query.target.mode == "regression" else "odds"
        score = scores_of(lost.bond_loss, unit)
        is_usual = isinstance(query.mechanism, Exchange) and background is not None
        is_checked = is_usual and unit == "odds" and query.target.is_of_wide_bench
        judged = judge_scores(query, lost.bond_loss, is_checked=is_checked)
        about, flags = (query.explained, query.clean), judged.flag_numbers
        out = scores_only(query.case, score, *about, notes=self._notes(query), flags=flags)
        out = replace(out, **vars(lost), unit=unit, trust=judged)
        if atoms:
            of_atoms = atom_wise_loss(query, background, config.num_prototypes)
            score = scores_of(of_atoms.atom_loss, unit)
            out = replace(out, **vars(of_atoms), atom_score=score)
        if atoms == "attributes":
            loss = attribute_wise_loss(query, background, config.num_prototypes)
            out = replace(out, attribute_score=scores_of(loss, unit))
        return out

    def _along_path(self, query: Query, seed: int) -> Explanation:
        """Attributes the fall of the risk along the path to the boundary, as in the paper."""
        if self.gates is None:
            raise NotFittedError(
                "path='joint' needs fitted gates (got none). Call fit(graphs) first, with graphs "
                "like those to explain, or use NICEConfig(), which needs no fit."
            )
        with torch.no_grad():
            gate = self.gates(query).sigmoid()
        lost = boundary_integrated_gradient(query, gate, self.config, seed)
        restored = query.case.per_graph_mean(gate)
        flags = boundary_flags(lost.risk_corrupted, lost.risk_boundary, restored)
        about, case = (query.explained, query.clean), query.case
        out = scores_only(case, lost.bond_loss, *about, notes=self._notes(query), flags=flags)
        gate = torch.where(case.reached, gate, 0.0)
        return replace(out, **vars(lost), bond_gate=gate, restored=restored)

    @torch.no_grad()
    def _by_student(self, net: StudentNetwork, work: Work) -> Explanation:
        """Explains by the student alone; classes that it was not taught have infinite errors."""
        query = self._query(work)
        case, view, reached = query.case, view_bonds(query), query.case.reached
        label = view.label.clamp(max=net.taught.numel() - 1)
        value, log_error = net(replace(view, label=label))
        is_known = net.taught[label] & (label == view.label)  # [B]
        error = torch.where(is_known, net.factor[label], torch.inf)[view.graph] * log_error.exp()
        loss, stderr = net.losses(value, error)
        unit: Unit = "value" if query.target.mode == "regression" else "odds"
        unit = "own" if self.config.needs_fit else unit
        loss = loss.clamp(min=0) if unit == "odds" else loss
        size = query.clean.abs().amax(1)
        loss, stderr = (merge_equal(one, view.graph, size) for one in (loss, stderr))
        whole = graph_error(error[reached], view.graph[reached], case.num_graphs)
        flags = int(Flag.STUDENT) + int(Flag.UNCERTAIN) * (whole > net.limit)  # [B]
        score = scores_of(loss, unit)
        out = scores_only(case, score, query.explained, query.clean, flags=flags)
        loss, stderr = (torch.where(reached, one, 0.0) for one in (loss, stderr))
        return replace(out, bond_loss=loss, bond_stderr=stderr, unit=unit)

    def mechanism(self) -> Mechanism:
        """Returns what damages bonds, in `explain` and in `fit`."""
        config, background = self.config, self.background
        if self.given_mechanism is not None:
            return self.given_mechanism
        if config.mechanism != "exchange":
            return get_mechanism(config.mechanism, config.anchor)
        each, prototypes = "graph", None if background is None else background.messages
        if config.needs_fit:  # many edges are damaged at once
            each, prototypes = "edge", None if background is None else background.sample
        return Exchange(prototypes, num=config.num_prototypes, each=each, anchor=config.anchor)

    def _notes(self, query: Query) -> list[str]:
        """Returns facts about how a batch was damaged."""
        notes, report = [], query.report
        if self.background is None and isinstance(query.mechanism, Exchange):
            notes.append(
                "Damaged bonds say what other bonds of the same graph say. Pass `background`, a "
                "few hundred graphs like those that the model was trained on, and they say what "
                "bonds of any graph say."
            )
        if any(report.clean_loops.values()):
            loops = report.clean_loops.items()
            names = ", ".join(name or "the model" for name, number in loops if number)
            notes.append(f"Self-loops that layers add themselves stayed clean: {names}.")
        if report.excluded:
            notes.append(f"Layers left out by explain=False: {', '.join(report.excluded)}.")
        return notes + query.notes

    # --- learn -----------------------------------------------------------------------------------

    @property
    def is_fitted(self) -> bool:
        """Whether a gate network was fitted or loaded."""
        return self.gates is not None

    def _follow(self) -> None:
        super()._follow()
        if self.background is not None:
            self.background = self.background.to(self.target.device)

    def _learned(self) -> list[Any]:
        return [one for one in (self.background, self.gates, self.student) if one is not None]

    def _fit_units(self, work: FitWork) -> None:
        if not self.config.needs_fit:
            return
        self.student, self.teach_report = None, None  # they learned from the scores before
        self.gates, self.fit_report = fit_gates(
            work.target, work.units, self.mechanism(), self.config, work.seed, work.progress
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

        A fifth of the graphs is held out, to judge the student and to calibrate its error bars. For
        the arguments see `fit`, which forgets the student.
        """
        self.check_model()
        work = open_fit(self, graphs, Asked(target, index, pairs, seed, progress))
        report = self._teach_units(work, config)
        self._learned_with(work.target)
        return report

    def _teach_units(self, work: FitWork, config: TeachConfig | None = None) -> TeachReport:
        config = TeachConfig() if config is None else config
        stack = GraphStack(work.units, work.target.device)
        usable = (stack.num_edges > 0).nonzero().view(-1).cpu()

        def explain(chosen: Tensor) -> Lesson:
            part = Work(stack.take(usable[chosen]), work.target, work.seed)
            teacher, query = self._explain_batch(part, atoms=False), self._query(part)
            wanted = teacher.bond_score if teacher.unit == "own" else teacher.bond_loss
            return Lesson(view_bonds(query), wanted, query.case.reached, query.clean.size(1) + 1)

        num, chunk = usable.numel(), self.config.batch_size
        taught = teach_student(explain, num, config, work.seed, work.progress, chunk)
        self.student, self.teach_report = taught
        return self.teach_report

    def save(self, path: str | Path) -> None:
        """Writes what was learned, the settings and the model's fingerprint to one file."""
        if not self._learned():
            raise NotFittedError(
                "There is nothing to save. Pass `background`, or call teach() or fit()."
            )
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
