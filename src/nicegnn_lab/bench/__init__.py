"""The runner: cells of a benchmark or study, on tasks with known truth."""

from nicegnn_lab.bench.benchmark import Benchmark
from nicegnn_lab.bench.job import Job
from nicegnn_lab.bench.measure import MetricConfig
from nicegnn_lab.bench.packing import pack, pack_all
from nicegnn_lab.bench.plan import make_cells, read_settings
from nicegnn_lab.bench.rows import COLUMNS, Block, Folder, mean_blocks, read_rows, summarise
from nicegnn_lab.bench.run import RunReport, run_study
from nicegnn_lab.bench.study import Cell, Study, Variant
from nicegnn_lab.bench.task import MoleculeTask, Task, make_task

__all__ = [
    "COLUMNS",
    "Benchmark",
    "Block",
    "Cell",
    "Folder",
    "Job",
    "MetricConfig",
    "MoleculeTask",
    "RunReport",
    "Study",
    "Task",
    "Variant",
    "make_cells",
    "make_task",
    "mean_blocks",
    "pack",
    "pack_all",
    "read_rows",
    "read_settings",
    "run_study",
    "summarise",
]
