"""Fits that are shared: what a fit depends on, and taking over a fit that was stored."""

from __future__ import annotations

from typing import Any

from nicegnn.explain.explainer import Explainer
from nicegnn.intervention.intervene import Mechanism

#: Settings that only `explain` reads, parts with a dot; a rival names more as `explain_settings`.
EXPLAIN_ALONE = frozenset(
    {
        *("seed", "batch_size", "chunk_edges"),
        *("attribution.num_draws", "attribution.num_nodes", "attribution.quadrature"),
    }
)


def fit_settings(explainer: Explainer) -> dict[str, Any]:
    """Returns the settings that `fit` reads, as plain nested values, and its mechanism.

    With equal settings, model, graphs and seed, explainers learn the same.
    """
    if not explainer.learns:
        return {}
    left_out = EXPLAIN_ALONE | getattr(explainer, "explain_settings", frozenset())
    settings = _without(explainer.config.to_dict(), left_out)
    given: Any = getattr(explainer, "given_mechanism", getattr(explainer, "mechanism", None))
    return settings if given is None else settings | {"mechanism": mechanism_name(given)}


def adopt(explainer: Explainer, fitted: Explainer) -> None:
    """Gives an explainer what another one of its class, model and `fit_settings` has learned."""
    kept = ("config", "target")
    explainer.__dict__ |= {k: v for k, v in vars(fitted).items() if k not in kept}
    explainer.target.label = fitted.target.label


def mechanism_name(mechanism: Mechanism) -> str:
    """Returns the name of a mechanism, the same in every process."""
    text = repr(mechanism)
    if " at 0x" not in text:
        return text
    named = mechanism if hasattr(mechanism, "__qualname__") else type(mechanism)
    return f"{named.__module__}.{named.__qualname__}"


def _without(settings: dict[str, Any], names: frozenset[str], prefix: str = "") -> dict[str, Any]:
    """Returns nested settings without those named; a dot separates part and name."""
    return {
        key: _without(value, names, f"{prefix}{key}.") if isinstance(value, dict) else value
        for key, value in settings.items()
        if prefix + key not in names
    }
