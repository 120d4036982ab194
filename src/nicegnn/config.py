"""Settings: frozen dataclasses that check their values; a comment explains each default."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin, get_type_hints

from nicegnn.errors import ConfigError

#: Numbers that settings may have: what a value must do, in words, and whether it does.
Count = Annotated[int, "be a whole number of at least 1", lambda v: type(v) is int and v >= 1]
Whole = Annotated[int, "be a whole number of at least 0", lambda v: type(v) is int and v >= 0]
Positive = Annotated[float, "be a positive number", lambda v: v > 0]
NotNegative = Annotated[float, "be at least 0", lambda v: v >= 0]
Fraction = Annotated[float, "lie between 0 and 1", lambda v: 0 < v < 1]

Quadrature = Literal["gauss", "gauss-linear", "riemann"]
Anchor = Literal["propagated", "clean"]


@dataclass(frozen=True)
class Settings:
    """Base of all settings: checks them, makes changed copies, reads and writes TOML.

    A field whose type is a ``Literal`` takes only its words, a ``bool`` field only True or False, a
    number such as `Count` only what it says; a list becomes a tuple where that is the type.

    >>> BoundaryConfig(steps=0)
    Traceback (most recent call last):
    nicegnn.errors.ConfigError: `steps` must be a whole number of at least 1 (got 0).
    """

    def __post_init__(self) -> None:
        own: Any = type(self)
        for name, hint in _hints(own).items():
            value = getattr(self, name)
            is_optional, kinds = type(None) in get_args(hint), get_args(hint)
            hint = kinds[0] if is_optional else hint
            if hint is bool or get_origin(hint) is Literal:
                check_choice(name, value, (True, False) if hint is bool else get_args(hint))
            elif get_origin(hint) is tuple:
                words = (value,) if isinstance(value, str) else tuple(value)
                object.__setattr__(self, name, words)
            elif get_origin(hint) is Annotated and not (is_optional and value is None):
                check_number(name, value, hint, " or be None" if is_optional else "")

    def with_(self, **changes: Any) -> Self:
        """Returns a changed copy; ``boundary__steps=...`` changes ``steps`` of ``boundary``."""
        plain: dict[str, Any] = {}
        for key, value in changes.items():
            part, _, name = key.partition("__")
            if name and part in _parts(type(self)):
                plain[part] = plain.get(part, getattr(self, part)).with_(**{name: value})
            else:
                plain[key] = value
        _check_names(type(self), plain)
        return replace(self, **plain)

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as plain values, nested by part."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Builds settings from plain values; missing names keep defaults, unknown names raise."""
        values, parts = dict(values), _parts(cls)
        _check_names(cls, values)
        for part in (name for name in parts if name in values):
            if not isinstance(values[part], Mapping):
                raise ConfigError(f"`{part}` must be a table (got {values[part]!r}).")
            values[part] = parts[part].from_dict(values[part])
        return cls(**values)

    def to_toml(self) -> str:
        """Returns the settings as TOML text, without those that are None, which TOML cannot say."""
        plain = {key: value for key, value in self.to_dict().items() if value is not None}
        tables = {key: plain.pop(key) for key in list(plain) if isinstance(plain[key], dict)}
        lines = [f"{k} = {json.dumps(v)}" for k, v in plain.items()]
        for name, table in tables.items():
            lines += ["", f"[{name}]", *(f"{k} = {json.dumps(v)}" for k, v in table.items())]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """Reads settings from a TOML file; missing names keep their defaults."""
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"Cannot read settings from {path}: {error}") from error
        return cls.from_dict(values)


@dataclass(frozen=True, kw_only=True)
class ExplainerConfig(Settings):
    """Settings that every explainer has."""

    seed: Whole = 0  # seed of everything random
    batch_size: Count = 256  # graphs per batch when explain() is given a list
    chunk_edges: Count | None = None  # edges times copies in one call of the model; None: by device
    undirected: bool = True  # both directions of a bond share one score (and gate)


