"""Benchmarks: explainers on graphs with known truth, resumable, here or on a cluster."""

from nicegnn.bench.cell import Cell
from nicegnn.bench.config import BenchConfig, MetricConfig
from nicegnn.bench.engine import LocalEngine, RayEngine, make_engine
from nicegnn.bench.packing import KEPT_PER_GRAPH, pack
from nicegnn.bench.plan import make_cells
from nicegnn.bench.reading import read_rows
from nicegnn.bench.rows import COLUMNS
from nicegnn.bench.run import BenchReport, run_bench
from nicegnn.bench.settings import read_settings
from nicegnn.bench.summary import summarise

__all__ = [
    "COLUMNS",
    "KEPT_PER_GRAPH",
    "BenchConfig",
    "BenchReport",
    "Cell",
    "LocalEngine",
    "MetricConfig",
    "RayEngine",
    "make_cells",
    "make_engine",
    "pack",
    "read_rows",
    "read_settings",
    "run_bench",
    "summarise",
]
