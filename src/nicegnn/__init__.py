"""nicegnn: explains graph neural networks by scale-stable noise corruption of their messages."""

from nicegnn.config import AttributionConfig, BoundaryConfig, NICEConfig
from nicegnn.datasets import load_dataset
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.explanation import Explanation, Flag, Status
from nicegnn.explain.nice import NICE
from nicegnn.explain.pyg_adapter import NICEAlgorithm
from nicegnn.intervention.intervene import InterventionReport, Mechanism, Site, intervene
from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
from nicegnn.intervention.scale import ScaleProfile, perturbation_distances, scale_profile
from nicegnn.rivals.registry import get_explainer, list_explainers

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
