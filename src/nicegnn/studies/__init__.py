"""Studies: what they vary and what they measure. `nicegnn.bench` runs them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nicegnn.config import check_choice

if TYPE_CHECKING:
    from nicegnn.bench.study import Study

#: Studies by name, as ``module:Class``; `make_study` imports the module.
STUDIES: dict[str, str] = {
    "mechanisms": "nicegnn.studies.mechanisms:MechanismStudy",
    "ablation": "nicegnn.studies.ablation:AblationStudy",
    "sensitivity": "nicegnn.studies.ablation:SensitivityStudy",
    "convergence": "nicegnn.studies.convergence:ConvergenceStudy",
    "scale": "nicegnn.studies.mechanisms:ScaleStudy",
    "motifs": "nicegnn.studies.motifs:MotifStudy",
    "shapes": "nicegnn.studies.motifs:ShapesStudy",
    "gates": "nicegnn.studies.gates:GateStudy",
    "depth": "nicegnn.studies.gates:DepthStudy",
    "scores": "nicegnn.studies.scores:ScoreStudy",
    "parts": "nicegnn.studies.scores:PartStudy",
    "joins": "nicegnn.studies.scores:JoinStudy",
    "removal": "nicegnn.studies.scores:RemovalStudy",
    "ensembles": "nicegnn.studies.scores:EnsembleStudy",
    "rivals": "nicegnn.studies.rivals:RivalStudy",
    "truth": "nicegnn.studies.rivals:TruthStudy",
    "trust": "nicegnn.studies.trust:TrustStudy",
    "unseen": "nicegnn.studies.unseen:UnseenStudy",
}
#: Old names of studies.
FORMER_NAMES = {"mechanism-comparison": "mechanisms", "scale-study": "scale"}


def find_studies(name: str) -> list[str]:
    """Returns the names of studies for a name, an old name, or ``all``.

    Example:
        >>> find_studies("mechanism_comparison")
        ['mechanisms']
    """
    plain = name.replace("_", "-")
    plain = FORMER_NAMES.get(plain, plain)
    check_choice("name", plain, (*STUDIES, "all"))
    return list(STUDIES) if plain == "all" else [plain]


def make_study(name: str, **settings: Any) -> Study:
    """Returns a study by name; settings are its fields, such as ``explainers`` of ``motifs``."""
    module, _, kind = STUDIES[find_studies(name)[0]].partition(":")
    study: Study = getattr(import_module(module), kind)(**settings)
    return study
