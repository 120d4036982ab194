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

Degradation = Literal["log-prob", "margin", "signed-margin"]
Objective = Literal["budget", "penalty"]
Layers = Literal["all", "last"]
AttributionPath = Literal["joint", "bond"]
Quadrature = Literal["gauss", "gauss-sine", "gauss-linear", "riemann"]
Damage = Literal["exchange", "nc", "em"]
Anchor = Literal["propagated", "clean"]
Ranking = Literal["loss", "order"]


@dataclass(frozen=True)
class Settings:
    """Base of all settings: checks them, makes changed copies, reads and writes TOML.

    A field whose type is a ``Literal`` takes only its words, a ``bool`` field only True or False, a
    number such as `Count` only what it says; a list becomes a tuple where that is the type.

    Example:
        >>> @dataclass(frozen=True)
        ... class Walk(Settings):
        ...     pace: Literal["slow", "fast"] = "slow"  # how fast
        ...     steps: Count = 10  # how far
        >>> Walk().with_(steps=0)
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
        """Returns a changed copy; ``boundary__steps=...`` changes ``steps`` of ``boundary``.

        Example:
            >>> NICEConfig().with_(score="order", boundary__steps=50).boundary.steps
            50
        """
        plain: dict[str, Any] = {}
        parts: dict[str, dict[str, Any]] = {}
        for key, value in changes.items():
            part, _, name = key.partition("__")
            if name and part in _parts(type(self)):
                parts.setdefault(part, {})[name] = value
            else:
                plain[key] = value
        for part, values in parts.items():
            plain[part] = plain.get(part, getattr(self, part)).with_(**values)
        _check_names(type(self), plain)
        return replace(self, **plain)

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as plain values, nested by part."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Builds settings from plain values; missing names keep defaults, unknown names raise."""
        values = dict(values)
        _check_names(cls, values)
        for part, kind in _parts(cls).items():
            if part in values:
                if not isinstance(values[part], Mapping):
                    raise ConfigError(f"`{part}` must be a table (got {values[part]!r}).")
                values[part] = kind.from_dict(values[part])
        return cls(**values)

    def to_toml(self) -> str:
        """Returns the settings as TOML text, without those that are None, which TOML cannot say."""
        plain = {key: value for key, value in self.to_dict().items() if value is not None}
        tables = [key for key, value in plain.items() if isinstance(value, dict)]
        lines = [f"{k} = {json.dumps(v)}" for k, v in plain.items() if k not in tables]
        for table in tables:
            items = (f"{k} = {json.dumps(v)}" for k, v in plain[table].items())
            lines += ["", f"[{table}]", *items]
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
    """How the stochastic restoration boundary (SRB) is learned.

    ``objective="budget"`` learns an order of the bonds that keeps the risk low at every restored
    share, then places each graph's boundary at a stated risk; gates cannot saturate or collapse.
    The risk is divided by that at full corruption, a bond is described by its ends in all layers
    and by its graph, each class has its own network, and the learning rate falls to 0.

    ``objective="penalty"`` is the paper's: risk plus `penalty` times the mean gate. The risk is in
    nats, a bond is described by its ends in the last layer, one network serves all classes, and
    the learning rate is constant.
    """

    objective: Objective = "budget"  # "budget" (order under random budgets) or "penalty" (paper)
    anchor: Anchor = "clean"  # damaged message: of the "clean" pass (paper), or "propagated"
    num_draws: Count = 16  # N, draws to place and judge a boundary
    fit_draws: Count = 16  # N, draws in each step of a fit
    degradation: Degradation = "margin"  # loss of one draw; "log-prob" (paper)
    beta: NotNegative = 0.1  # weight of the spread over draws in the risk
    penalty: NotNegative = 1.0  # lambda, weight of the mean gate ("penalty" only)
    start: Fraction = 0.5  # gate before training ("penalty" only); near 1 the graph starts clean
    risk_target: Fraction = 0.05  # normalised risk at which a boundary is placed ("budget" only)
    hidden_size: Count = 64  # width of the gate network
    learning_rate: Positive = 1e-2  # of Adam, when gates are fitted
    steps: Count = 200  # optimisation steps of a fit
    batch_size: Count = 512  # graphs per step of a fit
    graph_steps: Count = 80  # optimisation steps where a boundary is sought for one graph alone


