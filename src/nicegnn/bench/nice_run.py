"""One configuration of NICE on a subject: gates fitted once and kept, explained, measured."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from nicegnn.bench.config import MetricConfig
from nicegnn.bench.measuring import measure
from nicegnn.bench.scores import Scores, scores_of
from nicegnn.bench.selection import fit_set
from nicegnn.bench.subject import Subject
from nicegnn.config import AttributionConfig, BoundaryConfig, NICEConfig
from nicegnn.explain.nice import NICE
from nicegnn.graph.case import case_of
from nicegnn.intervention.mechanisms import NoiseCorruption
from nicegnn.intervention.query import Query
from nicegnn.seeding import mix
from nicegnn.store import write_json
from nicegnn.target.frozen_model import Target

VERSION = 1  # raise it when the same settings give other gates
GATES_FOLDER = "gates"
_MEASURED = ("roc_auc", "f1", "kept_area")


@dataclass(frozen=True)
class Fitted:
    """Fitted gates with what is to be told about the fit.

    Attributes:
        nice: the explainer.
        status: whether the gates carry a ranking, see `FitReport`.
        seconds: of the fit; nan if it was interrupted, for then nobody knows.
    """

    nice: NICE
    status: str
    seconds: float


def fit_once(
    subject: Subject, config: NICEConfig, seed: int, out: str | Path, fit_graphs: int | None = None
) -> Fitted:
    """Returns NICE with fitted gates, from a file if the same fit was done before.

    Settings that act on a fitted explainer only (attribution, score, place of the boundary) share
    one fit.

    Args:
        out: folder of all experiments; gates are kept in its folder ``gates``.
        fit_graphs: most training graphs to fit on; none for all.
    """
    plain = what_is_fitted(config)
    changing = {k: v for k, v in plain.to_dict().items() if k not in ("chunk_edges", "batch_size")}
    graphs = fit_set(subject.dataset.train, fit_graphs)
    about = {
        "version": VERSION,
        "data": subject.identity["data"],
        "split": subject.identity["split"],
        "graphs": len(graphs),
        "config": changing,
    }
    path = Path(out) / GATES_FOLDER / f"{subject.key_of_model(seed, about)}.safetensors"
    report = path.with_suffix(".json")
    if not (path.is_file() and report.is_file()):
        path.parent.mkdir(parents=True, exist_ok=True)
        checkpoint = path.with_suffix(".part")
        is_resumed = checkpoint.is_file()
        nice = NICE(subject.model, plain)
        nice.fit(graphs, seed=seed, progress=False, checkpoint=checkpoint)
        nice.save(path)
        assert nice.fit_report is not None  # fit() sets it
        seconds = None if is_resumed else nice.fit_report.seconds
        write_json(report, {"status": nice.fit_report.status, "seconds": seconds, **about})
        checkpoint.unlink(missing_ok=True)
    told = json.loads(report.read_text(encoding="utf-8"))
    nice = NICE(subject.model, config).adopt(NICE.load(path, subject.model))
    seconds = float("nan") if told["seconds"] is None else float(told["seconds"])
    return Fitted(nice, told["status"], seconds)


def what_is_fitted(config: NICEConfig) -> NICEConfig:
    """Returns the settings with all that does not change fitted gates at its default."""
    return replace(
        config,
        boundary=replace(config.boundary, risk_target=BoundaryConfig.risk_target),
        attribution=AttributionConfig(antithetic=config.attribution.antithetic),
        score=NICEConfig.score,
        seed=NICEConfig.seed,
    )


def explain_all(subject: Subject, nice: NICE, seed: int) -> Scores:
    """Explains the label of all graphs of a subject, batch after batch."""
    test = subject.dataset.test
    started = time.perf_counter()
    parts = [
        nice.explain(batch, target=batch.y, seed=seed)
        for batch in map(test.batch, subject.chunks(nice.config.batch_size))
    ]
    if nice.target.device.type == "cuda":
        torch.cuda.synchronize(nice.target.device)
    facts = {"explain_seconds": time.perf_counter() - started, "fit_seconds": None}
    return scores_of(parts, subject.positions, facts)


def quality(
    subject: Subject, scores: Scores, seed: int, *, removals: Sequence[str] = ()
) -> dict[str, float]:
    """Returns means over graphs by ``metric/protocol``: agreement with the truth, and fidelity.

    Args:
        removals: how bonds are removed for the area of prediction kept; () for no fidelity.
    """
    metrics = MetricConfig(protocols=("paper", "strict"), removals=tuple(removals))
    found: dict[str, list[Tensor]] = {}
    for block in measure(scores, subject.dataset.test, subject.model, metrics, seed):
        if block.metric in _MEASURED:
            found.setdefault(f"{block.metric}/{block.protocol}", []).append(block.value.double())
    return {name: float(torch.cat(values).nanmean()) for name, values in found.items()}


@torch.no_grad()
def boundary_quality(
    subject: Subject, nice: NICE, scores: Scores, num_draws: int, seed: int
) -> dict[str, float]:
    r"""Returns mean and spread of the degradation at the boundary, and the restored share.

    .. math:: \mathrm{mean}_G\, \bar d_G, \qquad
        \mathrm{mean}_G \sqrt{\tfrac1N \sum_n (d_{Gn} - \bar d_G)^2}, \qquad
        \mathrm{mean}_G \tfrac1{|E_G|} \sum_e \rho^*_e

    Symbols: :math:`d_{Gn}` -> loss of log-probability under draw n (Eq. 11), whatever loss the
    gates were trained with, so that all can be compared; :math:`\rho^*` -> ``bond_gate``. Draws
    are none of those that the gates were fitted or placed with.
    """
    target, config = Target(subject.model), nice.config
    mechanism = NoiseCorruption(mix(seed, "boundary quality"))
    mean, std = [], []
    begin = 0
    with target.frozen():
        for chunk in subject.chunks(config.batch_size):
            batch = subject.dataset.test.batch(chunk).to(target.device)
            query = Query(
                target,
                case_of(batch, undirected=config.undirected),
                mechanism,
                chunk_edges=config.chunk_edges,
            )
            end = begin + query.case.bonds.batch.numel()
            gate = scores.extras["bond_gate"][begin:end].to(target.device)
            d = query.sample(gate, num_draws, mix(seed, "judged draws"))  # [N, B]
            mean.append(d.mean(0))
            std.append(d.std(0, correction=0))
            begin = end
    return {
        "degradation_mean": float(torch.cat(mean).mean()),
        "degradation_std": float(torch.cat(std).mean()),
        "restored": float(scores.extras["restored"].mean()),
    }
