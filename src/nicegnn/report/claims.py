"""The paper's claims, and checks of our own, each with the function that judges it from rows."""

from __future__ import annotations

from functools import partial

from nicegnn.report import component_claims as component
from nicegnn.report import mechanism_claims as mechanism
from nicegnn.report import quality_claims as quality
from nicegnn.report.evidence import Evidence
from nicegnn.report.finding import Claim, Finding

_BENCH = "nicegnn bench -d {datasets} -e {explainers} -s 0,1,2,3,4"
_ALL = "mutagenicity,benzene,alkane-carbonyl,fluoride-carbonyl,indole,pains,rings-count,rings-max"
_RIVALS = ",".join(quality.PAPER_RIVALS)
_RUN_ALL = _BENCH.format(datasets=_ALL, explainers=f"nice,{_RIVALS}")

CLAIMS = (
    Claim(
        "rank",
        "NICE ranks first in F1, Recall and AUC.",
        "Table 1",
        quality.first_in_rank,
        _RUN_ALL,
        "f1/paper",
    ),
    Claim(
        "rank-as-written",
        "NICE exactly as the paper writes it ranks first in F1, Recall and AUC.",
        "Table 1, Appendix E",
        partial(quality.first_in_rank, method="nice-paper"),
        _BENCH.format(datasets=_ALL, explainers=f"nice-paper,{_RIVALS}"),
        "roc_auc/paper",
    ),
    Claim(
        "margin",
        "NICE is ahead of the strongest baseline by 6.42, 8.67 and 7.57 points of F1, Recall and "
        "AUC on average.",
        "Section 5.2",
        quality.margin,
        _RUN_ALL,
        "roc_auc/paper",
    ),
    Claim(
        "precision",
        "NICE has the highest mean Precision and is among the best two on 7 of 8 datasets.",
        "Appendix F",
        quality.precision,
        _RUN_ALL,
        "precision/paper",
    ),
    Claim(
        "budgets",
        "With few bonds left, NICE keeps the prediction better than its rivals.",
        "Figure 4, Appendix F",
        quality.small_budgets,
        _RUN_ALL,
        "kept@0.1/em",
    ),
    Claim(
        "gap-narrows",
        "NICE's advantage in fidelity shrinks as more bonds are left.",
        "Section 5.2",
        quality.gap_narrows,
        _RUN_ALL,
        "kept@0.9/em",
    ),
    Claim(
        "scale",
        "EM shrinks message scale in every layer and NC keeps it.",
        "Theorem 1, Figures 3 and 5",
        mechanism.scale_drift,
        "nicegnn experiment scale_study",
        "scale_study",
    ),
    Claim(
        "depth",
        "Scale Drift under EM grows with depth.",
        "Corollary 2, Figure 5",
        mechanism.depth_drift,
        "nicegnn experiment scale_study",
        "scale_study",
    ),
    Claim(
        "distances",
        "With the same gates, NC moves representation and prediction less than EM.",
        "Table 2, Appendix G",
        mechanism.distances,
        "nicegnn experiment mechanism_comparison",
        "mechanism_comparison",
    ),
    Claim(
        "confidence",
        "Under NC the target's confidence stays nearer to the clean one than under EM.",
        "Appendix G",
        mechanism.confidence,
        "nicegnn experiment mechanism_comparison",
        "mechanism_comparison",
    ),
    Claim(
        "nc-for-rivals",
        "NC serves each rival better than EM.",
        "Section 3, as a consequence",
        quality.nc_for_rivals,
        _BENCH.format(
            datasets=_ALL, explainers="gnnexplainer,gnnexplainer+nc,pgexplainer,pgexplainer+nc"
        ),
        "roc_auc/paper",
    ),
    Claim(
        "boundary",
        "SRB as written finds a boundary that restores the prediction with some of the messages.",
        "Section 4.2, Table 3",
        component.boundary_found,
        _BENCH.format(datasets=_ALL, explainers="nice-paper"),
        "roc_auc/paper",
    ),
    Claim(
        "variation",
        "Without the variation term, degradation and its deviation rise.",
        "Table 3",
        component.without_variation,
        "nicegnn experiment ablation",
        "ablation",
    ),
    Claim(
        "compactness",
        "Without the compactness term, more is restored and AUC falls.",
        "Table 3",
        component.without_compactness,
        "nicegnn experiment ablation",
        "ablation",
    ),
    Claim(
        "big",
        "BIG ranks bonds better than the gate (NICE as written).",
        "Section 5.4, Figure 7",
        component.attribution_over_gate,
        _BENCH.format(datasets=_ALL, explainers="nice-paper"),
        "roc_auc/paper",
    ),
    Claim(
        "coefficients",
        "A larger β steadies the boundary and a larger λ makes it more compact.",
        "Figure 6",
        component.coefficients,
        "nicegnn experiment sensitivity",
        "sensitivity",
    ),
    Claim(
        "saturation",
        "Quality is saturated at 16 draws and 16 nodes, while time goes on growing.",
        "Figure 6",
        component.saturation,
        "nicegnn experiment sensitivity",
        "sensitivity",
    ),
    Claim(
        "random-row",
        "Random scores agree with the truth as in the paper, so its protocol is read rightly.",
        "Table 1, Random",
        quality.random_row,
        _BENCH.format(datasets=_ALL, explainers="random"),
        "roc_auc/paper",
        is_ours=True,
    ),
    Claim(
        "rank-of-all",
        "NICE ranks first also among methods and mechanisms that the paper leaves out.",
        "not in the paper",
        partial(quality.first_in_rank, rivals=None),
        "nicegnn explainers",
        "roc_auc/paper",
        is_ours=True,
    ),
    Claim(
        "boundary-ours",
        "SRB with our changes finds a boundary.",
        "not in the paper",
        partial(component.boundary_found, method="nice"),
        _BENCH.format(datasets=_ALL, explainers="nice"),
        "roc_auc/paper",
        is_ours=True,
    ),
    Claim(
        "big-ours",
        "With our changes, the attribution ranks bonds better than the gate.",
        "not in the paper",
        partial(component.attribution_over_gate, method="nice"),
        _BENCH.format(datasets=_ALL, explainers="nice"),
        "roc_auc/paper",
        is_ours=True,
    ),
    Claim(
        "riemann",
        "BIG by 16 nodes and 16 draws as the paper computes it is converged.",
        "Appendix E",
        component.riemann_converged,
        "nicegnn experiment convergence",
        "convergence",
        is_ours=True,
    ),
)


def judge_claims(evidence: Evidence) -> list[tuple[Claim, Finding]]:
    """Returns every claim with what was found about it."""
    return [(claim, claim.judge(evidence)) for claim in CLAIMS]