@dataclass(frozen=True)
class BoundaryConfig(Settings):
    """How the paper's stochastic restoration boundary (SRB) is fitted; it gives the first four."""

    num_draws: Count = 16  # N, draws in each step of a fit, and to judge it
    beta: NotNegative = 0.1  # weight of the spread over draws in the risk, also along the path
    penalty: NotNegative = 1.0  # lambda, weight of the mean gate
    learning_rate: Positive = 1e-3  # of Adam
    start: Fraction = 0.5  # gate before training; near 1 the graph starts clean
    hidden_size: Count = 64  # width of the gate network
    steps: Count = 500  # optimisation steps
    batch_size: Count = 256  # graphs per step


@dataclass(frozen=True)
class AttributionConfig(Settings):
    """How bonds are attributed: each is damaged alone, or all move together.

    ``path="joint"`` is the paper's: from corruption to the fitted boundary, with new draws at each
    of `num_nodes` nodes (Boundary-Integrated Gradient, BIG).
    """

    path: Literal["bond", "joint"] = "bond"  # "bond" (one by one) or "joint" (paper)
    num_draws: Count = 4  # M, draws of each bond, or at each node, where damage is random
    num_nodes: Count = 8  # T, nodes of the path ("joint" only)
    quadrature: Quadrature = "gauss"  # rule of the path, see `path_nodes`; "riemann" (paper)


@dataclass(frozen=True)
class NICEConfig(ExplainerConfig):
    """All settings of NICE: the default, where nothing is fitted or random, and `paper`."""

    boundary: BoundaryConfig = field(default_factory=BoundaryConfig)
    attribution: AttributionConfig = field(default_factory=AttributionConfig)
    mechanism: Literal["exchange", "nc", "em"] = "exchange"  # nc: noise, em: masking
    anchor: Anchor = "propagated"  # damaged message: of the "clean" pass (paper), or "propagated"
    num_prototypes: Count = 8  # K, real edges that damaged ones are exchanged with, one by one

    @classmethod
    def paper(cls, anchor: Anchor = "clean") -> NICEConfig:
        """Returns the paper's method: a fitted boundary, clean messages, 16 draws, 16 nodes.

        The paper contradicts itself about which message is damaged: its notation, proposition,
        proof and figures use the clean one, its Section 3 lets damaged messages propagate.
        ``anchor`` chooses; `docs/method.md` compares both.
        """
        path = AttributionConfig("joint", num_draws=16, num_nodes=16, quadrature="riemann")
        return cls(attribution=path, mechanism="nc", anchor=anchor)

    @property
    def needs_fit(self) -> bool:
        """Whether scores depend on gates that `fit` learns."""
        return self.attribution.path == "joint"


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Raises `ConfigError` unless an argument has one of the known values."""
    allowed = tuple(choices)
    if not any(type(value) is type(one) and value == one for one in allowed):
        raise ConfigError(f"`{name}` must be one of {allowed} (got {value!r}).")


def check_number(name: str, value: Any, kind: Any, more: str = "") -> None:
    """Raises `ConfigError` unless an argument is a number of a kind such as `Count`."""
    words, is_right = kind.__metadata__
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not abs(value) < 2**63 or not is_right(value):
        raise ConfigError(f"`{name}` must {words}{more} (got {value!r}).")


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _parts(kind: Any) -> dict[str, type[Settings]]:
    """Returns the fields that are settings themselves, by name."""
    hints = _hints(kind).items()
    return {k: hint for k, hint in hints if isinstance(hint, type) and issubclass(hint, Settings)}


def _check_names(kind: type[Settings], values: Mapping[str, Any]) -> None:
    names = [one.name for one in fields(kind)]
    if unknown := sorted(set(values) - set(names)):
        raise ConfigError(f"Unknown setting(s) {unknown} of {kind.__name__}; use one of {names}.")
