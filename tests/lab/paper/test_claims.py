"""Claims on rows written by hand: true, false, in part, missing; numbers as computed on paper."""

from __future__ import annotations

from typing import Any

import pytest

from nicegnn_lab.paper import component_claims as component
from nicegnn_lab.paper import quality_claims as quality
from nicegnn_lab.paper.claims import (
    PAPER_RIVALS,
    READINGS,
    Finding,
    Part,
    Verdict,
    all_claims,
    claim,
    judge_claims,
)
from nicegnn_lab.paper.numbers import PAPER_DATASETS, PAPER_RESULTS
from tests.lab.paper.hand_evidence import gate_rows, hand_evidence, hand_rows

ON_TWO = ("benzene", "indole")


def two(first: float, second: float) -> dict[str, float]:
    return dict(zip(ON_TWO, (first, second), strict=True))


def main_rows(nice: dict[str, float], *others: dict[str, float]) -> list[dict[str, Any]]:
    """The same values for every metric of the main table."""
    names = ("saliency", "pgexplainer", "gnnexplainer")
    table = {"nice-paper": nice, **dict(zip(names, others, strict=False))}
    return [row for metric in quality.MAIN for row in hand_rows(table, metric)]


@pytest.mark.parametrize(
    ("holds", "verdict"),
    [
        ([], Verdict.MISSING),
        ([True, True], Verdict.HOLDS),
        ([True, False], Verdict.PARTLY),
        ([False, False], Verdict.FAILS),
    ],
)
def test_verdict_follows_from_the_parts(holds: list[bool], verdict: Verdict) -> None:
    parts = [Part("", one) for one in holds]
    assert Finding(parts).verdict is verdict
    lower = Verdict.PARTLY if verdict is Verdict.HOLDS else verdict
    assert Finding(parts, missing="a dataset").verdict is lower


def holding(finding: Finding) -> list[bool]:
    return [part.holds for part in finding.parts]


def test_every_claim_is_not_measured_without_rows_and_names_a_command() -> None:
    found = judge_claims(hand_evidence())
    assert len(found) == 29
    for one, finding in found:
        assert finding.verdict is Verdict.MISSING, one.name
        assert one.command.startswith(("nicegnn lab bench -d ", "nicegnn lab experiment "))
        assert finding.scope
    assert len({one.name for one, _ in found}) == len(found)
    is_ours = [one.is_ours for one, _ in found]
    assert is_ours == sorted(is_ours)  # the paper's come first


def test_claims_are_stated_above_the_function_that_judges_them() -> None:
    @claim("first", "Table 1", study="scale")
    @claim("second", statement="Two.", given={"least": 3}, explainers=("nice",), is_ours=True)
    def judge(evidence: Any, least: int = 1) -> Finding:
        """It is large
        enough.

        How it is judged.
        """
        return Finding([Part("", evidence >= least)])

    first, second = judge.claims
    assert (first.statement, first.place) == ("It is large enough.", "Table 1")
    assert (second.statement, second.place) == ("Two.", "not in the paper")
    assert first.judge(2).verdict is Verdict.HOLDS
    assert second.judge(2).verdict is Verdict.FAILS
    assert first.command.startswith("nicegnn lab experiment scale -d mutagenicity,benzene,")
    assert second.command.endswith(" -e nice -s 0,1,2,3,4")
    assert [one.is_ours for one in (first, second)] == [False, True]


def test_claims_about_gates_name_the_method_with_gates() -> None:
    explainers = {one.name: one.explainers for one in all_claims()}
    assert explainers["big"] == explainers["boundary"] == READINGS
    assert explainers["rank"] == (*READINGS, *PAPER_RIVALS)
    assert explainers["rank-ours"] == ("nice", *PAPER_RIVALS)


