"""nicegnn: what a prediction loses when a bond says what other real bonds say.

Public names are imported on first use (PEP 562), because importing torch takes seconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nicegnn.config import AttributionConfig, BoundaryConfig, NICEConfig
    from nicegnn.explain.explainer import Explainer
    from nicegnn.explain.explanation import Explanation
    from nicegnn.explain.nice import NICE
    from nicegnn.explain.pyg_adapter import NICEAlgorithm
    from nicegnn.explain.registry import (
        get_explainer,
        list_explainers,
        load_plugins,
        register_explainer,
    )
    from nicegnn.explain.trust import Flag, Status, Trust
    from nicegnn.intervention.intervene import InterventionReport, Mechanism, Site, intervene
    from nicegnn.intervention.mechanisms import ElementMask, NoiseCorruption
    from nicegnn.pretrained import Pretrained
    from nicegnn.student.teaching import TeachConfig, TeachReport

__version__ = "0.2.0"
__all__ = ["NICE", "AttributionConfig", "BoundaryConfig", "ElementMask", "Explainer"]
__all__ += ["Explanation", "Flag", "InterventionReport", "Mechanism", "NICEAlgorithm", "NICEConfig"]
__all__ += ["NoiseCorruption", "Pretrained", "Site", "Status", "TeachConfig", "TeachReport"]
__all__ += ["Trust", "get_explainer", "intervene", "list_explainers", "load_plugins"]
__all__ += ["register_explainer"]

#: Public names by module, the same as above.
_HOMES = {
    "nicegnn.config": ("AttributionConfig", "BoundaryConfig", "NICEConfig"),
    "nicegnn.explain.explainer": ("Explainer",),
    "nicegnn.explain.explanation": ("Explanation",),
    "nicegnn.explain.nice": ("NICE",),
    "nicegnn.explain.pyg_adapter": ("NICEAlgorithm",),
    "nicegnn.explain.registry": (
        *("get_explainer", "list_explainers", "load_plugins", "register_explainer"),
    ),
    "nicegnn.explain.trust": ("Flag", "Status", "Trust"),
    "nicegnn.intervention.intervene": ("InterventionReport", "Mechanism", "Site", "intervene"),
    "nicegnn.intervention.mechanisms": ("ElementMask", "NoiseCorruption"),
    "nicegnn.pretrained": ("Pretrained",),
    "nicegnn.student.teaching": ("TeachConfig", "TeachReport"),
}

if not TYPE_CHECKING:  # with it a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Imports a public name, or a package that holds public names."""
        for home, names in _HOMES.items():
            if name in names:
                globals()[name] = getattr(import_module(home), name)
                return globals()[name]
        if [import_module(home) for home in _HOMES if home.split(".")[1] == name]:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
