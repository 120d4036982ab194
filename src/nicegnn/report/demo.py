"""The demo: generate molecules, train a GNN, fit NICE, explain held-out molecules, show a page."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch_geometric
from markupsafe import Markup
from torch import Tensor
from torch_geometric.data import Data

import nicegnn
from nicegnn.boundary.fit_report import FitReport
from nicegnn.config import NICEConfig
from nicegnn.datasets.generator import generate_dataset
from nicegnn.explain.explanation import Explanation
from nicegnn.explain.nice import NICE
from nicegnn.figures.molecules import Panels, panels_figure
from nicegnn.figures.panels import figure_svg, new_figure, save_figure
from nicegnn.figures.scale_figures import scale_figure
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.scale import (
    Distances,
    ScaleProfile,
    perturbation_distances,
    scale_profile,
)
from nicegnn.metrics import GroundTruthScores, ground_truth_scores
from nicegnn.molecule.drawing import draw_graph
from nicegnn.report.rendering import render
from nicegnn.seeding import mix
from nicegnn.store import write_json, write_text
from nicegnn.tables.table import Table
from nicegnn.target.training import TrainConfig, accuracy_of, train_classifier
from nicegnn.target.zoo import GINE

SHOWN = 12  # molecules on the page
PICTURED = 3  # molecules in the picture
METRICS = ("roc_auc", "f1", "precision", "recall")


@dataclass(frozen=True)
class DemoConfig:
    """Settings of the demo."""

    task: str = "benzene"  # what the molecules are labelled by
    num_graphs: int = 2000  # molecules generated; 80% train, 10% validate, 10% test
    epochs: int = 15  # training of the classifier
    steps: int = 150  # fitting of the gates
    seed: int = 0


@dataclass(frozen=True)
class DemoResult:
    """What the demo found; every number is over held-out molecules with label 1."""

    accuracy: float
    num_explained: int
    fit_status: str
    metrics: dict[str, dict[str, float]]
    restored: float
    risk_corrupted: float
    risk_boundary: float
    scale: dict[str, list[float]]
    distances: dict[str, dict[str, float]]
    seconds: dict[str, float]
    page: str
    picture: str


def run_demo(
    out: str | Path, config: DemoConfig | None = None, say: Callable[[str], None] = lambda _: None
) -> DemoResult:
    """Runs the demo, writes ``index.html``, ``picture.png`` and ``result.json`` into `out`.

    `say` is told what happens, step by step.
    """
    config, folder = config or DemoConfig(), Path(out)
    new_figure(1, 1)  # raises without matplotlib, before the work
    folder.mkdir(parents=True, exist_ok=True)
    seconds: dict[str, float] = {}
    started = time.monotonic()

    def lap(name: str) -> None:
        seconds[name] = round(time.monotonic() - started - sum(seconds.values()), 2)

    say(f"1/5 Generating {config.num_graphs} molecules for the task '{config.task}' ...")
    train, valid, test = _split(
        generate_dataset(config.task, config.num_graphs, seed=config.seed), config.seed
    )
    lap("generate")
    say("2/5 Training a GIN that reads bond types (GINE, 3 layers, hidden size 32) ...")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = GINE(train[0].x.size(1), 2, edge_size=train[0].edge_attr.size(1))
    schedule = TrainConfig(batch_size=128, epochs=config.epochs, patience=4, stop_after=10)
    train_classifier(model, train, valid, schedule)
    accuracy = accuracy_of(model, test)
    lap("train")
    say("3/5 Fitting NICE on the model's predictions (no ground truth) ...")
    settings = NICEConfig(seed=config.seed).with_(
        boundary__steps=config.steps,
        boundary__batch_size=64,
        boundary__num_draws=8,
        boundary__fit_draws=8,
        boundary__edge_features=True,
    )
    nice = NICE(model, settings).fit(train)
    lap("fit")
    shown = [graph for graph in test if int(graph.y) == 1]
    say(f"4/5 Explaining {len(shown)} held-out molecules ...")
    explained = nice.explain(shown, boundary=True)
    lap("explain")
    say("5/5 Measuring message scale under masking and noise, drawing ...")
    truth = torch.cat([graph.edge_truth for graph in shown])
    profile = scale_profile(model, shown, truth.float())
    moved = {
        name: perturbation_distances(model, shown, truth.float(), mechanism, num_draws=20)
        for name, mechanism in (("EM", ElementMask()), ("NC", NoiseCorruption(config.seed)))
    }
    agreement = _agreement(explained, truth, config.seed)
    assert nice.fit_report is not None
    page, picture = folder / "index.html", folder / "picture.png"
    rows = [_panels(g, part) for g, part in zip(shown[:SHOWN], explained.split(), strict=False)]
    write_text(
        page, _page(config, accuracy, nice.fit_report, explained, agreement, profile, moved, rows)
    )
    save_figure(panels_figure(rows[:PICTURED], profile), picture)
    lap("draw")
    result = DemoResult(
        accuracy=accuracy,
        num_explained=len(shown),
        fit_status=nice.fit_report.status,
        metrics={
            name: {key: float(getattr(value, key).nanmean()) for key in METRICS}
            for name, value in agreement.items()
        },
        restored=float(explained.restored.mean()),
        risk_corrupted=float(explained.risk_corrupted.mean()),
        risk_boundary=float(explained.risk_boundary.mean()),
        scale={
            "EM": profile.em_propagated.nanmean(1).tolist(),
            "NC": profile.nc_propagated.nanmean(1).tolist(),
        },
        distances={
            name: {
                "representation": float(value.representation.mean()),
                "prediction": float(value.prediction.mean()),
            }
            for name, value in moved.items()
        },
        seconds=seconds,
        page=str(page),
        picture=str(picture),
    )
    content = {
        "nicegnn": nicegnn.__version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "python": platform.python_version(),
        "demo": asdict(config),
        "nice": settings.to_dict(),
        "result": asdict(result) | {"page": page.name, "picture": picture.name},
    }
    write_json(folder / "result.json", content)
    return result


def _split(graphs: list[Data], seed: int) -> tuple[list[Data], list[Data], list[Data]]:
    generator = torch.Generator().manual_seed(mix(seed, "split"))
    mixed = [graphs[k] for k in torch.randperm(len(graphs), generator=generator).tolist()]
    first, second = int(0.8 * len(mixed)), int(0.9 * len(mixed))
    return mixed[:first], mixed[first:second], mixed[second:]


def _agreement(explained: Explanation, truth: Tensor, seed: int) -> dict[str, GroundTruthScores]:
    generator = torch.Generator().manual_seed(mix(seed, "random"))
    chance = torch.rand(explained.bond_score.numel(), generator=generator)
    bond_truth = explained.bonds.mean(truth.float()) > 0.5
    scores = {
        "NICE": explained.bond_score,
        "NICE, attribution alone": explained.bond_big,
        "NICE, gate alone": explained.bond_gate,
        "random": chance,
    }
    batch, number = explained.bonds.batch, explained.num_graphs
    return {
        name: ground_truth_scores(score, bond_truth, batch, number)
        for name, score in scores.items()
    }


def _panels(graph: Data, part: Explanation) -> Panels:
    truth = part.bonds.mean(graph.edge_truth.float()) > 0.5  # [M]
    score = ground_truth_scores(part.bond_score, truth, part.bonds.batch, 1)
    probability = float(part.prediction[0, int(part.target)].exp())
    caption = (
        f"{graph.smiles}  |  predicted class {int(part.target)} with probability "
        f"{probability:.3f}, AUC {float(score.roc_auc):.2f}, restored share "
        f"{float(part.restored):.2f}, R(0) {float(part.risk_corrupted):.2f}, R(boundary) "
        f"{float(part.risk_boundary):.2f}"
    )
    return Panels(graph.smiles, part.bond_index, truth, part.bond_gate, part.bond_score, caption)


def _drawing(row: Panels, score: Tensor | None, palette: str = "score") -> Markup:
    """Returns a molecule for the page: its scores, or its true bonds."""
    picture = draw_graph(
        row.bond_index,
        score,
        smiles=row.smiles,
        bond_truth=row.truth if score is None else None,
        palette=palette,
        signed=False,
        legend=False,
        background=None,
    )
    return Markup(picture.svg)


def _page(
    config: DemoConfig,
    accuracy: float,
    fit: FitReport,
    explained: Explanation,
    agreement: dict[str, GroundTruthScores],
    profile: ScaleProfile,
    moved: dict[str, Distances],
    rows: list[Panels],
) -> str:
    best, chance = (100 * float(agreement[name].roc_auc.nanmean()) for name in ("NICE", "random"))
    return render(
        "demo.html",
        title="Why did the GNN decide so?",
        lead=f"NICE on {explained.num_graphs} held-out generated molecules, task '{config.task}'. "
        "The model is a GIN that reads bond types; gates were fitted on training molecules without "
        "any ground truth.",
        key_numbers=[
            (f"{100 * accuracy:.1f}%", "test accuracy of the model"),
            (f"{best:.1f}", "ROC-AUC of NICE"),
            (f"{chance:.1f}", "ROC-AUC of chance"),
            (f"{float(explained.restored.mean()):.2f}", "share of messages restored"),
            (fit.status, "gates, judged without ground truth"),
        ],
        agreement=Table(
            name="agreement",
            title="Agreement with the true bonds",
            columns=["score", "ROC-AUC", "F1 top 30%", "precision", "recall"],
            rows=[
                [name, *(_spread(getattr(value, key), 100, 1) for key in METRICS)]
                for name, value in agreement.items()
            ],
        ),
        advice=f"{fit.advice} {explained.status}",
        molecules=[
            (
                [
                    (_drawing(row, None), "truth"),
                    (_drawing(row, row.gate, "gate"), "gate (SRB)"),
                    (_drawing(row, row.score), "score"),
                ],
                row.caption,
            )
            for row in rows
        ],
        drift=Markup(figure_svg(scale_figure(profile))),
        distances=Table(
            name="distances",
            title="Distance from the clean computation",
            columns=["mechanism", "distance of the representation", "loss of log-probability"],
            rows=[
                [name, _spread(value.representation), _spread(value.prediction)]
                for name, value in moved.items()
            ],
        ),
        made_by=f"nicegnn {nicegnn.__version__}, seed {config.seed}, {config.num_graphs} molecules "
        f"(80/10/10), {config.epochs} epochs, {config.steps} gate steps. torch "
        f"{torch.__version__}, PyG {torch_geometric.__version__}, Python "
        f"{platform.python_version()}.",
    )


def _spread(value: Tensor, scale: float = 1, digits: int = 3) -> str:
    value = scale * value[value.isfinite()]
    mean, deviation = float(value.mean()), float(value.std(correction=0))
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}"
