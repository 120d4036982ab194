"""What rivals that learn share: one pass over the graphs, a resumable loop, saving and loading."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from nicegnn.errors import ConfigError, GraphError, NotFittedError, StoreError
from nicegnn.explain.explainer import Inputs, check_fingerprint
from nicegnn.graph.minibatches import GraphStack
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.query import Query
from nicegnn.optimisation import History, batch_of_step, descend, run_steps
from nicegnn.progress import progress_bar
from nicegnn.rivals.base import Baseline, BaselineConfig
from nicegnn.seeding import mix
from nicegnn.store import load_tensors, save_tensors
from nicegnn.target.frozen_model import fingerprint


@dataclass(frozen=True)
class Survey:
    """What one clean pass over the training graphs told.

    Attributes:
        stack: all graphs, on the model's device.
        kept: graphs to learn from: those with edges, ``[G]``.
        explained: class to be explained of each of them, ``[G]``.
        state_sizes: width of the node states of each message-passing layer.
        num_classes: columns of the target's reading.
        example: a small batch.
    """

    stack: GraphStack
    kept: Tensor
    explained: Tensor
    state_sizes: tuple[int, ...]
    num_classes: int
    example: Batch


@dataclass(frozen=True)
class LearnedConfig(BaselineConfig):
    """Settings of rivals that learn from many graphs."""

    learning_rate: float = 3e-3  # Adam
    steps: int = 300  # optimisation steps
    fit_batch_size: int = 128  # graphs per step

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.learning_rate > 0:
            raise ConfigError(f"`learning_rate` must be positive (got {self.learning_rate!r}).")
        for name in ("steps", "fit_batch_size"):
            if getattr(self, name) < 1:
                raise ConfigError(f"`{name}` must be at least 1 (got {getattr(self, name)!r}).")


class LearnedBaseline(Baseline):
    """A rival that trains a network on many graphs; scores need one pass of it.

    Subclasses give `_make_network`, `_loss` and `_edge_score`; the loop, its checkpoints, saving
    and loading are here. The target is frozen and gets no gradients.
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
    def _make_network(self, shape: Mapping[str, Any]) -> nn.Module:
        """Returns a new network; `shape` is what `_shape_of` returned."""

    def _shape_of(self, survey: Survey) -> dict[str, Any]:
        """Returns what the network's size depends on, as plain values that can be saved."""
        return {"state_sizes": list(survey.state_sizes), "num_classes": survey.num_classes}

    @abstractmethod
    def _loss(self, net: Any, query: Query, step: int, seed: int) -> Tensor:
        """Returns the loss of a mini-batch; `seed` belongs to this step alone."""

    def _optimiser(self, net: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam(net.parameters(), lr=self.config.learning_rate)

    def _take_step(
        self, net: nn.Module, optimiser: torch.optim.Optimizer, query: Query, step: int, seed: int
    ) -> dict[str, float]:
        """Takes one step; the plain way, for one loss and one group of parameters."""
        loss = self._loss(net, query, step, seed)
        descend(loss, list(net.parameters()), optimiser)
        return {"loss": float(loss.detach())}

    def _fit_units(
        self, units: Sequence[Data], seed: int, progress: bool, checkpoint: str | Path | None
    ) -> None:
        survey = self._survey(units, progress)
        shape = self._shape_of(survey)
        with torch.random.fork_rng(devices=[]):  # layers draw weights from the global generator
            torch.default_generator.manual_seed(mix(seed, "weights"))  # and not CUDA's
            net = self._make_network(shape)
        net.to(self.target.device)
        net.train()
        optimiser = self._optimiser(net)
        size = self.config.fit_batch_size

        def step(number: int) -> dict[str, float]:
            chosen = batch_of_step(survey.kept.numel(), size, seed, number)
            batch = survey.stack.take(survey.kept[chosen])
            explained = survey.explained[chosen.to(survey.explained.device)]
            query = self._query(batch, None if bool((explained < 0).any()) else explained, None)
            return self._take_step(net, optimiser, query, number, mix(seed, "fit", number))

        self.history = []
        run_steps(
            step,
            self.config.steps,
            net,
            optimiser,
            title=f"Fitting {self.name}",
            identity={
                "explainer": self.name,
                "model": fingerprint(self.target.model),
                "mechanism": repr(self.mechanism),
                "config": asdict(self.config) | {"chunk_edges": 0, "batch_size": 0},
                "seed": seed,
                "graphs": mix(len(survey.stack), *survey.stack.num_edges.tolist()),
            },
            progress=progress,
            checkpoint=checkpoint,
            history=self.history,
        )
        self.net, self._shape = net.eval(), shape

    def _survey(self, units: Sequence[Data], progress: bool) -> Survey:
        stack = GraphStack(units, self.target.device)
        has_edges = (stack.num_edges > 0).nonzero().view(-1)
        if has_edges.numel() == 0:
            raise GraphError(f"None of the {len(stack)} training graphs has edges.")
        explained = []
        with progress_bar("Reading graphs", has_edges.numel(), shown=progress) as advance:
            for first in range(0, has_edges.numel(), 1024):
                part = has_edges[first : first + 1024]
                query = self._query(stack.take(part), None, None)
                explained.append(query.explained)
                advance(first + part.numel(), "")
        return Survey(
            stack=stack,
            kept=has_edges,
            explained=torch.cat(explained),
            state_sizes=tuple(state.size(1) for state in query.states),
            num_classes=query.clean.size(1),
            example=stack.take(has_edges[:8]),
        )

    def _fitted(self) -> Any:
        """Returns the network, or an error that says to fit first."""
        if self.net is None:
            raise NotFittedError(f"{self.name} learns from many graphs: call fit(graphs) first.")
        return self.net

    def save(self, path: str | Path) -> None:
        net = self._fitted()
        save_tensors(
            path,
            net.state_dict(),
            {
                "kind": self.name,
                "version": 1,
                "config": asdict(self.config),
                "mechanism": repr(self.mechanism),
                "shape": self._shape,
                "model": fingerprint(self.target.model),
                "mode": self.target.mode,
                "return_type": self.target.return_type,
            },
        )

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
        explainer = cls(
            model,
            cls.config_type().with_(**description["config"]),
            mechanism=mechanism,
            mode=description["mode"],
            return_type=description["return_type"],
            inputs=inputs,
        )
        if repr(explainer.mechanism) != description["mechanism"]:
            raise StoreError(
                f"{path} was fitted with mechanism {description['mechanism']} (got "
                f"{explainer.mechanism!r}); pass the same `mechanism`."
            )
        explainer._shape = description["shape"]
        with torch.random.fork_rng(devices=[]):
            net = explainer._make_network(explainer._shape)
        net.load_state_dict(tensors)
        explainer.net = net.to(explainer.target.device).eval()
        return explainer