def test_claims_of_the_paper_are_judged_by_both_readings_and_ours_on_ours() -> None:
    table = {"nice-paper": two(0.9, 0.9), "nice-propagated": two(0.4, 0.4), "nice": two(0.3, 0.3)}
    table["saliency"] = two(0.5, 0.5)
    evidence = hand_evidence([row for m in quality.MAIN for row in hand_rows(table, m)])
    found = {one.name: finding for one, finding in judge_claims(evidence)}
    assert all(holding(found["rank"]))
    assert found["rank"].propagated is not None
    assert found["rank"].propagated.verdict is Verdict.FAILS
    assert found["rank-ours"].verdict is Verdict.FAILS
    assert found["rank-ours"].propagated is None
    assert found["nc-for-rivals"].propagated is None  # about rivals
    scale = scale_rows("benzene", [0.5, 0.6], [1.0, 1.0], "ratio_fixed")
    scale += scale_rows("benzene", [0.5, 0.6], [2.0, 5.0])
    found = dict(judge_claims(hand_evidence(studies={"scale": scale})))
    (judged,) = (finding for one, finding in found.items() if one.name == "scale")
    assert judged.verdict is Verdict.HOLDS
    assert judged.propagated is not None
    assert holding(judged.propagated) == [True, False]
    only = hand_evidence(studies={"scale": scale_rows("benzene", [0.5, 0.6], [0.9, 0.9])})
    (judged,) = (finding for one, finding in judge_claims(only) if one.name == "scale")
    assert all(holding(judged))
    assert judged.verdict is Verdict.PARTLY  # clean messages are missing
    assert judged.missing == "the method with clean messages"
    assert judged.scope.startswith("propagated messages, ")


def test_gains_must_show_on_every_dataset() -> None:
    finding = quality.consistent_gains(hand_evidence(main_rows(two(0.9, 0.5), two(0.7, 0.6))))
    assert holding(finding) == [True, False]
    assert finding.parts[1].text == "indole: F1 -10.0, Recall -10.0, AUC -10.0 points"


def test_fidelity_of_the_carbonyls_is_judged_set_by_set() -> None:
    first, second = "alkane-carbonyl", "fluoride-carbonyl"
    rows = []
    for budget, nice in ((0.1, 0.8), (0.3, 0.4)):
        table = {"nice-paper": {first: nice, second: nice}, "saliency": {first: 0.5, second: 0.5}}
        rows += hand_rows(table, f"kept@{budget}", "em")
    finding = quality.carbonyls(hand_evidence(rows))
    assert holding(finding) == [True, True, False]
    text = "fluoride-carbonyl, 30% of bonds, removal em: kept 40.0, saliency 50.0"
    assert finding.parts[2].text == text


def test_deletion_that_equals_masking_counts_once() -> None:
    table = {"nice-paper": two(0.8, 0.8), "saliency": two(0.5, 0.5)}
    area = {"nice-paper": two(0.7, 0.7)}
    rows = [
        row
        for removal in ("em", "delete")
        for row in [*hand_rows(table, "kept@0.1", removal), *hand_rows(area, "kept_area", removal)]
    ]
    assert len(quality.small_budgets(hand_evidence(rows)).parts) == 1
    other = hand_rows({"nice-paper": two(0.7, 0.6)}, "kept_area", "delete")
    assert len(quality.small_budgets(hand_evidence(rows[:-2] + other)).parts) == 2


def test_first_in_rank_holds_fails_or_holds_in_part() -> None:
    best = hand_evidence(main_rows(two(0.9, 0.8), two(0.7, 0.7), two(0.6, 0.2)))
    finding = quality.first_in_rank(best)
    assert finding.verdict is Verdict.PARTLY  # of eight datasets and nine rivals not all are there
    assert holding(finding) == [True, True, True]
    assert finding.parts[0].text == "F1: average rank 1.00 of 3, best other saliency 2.00"
    second = hand_evidence(main_rows(two(0.9, 0.1), two(0.95, 0.7)))
    assert quality.first_in_rank(second).verdict is Verdict.FAILS
    mixed = [
        *hand_rows({"nice-paper": two(0.9, 0.9), "saliency": two(0.1, 0.1)}, "f1"),
        *hand_rows({"nice-paper": two(0.1, 0.1), "saliency": two(0.9, 0.9)}, "recall"),
    ]
    finding = quality.first_in_rank(hand_evidence(mixed))
    assert finding.verdict is Verdict.PARTLY
    assert holding(finding) == [True, False]