@dataclass(frozen=True)
class AttributionConfig(Settings):
    """How bonds are attributed: one by one, or by Boundary-Integrated Gradient (BIG).

    ``path="bond"`` damages each bond alone while all others stay clean: its score is what the
    prediction loses. ``path="joint"`` is the paper's: all bonds move together from corruption to
    the boundary, with new draws at each of `num_nodes` nodes.
    """

    path: AttributionPath = "bond"  # "bond" (one by one) or "joint" (paper)
    anchor: Anchor = "propagated"  # damaged message: of the "clean" pass (paper), or "propagated"
    num_draws: Count = 4  # M, draws of each bond, or at each node, where damage is random
    num_nodes: Count = 8  # T, nodes of the path ("joint" only)
    quadrature: Quadrature = "gauss"  # rule of the path, see `path_nodes`; "riemann" (paper)
    degradation: Degradation = "margin"  # loss of one draw, see `BoundaryConfig`
    beta: NotNegative = 0.0  # weight of the spread over draws in the loss; 0.1 (paper)


@dataclass(frozen=True)
class NICEConfig(ExplainerConfig):
    """All settings of NICE.

    ``NICEConfig()`` is our default: each bond says what other real bonds say, and the mean loss of
    the prediction is its score. Nothing is fitted or drawn at random. ``paper()`` is the paper's
    method.
    """

    boundary: BoundaryConfig = field(default_factory=BoundaryConfig)
    attribution: AttributionConfig = field(default_factory=AttributionConfig)
    mechanism: Damage = "exchange"  # "exchange", "nc" noise corruption, "em" element-wise masking
    num_prototypes: Count = 8  # K, real edges that damaged ones are exchanged with, one by one
    score: Ranking = "loss"  # what ranks the bonds: "loss" (attribution) or "order" (gates)

    @classmethod
    def paper(cls, anchor: Anchor = "clean") -> NICEConfig:
        """Returns the paper's method: penalty objective, clean messages, 16 draws, 16 nodes.

        The paper contradicts itself about which message is damaged: its notation, proposition,
        proof and figures use the clean one, its Section 3 lets damaged messages propagate.
        ``anchor`` chooses; `docs/method.md` compares both with the paper's numbers, and says what
        the paper gives and what we had to choose.
        """
        boundary = BoundaryConfig(  # draws, beta, lambda and start are the paper's by default
            objective="penalty",
            anchor=anchor,
            degradation="log-prob",
            learning_rate=1e-3,
            steps=500,
            batch_size=256,
        )
        attribution = AttributionConfig(
            path="joint",
            anchor=anchor,
            num_draws=16,
            num_nodes=16,
            quadrature="riemann",
            degradation="log-prob",
            beta=0.1,
        )
        return cls(boundary=boundary, attribution=attribution, mechanism="nc")

    @property
    def needs_boundary(self) -> bool:
        """Whether scores depend on gates."""
        return self.score != "loss" or self.attribution.path == "joint"


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
def _hints(kind: type) -> dict[str, Any]:
    """Returns the types of the fields of a settings class."""
    return get_type_hints(kind, include_extras=True)


def _parts(kind: Any) -> dict[str, type[Settings]]:
    """Returns the fields that are settings themselves, by name."""
    hints = _hints(kind).items()
    return {k: hint for k, hint in hints if isinstance(hint, type) and issubclass(hint, Settings)}


def _check_names(kind: type[Settings], values: Mapping[str, Any]) -> None:
    names = [one.name for one in fields(kind)]
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise ConfigError(f"Unknown setting(s) {unknown} of {kind.__name__}; use one of {names}.")
