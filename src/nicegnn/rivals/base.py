"""Base classes of all rivals, and of the rivals that train a network on many graphs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_type_hints

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nicegnn.config import ExplainerConfig, check_at_least, check_count, check_positive
from nicegnn.errors import ConfigError, GraphError, NotFittedError, StoreError
from nicegnn.explain.explainer import Call, Explainer, check_fingerprint, mechanism_name
from nicegnn.explain.explanation import Explanation, scores_only
from nicegnn.graph.case import Case, make_case
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import get_mechanism
from nicegnn.intervention.query import Query
from nicegnn.optimisation import History, batch_of_step, descend, run_steps
from nicegnn.progress import Turns, progress_bar
from nicegnn.seeding import SeededWeights, mix
from nicegnn.store import load_tensors, save_tensors
from nicegnn.target.frozen_model import Inputs, Mode, ReturnType, Target, fingerprint, log_odds

Count = Annotated[int, check_count]
Positive = Annotated[float, check_positive]
NotNegative = Annotated[float, lambda settings, name: check_at_least(settings, 0, name)]


@dataclass(frozen=True)
class BaselineConfig(ExplainerConfig):
    """Settings of every rival; types such as `Count` check their numbers."""

    num_draws: Count = 4  # noise draws to average over, for random mechanisms

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            for check in getattr(hint, "__metadata__", ()):
                check(self, name)


class Baseline(Explainer):
    """A rival explainer: it scores directed edges, and a bond by the mean over its directions.

    Subclasses define `_edge_score`. The scores of a bond's directions differ in nearly all methods;
    they are averaged before any sigmoid. A mechanism (a name or an object) damages messages.
    """

    config_type: ClassVar[type[BaselineConfig]] = BaselineConfig
    mechanisms: ClassVar[tuple[str, ...]] = ("em",)  # default first; empty: damages nothing
    config: BaselineConfig

    def __init__(
        self,
        model: nn.Module,
        config: BaselineConfig | None = None,
        *,
        mechanism: str | Mechanism | None = None,
        mode: Mode = "auto",
        return_type: ReturnType = "auto",
        inputs: Inputs = None,
        batched: bool | None = None,
    ) -> None:
        if config is not None and not isinstance(config, self.config_type):
            raise ConfigError(
                f"`config` of {self.name} must be a {self.config_type.__name__} "
                f"(got a {type(config).__name__})."
            )
        self.config = self.config_type() if config is None else config
        reading: dict[str, Any] = {"mode": mode, "return_type": return_type, "inputs": inputs}
        super().__init__(model, self.config, **reading, batched=batched)
        own = self.mechanisms or ("em",)  # a query always needs one
        chosen = own[0] if mechanism is None else mechanism
        if isinstance(chosen, str) and chosen not in own:
            raise ConfigError(f"`mechanism` of {self.name} must be one of {own} (got {chosen!r}).")
        self.mechanism = get_mechanism(chosen) if isinstance(chosen, str) else chosen

    @property
    def num_draws(self) -> int:
        """Draws to average over: one if the mechanism is not random."""
        if getattr(self.mechanism, "is_random", True):
            return self.config.num_draws
        return getattr(self.mechanism, "num_draws", None) or 1

    def fit_settings(self) -> dict[str, Any]:
        """Returns the settings that a fit depends on, with the mechanism."""
        settings = super().fit_settings()
        return settings | {"mechanism": mechanism_name(self.mechanism)} if settings else {}

    def _explain_batch(self, batch: Batch, call: Call) -> Explanation:
        query = self._query(call.target, batch, call.explained, call.slot)
        query.shared.watch = Turns(call.advance, 1)
        seed = call.seed
        score = query.clean.new_zeros(0)
        if query.case.num_edges:
            score = query.case.bonds.mean(self._edge_score(query, seed).to(query.clean.dtype))
        if not bool(torch.isfinite(score).all()):
            raise GraphError(
                f"{self.name} gave NaN or infinite scores. Check the model's outputs on these "
                "graphs, or choose other settings."
            )
        return scores_only(query.case, score, query.explained, query.clean, self._notes(query))

    @abstractmethod
    def _edge_score(self, query: Query, seed: int) -> Tensor:
        """Returns the raw score of each directed edge, ``[E]``; higher is more important."""

    def _notes(self, query: Query) -> Sequence[str]:
        """Returns warnings about the scores of a batch."""
        return ()

    def _query(
        self,
        target: Target,
        batch: Batch,
        explained: int | Tensor | None = None,
        slot: Tensor | None = None,
    ) -> Query:
        case = make_case(batch, undirected=self.config.undirected, slot=slot)
        limit = self.config.chunk_edges
        return Query(target, case, self.mechanism, explained=explained, chunk_edges=limit)

    def _log_prob(self, query: Query, edge_gate: Tensor, stream: int) -> Tensor:
        """Returns the mean log-probability of the explained class over draws, ``[B]``."""
        gate = edge_gate.expand(self.num_draws, -1)  # [N, E]
        return self._class_log_prob(query, query.answers(gate, stream)).mean(0)

    def _class_log_prob(self, query: Query, answer: Tensor) -> Tensor:
        """Returns the log-probability of the explained class, ``[N, B, C]`` to ``[N, B]``."""
        if query.target.mode == "regression":  # without classes: minus the squared change
            return -query.target.degradation(query.clean, answer, query.explained)
        # slopes stay exact on confident graphs
        return nn.functional.logsigmoid(log_odds(answer, query.explained))


def bond_slots(case: Case) -> Tensor:
    """Returns the noise coordinate of each bond, the lowest of its edges, ``[M]``."""
    slot = torch.full_like(case.bonds.batch, torch.iinfo(torch.long).max)
    return slot.scatter_reduce(0, case.bonds.edge_bond, case.slot, "amin")


@dataclass(frozen=True)
class Survey:
    """Training graphs, and facts from one clean pass over them."""

    target: Target  # that is learned from
    stack: GraphStack  # all graphs, on the model's device
    kept: Tensor  # graphs to learn from: those with edges, [G]
    explained: Tensor  # class to explain for each kept graph, [G]
    state_sizes: tuple[int, ...]  # width of the node states of each message-passing layer
    num_classes: int  # columns of the target's log-probabilities
    example: Batch  # the first few kept graphs


@dataclass(frozen=True)
class LearnedConfig(BaselineConfig):
    learning_rate: Positive = 3e-3  # Adam
    steps: Count = 300  # optimisation steps
    fit_batch_size: Count = 128  # graphs per step


class LearnedBaseline(Baseline):
    """A rival that trains a network on many graphs and scores edges by it; the target is frozen."""

    learns = True
    config_type: ClassVar[type[BaselineConfig]] = LearnedConfig
    config: LearnedConfig

    def __init__(self, model: nn.Module, config: Any = None, **settings: Any) -> None:
        super().__init__(model, config, **settings)
        self.net: nn.Module | None = None
        self.history: History = []
        self._shape: dict[str, Any] = {}

    @property
    def is_fitted(self) -> bool:
        return self.net is not None

    def _learned(self) -> list[nn.Module]:
        return [] if self.net is None else [self.net]

    @abstractmethod
    def _shape_of(self, survey: Survey) -> dict[str, Any]:
        """Returns the arguments of `_make_network` as plain values, which are saved."""

    @abstractmethod
    def _make_network(self, shape: Mapping[str, Any]) -> nn.Module:
        """Returns a new network."""

    @abstractmethod
    def _loss(self, net: Any, query: Query, step: int, seed: int) -> Tensor:
        """Returns the loss of a mini-batch; each step has its own `seed`."""

    def _optimiser(self, net: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(net.parameters(), lr=self.config.learning_rate)

    def _moved(self, net: Any, step: int) -> list[nn.Parameter]:
        """Returns the parameters that a step changes, by default all."""
        return list(net.parameters())

    def _take_step(
        self, net: Any, optimiser: torch.optim.Optimizer, query: Query, step: int, seed: int
    ) -> dict[str, float]:
        """Takes one step and returns numbers for the history."""
        loss = self._loss(net, query, step, seed)
        descend(loss, self._moved(net, step), optimiser)
        return {"loss": float(loss.detach())}

    def _fit_units(
        self,
        target: Target,
        units: Sequence[Data],
        seed: int,
        progress: bool,
        checkpoint: str | Path | None,
    ) -> None:
        survey = self._survey(target, units, progress)
        shape = self._shape_of(survey)
        with SeededWeights(mix(seed, "weights")):
            net = self._make_network(shape)
        net.to(target.device).train()
        optimiser = self._optimiser(net)

        def step(number: int) -> dict[str, float]:
            chosen = batch_of_step(len(survey.kept), self.config.fit_batch_size, seed, number)
            batch = survey.stack.take(survey.kept[chosen])
            explained = survey.explained[chosen.to(survey.explained.device)]
            is_sum = bool((explained < 0).any())  # all outputs of a regression model
            query = self._query(target, batch, None if is_sum else explained)
            return self._take_step(net, optimiser, query, number, mix(seed, "fit", number))

        self.history = run_steps(
            step,
            self.config.steps,
            net,
            optimiser,
            title=f"Fitting {self.name}",
            identity={
                "explainer": self.name,
                "model": fingerprint(target.model),
                "settings": self.fit_settings(),
                "seed": seed,
                "graphs": mix(len(survey.stack), *survey.stack.num_edges.tolist()),
            },
            progress=progress,
            checkpoint=checkpoint,
        )
        self.net, self._shape = net.eval(), shape

    def _survey(self, target: Target, units: Sequence[Data], progress: bool) -> Survey:
        stack = GraphStack(units, target.device)
        has_edges = (stack.num_edges > 0).nonzero().view(-1)
        if has_edges.numel() == 0:
            raise GraphError(f"`graphs` must hold a graph with edges (got {len(stack)} without).")
        explained = []
        with progress_bar("Reading graphs", has_edges.numel(), shown=progress) as advance:
            for number, part in enumerate(torch.split(has_edges, 1024)):
                query = self._query(target, stack.take(part))
                explained.append(query.explained)
                advance(1024 * number + part.numel(), "")
        sizes = tuple(state.size(1) for state in query.states)
        example, num_classes = stack.take(has_edges[:8]), query.clean.size(1)
        return Survey(target, stack, has_edges, torch.cat(explained), sizes, num_classes, example)

    def _fitted(self) -> Any:
        """Returns the network; raises `NotFittedError` before fit()."""
        if self.net is None:
            raise NotFittedError(f"{self.name} must be fitted: call fit(graphs) first.")
        return self.net

    def save(self, path: str | Path) -> None:
        self._check_model()
        description = {
            "kind": self.name,
            "version": 1,
            "config": self.config.to_dict(),
            "mechanism": mechanism_name(self.mechanism),
            "shape": self._shape,
            "model": fingerprint(self.target.model),
            "mode": self.target.mode,
            "return_type": self.target.return_type,
            "label": self.target.label,
        }
        save_tensors(path, self._fitted().state_dict(), description)

    @classmethod
    def load(
        cls,
        path: str | Path,
        model: nn.Module,
        *,
        mechanism: str | Mechanism | None = None,
        inputs: Inputs = None,
        batched: bool | None = None,
    ) -> Self:
        """Reads an explainer that was fitted for this model and mechanism."""
        tensors, description = load_tensors(path, cls.name)
        check_fingerprint(path, model, description["model"])
        config = cls.config_type.from_dict(description["config"])
        reading = {key: description[key] for key in ("mode", "return_type")}
        reading |= {"inputs": inputs, "batched": batched}
        explainer = cls(model, config, mechanism=mechanism, **reading)
        if mechanism_name(explainer.mechanism) != description["mechanism"]:
            raise StoreError(
                f"`mechanism` must be the one that {path} was fitted with, "
                f"{description['mechanism']} (got {explainer.mechanism!r})."
            )
        explainer._shape = description["shape"]
        with SeededWeights(0):  # new layers draw weights; they are replaced
            net = explainer._make_network(explainer._shape)
        net.load_state_dict(tensors)
        explainer.net = net.to(explainer.target.device).eval()
        explainer._fitted_for = description["model"]
        explainer.target.label = description.get("label")
        return explainer
