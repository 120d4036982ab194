"""The gallery: molecules and scores are those of the rows, each molecule is drawn once."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from nicegnn.errors import ConfigError
from nicegnn_lab.paper.evidence import read_evidence
from nicegnn_lab.report import GalleryConfig
from nicegnn_lab.report.gallery import make_gallery
from tests.lab.paper.hand_evidence import hand_evidence
from tests.lab.report.small_report import (
    DATASETS,
    EXPLAINERS,
    bench_rows,
    embedded,
    load,
    make_bench,
    make_page,
)

METRICS = {"gate ρ*": "bond_gate", "attribution": "bond_big", "": "bond_score"}


def test_gallery_shows_what_the_rows_hold() -> None:
    page, rows = make_page(), bench_rows()
    assert embedded(page, "gallery") == list(DATASETS)
    for name in DATASETS:
        gallery = embedded(page, f"gallery-{name}")
        assert len(gallery["molecules"]) == 4
        methods = gallery["methods"]
        assert {m["method"] for m in methods} == set(EXPLAINERS) - {"ground-truth"}
        assert {"nice", "nice: attribution", "nice-paper: gate ρ*"} <= {m["name"] for m in methods}
        here = rows[(rows["dataset"] == name) & (rows["seed"] == gallery["seed"])]
        for place, method in enumerate(methods):
            some = _of_method(here, method["method"])
            metric = METRICS[method["name"].partition(": ")[2]]
            assert method["score"] == (metric == "bond_score")
            for molecule in gallery["molecules"]:
                own = some[some["graph"] == molecule["n"]]
                bonds = own[own["metric"] == metric].sort_values("level")["value"]
                np.testing.assert_allclose(molecule["scores"][place], bonds, rtol=6e-4)
                _check_values(molecule["values"][place], metric, own, gallery)


def _of_method(rows: pd.DataFrame, label: str) -> pd.DataFrame:
    explainer, _, mechanism = label.partition("+")
    own = {"nice": "both", "nice-paper": "nc", "random": ""}.get(explainer, "em")
    is_it = (rows["explainer"] == explainer) & (rows["mechanism"] == (mechanism or own))
    return rows[is_it]


def _check_values(shown: Any, metric: str, own: pd.DataFrame, gallery: dict[str, Any]) -> None:
    if metric != "bond_score":
        assert shown is None
        return
    wanted = [(p, m) for p in gallery["protocols"] for m in gallery["metrics"]]
    assert len(shown) == len(wanted) == 4
    for value, (protocol, name) in zip(shown, wanted, strict=True):
        one = own[(own["protocol"] == protocol) & (own["metric"] == name)]["value"]
        if len(one) == 0 or one.isna().all():
            assert value is None
        else:
            assert value == pytest.approx(float(one.iloc[0]), rel=1e-3)


def test_molecules_are_those_of_the_data() -> None:
    for name in DATASETS:
        part = load(name).test
        for molecule in embedded(make_page(), f"gallery-{name}")["molecules"]:
            data = part[molecule["n"]]
            assert molecule["smiles"] == data.smiles
            assert molecule["y"] == int(data.y) == 1
            assert molecule["true"] == data.edge_truth[::2].nonzero().view(-1).tolist()
            ends = [re.findall(r"\d+", text) for text in molecule["bonds"]]
            expected = data.edge_index.t()[::2].sort(1).values.tolist()
            assert [sorted(map(int, pair)) for pair in ends] == expected
            bands = re.findall(r"band bond-(\d+)", molecule["svg"])
            assert list(map(int, bands)) == list(range(len(expected)))


def test_fewer_molecules_can_be_shown_or_none() -> None:
    evidence = read_evidence(make_bench(), metrics=("bond_score", "molecule"))
    two = make_gallery(evidence, GalleryConfig(molecules=2))
    numbers = [[m["n"] for m in gallery["molecules"]] for gallery in two.values()]
    assert [len(some) for some in numbers] == [2, 2]
    assert make_gallery(evidence, GalleryConfig(molecules=0)) == {}
    with pytest.raises(ConfigError, match="at least 0"):
        GalleryConfig(molecules=-1)


def test_rows_without_molecules_say_how_to_get_them() -> None:
    evidence = read_evidence(make_bench(), metrics=("bond_score", "molecule"))
    other = make_gallery(evidence, GalleryConfig(seed=1))  # only seed 0 holds molecules
    assert all("with seed 1 hold no molecules" in some["problem"] for some in other.values())
    bare = make_gallery(read_evidence(make_bench()), GalleryConfig())
    assert "nicegnn lab bench -d benzene" in bare["benzene"]["problem"]


def hand_molecule(explainer: str, mechanism: str, **values: list[float]) -> list[dict[str, Any]]:
    about = {"smiles": "CCO", "atoms": ["C", "C", "O"], "bonds": [[0, 1, 0], [1, 2, 0]]}
    about |= {"true": [1], "alternatives": [[1]], "label": 1, "explained": 1, "probability": 0.5}
    cell = {"dataset": "my-own", "explainer": explainer, "mechanism": mechanism, "graph": 7}
    rows = [{**cell, "metric": "molecule", "value": 1.0, "note": json.dumps(about)}]
    for metric, numbers in values.items():
        rows += [
            {**cell, "metric": metric, "level": float(bond), "value": value}
            for bond, value in enumerate(numbers)
        ]
    return rows


def test_what_is_the_score_itself_is_not_shown_twice() -> None:
    rows = hand_molecule("nice-paper", "nc", bond_score=[1, 2], bond_gate=[0, 1], bond_big=[1, 2])
    rows += hand_molecule("random", "", bond_score=[0.5, float("nan")])
    gallery = make_gallery(hand_evidence(rows), GalleryConfig())["my-own"]
    names = [method["name"] for method in gallery["methods"]]
    assert names == ["nice-paper", "nice-paper: gate ρ*", "random"]
    (molecule,) = gallery["molecules"]
    assert molecule["scores"] == [[1, 2], [0, 1], [0.5, None]]
    assert molecule["bonds"] == ["C0–C1", "C1–O2"]
    assert gallery["meaning"] == ""  # nobody registered this dataset
