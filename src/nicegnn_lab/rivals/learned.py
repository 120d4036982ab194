"""The base class of rivals that train a network on many graphs."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch

from nicegnn.errors import GraphError, NotFittedError, TargetError
from nicegnn.explain.call import FitWork
from nicegnn.explain.explainer import Count, Positive, ScoreConfig, ScoreExplainer
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.background import record_background
from nicegnn.intervention.exchange import Exchange
from nicegnn.intervention.query import Query
from nicegnn.optimisation import History, batch_of_step, run_steps
from nicegnn.progress import progress_bar
from nicegnn.seeding import SeededWeights, mix
from nicegnn.target.frozen_model import Target


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
class LearnedConfig(ScoreConfig):
    learning_rate: Positive = 3e-3  # Adam
    steps: Count = 300  # optimisation steps
    fit_batch_size: Count = 128  # graphs per step


class LearnedRival(ScoreExplainer):
    """A rival that trains a network on many graphs and scores edges by it; the target is frozen.

    Under exchange, its prototypes are those of ``background``, else of the training graphs.
    """

    learns = True
    config_type: ClassVar[type[ScoreConfig]] = LearnedConfig
    config: LearnedConfig
    net: nn.Module | None = None  # what `fit` has trained
    history: History  # numbers of each of its steps
    _shape: dict[str, Any]  # what it returned of `_shape_of`

    @property
    def is_fitted(self) -> bool:
        return self.net is not None

    def _learned(self) -> list[Any]:
        return [] if self.net is None else [self.net]

    @abstractmethod
    def _shape_of(self, survey: Survey) -> dict[str, Any]:
        """Returns the arguments of `_make_network` and facts for notes, as plain values."""

    @abstractmethod
    def _make_network(self, shape: Mapping[str, Any]) -> nn.Module:
        """Returns a new network."""

    @abstractmethod
    def _losses(self, net: Any, query: Query, step: int, seed: int) -> Iterable[Tensor]:
        """Returns parts that add up to a mini-batch's loss; each step has its own `seed`."""

    def _optimiser(self, net: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(net.parameters(), lr=self.config.learning_rate)

    def _moved(self, net: Any, step: int) -> list[nn.Parameter]:
        """Returns the parameters that a step changes, by default all."""
        return list(net.parameters())

    def _take_step(
        self, net: Any, optimiser: torch.optim.Optimizer, query: Query, step: int, seed: int
    ) -> dict[str, float]:
        total = 0.0
        for loss in self._losses(net, query, step, seed):  # one after the other bounds memory
            torch.autograd.backward(loss, inputs=self._moved(net, step))
            total += float(loss.detach())
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return {"loss": total}

    def _fit_units(self, work: FitWork) -> None:
        if isinstance(self.mechanism, Exchange) and self.mechanism.prototypes is None:
            prototypes = record_background(work.target, work.units).messages
            self.mechanism = self.mechanism.having(prototypes)
        survey, target = self._survey(work), work.target
        if target.level != "graph" or not target.is_batched or target.mode == "regression":
            raise TargetError(
                f"`model` of {self.name} must classify graphs, many in a call (got level "
                f"{target.level!r}, mode {target.mode!r}). Use another explainer, such as nice."
            )
        shape = self._shape_of(survey)
        with SeededWeights(mix(work.seed, "weights")):
            net = self._make_network(shape)
        net.to(work.target.device).train()
        optimiser = self._optimiser(net)

        def step(number: int) -> dict[str, float]:
            chosen = batch_of_step(len(survey.kept), self.config.fit_batch_size, work.seed, number)
            batch = survey.stack.take(survey.kept[chosen])
            explained = survey.explained[chosen.to(survey.explained.device)]
            query = self._query(work.target, batch, explained)
            return self._take_step(net, optimiser, query, number, mix(work.seed, "fit", number))

        self.history = run_steps(
            step, self.config.steps, title=f"Fitting {self.name}", progress=work.progress
        )
        self.net, self._shape = net.eval(), shape

    def _survey(self, work: FitWork) -> Survey:
        stack = GraphStack(work.units, work.target.device)
        has_edges = (stack.num_edges > 0).nonzero().view(-1)
        if has_edges.numel() == 0:
            raise GraphError(f"`graphs` must hold a graph with edges (got {len(stack)} without).")
        explained = []
        with progress_bar("Reading graphs", has_edges.numel(), shown=work.progress) as advance:
            for number, part in enumerate(torch.split(has_edges, 1024)):
                query = self._query(work.target, stack.take(part))
                explained.append(query.explained)
                advance(1024 * number + part.numel(), "")
        sizes = tuple(state.size(1) for state in query.states)
        found = has_edges, torch.cat(explained), sizes, query.clean.size(1)
        return Survey(work.target, stack, *found, stack.take(has_edges[:8]))

    def _fitted(self) -> Any:
        if self.net is None:
            raise NotFittedError(f"{self.name} must be fitted: call fit(graphs) first.")
        return self.net
