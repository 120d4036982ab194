"""What rivals that learn share: a pass over the graphs, a loop that can resume, their files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nicegnn.errors import GraphError, NotFittedError, StoreError
from nicegnn.explain.explainer import Inputs, check_fingerprint, mechanism_name
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.query import Query
from nicegnn.optimisation import History, batch_of_step, descend, run_steps
from nicegnn.progress import progress_bar
from nicegnn.rivals.base import Baseline, BaselineConfig, Count, Positive
from nicegnn.seeding import mix
from nicegnn.store import load_tensors, save_tensors
from nicegnn.target.frozen_model import fingerprint


@dataclass(frozen=True)
class Survey:
    """What one clean pass over the training graphs found."""

    stack: GraphStack  # all graphs, on the model's device
    kept: Tensor  # graphs to learn from: those with edges, [G]
    explained: Tensor  # class to be explained of each of them, [G]
    state_sizes: tuple[int, ...]  # width of the node states of each message-passing layer
    num_classes: int  # columns of the target's reading
    example: Batch  # the first few of them


@dataclass(frozen=True)
class LearnedConfig(BaselineConfig):
    learning_rate: Positive = 3e-3  # Adam
    steps: Count = 300  # optimisation steps
    fit_batch_size: Count = 128  # graphs per step


class LearnedBaseline(Baseline):
    """A rival that trains a network on many graphs and scores edges by it.

    Subclasses give `_shape_of`, `_make_network`, `_loss` and `_edge_score`; the loop, its
    checkpoints, saving and loading are here. The target is frozen and gets no gradients.
    """

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

    @abstractmethod
    def _shape_of(self, survey: Survey) -> dict[str, Any]:
        """Returns what `_make_network` needs to know, as plain values that can be saved."""

    @abstractmethod
    def _make_network(self, shape: Mapping[str, Any]) -> nn.Module:
        """Returns a new network."""

    @abstractmethod
    def _loss(self, net: Any, query: Query, step: int, seed: int) -> Tensor:
        """Returns the loss of a mini-batch; `seed` belongs to this step alone."""

    def _optimiser(self, net: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(net.parameters(), lr=self.config.learning_rate)

    def _moved(self, net: Any, step: int) -> list[nn.Parameter]:
        """Returns the parameters that a step moves, by default all of them."""
        return list(net.parameters())

    def _take_step(
        self, net: Any, optimiser: torch.optim.Optimizer, query: Query, step: int, seed: int
    ) -> dict[str, float]:
        """Takes one step down the loss and reports numbers."""
        loss = self._loss(net, query, step, seed)
        descend(loss, self._moved(net, step), optimiser)
        return {"loss": float(loss.detach())}

    def _fit_units(
        self, units: Sequence[Data], seed: int, progress: bool, checkpoint: str | Path | None
    ) -> None:
        survey = self._survey(units, progress)
        shape = self._shape_of(survey)
        with torch.random.fork_rng(devices=[]):  # layers draw weights from the global generator
            torch.default_generator.manual_seed(mix(seed, "weights"))  # and not CUDA's
            net = self._make_network(shape)
        net.to(self.target.device).train()
        optimiser = self._optimiser(net)

        def step(number: int) -> dict[str, float]:
            chosen = batch_of_step(len(survey.kept), self.config.fit_batch_size, seed, number)
            batch = survey.stack.take(survey.kept[chosen])
            explained = survey.explained[chosen.to(survey.explained.device)]
            query = self._query(batch, None if bool((explained < 0).any()) else explained)
            return self._take_step(net, optimiser, query, number, mix(seed, "fit", number))

        self.history = run_steps(
            step,
            self.config.steps,
            net,
            optimiser,
            title=f"Fitting {self.name}",
            identity={
                "explainer": self.name,
                "model": fingerprint(self.target.model),
                "settings": self.fit_settings(),
                "seed": seed,
                "graphs": mix(len(survey.stack), *survey.stack.num_edges.tolist()),
            },
            progress=progress,
            checkpoint=checkpoint,
        )
        self.net, self._shape = net.eval(), shape

    def _survey(self, units: Sequence[Data], progress: bool) -> Survey:
        stack = GraphStack(units, self.target.device)
        has_edges = (stack.num_edges > 0).nonzero().view(-1)
        if has_edges.numel() == 0:
            raise GraphError(f"`graphs` must hold a graph with edges (got {len(stack)} without).")
        explained = []
        with progress_bar("Reading graphs", has_edges.numel(), shown=progress) as advance:
            for number, part in enumerate(torch.split(has_edges, 1024)):
                query = self._query(stack.take(part))
                explained.append(query.explained)
                advance(1024 * number + part.numel(), "")
        sizes = tuple(state.size(1) for state in query.states)
        example, num_classes = stack.take(has_edges[:8]), query.clean.size(1)
        return Survey(stack, has_edges, torch.cat(explained), sizes, num_classes, example)

    def _fitted(self) -> Any:
        """Returns the network, or an error that says to fit first."""
        if self.net is None:
            raise NotFittedError(f"{self.name} learns from many graphs: call fit(graphs) first.")
        return self.net

    def save(self, path: str | Path) -> None:
        description = {
            "kind": self.name,
            "version": 1,
            "config": self.config.to_dict(),
            "mechanism": mechanism_name(self.mechanism),
            "shape": self._shape,
            "model": fingerprint(self.target.model),
            "mode": self.target.mode,
            "return_type": self.target.return_type,
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
    ) -> Self:
        """Reads an explainer that was fitted for exactly this model and mechanism."""
        tensors, description = load_tensors(path, cls.name)
        check_fingerprint(path, model, description["model"])
        config = cls.config_type.from_dict(description["config"])
        reading = {key: description[key] for key in ("mode", "return_type")}
        explainer = cls(model, config, mechanism=mechanism, inputs=inputs, **reading)
        if mechanism_name(explainer.mechanism) != description["mechanism"]:
            raise StoreError(
                f"`mechanism` must be the one that {path} was fitted with, "
                f"{description['mechanism']} (got {explainer.mechanism!r})."
            )
        explainer._shape = description["shape"]
        with torch.random.fork_rng(devices=[]):  # layers draw weights, which are read next
            net = explainer._make_network(explainer._shape)
        net.load_state_dict(tensors)
        explainer.net = net.to(explainer.target.device).eval()
        return explainer
