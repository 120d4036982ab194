"""What should replace an atom: damages and rivals on molecules with known contributions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from nicegnn.config import check_choice
from nicegnn.seeding import SeededWeights, mix
from nicegnn.target.output import Mode
from nicegnn.target.training import (
    TrainConfig,
    predict,
    r_squared,
    train_model,
)
from nicegnn.target.zoo import GraphClassifier, make_model
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.rows import Block, mean_blocks
from nicegnn_lab.bench.study import Study, Variant, content_hash
from nicegnn_lab.bench.task import Task, make_task
from nicegnn_lab.datasets.data_files import data_folder, sha256_of
from nicegnn_lab.datasets.readers.atoms import (
    CLASSES,
    CLIFFS,
    FILES,
    IBENCHMARK,
    MOST,
    AtomMolecules,
    Pair,
    atom_molecules,
)
from nicegnn_lab.metrics import atoms as metrics
from nicegnn_lab.studies.atom_fidelity import fidelity
from nicegnn_lab.studies.atom_scores import Ground, all_scores, lay_ground

BACKBONES = ("gin", "gine", "gat")
#: Benchmarks of true bonds: a group of atoms decides, and no target was trained for this study.
GROUPS = ("benzene", "mutagenicity", "indole", "pains")
TRAINING = TrainConfig(learning_rate=0.005, batch_size=128, epochs=100, patience=10, stop_after=25)
_HIDDEN = 64
_KNOWN = 400  # molecules of a group that are read


class AtomTask(Task):
    """Molecules with known contributions of atoms; its targets are not trained yet."""

    targets: Iterable[str] = BACKBONES
    is_seeded = True
    most: Mapping[str, int] = MOST  # molecules of a part

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.seed = name, seed
        files = [sha256_of(data_folder() / file) for file in FILES[name]]
        self.identity = {"data": content_hash([name, files]), "split": f"seed {seed}"}

    @property
    def parts(self) -> AtomMolecules:
        """The molecules, read on first use."""
        return _molecules(self.name, self.seed, data_folder(), tuple(self.most.items()))

    @property
    def mode(self) -> Mode:
        """What its targets predict."""
        return "multiclass" if self.name in CLASSES else "regression"

    def model(self, target: str, folder: Path, device: str | torch.device = "cpu") -> nn.Module:
        """Returns the target with its first weights, which the seed makes; nothing is stored."""
        check_choice("target", target, self.targets)
        first = self.parts.train[0]
        with SeededWeights(mix(self.seed, self.name, target)):
            model = make_model(
                target,
                first.num_node_features,
                2 if self.mode == "multiclass" else 1,
                hidden_size=_HIDDEN,
                edge_size=first.num_edge_features,
            )
        return model.to(device)

    def train(self, model: nn.Module, training: TrainConfig) -> None:
        """Trains a target in place."""
        assert isinstance(model, GraphClassifier)  # see `model`
        parts = self.parts.train, self.parts.valid
        train_model(model, *parts, training, mode=self.mode, progress=False)

    def explained(self, model: nn.Module, part: str, most: int | None = None) -> Tensor:
        """Returns molecules with contributing atoms, or all where pairs tell the truth."""
        graphs: Sequence[Data] = getattr(self.parts, part)
        is_asked = [self.name in CLIFFS or bool(graph.atom_truth.any()) for graph in graphs]
        return torch.tensor(is_asked).nonzero().view(-1)[:most]

    def right(self, model: nn.Module, part: str) -> Tensor:
        """Returns those of them that a classifier puts into class 1."""
        place, graphs = self.explained(model, part), getattr(self.parts, part)
        if self.mode == "regression":
            return place
        found = predict(model, [graphs[n] for n in place.tolist()]).argmax(1).cpu()
        return place[found == 1]


class GroupTask(AtomTask):
    """A benchmark of true bonds with its stored targets; the atoms of its groups are true."""

    targets: Iterable[str] = ("gin", "gcn", "gat")
    is_seeded = False

    def __init__(self, name: str) -> None:
        self.name, self.whole = name, make_task(name)
        self.is_stand_in, self.identity = self.whole.is_stand_in, self.whole.identity

    @cached_property
    def parts(self) -> AtomMolecules:
        """The first training molecules, and those of the test part that have a group."""
        known, asked = self.whole.training(_KNOWN), self.whole.part("test")
        some = [asked[n] for n in self.whole.explained(nn.Identity(), "test", _KNOWN).tolist()]
        for graph in some:
            graph.atom_truth = graph.node_truth.float()
        return AtomMolecules(list(known), [], some)

    @property
    def mode(self) -> Mode:
        return "multiclass"

    def model(self, target: str, folder: Path, device: str | torch.device = "cpu") -> nn.Module:
        return self.whole.model(target, folder, device)

    def train(self, model: nn.Module, training: TrainConfig) -> None:
        """Does nothing: its targets are stored."""


@lru_cache(maxsize=1)
def _molecules(
    name: str, seed: int, folder: Path, most: tuple[tuple[str, int], ...]
) -> AtomMolecules:
    return atom_molecules(name, seed, folder, dict(most))


@dataclass(frozen=True)
class AtomStudy(Study):
    r"""Agreement of atom scores with known contributions, and their fidelity to the target.

    Rows by ``setting``, the name of a score of `all_scores`; means over molecules of
    ``positive_auc``, ``negative_auc``, and for logP ``tau`` and ``overlap``; of all molecules
    together ``top_n``, ``bottom_n``, ``rmse`` with its ``factor``, ``adds_up`` with its
    ``sum_correlation``. Means over pairs of activity cliffs: ``direction``, the same of pairs that
    the target puts in the measured order (``direction_right``) and of others
    (``direction_wrong``), ``mask_sign``, ``mask_auc``. Fidelity is that of `fidelity`. Rows without
    a setting are of the target: ``accuracy``, or ``r2`` and ``rmse``; the share of pairs in the
    measured order, ``pair_right``, their number, ``pairs``; and ``explained`` molecules.
    """

    name = "atoms"
    title = "What should replace an atom?"
    version = 3
    max_graphs = 200
    datasets = (*IBENCHMARK, "crippen", *CLIFFS, *GROUPS)
    targets = (*BACKBONES, "gcn")

    training_config: TrainConfig = TRAINING  # of the targets

    def task(self, name: str, seed: int) -> AtomTask:
        check_choice("dataset", name, (*FILES, *GROUPS))
        return GroupTask(name) if name in GROUPS else AtomTask(name, seed)

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        is_usual = self.training_config == TRAINING
        yield Variant(extra={} if is_usual else {"training": self.training_config.to_dict()})

    def measure(self, job: Job) -> Iterator[Block]:
        task, model = job.task, job.model
        assert isinstance(task, AtomTask)  # see `task`
        task.train(model, self.training_config)
        if not isinstance(task, GroupTask):
            yield from of_target(task, model)
        most = job.max_graphs
        place = task.right(model, "test")[:most]
        yield Block("explained", place.numel(), setting="")
        if place.numel() == 0:
            return
        graphs = [task.parts.test[n] for n in place.tolist()]
        ground = lay_ground(model, task.mode, graphs, task.parts.train, job.seed)
        pairs = [pair for pair in task.parts.pairs if max(pair.place) < len(graphs)]
        if pairs:
            yield Block("pairs", len(pairs), setting="")
            yield Block("pair_right", float(in_order(ground, pairs).double().mean()), setting="")
        scores = all_scores(ground)
        for setting, own in scores.items():
            yield from mean_blocks(judged(setting, own, ground, pairs))
        yield from fidelity(ground, scores)


def in_order(ground: Ground, pairs: Sequence[Pair]) -> Tensor:
    """Returns whether the target puts the molecules of a pair in the measured order, ``[P]``."""
    clean, difference = ground.clean.cpu(), torch.tensor([pair.difference for pair in pairs])
    first, second = torch.tensor([pair.place for pair in pairs]).unbind(1)
    return (clean[first] - clean[second]) * difference > 0


def of_target(task: AtomTask, model: nn.Module) -> Iterator[Block]:
    for part in ("valid", "test"):
        graphs: Sequence[Data] = getattr(task.parts, part)
        given = torch.cat([graph.y for graph in graphs])
        found = predict(model, graphs, mode=task.mode).cpu()
        before = "valid_" if part == "valid" else ""
        if task.mode == "multiclass":
            right = (found.argmax(1) == given).double().mean()
            yield Block(f"{before}accuracy", float(right), setting="")
        else:
            error = (found.view(-1) - given).double().square().mean().sqrt()
            yield Block(f"{before}r2", r_squared(found, given), setting="")
            yield Block(f"{before}rmse", float(error), setting="")


def judged(setting: str, score: Tensor, ground: Ground, pairs: Sequence[Pair]) -> Iterator[Block]:
    """Yields all metrics of a score that the task has a truth for."""
    batch, number = ground.batch.batch.cpu(), ground.batch.num_graphs

    def found(metric: str, value: float | Tensor) -> Block:
        return Block(metric, value, setting=setting)

    share, correlation = metrics.adds_up(score, ground.rise.cpu(), batch)
    yield found("adds_up", share)
    yield found("sum_correlation", correlation)
    if pairs:
        both = [pair.place for pair in pairs], [pair.atoms for pair in pairs]
        given = (score, ground.batch.ptr.cpu(), *both, torch.tensor([p.difference for p in pairs]))
        direction, right = metrics.global_direction(*given), in_order(ground, pairs)
        yield found("direction", direction)
        yield found("direction_right", direction[right])
        yield found("direction_wrong", direction[~right])
        for metric, value in zip(
            ("mask_sign", "mask_auc"), metrics.mask_agreement(*given), strict=True
        ):
            yield found(metric, value)
        return
    truth = ground.batch.atom_truth.cpu()
    here = (score, truth, batch, number)
    yield found("positive_auc", metrics.positive_auc(*here))
    if (truth < 0).any():
        yield found("negative_auc", metrics.negative_auc(*here))
    if truth.unique().numel() > 3:  # values and no labels
        yield found("tau", metrics.kendall_tau(*here))
        yield found("overlap", metrics.sign_overlap(*here))
    for metric, side in (("top_n", 1), ("bottom_n", -1)):
        hits, true = metrics.top_n(side * score, side * truth > 0, batch, number)
        if true.sum() > 0:
            yield found(metric, float(hits.sum() / true.sum()))
    error, factor = metrics.scaled_rmse(score, truth)
    yield found("rmse", error)
    yield found("factor", factor)