def test_claim_holds_once_all_datasets_and_rivals_are_measured() -> None:
    def found(nice: float, left_out: tuple[str, str] = ("", "")) -> Finding:
        table = {name: dict.fromkeys(PAPER_DATASETS, 0.5) for name in PAPER_RIVALS}
        table["nice-paper"] = dict.fromkeys(PAPER_DATASETS, nice)
        table.get(left_out[0], {}).pop(left_out[1], None)
        evidence = hand_evidence([row for m in quality.MAIN for row in hand_rows(table, m)])
        return quality.first_in_rank(evidence)

    assert found(0.9).verdict is Verdict.HOLDS
    assert found(0.9).missing == ""
    assert found(0.1).verdict is Verdict.FAILS
    partial = found(0.9, ("refine", "indole"))
    assert partial.verdict is Verdict.PARTLY
    assert partial.missing == "rivals, on all datasets here, refine"
    assert found(0.1, ("refine", "indole")).verdict is Verdict.FAILS


def test_equal_ranks_are_not_first() -> None:
    evidence = hand_evidence(main_rows(two(0.9, 0.1), two(0.1, 0.9)))
    assert quality.first_in_rank(evidence).verdict is Verdict.FAILS


def test_rival_that_lacks_a_dataset_is_compared_on_the_others() -> None:
    evidence = hand_evidence(main_rows(two(0.9, 0.8), two(0.5, 0.7), {"benzene": 0.99}))
    finding = quality.first_in_rank(evidence)
    assert holding(finding) == [True] * 3 + [False] * 3
    assert finding.parts[0].text == "F1: average rank 1.00 of 2, best other saliency 2.00"
    assert finding.parts[3].text == "F1: 90.0, pgexplainer 99.0 on benzene alone"
    assert "pgexplainer" in finding.missing


def test_only_rivals_of_the_paper_count_unless_all_are_asked_for() -> None:
    table = {"nice-paper": two(0.8, 0.8), "saliency": two(0.5, 0.5), "graphmask": two(0.9, 0.9)}
    evidence = hand_evidence([row for m in quality.MAIN for row in hand_rows(table, m)])
    assert all(holding(quality.first_in_rank(evidence)))
    assert not any(holding(quality.first_in_rank(evidence, rivals=None)))


def test_supervised_methods_and_the_truth_are_no_rivals() -> None:
    names = ("ground-truth", "confexplainer-supervised", "nice")
    table = {"nice-paper": two(0.8, 0.8), "saliency": two(0.5, 0.5)} | {
        n: two(1.0, 1.0) for n in names
    }
    evidence = hand_evidence([row for m in quality.MAIN for row in hand_rows(table, m)])
    assert all(holding(quality.first_in_rank(evidence, rivals=None)))


def test_margin_is_to_the_rival_with_the_best_mean() -> None:
    evidence = hand_evidence(main_rows(two(0.9, 0.7), two(0.9, 0.3), two(0.6, 0.8)))
    finding = quality.margin(evidence)  # means 80, 60, 70
    assert finding.numbers is not None
    assert finding.numbers.rows[0] == ["F1", "80.0", "pgexplainer", "70.0", "+10.0", "+6.42"]
    assert all(holding(finding))
    assert finding.verdict is Verdict.PARTLY  # six datasets are missing
    small = quality.margin(hand_evidence(main_rows(two(0.71, 0.71), two(0.7, 0.7))))
    assert holding(small) == [True, False] * 3  # ahead, but not as far as the paper
    behind = quality.margin(hand_evidence(main_rows(two(0.6, 0.6), two(0.7, 0.7))))
    assert behind.verdict is Verdict.FAILS


