"""The experiments of the paper and beyond: each computes rows, which tables and figures read."""
