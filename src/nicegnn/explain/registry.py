"""All explainers by name: descriptions, costs, and how to make one."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from importlib import import_module
from importlib.resources import files
from typing import Any, Literal, TypeVar

from torch import nn

from nicegnn.config import ExplainerConfig
from nicegnn.errors import ConfigError
from nicegnn.explain.checks import shown
from nicegnn.explain.explainer import Explainer
from nicegnn.intervention.intervene import Mechanism
from nicegnn.plugins import check_name

Own = TypeVar("Own", bound=Explainer)
Group = Literal["ours", "variant", "rival", "reference", "supervised"]


@dataclass(frozen=True)
class Entry:
    """One explainer as it is listed.

    Group ``reference`` holds random scores and the truth. A ``variant`` of ours is not ranked.
    ``supervised`` methods see true explanations in their fit.
    """

    name: str  # in commands and tables
    where: str  # its class as ``module:Class``, which is imported when it is first needed
    summary: str  # what it is, in one line
    cost: str  # what one explanation costs, in passes of the model
    citation: str  # authors, venue and year
    group: Group = "rival"
    settings: str = ""  # returns the default settings, as ``module:name``; else the class does
    own_mechanisms: tuple[str, ...] | None = None  # the default first; else the class's
    changes: Mapping[str, Any] = field(default_factory=dict)  # changed default settings, by name
    needs_fit: bool | None = None  # whether it must be fitted; None: the class decides
    defaults_version: int = 1  # raise it when a default setting of this entry changes

    def load(self) -> Any:
        """Returns the class."""
        return _find(self.where)

    def defaults(self) -> ExplainerConfig:
        """Returns the default settings."""
        make = _find(self.settings) if self.settings else self.load().config_type
        settings: ExplainerConfig = make().with_(**self.changes)
        return settings

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Allowed mechanisms, the default first; empty for a method that damages no messages."""
        allowed = self.own_mechanisms
        return getattr(self.load(), "mechanisms", ()) if allowed is None else allowed

    @property
    def learns(self) -> bool:
        """Whether it must be fitted on many graphs first."""
        return bool(self.load().learns if self.needs_fit is None else self.needs_fit)


#: All explainers by name, in the order of lists and tables; see `register_explainer`.
EXPLAINERS: dict[str, Entry] = {}


def list_file(package: str) -> None:
    """Lists the explainers of a package's ``explainers.toml``, in its order, after all others.

    A table has the keys of `Entry`. A table with ``like`` takes those of another explainer that it
    does not give again. An empty table moves an explainer that is listed already.
    """
    text = files(package).joinpath("explainers.toml").read_text(encoding="utf-8")
    for name, about in tomllib.loads(text).items():
        known = EXPLAINERS.pop(name, None)
        if "own_mechanisms" in about:
            about["own_mechanisms"] = tuple(about["own_mechanisms"])
        other = EXPLAINERS[about.pop("like")] if "like" in about else None if about else known
        made = Entry(name, **about) if other is None else replace(other, name=name, **about)
        EXPLAINERS[name] = made


list_file("nicegnn.explain")


def register_explainer(
    summary: str, *, cost: str = "cost not told", citation: str = "your own"
) -> Callable[[type[Own]], type[Own]]:
    """Lists a class as an explainer: commands, tables and `get_explainer` know its ``name``.

    The class derives from `Explainer`, most simply from `ScoreExplainer`. It is made as
    ``Class(model, settings, mechanism=..., mode=..., return_type=..., inputs=...)`` and names its
    settings in ``config_type``, a subclass of `ExplainerConfig`. For the arguments see `Entry`.

    >>> from nicegnn.explain.score_explainer import ScoreExplainer
    >>> @register_explainer("Sender's number.", cost="none")
    ... class Sender(ScoreExplainer):
    ...     name = "sender"
    ...     def _edge_score(self, query, seed):
    ...         return query.case.batch.edge_index[0].float()  # [E]
    >>> EXPLAINERS.pop("sender").summary
    "Sender's number."
    """

    def register(kind: type[Own]) -> type[Own]:
        name: Any = getattr(kind, "name", None)
        where = f"{kind.__module__}:{kind.__qualname__}"
        is_ours = issubclass(kind, Explainer) and hasattr(kind, "config_type")
        if not is_ours or "<locals>" in where:
            raise ConfigError(
                f"{where} must be a class outside functions that derives from Explainer, and names "
                "its class of settings as `config_type`."
            )
        known = EXPLAINERS.get(name)
        check_name("explainer", name, where, None if known is None else known.where)
        EXPLAINERS[name] = Entry(name, where, summary, cost, citation)
        return kind

    return register


def list_explainers() -> list[str]:
    """Returns the names of all explainers.

    >>> "occlusion" in list_explainers()
    True
    """
    return list(EXPLAINERS)


def find_entry(name: str) -> tuple[Entry, str | None]:
    """Returns an explainer's entry and the mechanism its name asks for (``occlusion+nc``)."""
    plain, _, mechanism = name.partition("+") if isinstance(name, str) else ("", "", "")
    if plain not in EXPLAINERS:
        raise ConfigError(f"`name` must be one of {list_explainers()} (got {shown(name)}).")
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
        name: see `list_explainers`; ``occlusion+nc`` is short for ``mechanism="nc"``.
        mechanism: how messages are damaged: ``em``, ``nc`` or ``exchange``; None for the method's
            default.
        config: the settings object; None for the default settings.
        settings: single settings to change in it, and ``background``, ``mode``, ``return_type``,
            ``inputs``.

    >>> from nicegnn.target.zoo import GIN
    >>> get_explainer("occlusion+nc", GIN(3, 2), num_draws=10).config.num_draws
    10
    """
    entry, asked = find_entry(name)
    if mechanism is not None and asked is not None and mechanism != asked:
        raise ConfigError(f"`mechanism` must be {asked!r} for {name!r} (got {mechanism!r}).")
    mechanism = asked if mechanism is None else mechanism
    outside = ("background", "mode", "return_type", "inputs")
    shell = {key: settings.pop(key) for key in outside if key in settings}
    defaults = entry.defaults()
    chosen = defaults if config is None else config
    if not isinstance(chosen, type(defaults)):
        raise ConfigError(
            f"`config` must be a {type(defaults).__name__} for {name!r} (got {shown(config)}). "
            "Pass one, or single settings by name."
        )
    made: Explainer = entry.load()(model, chosen.with_(**settings), mechanism=mechanism, **shell)
    return made


def _find(where: str) -> Any:
    """Imports ``module:name`` or ``module:Class.method``."""
    module, _, name = where.partition(":")
    return reduce(getattr, name.split("."), import_module(module))
