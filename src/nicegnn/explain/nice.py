"""NICE: fit the gates, explain predictions, save and load."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

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
from nicegnn.config import NICEConfig, check_choice
from nicegnn.errors import ConfigError, NotFittedError, StoreError
from nicegnn.explain.by_student import (
    make_lesson,
    replace_graphs,
    student_explanation,
    take_graphs,
    uncertain_graphs,
)
from nicegnn.explain.explainer import Explainer, check_fingerprint, mechanism_name
from nicegnn.explain.explanation import Explanation, Flag, Status, flags_of, smiles_of
from nicegnn.explain.learned_parts import learned_tensors, restore_gates, restored_student
from nicegnn.explain.score_parts import (
    View,
    combine,
    combine_atoms,
    first_bonds,
    make_views,
    put_others_below,
)
from nicegnn.explain.trust import Part, Trust, judge_scores
from nicegnn.graph.case import make_case
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import ElementMask
from nicegnn.intervention.one_bond import can_remove
from nicegnn.intervention.query import Query
from nicegnn.progress import Turns
from nicegnn.store import load_tensors, save_tensors
from nicegnn.student.network import StudentNetwork
from nicegnn.student.teaching import Lesson, TeachConfig, TeachReport, teach_rounds
from nicegnn.target.frozen_model import Inputs, Mode, ReturnType, fingerprint

_ONLY_MESSAGES = (
    "Of atoms, only the messages that they send were damaged: the model reads neither a floating "
    "point `x` nor an nn.Embedding of whole numbers."
)

_ONLY_ORDER = "No bond was damaged alone: bonds are ranked by the gates, and `bond_big` is nan."
_ONLY_FIRST = (
    "In graphs with more bonds, only the {} that the gates rank first were damaged one by one; the "
    "others are ranked below them by the gates alone, and their `bond_big` is nan."
)
_VERSION = 3  # of files of fitted explainers
_STUDENT_BATCH = 4096  # graphs of a list that the student explains at a time, on a GPU

logger = logging.getLogger("nicegnn")

ByStudent = Literal[False, True, "auto"]


class NICE(Explainer):
    """Explains a model's predictions by noise corruption, restoration boundary and attribution.

    By default there are two views: noise corrupts messages in one, the other masks them. Bonds are
    judged one by one in both; a gate network learns an order of all bonds under masking. Scores
    join all parts; ``bond_big`` is the part of noise. Without `fit`, `explain` optimises the order
    on each graph alone, which is slower.

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
        if mechanism is not None and not callable(mechanism):
            raise ConfigError(
                "`mechanism` must be 'both', 'nc', 'em' or a callable such as ElementMask() (got "
                f"{mechanism!r})."
            )
        reading: dict[str, Any] = {"mode": mode, "return_type": return_type, "inputs": inputs}
        super().__init__(model, config, **reading, batched=batched)
        self.views = make_views(config) if mechanism is None else [View(mechanism, mechanism)]
        self._mechanism_name = None if mechanism is None else mechanism_name(mechanism)
        self.fit_report: FitReport | None = None
        self.student: StudentNetwork | None = None
        self.teach_report: TeachReport | None = None
        self._scores_atoms, self._tells_trust, self._places_boundary = False, True, False
        self._max_bonds: int | None = None  # bonds of a graph that are damaged one by one
        self._by_student: ByStudent = False

    @property
    def mechanism(self) -> Mechanism:
        """Mechanism of the first view."""
        return self.views[0].mechanism

    @property
    def gates(self) -> GateNetwork | None:
        """Gates of the view that learns an order of bonds."""
        return self._learner.gates

    @property
    def _learner(self) -> View:
        return self._learners[-1]

    @property
    def _learners(self) -> list[View]:
        return [view for view in self.views if view.learns]

    @property
    def is_fitted(self) -> bool:
        """Whether a gate network was fitted or loaded."""
        return self.gates is not None

    def _learned(self) -> list[nn.Module]:
        nets = [*(view.gates for view in self.views), self.student]
        return [net for net in nets if net is not None]

    def fit_settings(self) -> dict[str, Any]:
        """Returns the settings that `fit` reads, with the name of a mechanism that was passed."""
        settings = super().fit_settings()
        if self._mechanism_name is not None:
            settings["mechanism"] = self._mechanism_name
        return settings

    def _fit_units(
        self, units: Sequence[Data], seed: int, progress: bool, checkpoint: str | Path | None
    ) -> None:
        self.student, self.teach_report = None, None  # they learned from the scores before
        nets, self.fit_report = fit_gates(
            self.target,
            units,
            [view.boundary_mechanism for view in self._learners],
            self.config,
            fit_settings=self.fit_settings(),
            seed=seed,
            progress=progress,
            checkpoint=checkpoint,
        )
        fitted = iter(nets)
        self.views = [replace(v, gates=next(fitted)) if v.learns else v for v in self.views]
        if self.fit_report.status == "insensitive":
            logger.warning("Gates are insensitive: %s", self.fit_report.advice)
        for view, classes in zip(self._learners, self.fit_report.views, strict=True):
            for label, judgement in classes.items():
                status = judgement.status
                if status not in ("ok", "insensitive"):
                    found = label, status, view.boundary_mechanism, FIT_ADVICE[status]
                    logger.warning("Gates of class %d are %s under %r: %s", *found)

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
        """Teaches a student to predict the scores, and their errors, in one pass of the model.

        The teacher explains graphs in rounds, four times as many each. A fifth is held out.
        Teaching stops when their bonds are ranked well enough, or no better than in the round
        before. Interrupted, it leaves the student of the last whole round. For ``graphs``,
        ``target`` and ``index`` see `fit`, which forgets the student.
        """
        self._check_model()
        seed = self._seed(seed)
        work, units = self._ready(graphs, target, index)
        try:
            return work._teach_units(units, seed, progress, config)
        finally:
            self._keep(work)

    def _teach_units(
        self,
        units: Sequence[Data],
        seed: int,
        progress: bool,
        config: TeachConfig | None = None,
    ) -> TeachReport:
        self._scores_atoms, self._tells_trust, self._by_student = False, False, False
        stack = GraphStack(units, self.target.device)
        usable = (stack.num_edges > 0).nonzero().view(-1).cpu()
        is_share: bool | None = None

        def explain(some: Tensor) -> Lesson:
            nonlocal is_share
            batch = stack.take(usable[some])
            found = self._explain_batch(batch, None, seed, None)
            if is_share is None:  # only joined scores lie in [0, 1]
                is_share = bool(((found.bond_score >= 0) & (found.bond_score <= 1)).all())
            return make_lesson(self._query(batch, None), found.bond_score, is_share)

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
            if not is_share:
                student.steepness.zero_()
            self.student, self.teach_report = student, report
        return report

    def save(self, path: str | Path) -> None:
        """Writes what was learned, the settings and the model's fingerprint to one file."""
        if not self._learned():
            raise NotFittedError("There are no gates to save: call fit() first.")
        self._check_model()
        report = [
            {label: asdict(judgement) for label, judgement in view.items()}
            for view in (self.fit_report.views if self.fit_report else ())
        ]
        description = {
            "kind": "nice",
            "version": _VERSION,
            "config": self.config.to_dict(),
            "model": fingerprint(self.target.model),
            "mode": self.target.mode,
            "return_type": self.target.return_type,
            "label": self.target.label,
            "fit": report or None,
            "student": None if self.student is None else self.student.shape,
            "taught": None if self.teach_report is None else self.teach_report.to_dict(),
        }
        save_tensors(path, learned_tensors(self._learners, self.student), description)

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
        if description["version"] != _VERSION:
            raise StoreError(
                f"{path} must hold an explainer of version {_VERSION} (got version "
                f"{description['version']}, which joined other parts). Fit it again."
            )
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
        device = nice.target.device
        restore_gates(nice._learners, tensors, nice.config.boundary, device)
        if description.get("student") is not None:
            nice.student = restored_student(tensors, description["student"], device)
            nice.teach_report = TeachReport.from_dict(description["taught"])
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
        boundary: bool = False,
        trust: bool = True,
        max_bonds: int | None = None,
        student: ByStudent = False,
    ) -> Explanation:
        """Explains predictions as every explainer does, see `Explainer.explain`.

        With ``atoms=True`` atoms are scored too: ``atom_score``, ``atom_loss`` and ``atom_stderr``
        of the result (see `atom_wise_loss`). This takes one and a half to two times as long.

        With ``boundary=True`` each graph's boundary is placed: ``bond_gate``, ``restored`` and
        ``risk_boundary``, nan otherwise. Along a joint path, as in the paper, there always is one.

        Without ``trust=False``, ``trust`` of the result says how far to trust the scores of each
        graph, and some of its flags come from there (see `Trust`). It needs ``path="bond"``: along
        a joint path there is none.

        With ``max_bonds``, only so many bonds of a graph, those that the gates rank first, are
        damaged one by one; the others are ranked below them, by the gates alone, and their
        ``bond_big`` is nan. 0 leaves all bonds to the gates, which takes a few passes.

        With ``student=True`` the student predicts all scores in one pass of the model (see
        `teach`); with ``student="auto"`` it sends graphs with a large expected error to its
        teacher, those whose flag is then `Flag.UNCERTAIN` otherwise. Graphs that it scored have
        `Flag.STUDENT`, their ``bond_big`` is the predicted log-odds, standardised, and their
        ``bond_stderr`` its error bar. A student scores no atoms and tells no trust.
        """
        self._check_student(student, atoms)
        asked = copy.copy(self)  # threads may ask one explainer for different things
        asked._scores_atoms, asked._tells_trust, asked._by_student = atoms, trust, student
        asked._places_boundary = boundary
        asked._max_bonds = self._checked_most(max_bonds)
        if student and self.target.device.type != "cpu":
            size = max(self.config.batch_size, _STUDENT_BATCH)
            asked.config = self.config.with_(batch_size=size)
        given: dict[str, Any] = {"target": target, "index": index, "seed": seed, "slot": slot}
        return Explainer.explain(asked, graphs, **given, progress=progress)

    def _explain_batch(
        self, batch: Batch, target: int | Tensor | None, seed: int, slot: Tensor | None
    ) -> Explanation:
        query = self._query(batch, target, slot)
        if self._by_student:
            return self._explain_by_student(query, seed, slot)
        case = query.case
        is_joint = self.config.attribution.path == "joint"
        boundary = self._boundary(query, seed)
        query.shared.watch = Turns(self._advance, len(self.views) + self._takes_out)
        first = case.reached
        if self._max_bonds is not None:
            first = first_bonds(case, boundary.logit, self._max_bonds)
        some = query.among(first)
        losses = [self._attribution(view, some, boundary, seed) for view in self.views]
        only_masked = self._takes_out and not can_remove(query)
        num, paired = self.config.attribution.num_draws, self.config.attribution.antithetic
        independent = num // 2 if paired and num % 2 == 0 else num
        lost = [Part.drawn(one.score, one.stderr, independent) for one in losses]
        if self._takes_out and not only_masked:
            lost += [
                Part(removal_loss(some, self.config.attribution.degradation, one.score))
                for view, one in zip(self.views, losses, strict=True)
                if isinstance(view.mechanism, ElementMask)
            ]
        orders = [Part(boundary.logit)]
        parts = {"big": lost, "gate": orders, "both": orders + lost}[self.config.score]
        values = [part.value for part in parts]
        is_order = self.config.score == "gate"
        judged = case if is_order else some.case
        score = values[0] if len(values) == 1 else combine(judged, *values)
        found, has_others = losses[0], bool((first != case.reached).any())
        if has_others:
            is_other = case.reached & ~first
            found = replace(
                found,
                score=found.score.masked_fill(is_other, torch.nan),
                stderr=found.stderr.masked_fill(is_other, torch.nan),
            )
            if not is_order:
                score = put_others_below(case, first, score, boundary.logit)
                parts = [Part(part.value, found.stderr) for part in parts]  # of no use to the trust
        trust = None
        if self._tells_trust and not is_joint:
            trust = judge_scores(query, score, parts, seed)
        atoms = self._atoms(query, seed) if self._scores_atoms else {}
        notes = self._notes(query, only_masked)
        if has_others:
            words = _ONLY_FIRST.format(self._max_bonds) if self._max_bonds else _ONLY_ORDER
            notes += (words,)
        if atoms and not atoms.pop("reached"):
            notes += (_ONLY_MESSAGES,)
        return Explanation(
            edge_index=batch.edge_index,
            bonds=case.bonds,
            ptr=batch.ptr,
            bond_score=torch.where(case.reached, score, 0.0),
            bond_big=found.score,
            bond_stderr=found.stderr,
            bond_gate=torch.where(case.reached | boundary.gate.isnan(), boundary.gate, 0.0),
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

    def _query(
        self, batch: Batch, target: int | Tensor | None, slot: Tensor | None = None
    ) -> Query:
        return Query(
            self.target,
            make_case(batch, undirected=self.config.undirected, slot=slot),
            self.mechanism,
            explained=target,
            chunk_edges=self.config.chunk_edges,
            degradation=self.config.boundary.degradation,
        )

    def _check_student(self, student: ByStudent, atoms: bool) -> None:
        check_choice("student", student, (False, True, "auto"))
        if student and self.student is None:
            raise NotFittedError(
                f"student={student!r} needs a student (got none). Call teach(graphs) first, with "
                "graphs like those to explain."
            )
        if student and atoms:
            raise ConfigError("`atoms` must be False with a student, which scores only bonds.")

    def _explain_by_student(self, query: Query, seed: int, slot: Tensor | None) -> Explanation:
        assert self.student is not None  # see `_check_student`
        found = student_explanation(self.student, query)
        sent = uncertain_graphs(found)
        if self._by_student != "auto" or sent.numel() == 0:
            return found
        teacher = copy.copy(self)
        teacher._by_student = False
        explained: Tensor | None = query.explained[sent]
        if bool((query.explained < 0).any()):
            explained = None  # a regression model, all outputs of it
        if slot is not None:
            is_sent = torch.isin(query.case.edge_batch, sent)
            slot = slot[is_sent]
        some = take_graphs(query.case.batch, sent)
        return replace_graphs(found, teacher._explain_batch(some, explained, seed, slot), sent)

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
            "atom_loss": first.fall,
            "atom_stderr": first.stderr,
            "reached": all(one.reaches_features for one in found),
        }

    def _checked_most(self, max_bonds: int | None) -> int | None:
        """Returns ``max_bonds`` of `explain`, which needs gates to rank the bonds first."""
        if max_bonds is None:
            return None
        if type(max_bonds) is not int or max_bonds < 0:
            raise ConfigError(
                f"`max_bonds` must be a whole number of at least 0 (got {max_bonds!r})."
            )
        if self.config.score == "big" or self.config.attribution.path == "joint":
            raise ConfigError(
                "`max_bonds` needs scores that join gates and losses bond by bond (got score="
                f"{self.config.score!r}, path={self.config.attribution.path!r}). Use NICEConfig() "
                "or NICEConfig.quick()."
            )
        return max_bonds

    def _boundary(self, query: Query, seed: int) -> Boundary:
        """Returns order and boundary under the mechanism that the order is learned under."""
        view, settings = self._learner, self.config.boundary
        query = query.under(view.boundary_mechanism)
        reference = corrupted_risk(query, settings, seed)
        is_placed = self._places_boundary or self.config.attribution.path == "joint"
        if not (self.config.needs_boundary or is_placed):
            return no_boundary(query, reference)
        order = view.order(query, self.config, seed, reference)
        if not is_placed:
            return no_boundary(query, reference, order)
        return find_boundary(query, order, settings, seed, reference)

    def _attribution(self, view: View, query: Query, boundary: Boundary, seed: int) -> Attribution:
        settings, seen = self.config.attribution, query.under(view.mechanism)
        if settings.path == "bond":
            return bond_wise_gradient(seen, settings, seed)
        gate = boundary.gate
        if view is not self._learner:  # the same order has another boundary there
            seen_too, how = query.under(view.boundary_mechanism), self.config.boundary
            reference = corrupted_risk(seen_too, how, seed)
            gate = find_boundary(seen_too, boundary.logit, how, seed, reference).gate
        return boundary_integrated_gradient(seen, gate, settings, seed)

    @property
    def _how(self) -> str:
        """How the order of bonds was found."""
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
        known = self._learner.knows(query)
        edges = torch.bincount(case.edge_batch, minlength=case.num_graphs)
        scale = boundary.risk_corrupted.clamp(min=RISK_FLOOR)
        noticed = {
            Flag.INSENSITIVE: (boundary.risk_corrupted < RISK_FLOOR) & (trust is None),
            Flag.NOT_RESTORED: boundary.risk > 2 * settings.risk_target * scale,
            Flag.ALL_RESTORED: (boundary.restored > 0.97) & (settings.objective == "penalty"),
            Flag.UNFITTED_CLASS: ~known & self.is_fitted,
        }
        total = torch.zeros_like(edges)
        for flag, is_so in noticed.items():
            total += int(flag) * is_so
        if trust is not None:
            total += trust.flag_numbers
        return flags_of(torch.where(edges == 0, int(Flag.NO_EDGES), total))

    def _notes(self, query: Query, only_masked: bool) -> tuple[str, ...]:
        notes = []
        if self._how == "per-graph":
            notes.append("Not fitted: bonds were put in order on each graph alone.")
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
