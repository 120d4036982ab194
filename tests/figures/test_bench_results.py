"""From a small benchmark on disk to its tables and figures."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments"))
from nicegnn.bench import read_rows, run_bench
from nicegnn.figures.cost import cost_figure
from nicegnn.figures.fidelity import all_fidelity_figures
from nicegnn.figures.mechanisms import mechanisms_figure
from nicegnn.tables.quality import (
    all_quality_tables,
    comparison_table,
    criterion_table,
    mechanism_table,
)
from tests.tables.synthetic_rows import make_world


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    world, out = make_world(), tmp_path_factory.mktemp("bench")
    names = ("saliency", "gnnexplainer", "gnnexplainer+nc", "random")
    settings = {"gnnexplainer": {"steps": 3}}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in world.environment.items():
            patch.setenv(name, value)
        config = world.config(out, *names, seeds=(0, 1), max_graphs=8, settings=settings)
        run_bench(config, progress=False)
    return read_rows(out)


def test_tables_hold_the_means_of_the_rows(rows: pd.DataFrame) -> None:
    tables = {table.name: table for table in all_quality_tables(rows, protocols=("strict",))}
    assert len(tables) == 6  # five of truth, fidelity under EM
    table = tables["quality-roc-auc-strict-gin"]
    assert [row[0] for row in table.rows] == ["saliency", "gnnexplainer", "random"]
    is_cell = (rows["metric"] == "roc_auc") & (rows["protocol"] == "strict")
    by_seed = rows[is_cell & (rows["explainer"] == "random")].groupby("seed")["value"].mean() * 100
    assert table.rows[2][2] == f"{by_seed.mean():.1f} ± {by_seed.std():.1f}"
    assert len(comparison_table(rows, "gnnexplainer").rows) == 2
    assert [row[0] for row in mechanism_table(rows).rows] == ["gnnexplainer"]
    assert criterion_table(rows).rows[0][-1] == "4"


def test_figures_are_drawn(rows: pd.DataFrame) -> None:
    figures = [
        *all_fidelity_figures(rows).values(),
        mechanisms_figure(rows),
        cost_figure(rows, variants=True),
    ]
    assert len(figures) == 3  # fidelity under EM only
    for figure in figures:
        figure.canvas.draw()
        assert figure.axes[0].get_title().startswith("benzene, n = ")
    labels = [text.get_text() for text in figures[-1].legends[0].get_texts()]
    assert labels == ["saliency", "gnnexplainer", "gnnexplainer+nc", "random"]
