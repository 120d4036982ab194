"""Studies: what they vary and what they measure. `nicegnn_lab.bench` runs them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nicegnn.config import check_choice

if TYPE_CHECKING:
    from nicegnn_lab.bench.study import Study

#: Studies by name, as ``module:Class``; `make_study` imports the module.
STUDIES: dict[str, str] = {
    "mechanisms": "nicegnn_lab.studies.mechanisms:MechanismStudy",
    "scale": "nicegnn_lab.studies.mechanisms:ScaleStudy",
    "ablation": "nicegnn_lab.studies.ablation:AblationStudy",
    "sensitivity": "nicegnn_lab.studies.ablation:SensitivityStudy",
    "wide": "nicegnn_lab.studies.wide:WideStudy",
    "atoms": "nicegnn_lab.studies.atoms:AtomStudy",
}


def make_study(name: str, **settings: Any) -> Study:
    """Returns a study by name; settings are its fields."""
    check_choice("name", name, STUDIES)
    module, _, kind = STUDIES[name].partition(":")
    study: Study = getattr(import_module(module), kind)(**settings)
    return study
