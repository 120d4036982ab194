"""Evidence: means, ranks and gates from rows, and which studies a folder holds."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from nicegnn.errors import ConfigError, StoreError
from nicegnn_lab.bench import Block
from nicegnn_lab.paper.evidence import (
    BUDGETS,
    compared,
    complete,
    places_of,
    rank_methods,
    read_evidence,
    read_studies,
)
from tests.lab.paper.hand_evidence import gate_rows, hand_evidence, hand_rows
from tests.lab.tables.synthetic_rows import write_study


def test_means_are_by_metric_protocol_and_level() -> None:
    evidence = hand_evidence(
        [
            *hand_rows({"nice": {"benzene": 0.9, "indole": math.nan}}),
            *hand_rows({"nice": {"benzene": 0.7}}, protocol="strict"),
            *hand_rows({"nice": {"benzene": 0.2}}, "kept@0.1", "em"),
            *hand_rows({"nice": {"benzene": 0.4}}, "kept@0.3", "em"),
        ]
    )
    assert evidence.means("roc_auc") == {"nice": {"benzene": 0.9}}  # undefined is left out
    assert evidence.means("roc_auc", "strict") == {"nice": {"benzene": 0.7}}
    assert evidence.means("kept", "em", 0.3) == {"nice": {"benzene": 0.4}}
    assert evidence.means("kept", "nc", 0.3) == {}
    assert evidence.num_seeds("nice") == 1
    assert evidence.num_seeds("random") == 0


def test_methods_are_ranked_where_they_have_values() -> None:
    means = {
        "nice": {"a": 0.9, "b": 0.2},
        "saliency": {"a": 0.5, "b": 0.3},
        "pgexplainer": {"a": 0.7},
        "ground-truth": {"a": 1.0, "b": 1.0},
    }
    table = compared(means, "nice", None)
    assert set(table) == {"nice", "saliency", "pgexplainer"}  # the truth is no rival
    assert set(complete(table, "nice")) == {"nice", "saliency"}
    assert rank_methods(complete(table, "nice"), "roc_auc") == {"nice": 1.5, "saliency": 1.5}
    assert places_of({"nice": {"a": 1.0}}) == {("a", "nice")}
    assert compared(means, "refine", None) == {}


def test_gates_are_told_by_seed_and_dataset() -> None:
    values = {"restored": 0.4, "not_restored": 0.2, "gate_roc_auc": 0.6, "big_roc_auc": 0.7}
    rows = gate_rows("benzene", "ok", values, "nice", seed=1)
    rows += gate_rows("benzene", "inverted", values, "nice", seed=0)
    rows += gate_rows("mutagenicity", "ok", {"restored": 0.1}, "nice")
    found = hand_evidence(rows).gates("nice")
    assert list(found) == ["mutagenicity", "benzene"]  # in the order of the paper
    assert [one.status for one in found["benzene"]] == ["inverted", "ok"]
    one = found["benzene"][0]
    assert (one.restored, one.not_restored) == pytest.approx((0.4, 0.2))  # means over graphs
    assert (one.gate_auc, one.big_auc) == pytest.approx((0.6, 0.7))
    assert math.isnan(found["mutagenicity"][0].gate_auc)
    assert hand_evidence(rows).gates("nice-paper") == {}


def test_studies_are_read_and_damaged_ones_named(tmp_path: Path) -> None:
    write_study(tmp_path, "scale", [Block("ratio", 0.5, setting="em", level=1.0)])
    (tmp_path / "nothing").mkdir()
    (tmp_path / "notes.txt").write_text("no study")
    (tmp_path / "ablation").mkdir()
    (tmp_path / "ablation" / "packed.parquet").write_bytes(b"PAR1")
    found, problems = read_studies(tmp_path)
    assert list(found) == ["scale"]
    assert found["scale"]["value"].tolist() == [0.5]
    assert list(problems) == ["ablation"]
    assert "damaged" in problems["ablation"]
    assert read_studies(None) == ({}, {})


def test_only_budgets_that_are_shown_are_kept(tmp_path: Path) -> None:
    blocks = [Block("kept", 0.5, "em", level=share) for share in (0.1, 0.2, 0.9)]
    write_study(tmp_path, "bench", [*blocks, Block("roc_auc", 0.5, "paper")])
    evidence = read_evidence(tmp_path / "bench")
    assert set(evidence.rows["level"].dropna()) == {0.1, 0.9} < set(BUDGETS)
    assert (evidence.rows["metric"] == "roc_auc").sum() == 1


def test_folder_without_rows_and_unknown_targets_are_errors(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nicegnn lab bench"):
        read_evidence(tmp_path)
    write_study(tmp_path, "bench", [Block("roc_auc", 0.5, "paper")], target="gcn")
    assert read_evidence(tmp_path / "bench").target == "gcn"  # there is no gin
    with pytest.raises(ConfigError, match=r"\['gcn'\] \(got 'gat'\)"):
        read_evidence(tmp_path / "bench", target="gat")
