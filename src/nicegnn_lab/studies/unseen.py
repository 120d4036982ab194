"""NICE on targets that no choice of ours has seen: scores of bonds, and of atoms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GINConv

from nicegnn.config import NICEConfig, check_choice
from nicegnn.errors import ConfigError
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.nice import NICE
from nicegnn.graph.batch import to_batch
from nicegnn.seeding import mix
from nicegnn.target.training import (
    TrainConfig,
    accuracy_of,
    predict,
    r_squared,
    train_classifier,
    train_regressor,
)
from nicegnn.target.zoo import GIN, GraphClassifier, make_model
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.measure import MetricConfig, Scores
from nicegnn_lab.bench.plan import find_mechanism
from nicegnn_lab.bench.rows import Block
from nicegnn_lab.bench.study import Study, Variant, content_hash
from nicegnn_lab.bench.task import Task, data_key, draw
from nicegnn_lab.datasets import load_dataset
from nicegnn_lab.datasets.data_files import sha256_of
from nicegnn_lab.datasets.readers import ibenchmark
from nicegnn_lab.metrics import Truth, random_rank, random_ties, roc_auc, truth_metrics
from nicegnn_lab.metrics.ranking import graph_sum
from nicegnn_lab.rivals import find_entry, get_explainer
from nicegnn_lab.studies.bond_scores import limit_of

METHODS = ("nice", "nice-instant", "occlusion")  # that score bonds
TARGET = "target"  # setting of the rows of a target
ATOMS = "gine"  # the target whose atoms are scored
#: Benchmarks with targets of another recipe than the stored ones.
BENCHMARKS = ("benzene", "fluoride-carbonyl", "mutagenicity", "alkane-carbonyl")
#: Rules on the molecules of ibenchmark: a match is label 1.
PATTERNS = {"sulfonyl": "S(=O)=O", "morpholine": "C1COCCN1"}
TRAINING = TrainConfig(learning_rate=0.003, batch_size=256, epochs=100, patience=10, stop_after=30)
_MOST_MATCHES = 2000  # molecules of each label under a rule of `PATTERNS`
_BOND_GRAPHS = 60  # most graphs of a target whose bonds are scored


class PlainGIN(GIN):
    """GIN without BatchNorm."""

    def make_layer(self, in_size: int, out_size: int, edge_size: int) -> nn.Module:
        first, last = nn.Linear(in_size, out_size), nn.Linear(out_size, out_size)
        return GINConv(nn.Sequential(first, nn.ReLU(), last))


def _made(name: str, **settings: Any) -> Callable[..., GraphClassifier]:
    return lambda in_size, outputs, **sizes: make_model(name, in_size, outputs, **settings, **sizes)


#: Targets by name: functions of the numbers of node features, outputs and edge features.
RECIPES: dict[str, Callable[..., GraphClassifier]] = {
    "gin-plain": PlainGIN,
    "gcn-4": _made("gcn", num_layers=4, readout="mean"),
    "gin": _made("gin"),
    "sage-max": _made("sage", readout="max"),
    "transformer": _made("transformer"),
    ATOMS: _made("gine"),
}
_ON_BENCHMARKS, _ON_RULES = ("gin-plain", "gcn-4"), ("gin", "sage-max", "transformer")
#: Targets of every dataset.
SUBJECTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(BENCHMARKS, _ON_BENCHMARKS),
    **dict.fromkeys(PATTERNS, _ON_RULES),
    **dict.fromkeys(ibenchmark.TASKS, (ATOMS,)),
    "amide_class": (*_ON_RULES, ATOMS),
}


class UnseenTask(Task):
    """Molecules of one dataset of `SUBJECTS`; its targets are not trained yet.

    Benchmarks and published tasks keep their split; a tenth of a published training part, drawn by
    the seed, is for validation. Rules are split 80/10/10.
    """

    is_seeded = True

    def __init__(self, name: str, seed: int) -> None:
        check_choice("dataset", name, SUBJECTS)
        self.name, self.seed, self.targets = name, seed, SUBJECTS[name]
        self.train: Sequence[Data]
        self.valid: Sequence[Data]
        if name in BENCHMARKS:
            dataset = load_dataset(name)
            self.train, self.valid, self.test = dataset.train, dataset.valid, list(dataset.test)
            self.identity = {"data": data_key(dataset), "split": dataset.origin.split}
            return
        data = content_hash([name, sha256_of(ibenchmark.table_path())])
        self.identity = {"data": data, "split": f"seed {seed}"}
        if name in PATTERNS:
            graphs = ibenchmark.graphs_with_pattern(PATTERNS[name], _MOST_MATCHES, seed)
            tenth = len(graphs) // 10
            self.test, graphs = graphs[:tenth], graphs[tenth:]
        else:
            parts = ibenchmark.published_graphs(name)
            generator = torch.Generator().manual_seed(mix(seed, name, "valid"))
            order = torch.randperm(len(parts["train"]), generator=generator).tolist()
            graphs = [parts["train"][number] for number in order]
            tenth, self.test = len(graphs) // 10, parts["test"]
        self.valid, self.train = graphs[:tenth], graphs[tenth:]

    @property
    def is_regression(self) -> bool:
        """Whether targets predict a value."""
        return not ibenchmark.TASKS.get(self.name, True)

    @property
    def num_train(self) -> int:
        return len(self.train)

    def model(self, target: str, folder: Path, device: str | torch.device = "cpu") -> nn.Module:
        """Returns the target with its first weights, which the seed makes; nothing is stored."""
        check_choice("target", target, self.targets)
        first = self.train[0]
        sizes = {"edge_size": first.num_edge_features}
        with torch.random.fork_rng(devices=[]):  # layers draw weights from the global generator
            torch.default_generator.manual_seed(mix(self.seed, self.name, target))
            outputs = 1 if self.is_regression else 2
            model = RECIPES[target](first.num_node_features, outputs, **sizes)
        return model.to(device)

    def explained(
        self, model: nn.Module, part: str, most: int | None = None, needs_right: bool = False
    ) -> Tensor:
        """Returns test graphs of label 1 with true bonds, or with true atoms and others."""
        check_choice("part", part, ("test",))
        has_bonds = self.targets != (ATOMS,)
        chosen = [
            number
            for number, graph in enumerate(self.test)
            if (has_bonds and int(graph.y) == 1 and bool(graph.edge_truth.any()))
            or (not has_bonds and 0 < int((graph.node_truth == 1).sum()) < graph.num_nodes)
        ]
        if not chosen:
            raise ConfigError(f"{self.name} has no graph with a truth in its test part.")
        return torch.tensor(chosen)[draw(len(chosen), most, "explained")]

    def training(self, most: int | None = None) -> tuple[Sequence[Data], None]:
        return self.train, None

    def explain(
        self, explainer: Explainer, positions: Tensor, part: str, seed: int, target: str = "label"
    ) -> Iterator[Explanation]:
        yield explainer.explain([self.test[n] for n in positions.tolist()], target=1, seed=seed)

    def measure(
        self, scores: Scores, model: nn.Module, metrics: MetricConfig, seed: int
    ) -> Iterator[Block]:
        raise NotImplementedError  # the study measures, as it trains the target


@dataclass(frozen=True)
class UnseenStudy(Study):
    """Targets that are trained here, on molecules or by recipes that had no part in any choice.

    Rows of bonds: ``roc_auc`` of each explainer and graph. Rows of atoms, by ``setting``:
    ``atom_roc_auc`` of each molecule, where the protocol names the true atoms (``positive``,
    ``negative`` with the sign turned, or ``either`` by size), ``atom_hits`` among as many best
    atoms as are positive, and ``atom_true``, their number. Setting ``target`` has the test
    ``accuracy``, or ``r_squared`` of values.
    """

    name = "unseen"
    title = "NICE on targets that nobody tuned for"
    max_graphs = 200
    datasets = tuple(SUBJECTS)
    targets = tuple(RECIPES)

    training: TrainConfig = TRAINING  # of the targets
    settings: Mapping[str, Any] = field(default_factory=dict)  # of NICE that differ from defaults

    def task(self, name: str, seed: int) -> UnseenTask:
        return UnseenTask(name, seed)

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        training = {} if self.training == TRAINING else {"training": vars(self.training)}
        version = {"defaults": find_entry("nice")[0].defaults_version}
        version |= {"atoms": 2} if target == ATOMS else {}  # 1: values had no direction
        yield Variant(extra={**self.settings, **training, **version})

    def measure(self, job: Job) -> Iterator[Block]:
        task, model = job.task, job.model
        assert isinstance(task, UnseenTask)  # see `task`
        assert isinstance(model, GraphClassifier)  # see `RECIPES`
        train = train_regressor if task.is_regression else train_classifier
        train(model, task.train, task.valid, self.training, progress=False)
        if task.is_regression:
            value = torch.cat([graph.y for graph in task.test])
            found = predict(model, task.test, mode="regression").cpu()
            yield Block("r_squared", r_squared(found, value), setting=TARGET)
        else:
            yield Block("accuracy", accuracy_of(model, task.test), setting=TARGET)
        most = limit_of(job, "max_graphs") or len(task.test)
        if job.target == ATOMS:
            yield from self.of_atoms(task, model, task.explained(model, job.part, most), job.seed)
        else:
            positions = task.explained(model, job.part, min(most, _BOND_GRAPHS))
            yield from self.of_bonds(task, model, positions, job.seed)

    def of_bonds(
        self, task: UnseenTask, model: GraphClassifier, positions: Tensor, seed: int
    ) -> Iterator[Block]:
        """Yields the agreement of each method's bonds with the truth, as in the paper's tables."""
        truth = Truth.from_graphs([task.test[number] for number in positions.tolist()])
        for name in METHODS:
            own = self.settings if name == "nice" else {}
            explainer = get_explainer(name, model, seed=seed, **own)
            if find_entry(name)[0].learns:
                task.fit(explainer, seed=seed)
            (found,) = task.explain(explainer, positions, "test", seed)
            found = found.to("cpu")
            auc = truth_metrics(found.bond_score, found.bonds, truth, seed=seed)["roc_auc"]
            mechanism = find_mechanism(name)[1]
            yield Block(
                "roc_auc", auc, "paper", positions, explainer=name, mechanism=mechanism, setting=""
            )

    def of_atoms(
        self, task: UnseenTask, model: GraphClassifier, positions: Tensor, seed: int
    ) -> Iterator[Block]:
        """Yields the agreement of scores of atoms with the published contributions.

        No gate has a part in scores of atoms, so NICE needs no fit for them.
        """
        graphs = [task.test[number] for number in positions.tolist()]
        reads: dict[str, Any] = {"mode": "regression"} if task.is_regression else {}
        nice = NICE(model, NICEConfig.instant().with_(seed=seed), **reads)
        label = None if task.is_regression else 1
        found = nice.explain(graphs, target=label, atoms=True, trust=False).to("cpu")
        assert found.atom_score is not None  # it was asked for
        assert found.atom_loss is not None
        batch = to_batch(graphs)
        generator = torch.Generator().manual_seed(mix(seed, task.name, "random"))
        scores = {
            "atom_score": found.atom_score,
            "atom_loss": found.atom_loss,
            "zeroed": torch.cat([change_without_features(model, graph) for graph in graphs]),
            "random": torch.rand(int(batch.num_nodes), generator=generator) - 0.5,
        }
        unsigned = ("atom_score",) if task.is_regression else ()
        for setting, score in scores.items():
            for metric, protocol, value in agreement_of_atoms(
                score, batch.node_truth, batch.batch, seed, is_signed=setting not in unsigned
            ):
                yield Block(metric, value, protocol, positions, setting=setting)


def agreement_of_atoms(
    score: Tensor, truth: Tensor, batch: Tensor, seed: int, *, is_signed: bool = True
) -> Iterator[tuple[str, str, Tensor]]:
    r"""Yields metric, protocol and one value per molecule, ``[B]``; nan where undefined.

    .. math:: hits = |S_n \cap T|, \qquad n = |T|

    Symbols: :math:`T` -> atoms of ``truth`` 1, of 1, 0 and -1, ``[V]``; :math:`S_n` -> the
    :math:`n` atoms of largest ``score``. A score without direction has no ``negative`` atoms.
    """
    num = int(batch.max()) + 1
    yield "atom_roc_auc", "positive", roc_auc(score, truth == 1, batch, num)
    if bool((truth < 0).any()):
        if is_signed:
            yield "atom_roc_auc", "negative", roc_auc(-score, truth == -1, batch, num)
        yield "atom_roc_auc", "either", roc_auc(score.abs(), truth != 0, batch, num)
    true = (truth == 1).long()
    size = graph_sum(true, batch, num)  # n, [B]
    tie = random_ties(batch, num, seed, torch.arange(num))
    is_best = random_rank(score, batch, num, tie) < size[batch]
    yield "atom_hits", "", graph_sum((is_best & (true > 0)).double(), batch, num)
    yield "atom_true", "", size.double()


@torch.no_grad()
def change_without_features(model: GraphClassifier, graph: Data) -> Tensor:
    r"""Returns how far the prediction falls when one atom's features are set to zero, ``[V]``.

    .. math:: s_v = f(G) - f(G : x_v = 0)

    Symbols: :math:`f` -> the value, or the log-odds of class 1.
    """
    num = int(graph.num_nodes or 0)
    batch = to_batch([graph] * (num + 1)).to(next(model.parameters()).device)
    x = batch.x.clone()
    x[torch.arange(num) * (num + 1)] = 0.0  # atom v of copy v; the last copy is whole
    out = model(x, batch.edge_index, batch.batch, batch.edge_attr)  # [V + 1, C]
    answer = out[:, -1] if out.size(1) == 1 else out[:, 1] - out[:, 0]
    return (answer[-1] - answer[:-1]).cpu()
