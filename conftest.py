"""Holds for tests and for examples in docstrings."""

import os

import torch

torch.set_num_threads(1)  # tiny graphs: more threads mostly wait for each other
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # GPU kernels are then interpreted
