"""All explainers by name, and the plugins that add more of them.

A plugin calls `register_explainer` when it is imported, or puts something of its own into a table
of the laboratory. It is a file (``--plugin file.py``), or a module that an installed package names
in the entry-point group ``nicegnn.plugins``.
"""

from __future__ import annotations

import logging
import re
import sys
import tomllib
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal, TypeVar

from torch import nn

from nicegnn.config import ExplainerConfig
from nicegnn.errors import ConfigError
from nicegnn.explain.checks import shown
from nicegnn.explain.explainer import Explainer
from nicegnn.intervention.intervene import Mechanism

Own = TypeVar("Own", bound=Explainer)
Group = Literal["ours", "variant", "rival", "reference", "supervised"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """One explainer as it is listed; ``supervised`` ones see true explanations in their fit."""

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
        return resolve_name(self.where)

    def defaults(self) -> ExplainerConfig:
        """Returns the default settings."""
        make = resolve_name(self.settings) if self.settings else self.load().config_type
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


#: All explainers by name, in the order of lists and tables.
EXPLAINERS: dict[str, Entry] = {}


def list_file(package: str) -> None:
    """Lists the explainers of a package's ``explainers.toml``, in its order, after all others.

    A table has the keys of `Entry`; with ``like`` it takes those of another explainer that it does
    not give again. An empty table moves an explainer that is listed already.
    """
    text = files(package).joinpath("explainers.toml").read_text(encoding="utf-8")
    for name, about in tomllib.loads(text).items():
        known = EXPLAINERS.pop(name, None)
        if "own_mechanisms" in about:
            about["own_mechanisms"] = tuple(about["own_mechanisms"])
        other = EXPLAINERS[about.pop("like")] if "like" in about else None if about else known
        EXPLAINERS[name] = replace(other, name=name, **about) if other else Entry(name, **about)


list_file("nicegnn.explain")


def register_explainer(
    summary: str, *, cost: str = "cost not told", citation: str = "your own"
) -> Callable[[type[Own]], type[Own]]:
    """Lists a class as an explainer: commands, tables and `get_explainer` know its ``name``.

    The class derives from `Explainer`, most simply from `ScoreExplainer`. It is made as
    ``Class(model, settings, mechanism=..., mode=..., return_type=..., inputs=...)`` and names its
    settings in ``config_type``, a subclass of `ExplainerConfig`. For the arguments see `Entry`.
    """

    def register(kind: type[Own]) -> type[Own]:
        name: Any = getattr(kind, "name", None)
        where = f"{kind.__module__}:{kind.__qualname__}"
        is_one = issubclass(kind, Explainer) and hasattr(kind, "config_type")
        if not is_one or "<locals>" in where:
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
    """Returns the names of all explainers."""
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
    """Returns an explainer of a model by name; ``occlusion+nc`` is short for ``mechanism="nc"``.

    ``settings`` are single ones to change in ``config``, and ``background``, ``mode``,
    ``return_type``, ``inputs``. A mechanism is ``em``, ``nc``, ``exchange`` or an object.

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
        wanted = type(defaults).__name__
        raise ConfigError(f"`config` must be a {wanted} for {name!r} (got {shown(config)}).")
    made: Explainer = entry.load()(model, chosen.with_(**settings), mechanism=mechanism, **shell)
    return made


def load_plugins(*paths: str | Path) -> None:
    """Imports plugins: all of installed packages, then these files; each of them once.

    A file that cannot be imported is an error, a broken installed package only a warning.
    """
    _load_installed()
    for path in paths:
        _load_file(Path(path).expanduser().absolute())


def check_name(what: str, name: object, wanted_by: str, used_by: str | None) -> None:
    """Raises `ConfigError` unless a name is a plain word that nobody else uses."""
    what = f"{'an' if what[0] in 'aeiou' else 'a'} {what}"
    is_word = isinstance(name, str) and re.fullmatch(r"\w[\w.-]*", name) is not None
    if not is_word or name in ("all", "none"):  # words of options
        raise ConfigError(
            f"The name of {what} must be a word of letters, digits, '-', '_' and '.', but not "
            f"'all' or 'none' (got {name!r}). Choose another."
        )
    if used_by not in (None, wanted_by):
        raise ConfigError(
            f"The name of {what} must be new (got {name!r}, which {used_by} uses). Choose another."
        )


def _load_file(path: Path) -> None:
    name = f"nicegnn_plugin_{path.stem}"
    if name in sys.modules:
        if (other := sys.modules[name].__file__) == str(path):
            return
        raise ConfigError(f"`plugin` must have its own file name (got {path} beside {other}).")
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ConfigError(f"`plugin` must be a Python file (got {path}). Name a file that exists.")
    sys.modules[name] = module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        if isinstance(error, SyntaxError) and error.filename == str(path):
            lines = [error.lineno]
        where = f"{path}, line {lines[-1]}" if lines else path
        raise ConfigError(
            f"Cannot load the plugin {where}: {_words(error)} Correct the file."
        ) from error


@cache
def _load_installed() -> None:
    for entry in entry_points(group="nicegnn.plugins"):
        try:
            entry.load()
        except (Exception, SystemExit) as error:
            dist = entry.dist
            package = entry.value if dist is None else f"{dist.name} {dist.version}"
            words = f"{entry.name} of {package} is left out: {_words(error)}"
            log.warning("The plugin %s Mend or uninstall it.", words)


def _words(error: BaseException) -> str:
    reason = error.msg if isinstance(error, SyntaxError) else str(error)
    text = reason if isinstance(error, ConfigError) else f"{type(error).__name__}: {reason}"
    return f"{text.rstrip('.')}."