def test_precision_counts_datasets_among_the_best_two() -> None:
    table = {
        "nice-paper": two(0.9, 0.5),
        "saliency": two(0.1, 0.6),
        "pgexplainer": two(0.2, 0.7),
        "random": two(0.1, 0.1),
    }
    finding = quality.precision(hand_evidence(hand_rows(table, "precision")))
    assert holding(finding) == [True, False, True, False]  # benzene first, indole third
    assert "1 of 2 datasets" in finding.parts[1].text
    assert finding.parts[3].text == "indole: place 3 (paper: 1)"


def test_fidelity_at_small_budgets_and_the_gap_at_large_ones() -> None:
    rows = []
    for budget, nice, rival in (("0.1", 0.8, 0.5), ("0.3", 0.9, 0.8), ("0.9", 1.0, 0.99)):
        table = {"nice-paper": two(nice, nice), "saliency": two(rival, rival)}
        rows += hand_rows(table, f"kept@{budget}", "em")
    table = {"nice-paper": two(0.4, 0.4), "saliency": two(0.5, 0.5)}
    rows += hand_rows(table, "kept@0.1", "delete") + hand_rows(table, "kept@0.9", "delete")
    evidence = hand_evidence(rows)
    kept = quality.small_budgets(evidence)
    assert holding(kept) == [True, True, False]
    assert kept.verdict is Verdict.PARTLY
    assert kept.parts[0].text == "10% of bonds, removal em: kept 80.0, saliency 50.0"
    gap = quality.gap_narrows(evidence)
    assert [part.text for part in gap.parts] == [
        "removal em: +30.0 points at 10%, +1.0 at 90%",
        "removal delete: -10.0 points at 10%, -10.0 at 90%",
    ]
    assert holding(gap) == [True, False]


def test_nc_is_compared_with_em_explainer_by_explainer() -> None:
    table = {
        "gnnexplainer": two(0.5, 0.6),
        "gnnexplainer+nc": two(0.7, 0.5),
        "pgexplainer": two(0.9, 0.9),
        "pgexplainer+nc": {"benzene": 0.5},
        "nice": two(0.1, 0.1),
        "nice+em": two(0.2, 0.2),
        "saliency": two(0.3, 0.3),
    }
    finding = quality.nc_for_rivals(hand_evidence(hand_rows(table)))
    assert [part.text for part in finding.parts] == [
        "gnnexplainer: +5.0 points of AUC on average, better on 1 of 2",
        "pgexplainer: -40.0 points of AUC on average, better on 0 of 1",
    ]
    assert finding.verdict is Verdict.PARTLY


def test_random_row_is_compared_with_the_papers() -> None:
    def rows(shift: float) -> list[dict[str, Any]]:
        return [
            row
            for metric, table in PAPER_RESULTS.items()
            for place, dataset in enumerate(PAPER_DATASETS)
            for row in hand_rows(
                {"random": {dataset: (table["random"][place][0] + (place == 1) * shift) / 100}},
                metric,
            )
        ]

    assert quality.random_row(hand_evidence(rows(0.0))).verdict is Verdict.HOLDS
    finding = quality.random_row(hand_evidence(rows(2.5)))
    assert holding(finding) == [True, False] + [True] * 6
    assert "at most 2.5 points off" in finding.parts[1].text


def scale_rows(
    dataset: str, em: list[float], nc: list[float], metric: str = "ratio"
) -> list[dict[str, Any]]:
    return [
        {
            "dataset": dataset,
            "setting": setting,
            "metric": metric,
            "level": layer,
            "value": value,
        }
        for setting, values in (("em", em), ("nc", nc))
        for layer, value in enumerate(values, start=1)
    ]


