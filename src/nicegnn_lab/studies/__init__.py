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
    "ablation": "nicegnn_lab.studies.ablation:AblationStudy",
    "sensitivity": "nicegnn_lab.studies.ablation:SensitivityStudy",
    "convergence": "nicegnn_lab.studies.convergence:ConvergenceStudy",
    "scale": "nicegnn_lab.studies.mechanisms:ScaleStudy",
    "motifs": "nicegnn_lab.studies.motifs:MotifStudy",
    "shapes": "nicegnn_lab.studies.motifs:ShapesStudy",
    "gates": "nicegnn_lab.studies.gates:GateStudy",
    "depth": "nicegnn_lab.studies.gates:DepthStudy",
    "scores": "nicegnn_lab.studies.scores:ScoreStudy",
    "parts": "nicegnn_lab.studies.scores:PartStudy",
    "joins": "nicegnn_lab.studies.scores:JoinStudy",
    "removal": "nicegnn_lab.studies.scores:RemovalStudy",
    "ensembles": "nicegnn_lab.studies.scores:EnsembleStudy",
    "rivals": "nicegnn_lab.studies.rivals:RivalStudy",
    "truth": "nicegnn_lab.studies.rivals:TruthStudy",
    "trust": "nicegnn_lab.studies.trust:TrustStudy",
    "unseen": "nicegnn_lab.studies.unseen:UnseenStudy",
    "wide": "nicegnn_lab.studies.wide:WideStudy",
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
