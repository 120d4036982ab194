"""The runner: cells of a benchmark or study, on tasks with known truth."""
