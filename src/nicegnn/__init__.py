"""nicegnn: what a prediction loses when a bond says what other real bonds say.

Public names are imported on first use (PEP 562), because importing torch takes seconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nicegnn.config import AttributionConfig as AttributionConfig
    from nicegnn.config import BoundaryConfig as BoundaryConfig
    from nicegnn.config import NICEConfig as NICEConfig
    from nicegnn.explain.explainer import Explainer as Explainer
    from nicegnn.explain.explanation import Explanation as Explanation
    from nicegnn.explain.nice import NICE as NICE
    from nicegnn.explain.pyg_adapter import NICEAlgorithm as NICEAlgorithm
    from nicegnn.explain.registry import get_explainer as get_explainer
    from nicegnn.explain.registry import list_explainers as list_explainers
    from nicegnn.explain.registry import load_plugins as load_plugins
    from nicegnn.explain.registry import register_explainer as register_explainer
    from nicegnn.explain.trust import Flag as Flag
    from nicegnn.explain.trust import Status as Status
    from nicegnn.explain.trust import Trust as Trust
    from nicegnn.intervention.intervene import InterventionReport as InterventionReport
    from nicegnn.intervention.intervene import Mechanism as Mechanism
    from nicegnn.intervention.intervene import Site as Site
    from nicegnn.intervention.intervene import intervene as intervene
    from nicegnn.intervention.mechanisms import ElementMask as ElementMask
    from nicegnn.intervention.mechanisms import NoiseCorruption as NoiseCorruption
    from nicegnn.pretrained import Pretrained as Pretrained
    from nicegnn.student.teaching import TeachConfig as TeachConfig
    from nicegnn.student.teaching import TeachReport as TeachReport

__version__ = "0.2.0"

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
__all__ = sorted(name for names in _HOMES.values() for name in names)

if not TYPE_CHECKING:  # with it a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Imports a public name, or a package that holds public names."""
        for home, names in _HOMES.items():
            if name in names:
                globals()[name] = getattr(import_module(home), name)
                return globals()[name]
        inner = [import_module(home) for home in _HOMES if home.split(".")[1] == name]
        if inner:
            return import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