def test_scale_drift_asks_every_layer() -> None:
    good = scale_rows("benzene", [0.5, 0.3], [1.0, 0.9])
    bad = scale_rows("indole", [1.2, 1.3], [1.4, 1.5])
    mixed = scale_rows("pains", [0.5, 0.6], [0.4, 1.0])

    def found(rows: list[dict[str, Any]]) -> Finding:
        return component.scale_drift(hand_evidence(studies={"scale": rows}), "nice-propagated")

    assert found(good).verdict is Verdict.HOLDS
    assert found(bad).verdict is Verdict.FAILS
    assert [part.holds for part in found(mixed).parts] == [True, False]
    assert found(good + bad).verdict is Verdict.PARTLY
    evidence = hand_evidence(studies={"scale": good + mixed + bad})
    depth = component.depth_drift(evidence, "nice-propagated")
    assert [part.text for part in depth.parts] == [
        "benzene, gin: 0.69 1.90",  # -log 0.5, and -log 0.3 more
        "indole, gin: -0.18 -0.44",
        "pains, gin: 0.69 1.20",
    ]
    assert holding(depth) == [True, False, True]
    persists = component.drift_persists(evidence, "nice-propagated")
    assert holding(persists) == [True, False, False]


def test_distances_and_confidence_compare_means_over_graphs() -> None:
    def rows(dataset: str, setting: str, metric: str, *values: float) -> list[dict[str, Any]]:
        names = {"dataset": dataset, "setting": setting, "metric": metric}
        return [names | {"value": value, "graph": k} for k, value in enumerate(values)]

    def pair(dataset: str, metric: str, gates: str, em: float, nc: float) -> list[dict[str, Any]]:
        return [
            *rows(dataset, f"em-clean/{gates}", metric, em - 0.005, em + 0.005),
            *rows(dataset, f"nc-clean/{gates}", metric, nc),
        ]

    found = [
        *pair("rings-max", "D_repr", "gt", 0.4, 0.1),
        *pair("rings-max", "D_repr", "rand", 0.2, 0.3),
        *pair("rings-max", "D_pred", "gt", 0.005, 0.001),  # too small for a share
        *pair("rings-max", "D_pred", "rand", 0.5, 0.12),
        *rows("rings-max", "clean", "confidence", 0.9),
        *pair("rings-max", "confidence", "gt", 0.5, 0.8),
    ]
    evidence = hand_evidence(studies={"mechanisms": found})
    finding = component.distances(evidence)
    assert [part.text for part in finding.parts] == [
        "D_repr, true gates: less under NC on 1 of 1 datasets",
        "D_repr, random gates: less under NC on 0 of 1 datasets",
        "D_repr, true gates, Rings: 75% less (paper 70.9%)",
        "D_pred, true gates: less under NC on 1 of 1 datasets",
        "D_pred, random gates: less under NC on 1 of 1 datasets",
    ]
    assert holding(finding) == [True, False, True, True, True]
    assert component.distances(evidence, "nice-propagated").verdict is Verdict.MISSING
    match = component.distances_match(evidence)  # paper: 0.16 +- 0.03, 0.16, 0.14, 0.13 +- 0.06
    assert holding(match) == [True, False, False, True]
    assert component.confidence(evidence).verdict is Verdict.HOLDS


def gates(dataset: str, status: str, restored: float, gate: float, big: float) -> list[dict]:
    values = {"restored": restored, "not_restored": 0.25, "gate_roc_auc": gate, "big_roc_auc": big}
    return gate_rows(dataset, status, values)


def test_boundary_needs_sound_gates_and_a_share_of_messages() -> None:
    rows = [
        *gates("benzene", "ok", 0.4, 0.8, 0.9),
        *gates("indole", "inverted", 0.4, 0.1, 0.2),
        *gates("pains", "ok", 0.99, 0.5, 0.4),
    ]
    evidence = hand_evidence(rows)
    finding = component.boundary_found(evidence)
    assert holding(finding) == [True, False, False]
    assert finding.parts[1].text == "indole: inverted in 1, restored share 0.40"
    assert finding.numbers is not None
    assert finding.numbers.rows[0] == ["benzene", "1", "ok in 1", "0.40", "25", "80.0"]
    assert "mutagenicity" in finding.missing
    finding = component.attribution_over_gate(evidence)
    assert holding(finding) == [True, True, False]
    assert finding.parts[0].text == "benzene: BIG 90.0, gate 80.0"


