"""The runner: cells of a benchmark or study on tasks with known truth, here or on a cluster."""

from nicegnn.bench.benchmark import BenchConfig, Benchmark, run_bench
from nicegnn.bench.job import Job
from nicegnn.bench.measure import MetricConfig
from nicegnn.bench.packing import KEPT_PER_GRAPH, pack, pack_all
from nicegnn.bench.plan import make_cells, read_settings
from nicegnn.bench.row_tables import summarise
from nicegnn.bench.rows import COLUMNS, Block, Folder, mean_blocks, read_rows
from nicegnn.bench.run import LocalEngine, RayEngine, RunReport, make_engine, run_study
from nicegnn.bench.study import Cell, Study, Variant
from nicegnn.bench.task import MoleculeTask, Task, make_task

__all__ = [
    "COLUMNS",
    "KEPT_PER_GRAPH",
    "BenchConfig",
    "Benchmark",
    "Block",
    "Cell",
    "Folder",
    "Job",
    "LocalEngine",
    "MetricConfig",
    "MoleculeTask",
    "RayEngine",
    "RunReport",
    "Study",
    "Task",
    "Variant",
    "make_cells",
    "make_engine",
    "make_task",
    "mean_blocks",
    "pack",
    "pack_all",
    "read_rows",
    "read_settings",
    "run_bench",
    "run_study",
    "summarise",
]
