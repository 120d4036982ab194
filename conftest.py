"""Holds for tests and for examples in docstrings."""

import torch

torch.set_num_threads(1)  # tiny graphs: more threads mostly wait for each other
