"""All explainers by name: what each one is, what it costs, and how to make it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from importlib import import_module
from typing import Any, Literal

from torch import nn

from nicegnn.config import ExplainerConfig
from nicegnn.errors import ConfigError
from nicegnn.explain.explainer import Explainer
from nicegnn.intervention.intervene import Mechanism

Group = Literal["ours", "variant", "rival", "reference", "supervised"]


@dataclass(frozen=True)
class Entry:
    """One explainer as it is listed.

    Group ``reference`` is chance and the truth; a ``variant`` of ours is not ranked; ``supervised``
    ones see true explanations while they learn. Default settings and mechanisms are those of the
    class unless given here.
    """

    name: str  # in commands and tables
    where: str  # its class as ``module:Class``, which is imported when it is first needed
    summary: str  # what it is, in one line
    cost: str  # what one explanation costs, in passes of the model
    citation: str  # authors, venue and year
    group: Group = "rival"
    settings: str = ""  # what returns its default settings, as ``module:name``
    own_mechanisms: tuple[str, ...] | None = None  # those it works with, its own first
    changes: Mapping[str, Any] = field(default_factory=dict)  # of these settings, by name
    needs_fit: bool | None = None  # whether it is fitted first; none: as its class says
    defaults_version: int = 1  # raise it when a default setting of this entry changes

    def load(self) -> type[Explainer]:
        """Returns the class."""
        return _find(self.where)

    def defaults(self) -> ExplainerConfig:
        """Returns the default settings."""
        kind: Any = self.load()
        found = _find(self.settings)() if self.settings else kind.config_type()
        return found.with_(**self.changes)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Mechanisms it works with, its own first; empty where it damages no messages."""
        own = self.own_mechanisms
        return getattr(self.load(), "mechanisms", ()) if own is None else own

    @property
    def learns(self) -> bool:
        """Whether it is fitted on many graphs first."""
        return self.load().learns if self.needs_fit is None else self.needs_fit


#: A path sum that more nodes and draws hardly change.
_LONG = {"attribution__quadrature": "gauss", "attribution__num_draws": 64}


def _paper(name: str, summary: str, anchor: str, **changes: Any) -> Entry:
    """Returns an entry for a reading of the paper's method."""
    return Entry(
        name,
        "nicegnn.explain.nice:NICE",
        summary,
        f"fit, then 16 x {changes.get('attribution__num_draws', 16)} passes and gradients",
        "NICE (Luo et al.)",
        group="ours" if name == "nice-paper" else "variant",
        settings="nicegnn.config:NICEConfig.paper",
        own_mechanisms=("nc", "em"),
        changes={"boundary__anchor": anchor, "attribution__anchor": anchor, **changes},
        defaults_version=2,  # before, messages were propagated, and the gate network was another
    )


_ENTRIES = (
    Entry(
        "nice",
        "nicegnn.explain.nice:NICE",
        "Order of bonds under budgets and bond-wise loss, under noise and under masking.",
        "fit, then 17 passes per bond",
        "NICE (Luo et al.), changed",
        group="ours",
        settings="nicegnn.config:NICEConfig",
        own_mechanisms=("both", "nc", "em"),
    ),
    Entry(
        "nice-instant",
        "nicegnn.explain.nice:NICE",
        "NICE without a fit: what is lost without each bond, under noise, masking and deletion.",
        "18 passes per bond",
        "NICE (Luo et al.), changed",
        group="variant",
        settings="nicegnn.config:NICEConfig.instant",
        own_mechanisms=("both", "nc", "em"),
        needs_fit=False,
    ),
    _paper("nice-paper", "The paper's NICE: noise on clean messages.", "clean"),
    _paper(
        "nice-paper-converged", "The same with a converged sum along the path.", "clean", **_LONG
    ),
    _paper("nice-paper-tuned", "The paper's NICE, tuned as the rivals are.", "clean"),
    _paper("nice-propagated", "The paper's NICE: noise on propagated messages.", "propagated"),
    _paper(
        "nice-propagated-converged",
        "The same with a converged sum along the path.",
        "propagated",
        **_LONG,
    ),
    Entry(
        "random",
        "nicegnn.rivals.references:Random",
        "A uniform random number per bond.",
        "none",
        "-",
        group="reference",
    ),
    Entry(
        "ground-truth",
        "nicegnn.rivals.references:GroundTruth",
        "The true explanation itself; what no method can beat.",
        "none",
        "-",
        group="reference",
    ),
    Entry(
        "saliency",
        "nicegnn.rivals.saliency:Saliency",
        "Absolute slope of the logit in each message's weight.",
        "1 pass and its gradient",
        "Simonyan et al., ICLR workshop 2014; Baldassarre & Azizpour 2019",
    ),
    Entry(
        "guided-backprop",
        "nicegnn.rivals.guided_backprop:GuidedBackprop",
        "Slope of the logit with negative gradients cut at every ReLU.",
        "1 pass and its gradient",
        "Springenberg et al., ICLR workshop 2015; Baldassarre & Azizpour 2019",
    ),
    Entry(
        "integrated-gradients",
        "nicegnn.rivals.integrated_gradients:IntegratedGradients",
        "Slope of the logit integrated from no messages to all messages.",
        "16 passes and gradients",
        "Sundararajan et al., ICML 2017",
    ),
    Entry(
        "gnnexplainer",
        "nicegnn.rivals.gnnexplainer:GNNExplainer",
        "A mask per graph that keeps the prediction and stays small.",
        "300 passes and gradients",
        "Ying et al., NeurIPS 2019",
    ),
    Entry(
        "pgexplainer",
        "nicegnn.rivals.pgexplainer:PGExplainer",
        "A network that predicts masks from node states, fitted on many graphs.",
        "fit, then 1 pass",
        "Luo et al., NeurIPS 2020",
    ),
    Entry(
        "refine",
        "nicegnn.rivals.refine:ReFine",
        "A mask network per class with a contrast between classes, fine-tuned per graph.",
        "fit, then 20 passes and gradients",
        "Wang et al., NeurIPS 2021",
    ),
    Entry(
        "d4explainer",
        "nicegnn.rivals.d4explainer:D4Explainer",
        "A diffusion model that generates counterfactual graphs.",
        "fit, then 50 dense passes of its denoiser",
        "Chen et al., NeurIPS 2023",
    ),
    Entry(
        "proxyexplainer",
        "nicegnn.rivals.proxyexplainer:ProxyExplainer",
        "Masks judged on generated in-distribution proxies of the masked graph.",
        "fit, then 1 pass",
        "Chen et al., ICML 2024",
    ),
    Entry(
        "confexplainer",
        "nicegnn.rivals.confexplainer:ConfExplainer",
        "Masks with a learned confidence that mixes them with noise; no truth is used.",
        "fit, then 1 pass",
        "Zhang et al., KDD 2025",
    ),
    Entry(
        "confexplainer-supervised",
        "nicegnn.rivals.confexplainer:ConfExplainerSupervised",
        "The same, with the true explanations of the training graphs in its loss.",
        "fit, then 1 pass",
        "Zhang et al., KDD 2025",
        group="supervised",
    ),
    Entry(
        "graphmask",
        "nicegnn.rivals.graphmask:GraphMask",
        "Hard gates per layer and edge, with learned stand-ins for dropped messages.",
        "100 passes and gradients per layer",
        "Schlichtkrull et al., ICLR 2021",
    ),
    Entry(
        "occlusion",
        "nicegnn.rivals.occlusion:Occlusion",
        "What the logit loses when one bond is taken out.",
        "1 pass per bond",
        "Zeiler & Fergus, ECCV 2014",
    ),
    Entry(
        "subgraphx",
        "nicegnn.rivals.subgraphx:SubgraphX",
        "Shapley values of bonds, by sampling orders in which they appear.",
        "1 pass per bond and order",
        "after Yuan et al., ICML 2021",
    ),
)

