"""Whole damaged passes of common models in one kernel, for GPUs (Triton) and CPUs (Numba)."""
