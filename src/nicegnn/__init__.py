"""nicegnn: explains graph neural networks by scale-stable noise corruption of their messages."""

from nicegnn.config import AttributionConfig, BoundaryConfig, NICEConfig
from nicegnn.datasets import load_dataset
from nicegnn.explainer import Explainer
from nicegnn.explanation import Explanation, Flag, Status
from nicegnn.mechanisms import ElementMask, NoiseCorruption
from nicegnn.messages import InterventionReport, Mechanism, Site, intervene
from nicegnn.nice import NICE
from nicegnn.pyg import NICEAlgorithm
from nicegnn.registry import get_explainer, list_explainers
from nicegnn.scale import ScaleProfile, perturbation_distances, scale_profile

__version__ = "0.1.0"

__all__ = [
    "NICE",
    "AttributionConfig",
    "BoundaryConfig",
    "ElementMask",
    "Explainer",
    "Explanation",
    "Flag",
    "InterventionReport",
    "Mechanism",
    "NICEAlgorithm",
    "NICEConfig",
    "NoiseCorruption",
    "ScaleProfile",
    "Site",
    "Status",
    "get_explainer",
    "intervene",
    "list_explainers",
    "load_dataset",
    "perturbation_distances",
    "scale_profile",
]