#: All explainers by name, in the order of lists and tables. Add others with `register`.
EXPLAINERS: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def register(entry: Entry) -> None:
    """Adds an explainer, so that commands, tables and `get_explainer` know it by its name.

    Its class derives from `Explainer`, is made as ``Class(model, settings, mechanism=...,
    mode=..., return_type=..., inputs=...)`` and names its settings in ``config_type``, a subclass
    of `ExplainerConfig`. Registering the same entry twice changes nothing.

    Example:
        >>> register(EXPLAINERS["saliency"])
    """
    if not entry.name or "+" in entry.name:
        raise ConfigError(f"`name` must be a word without '+' (got {entry.name!r}).")
    if EXPLAINERS.setdefault(entry.name, entry) != entry:
        raise ConfigError(
            f"`name` must be new (got {entry.name!r}, which {EXPLAINERS[entry.name].where} has). "
            "Choose another name."
        )


def list_explainers(group: Group | None = None) -> list[str]:
    """Returns the names of all explainers, or of one group (see `Entry`).

    Example:
        >>> "pgexplainer" in list_explainers()
        True
    """
    return [name for name, entry in EXPLAINERS.items() if group in (None, entry.group)]


def find_entry(name: str) -> tuple[Entry, str | None]:
    """Returns an explainer's entry and the mechanism its name asks for (``pgexplainer+nc``)."""
    plain, _, mechanism = name.partition("+")
    if plain not in EXPLAINERS:
        raise ConfigError(f"`name` must be one of {list_explainers()} (got {name!r}).")
    return EXPLAINERS[plain], mechanism or None


def get_explainer(
    name: str,
    model: nn.Module,
    *,
    mechanism: str | Mechanism | None = None,
    config: Any = None,
    **settings: Any,
) -> Explainer:
    """Returns an explainer of a model by name.

    Args:
        name: see `list_explainers`; ``gnnexplainer+nc`` is short for ``mechanism="nc"``.
        mechanism: what happens to messages of damaged edges, ``em``, ``nc``, or for ``nice`` also
            ``both``; by default the method's own.
        config: the method's settings object; by default its own defaults.
        settings: single settings changed from there, and ``mode``, ``return_type``, ``inputs``.

    Example:
        >>> from nicegnn.target.zoo import GIN
        >>> get_explainer("gnnexplainer+nc", GIN(3, 2), steps=10).config.steps
        10
    """
    entry, asked = find_entry(name)
    if mechanism is not None and asked is not None and mechanism != asked:
        raise ConfigError(f"`mechanism` must be {asked!r} for {name!r} (got {mechanism!r}).")
    mechanism = asked if mechanism is None else mechanism
    shell = {key: settings.pop(key) for key in ("mode", "return_type", "inputs") if key in settings}
    chosen = (entry.defaults() if config is None else config).with_(**settings)
    if isinstance(mechanism, str) and hasattr(chosen, "mechanism"):  # NICE keeps it in its settings
        chosen, mechanism = chosen.with_(mechanism=mechanism), None
    kind: Any = entry.load()
    return kind(model, chosen, mechanism=mechanism, **shell)


def _find(where: str) -> Any:
    """Returns what lies at ``module:name``; the name may have parts, ``module:Class.method``."""
    module, _, name = where.partition(":")
    return reduce(getattr, name.split("."), import_module(module))
