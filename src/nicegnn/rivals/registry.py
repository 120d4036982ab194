"""All explainers by name: what each one is, what it costs, and how to make it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import nn

from nicegnn.config import NICEConfig
from nicegnn.errors import ConfigError
from nicegnn.explain.explainer import Explainer
from nicegnn.explain.nice import NICE
from nicegnn.intervention.intervene import Mechanism


@dataclass(frozen=True)
class Entry:
    """One explainer as it is listed.

    Attributes:
        name: name in commands and tables.
        summary: one line.
        cost: what one explanation costs, in passes of the model.
        citation: authors, venue and year.
        module: where its class is, empty for NICE.
        group: ``ours``, ``rival``, ``reference`` (bounds and brute force), or ``supervised``.
    """

    name: str
    summary: str
    cost: str
    citation: str
    module: str = ""
    attribute: str = ""
    group: str = "rival"

    def load(self) -> type[Explainer]:
        """Returns the class."""
        if not self.module:
            return NICE
        found: type[Explainer] = getattr(import_module(self.module), self.attribute)
        return found

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Mechanisms it works with, its own first; empty where it perturbs no messages."""
        if self.module:
            return getattr(self.load(), "mechanisms", ())
        return ("nc", "em") if self.name == "nice-paper" else ("both", "nc", "em")

    @property
    def learns(self) -> bool:
        """Whether it is fitted on many graphs first."""
        return self.load().learns


def _rival(
    name: str, attribute: str, summary: str, cost: str, citation: str, *, group: str = "rival"
) -> Entry:
    file = name.removesuffix("-supervised").replace("-", "_")
    module = f"nicegnn.rivals.{file}"
    return Entry(name, summary, cost, citation, module, attribute, group)


_ENTRIES = (
    Entry(
        "nice",
        "Order of bonds under budgets and bond-wise loss, under noise and under masking.",
        "fit, then 17 passes per bond",
        "NICE (Luo et al.), changed",
        group="ours",
    ),
    Entry(
        "nice-paper",
        "NICE exactly as the paper writes it.",
        "fit, then 16 x 16 passes and gradients",
        "NICE (Luo et al.)",
        group="ours",
    ),
    _rival(
        "random",
        "Random",
        "A uniform random number per bond.",
        "none",
        "-",
        group="reference",
    ),
    _rival(
        "ground-truth",
        "GroundTruth",
        "The true explanation itself; what no method can beat.",
        "none",
        "-",
        group="reference",
    ),
    _rival(
        "saliency",
        "Saliency",
        "Absolute slope of the logit in each message's weight.",
        "1 pass and its gradient",
        "Simonyan et al., ICLR workshop 2014; Baldassarre & Azizpour 2019",
    ),
    _rival(
        "guided-backprop",
        "GuidedBackprop",
        "Slope of the logit with negative gradients cut at every ReLU.",
        "1 pass and its gradient",
        "Springenberg et al., ICLR workshop 2015; Baldassarre & Azizpour 2019",
    ),
    _rival(
        "integrated-gradients",
        "IntegratedGradients",
        "Slope of the logit integrated from no messages to all messages.",
        "16 passes and gradients",
        "Sundararajan et al., ICML 2017",
    ),
    _rival(
        "gnnexplainer",
        "GNNExplainer",
        "A mask per graph that keeps the prediction and stays small.",
        "300 passes and gradients",
        "Ying et al., NeurIPS 2019",
    ),
    _rival(
        "pgexplainer",
        "PGExplainer",
        "A network that predicts masks from node states, fitted on many graphs.",
        "fit, then 1 pass",
        "Luo et al., NeurIPS 2020",
    ),
    _rival(
        "refine",
        "ReFine",
        "A mask network per class with a contrast between classes, fine-tuned per graph.",
        "fit, then 20 passes and gradients",
        "Wang et al., NeurIPS 2021",
    ),
    _rival(
        "d4explainer",
        "D4Explainer",
        "A diffusion model that generates counterfactual graphs.",
        "fit, then 50 dense passes of its denoiser",
        "Chen et al., NeurIPS 2023",
    ),
    _rival(
        "proxyexplainer",
        "ProxyExplainer",
        "Masks judged on generated in-distribution proxies of the masked graph.",
        "fit, then 1 pass",
        "Chen et al., ICML 2024",
    ),
    _rival(
        "confexplainer",
        "ConfExplainer",
        "Masks with a learned confidence that mixes them with noise; no truth is used.",
        "fit, then 1 pass",
        "Zhang et al., KDD 2025",
    ),
    _rival(
        "confexplainer-supervised",
        "ConfExplainerSupervised",
        "The same, with the true explanations of the training graphs in its loss.",
        "fit, then 1 pass",
        "Zhang et al., KDD 2025",
        group="supervised",
    ),
    _rival(
        "graphmask",
        "GraphMask",
        "Hard gates per layer and edge, with learned stand-ins for dropped messages.",
        "100 passes and gradients per layer",
        "Schlichtkrull et al., ICLR 2021",
    ),
    _rival(
        "occlusion",
        "Occlusion",
        "What the logit loses when one bond is taken out.",
        "1 pass per bond",
        "Zeiler & Fergus, ECCV 2014",
        group="rival",
    ),
    _rival(
        "subgraphx",
        "SubgraphX",
        "Shapley values of bonds, by sampling orders in which they appear.",
        "1 pass per bond and order",
        "after Yuan et al., ICML 2021",
        group="rival",
    ),
)
EXPLAINERS = {entry.name: entry for entry in _ENTRIES}


def list_explainers(group: str | None = None) -> list[str]:
    """Returns the names of all explainers, or of one group (see `Entry`).

    Example:
        >>> "pgexplainer" in list_explainers()
        True
    """
    return [name for name, entry in EXPLAINERS.items() if group in (None, entry.group)]


def explainer_table() -> str:
    """Returns all explainers as a Markdown table."""
    lines = ["| name | what it is | cost | mechanisms | group | after |", "|" + " --- |" * 6]
    for entry in EXPLAINERS.values():
        mechanisms = ", ".join(entry.mechanisms) or "-"
        cells = (f"`{entry.name}`", entry.summary, entry.cost, mechanisms, entry.group)
        lines.append("| " + " | ".join((*cells, entry.citation)) + " |")
    return "\n".join(lines) + "\n"


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
        model: any PyG model; it is never changed.
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
        raise ConfigError(f"{name!r} asks for mechanism {asked!r} (got mechanism={mechanism!r}).")
    mechanism = asked if mechanism is None else mechanism
    shell = {key: settings.pop(key) for key in ("mode", "return_type", "inputs") if key in settings}
    if not entry.module:
        base = NICEConfig.paper() if name.startswith("nice-paper") else NICEConfig()
        chosen = (base if config is None else config).with_(**settings)
        if isinstance(mechanism, str):
            chosen, mechanism = chosen.with_(mechanism=mechanism), None
        return NICE(model, chosen, mechanism=mechanism, **shell)
    kind: Any = entry.load()
    chosen = (kind.config_type() if config is None else config).with_(**settings)
    return kind(model, chosen, mechanism=mechanism, **shell)