def test_boundary_is_judged_by_the_status_of_most_seeds() -> None:
    def found(*statuses: str) -> Finding:
        rows = [
            row
            for seed, status in enumerate(statuses)
            for row in gate_rows("benzene", status, {"restored": 0.5}, seed=seed)
        ]
        return component.boundary_found(hand_evidence(rows))

    assert holding(found("ok", "ok", "saturated")) == [True]
    assert holding(found("ok", "saturated")) == [False]
    assert found("ok", "ok", "saturated").parts[0].text.startswith("benzene: ok in 2, saturated in")


def test_rows_from_before_gates_were_stored_are_not_measured() -> None:
    old = hand_rows({"nice-paper": two(0.9, 0.9)})  # agreement alone, no row about gates
    for judge in (component.boundary_found, component.attribution_over_gate):
        finding = judge(hand_evidence(old))
        assert finding.verdict is Verdict.MISSING
        assert "gates of nice-paper" in finding.scope
        assert "another `--out`" in finding.scope  # the same command would find them finished
    no_auc = hand_evidence(gate_rows("benzene", "ok", {"restored": 0.4}))
    assert component.attribution_over_gate(no_auc).verdict is Verdict.MISSING
    assert holding(component.boundary_found(no_auc)) == [True]
    only_status = hand_evidence(gate_rows("benzene", "ok", {}))  # of a cell from before
    assert component.boundary_found(only_status).verdict is Verdict.MISSING


def test_ablation_weighs_sign_size_and_spread() -> None:
    def found(changes: list[float], metric: str = "degradation_mean") -> Finding:
        rows = [
            {"dataset": "benzene", "metric": metric, "seed": seed}
            | {"setting": setting, "value": value}
            for seed, change in enumerate(changes)
            for setting, value in (("paper", 0.2), ("paper/no-variation", 0.2 + change))
        ]
        return component.without_variation(hand_evidence(studies={"ablation": rows}))

    large = found([0.1, 0.11, 0.09])
    assert holding(large) == [True]
    text = "benzene: mean degradation 0.200, without the term 0.300, +50%"
    assert large.parts[0].text == f"{text} (paper +61% on Benzene), 3 seed(s)"
    assert large.missing == "its deviation, restored share, AUC"
    assert holding(found([0.016, 0.016, 0.016])) == [False]  # 8%, far less than the paper
    assert holding(found([0.5, -0.3, 0.1])) == [False]  # 50%, lost in the spread
    assert holding(found([-0.1, -0.1, -0.1])) == [False]
    assert holding(found([0.1])) == [False]  # one seed has no spread


def test_sensitivity_and_convergence() -> None:
    def sweep(setting: str, metric: str, values: dict[float, float]) -> list[dict[str, Any]]:
        metric, _, protocol = metric.partition("/")
        names = {"dataset": "benzene", "setting": setting, "metric": metric, "protocol": protocol}
        return [names | {"level": level, "value": value} for level, value in values.items()]

    rows = [
        *sweep("paper/num_draws", "roc_auc/paper", {4: 0.7, 16: 0.80, 64: 0.805}),
        *sweep("paper/num_draws", "explain_milliseconds", {16: 1.0, 64: 3.0}),
        *sweep("paper/num_nodes", "roc_auc/paper", {16: 0.80, 32: 0.90}),
        *sweep("paper/beta", "degradation_std", {0.0: 0.3, 1.0: 0.1}),
        *sweep("paper/penalty", "restored", {0.1: 0.5, 10.0: 0.6}),
    ]
    evidence = hand_evidence(
        studies={
            "sensitivity": rows,
            "convergence": sweep("paper/riemann/fresh/16", "spearman", {16: 0.95, 64: 0.1}),
        }
    )
    finding = component.saturation(evidence)
    assert holding(finding) == [True, True, False]
    assert finding.parts[1].text == "draws: 64 take 3.0 times as long as 16"
    assert [part.holds for part in component.coefficients(evidence).parts] == [True, False]
    assert component.riemann_converged(evidence).verdict is Verdict.HOLDS
