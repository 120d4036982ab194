"""The wide bench: what should replace a message, on groups, rings and counts nobody tuned for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from nicegnn.config import NICEConfig, check_choice
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.nice import NICE
from nicegnn.graph.batch import to_batch
from nicegnn.graph.case import Bonds, make_case, shared_rank
from nicegnn.intervention.background import Background, record_background
from nicegnn.intervention.exchange import Exchange, Prototypes
from nicegnn.intervention.intervene import Mechanism
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.parts import copy_chunks
from nicegnn.intervention.query import Query
from nicegnn.seeding import SeededWeights, mix
from nicegnn.target.frozen_model import Target
from nicegnn.target.training import TrainConfig, accuracy_of, predict, train_model
from nicegnn.target.zoo import MODELS, GraphClassifier, make_model
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.rows import Block
from nicegnn_lab.bench.study import Study, Variant, content_hash
from nicegnn_lab.bench.task import MoleculeTask, Task
from nicegnn_lab.datasets.data_files import data_folder, sha256_of
from nicegnn_lab.datasets.dataset import load_dataset
from nicegnn_lab.datasets.readers import chembl
from nicegnn_lab.datasets.registry import DATASETS
from nicegnn_lab.metrics.agreement import Truth, truth_metrics
from nicegnn_lab.rivals import find_entry, get_explainer

BACKBONES = ("gin", "gine", "gcn", "gat", "sage", "transformer")
#: Benchmarks with the stored targets; nobody trains them here.
BENCHMARKS = (
    *("mutagenicity", "benzene", "alkane-carbonyl", "fluoride-carbonyl"),
    *("indole", "pains", "rings-count", "rings-max"),
)
#: Models of another recipe: a linear layer before the first convolution, fewer epochs.
EMBEDDED = {"gin-embedded": "sum", "gine-embedded": "sum", "sage-embedded": "max"}
TRAINING = TrainConfig(learning_rate=0.005, batch_size=128, epochs=60, patience=5, stop_after=15)
SHORT = replace(TRAINING, epochs=25)  # of `EMBEDDED`
RIVALS = (  # beside the damages, with their defaults
    *("random", "saliency", "guided-backprop", "integrated-gradients", "occlusion"),
    *("gnnexplainer", "gnnexplainer+nc", "gnnexplainer+exchange", "graphmask", "subgraphx"),
    *("pgexplainer", "pgexplainer+nc", "pgexplainer+exchange", "refine", "proxyexplainer"),
    *("confexplainer", "nice-paper", "nice-paper+exchange"),
)
_FITTED_ON = ("gin",)  # targets of explainers that are fitted
SHARES = (0.1, 0.3, 1.0)  # of damaged bonds, to see what damage makes out of nothing
_MOST_OF_LABEL = 800  # molecules of each label under a rule
_BACKGROUND = 400  # training graphs
_DRAWS = 8  # of noise
_INPUT_SIZE = 32  # values after the input layer of `EMBEDDED`
_MADE_DRAWS = 8  # random sets of bonds for each graph and share
LOWEST_ACCURACY = 0.9  # on validation graphs; a target below has no known truth


class WideTask(Task):
    """Molecules of the ChEMBL pool under one rule, 80/10/10; its targets are not trained yet."""

    targets: Iterable[str] = (*BACKBONES, *EMBEDDED)
    is_seeded = True

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.seed = name, seed
        self._trained: dict[str, nn.Module] = {}
        graphs = chembl.graphs_under(name, _MOST_OF_LABEL, seed)
        tenth = len(graphs) // 10
        self.test, self.valid = graphs[:tenth], graphs[tenth : 2 * tenth]
        self.train = graphs[2 * tenth :]
        rule = [name, chembl.RULES[name], sha256_of(data_folder() / chembl.FILE_NAME)]
        self.identity = {"data": content_hash(rule), "split": f"seed {seed}"}

    def trained(self, target: str, model: nn.Module, training: TrainConfig) -> nn.Module:
        """Returns a target after training, which is done once; the data of a task fix it."""
        if target not in self._trained:
            assert isinstance(model, GraphClassifier)  # see `model`
            train_model(model, self.train, self.valid, training, progress=False)
            self._trained[target] = model
        return self._trained[target]

    def model(self, target: str, folder: Path, device: str | torch.device = "cpu") -> nn.Module:
        """Returns the target with its first weights, which the seed makes; nothing is stored."""
        check_choice("target", target, self.targets)
        first = self.train[0]
        size, settings = first.num_node_features, {"edge_size": first.num_edge_features}
        with SeededWeights(mix(self.seed, self.name, target)):
            if target not in EMBEDDED:
                return make_model(target, size, 2, **settings).to(device)
            kind = embedded(MODELS[target.removesuffix("-embedded")])
            return kind(size, 2, readout=EMBEDDED[target], **settings).to(device)

    def explained(self, model: nn.Module, part: str, most: int | None = None) -> Tensor:
        """Returns the test graphs of label 1 that the target gets right."""
        check_choice("part", part, ("test",))
        return _right(model, self.test, 1, most)


def embedded(kind: type[GraphClassifier]) -> type[GraphClassifier]:
    """Returns the same model with a linear layer and a ReLU before the first convolution."""

    class Embedded(kind):  # type: ignore[valid-type, misc]
        def __init__(self, in_size: int, num_classes: int, **settings: Any) -> None:
            super().__init__(_INPUT_SIZE, num_classes, **settings)
            self.input = nn.Linear(in_size, _INPUT_SIZE)

        def embed(self, x: Tensor, *graph: Any) -> Tensor:
            return super().embed(self.input(x).relu(), *graph)

    return Embedded


@dataclass(frozen=True)
class WideStudy(Study):
    r"""Agreement of single damages, and of explainers, with the true bonds.

    Rows by ``setting``: ``roc_auc`` of each molecule of label 1 that the target gets right, with
    ``copies`` of the group; ``best_true``, whether the best bond is a true one (of equally good
    ones, the share); ``largest`` and ``share``, from which `Trust` foretells it; ``made``, the
    share of molecules of label 0 that random damage of a share (``level``) of the bonds turns into
    label 1. Rules of `chembl.RULES` train their target here, and test molecules are explained;
    `BENCHMARKS` have stored targets, and validation molecules are explained, by damages alone.
    """

    name = "wide"
    title = "What should replace a message?"
    max_graphs = 60
    datasets = (*chembl.RULES, *BENCHMARKS)
    targets = (*BACKBONES, *EMBEDDED)

    def task(self, name: str, seed: int) -> Task:
        return MoleculeTask(load_dataset(name)) if name in DATASETS else WideTask(name, seed)

    def variants(self, task: Task, target: str) -> Iterable[Variant]:
        if isinstance(task, WideTask) or target in ("gin", "gcn", "gat"):
            yield Variant()  # all damages
        if isinstance(task, WideTask):  # on benchmarks explainers have rows of their own
            for name in RIVALS:
                if target in _FITTED_ON or not find_entry(name)[0].learns:
                    yield Variant(setting=name)

    def measure(self, job: Job) -> Iterator[Block]:
        task, model, asked = job.task, job.model, job.cell.variant.setting
        if isinstance(task, WideTask):
            training = SHORT if job.cell.target in EMBEDDED else TRAINING
            model = task.trained(job.cell.target, model, training)
            train, valid, explained = task.train, task.valid, task.test
        else:
            assert isinstance(task, MoleculeTask)  # see `task`
            train, valid = list(_some(task.part("train"))), list(_some(task.part("valid")))
            explained = valid
        accuracy = accuracy_of(model, valid)
        if not asked:
            yield Block("valid_accuracy", accuracy, setting="")
            yield Block("accuracy", accuracy_of(model, explained), setting="")
        if accuracy < LOWEST_ACCURACY:
            return
        right = [explained[n] for n in _right(model, explained, 1, None)]
        positive = [graph for graph in right if graph.edge_truth.any()][: job.max_graphs]
        if not positive:
            return
        train = train[:_BACKGROUND]
        background = record_background(Target(model), train)
        if asked:
            yield of_explainer(asked, model, positive, train, background, job.seed)
            return
        yield from of_bonds(model, positive, train, background, job.seed)
        negative = [explained[n] for n in _right(model, explained, 0, job.max_graphs)]
        yield from made(model, negative, background, job.seed)


def of_explainer(
    name: str,
    model: nn.Module,
    graphs: Sequence[Data],
    train: Sequence[Data],
    background: Background,
    seed: int,
) -> Block:
    """Returns the agreement of an explainer with the true bonds."""
    given: Any = {"background": background} if name.endswith("+exchange") else {}
    explainer = get_explainer(name, model, seed=seed, **given)
    if find_entry(name)[0].learns:
        explainer.fit(train, seed=seed, progress=False)
    out = explainer.explain(graphs, target=1).to("cpu")
    return _judged(name, out.bond_score, out.bonds, Truth.from_graphs(graphs), seed)


def _judged(setting: str, score: Tensor, bonds: Bonds, truth: Truth, seed: int) -> Block:
    auc = truth_metrics(score, bonds, truth, seed=seed)["roc_auc"]
    return Block("roc_auc", auc, "paper", torch.arange(auc.numel()), setting=setting)


def of_bonds(
    model: nn.Module,
    graphs: Sequence[Data],
    train: Sequence[Data],
    background: Background,
    seed: int,
) -> Iterator[Block]:
    """Yields the agreement of each damage with the true bonds."""
    truth, place = Truth.from_graphs(graphs), torch.arange(len(graphs))
    bonds = make_case(to_batch(graphs)).bonds
    if "copies" in graphs[0]:
        number = torch.cat([graph.copies for graph in graphs])
        yield Block("copies", number.double(), graph=place, setting="")

    judged = partial(_judged, bonds=bonds, truth=truth, seed=seed)
    for setting, nice in damages(model, train, background, seed).items():
        out = nice.explain(graphs, target=1, atoms=setting == "exchange").to("cpu")
        yield judged(setting, out.bond_loss)
        if setting != "exchange":
            continue
        assert out.trust is not None  # it was not declined
        assert out.atom_loss is not None  # it was asked for
        assert out.bond_change is not None  # NICE tells it
        yield judged("exchange, signed", out.bond_change)
        yield Block("best_true", best_is_true(out, truth), graph=place, setting=setting)
        yield Block("largest", out.trust.largest, graph=place, setting=setting)
        yield Block("share", out.trust.share, graph=place, setting=setting)
        of_ends = out.atom_loss[out.bond_index].mean(0).clamp(min=0)
        yield judged("atoms", of_ends)
        yield judged("bonds and atoms", out.bond_loss + of_ends)
    yield judged("deletion", without_each(model, graphs))


def damages(
    model: nn.Module, train: Sequence[Data], background: Background, seed: int
) -> Mapping[str, NICE]:
    """Returns NICE with each kind of damage, by its name in rows."""
    usual = NICEConfig(seed=seed)
    clean = usual.with_(anchor="clean")
    noise = {"attribution__num_draws": _DRAWS, "mechanism": "nc"}

    kinds = {
        "zero": NICE(model, usual.with_(mechanism="em")),
        "noise": NICE(model, usual.with_(**noise)),
        "noise, clean": NICE(model, clean.with_(**noise)),
        "mean": NICE(model, usual, mechanism=_mean_message(background)),
        "exchange": NICE(model, usual, background=background),
        "exchange, clean": NICE(model, clean, background=background),
        "exchange, own": NICE(model, usual),
    }
    for number in (2, 4, 16):
        few = record_background(Target(model), train, number)
        settings = usual.with_(num_prototypes=number)
        kinds[f"exchange, {number}"] = NICE(model, settings, background=few)
    return kinds


def _mean_message(background: Background) -> Exchange:
    means = background.messages.means
    return Exchange(Prototypes(means, means, background.messages.names, 1))


@torch.no_grad()
def without_each(model: nn.Module, graphs: Sequence[Data]) -> Tensor:
    """Returns the log-odds that are lost when a bond is taken out of its graph, ``[M]``."""
    target = Target(model)
    batch = to_batch(graphs).to(target.device)
    with target.frozen():
        query = Query(target, make_case(batch), ElementMask(), explained=1, degradation="margin")
        bonds = query.case.bonds
        loss = query.clean.new_zeros(bonds.batch.numel())
        for part in copy_chunks(query, bonds.batch):
            bond, graph = torch.arange(loss.numel(), device=loss.device)[part], bonds.batch[part]
            edges, home = query.stack.edges_of(graph)
            copies = query.stack.take(graph, kept=bonds.edge_bond[edges] != bond[home])
            loss[part] = query.loss_of(target.call(copies), graph)
    return loss.cpu()


@torch.no_grad()
def made(
    model: nn.Module, graphs: Sequence[Data], background: Background, seed: int
) -> Iterator[Block]:
    """Yields the share of graphs of label 0 that random damage turns into label 1."""
    if not graphs:
        return
    target = Target(model)
    kinds: dict[str, Mechanism] = {
        "zero": ElementMask(),
        "noise": NoiseCorruption(),
        "noise, clean": NoiseCorruption(anchor="clean"),
        "mean": _mean_message(background),
        "exchange": Exchange(background.sample, each="edge", seed=seed),
    }
    batch = to_batch(graphs).to(target.device)
    with target.frozen():
        query = Query(target, make_case(batch), ElementMask(), explained=1)
        generator = torch.Generator().manual_seed(mix(seed, "made"))
        luck = torch.rand(_MADE_DRAWS, query.case.bonds.batch.numel(), generator=generator)
        for share in SHARES:
            gate = (luck.to(batch.edge_index.device) >= share).to(query.clean.dtype)  # [N, M]
            gate = query.case.edge_gate(gate)  # [N, E]
            turned = {}
            for name, mechanism in kinds.items():
                under = query.under(mechanism)
                turned[name] = [
                    under.answers(one, mix(seed, "made", n))[0].argmax(1) == 1
                    for n, one in enumerate(torch.split(gate, 1))
                ]
            turned["deletion"] = [
                target.call(batch.edge_subgraph(one > 0)).argmax(1) == 1 for one in gate
            ]
            for name, found in turned.items():
                value = float(torch.stack(found).double().mean())
                yield Block("made", value, level=share, setting=name)


def best_is_true(out: Explanation, truth: Truth) -> Tensor:
    """Returns the share of true ones among the best bonds of each graph, ``[B]``."""
    is_true = out.bonds.sum(truth.edge_truth.to(out.bond_loss)) > 0
    batch, zeros = out.bonds.batch, out.bond_loss.new_zeros(out.num_graphs)
    loss = out.bond_loss.masked_fill(~out.bond_reached, -torch.inf)
    is_best = (shared_rank(loss, batch, out.num_graphs) == 1).to(loss)
    return zeros.index_add(0, batch, is_best * is_true) / zeros.index_add(0, batch, is_best)


def _right(model: nn.Module, graphs: Sequence[Data], label: int, most: int | None) -> Tensor:
    given = torch.cat([graph.y.view(-1) for graph in graphs])
    right = (predict(model, graphs).argmax(1).cpu() == given) & (given == label)
    return right.nonzero().view(-1)[:most]


def _some(graphs: Any, most: int = 2000) -> Iterator[Data]:
    number = min(most, len(graphs))
    for place in range(number):
        yield graphs[place * len(graphs) // number]
