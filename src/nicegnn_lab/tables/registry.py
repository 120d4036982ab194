"""Every table by name: each is one function over stored rows."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from nicegnn_lab.metrics.metric import own_metrics
from nicegnn_lab.tables import studies
from nicegnn_lab.tables.atoms import atom_tables
from nicegnn_lab.tables.comparison import comparison_table, mechanism_tables
from nicegnn_lab.tables.damages import damage_table
from nicegnn_lab.tables.quality import TABLE_METRICS, backbones_table, quality_tables
from nicegnn_lab.tables.sources import Artefact, Sources
from nicegnn_lab.tables.table import Table
from nicegnn_lab.tables.wide import wide_tables

Tables = Sequence[Table]


def make_tables(name: str, sources: Sources) -> list[Table]:
    """Returns the tables of a name of `TABLES`; a note names rows of an older version."""
    notes = sources.older(TABLES[name].reads)
    return [replace(one, notes=[*one.notes, *notes]) for one in TABLES[name].make(sources)]


def _of_bench(make: Callable[[pd.DataFrame, str], Tables]) -> Artefact[Tables]:

    def made(sources: Sources) -> Tables:
        rows = sources.bench((*TABLE_METRICS, *own_metrics()))
        targets = sorted(str(target) for target in rows["target"].unique())
        return [table for target in targets for table in make(rows, target)]

    return Artefact(made)


def _of_study(study: str, make: Callable[[Path], Tables]) -> Artefact[Tables]:
    return Artefact(lambda sources: make(sources.studies), (study,))


#: Tables by name.
TABLES: dict[str, Artefact[Tables]] = {
    "quality": _of_bench(quality_tables),
    "ranks": Artefact(lambda sources: [backbones_table(sources.bench(TABLE_METRICS))]),
    "comparison": _of_bench(comparison_table),
    "rivals-em-nc": _of_bench(mechanism_tables),
    "mechanism": _of_study("mechanisms", studies.mechanisms_table),
    "scale": _of_study("scale", studies.scale_table),
    "damages": Artefact(damage_table, ("bench", "mechanisms", "scale")),
    "ablation": _of_study("ablation", studies.ablation_table),
    "sensitivity": _of_study("sensitivity", studies.sensitivity_table),
    "wide": _of_study("wide", wide_tables),
    "atoms": _of_study("atoms", atom_tables),
}
