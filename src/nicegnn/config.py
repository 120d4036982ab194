"""Settings: frozen dataclasses, each default with its meaning; TOML in, TOML out."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from nicegnn.errors import ConfigError

DEGRADATIONS = ("log-prob", "margin", "signed-margin")


@dataclass(frozen=True)
class BoundaryConfig:
    """How the stochastic restoration boundary (SRB) is learned.

    ``objective="penalty"`` is the paper's: risk plus `penalty` times the mean gate.
    ``objective="budget"`` learns an order of the bonds that keeps the risk low at every restored
    share, then places each graph's boundary at a stated risk; gates cannot saturate or collapse.
    """

    objective: str = "budget"  # "budget" (order under random budgets) or "penalty" (paper)
    num_draws: int = 16  # N, noise draws by which a boundary is found and judged
    fit_draws: int = 16  # N of a step that fits the gate network
    degradation: str = "margin"  # loss of one draw: "log-prob" (paper), "margin", "signed-margin"
    beta: float = 0.1  # weight of the spread over draws in the risk
    budget_low: float = 0.05  # smallest restored share that is trained ("budget" only)
    budget_high: float = 0.95  # largest restored share that is trained ("budget" only)
    penalty: float = 1.0  # lambda, weight of the mean gate ("penalty" only)
    risk_target: float = 0.05  # normalised risk at which a boundary is placed ("budget" only)
    contrast: float = 0.0  # weight of the risk left by restoring the complement ("budget" only)
    normalise_risk: bool = True  # divide the risk by the risk at full corruption, per graph
    start: float = 0.95  # gate value before training ("penalty" only); near 1 is the clean side
    layers: str = "all"  # node states read by z_e: "all" (input and every layer) or "last"
    graph_context: bool = True  # z_e also reads the mean node state of the graph
    edge_features: bool = False  # z_e also reads edge_attr; for models that read it too
    class_gates: bool = True  # one gate network per explained class instead of one for all
    classes: tuple[int, ...] = ()  # train on graphs explained for these classes; () means all
    hidden_size: int = 64  # width of the gate network
    learning_rate: float = 3e-3  # Adam, amortised way
    steps: int = 500  # optimisation steps, amortised way
    batch_size: int = 256  # graphs per step, amortised way
    max_graphs: int = 50_000  # training graphs that are read at most, drawn at random
    graph_learning_rate: float = 0.2  # Adam on gate logits, per-graph way
    graph_steps: int = 80  # optimisation steps, per-graph way

    def __post_init__(self) -> None:
        _one_of(self, "objective", ("budget", "penalty"))
        _one_of(self, "layers", ("all", "last"))
        _count(
            self,
            "num_draws",
            "fit_draws",
            "hidden_size",
            "steps",
            "batch_size",
            "max_graphs",
            "graph_steps",
        )
        _at_least(self, 0, "beta", "penalty", "contrast")
        _inside(self, 0, 1, "start", "risk_target", "budget_low", "budget_high")
        _one_of(self, "degradation", DEGRADATIONS)
        if self.budget_low > self.budget_high:
            raise ConfigError(
                f"`budget_low` must not exceed `budget_high` (got {self.budget_low!r} and "
                f"{self.budget_high!r})."
            )
        _positive(self, "learning_rate", "graph_learning_rate")
        classes = self.classes
        if not isinstance(classes, tuple | list) or not all(type(c) is int for c in classes):
            raise ConfigError(f"`classes` must be a tuple of class numbers (got {classes!r}).")
        object.__setattr__(self, "classes", tuple(classes))


@dataclass(frozen=True)
class AttributionConfig:
    """How Boundary-Integrated Gradient (BIG) is computed.

    ``path="joint"`` is the paper's: all bonds move together from corruption to the boundary.
    ``path="bond"`` gives each bond a path of its own while all others stay clean; it needs no
    quadrature, so `num_nodes`, `quadrature`, `draws` and `context` do not matter.
    """

    path: str = "bond"  # "joint" (paper) or "bond"
    num_draws: int = 16  # M, noise draws of each bond, or at each node of the path
    num_nodes: int = 8  # T, nodes of the path
    quadrature: str = "gauss"  # "gauss" (t = u^2), "gauss-sine", or "riemann" (paper)
    draws: str = "fresh"  # "fresh" noise at each node (paper) or "shared" along the path
    antithetic: bool = True  # draws come in opposite pairs
    context: str = "corrupted"  # bonds off the path are "corrupted" (paper) or "clean"
    degradation: str = "signed-margin"  # loss of one draw, see `BoundaryConfig`
    beta: float = 0.1  # weight of the spread over draws in the risk
    take_out: bool = True  # masking also takes each bond out of the graph (``path="bond"``)

    def __post_init__(self) -> None:
        _one_of(self, "path", ("joint", "bond"))
        _one_of(self, "quadrature", ("gauss", "gauss-sine", "riemann"))
        _one_of(self, "draws", ("fresh", "shared"))
        _one_of(self, "context", ("corrupted", "clean"))
        _one_of(self, "degradation", DEGRADATIONS)
        _count(self, "num_draws", "num_nodes")
        _at_least(self, 0, "beta")


@dataclass(frozen=True)
class NICEConfig:
    """All settings of NICE.

    ``NICEConfig()`` is our default, ``NICEConfig.quick()`` fits it with far less work, and
    ``NICEConfig.paper()`` is the paper's.
    """

    boundary: BoundaryConfig = field(default_factory=BoundaryConfig)
    attribution: AttributionConfig = field(default_factory=AttributionConfig)
    mechanism: str = "both"  # "nc" noise corruption, "em" element-wise masking, "both" joined
    fallback: bool = True  # fit() leaves noise out where it cannot judge the model
    score: str = "both"  # what ranks the bonds: "big", "gate", or "both" together
    undirected: bool = True  # both directions of a bond share one gate
    chunk_edges: int = 400_000  # directed edges times draws in one call of the model
    batch_size: int = 256  # graphs per batch when explain() is given a list
    seed: int = 0  # seed of training and explanation

    def __post_init__(self) -> None:
        _one_of(self, "mechanism", ("both", "nc", "em"))
        _one_of(self, "score", ("both", "big", "gate"))
        _count(self, "chunk_edges", "batch_size")

    @classmethod
    def paper(cls) -> NICEConfig:
        """Returns the method exactly as the paper writes it.

        The paper leaves open: start value (0.5, the sigmoid's middle), layers read by z_e (the
        last), width, batch size and length of training (ours).
        """
        return cls(
            boundary=BoundaryConfig(
                objective="penalty",
                num_draws=16,
                fit_draws=16,
                degradation="log-prob",
                beta=0.1,
                penalty=1.0,
                normalise_risk=False,
                start=0.5,
                layers="last",
                graph_context=False,
                class_gates=False,
                learning_rate=1e-3,
            ),
            attribution=AttributionConfig(
                path="joint",
                num_draws=16,
                num_nodes=16,
                quadrature="riemann",
                draws="fresh",
                antithetic=False,
                context="corrupted",
                degradation="log-prob",
                take_out=False,
            ),
            mechanism="nc",
            fallback=False,
            score="big",
        )

    @classmethod
    def quick(cls) -> NICEConfig:
        """Returns the default with a fit that takes a fiftieth of the work.

        What is explained afterwards costs the same; `docs/study.md` says what is lost.
        """
        return cls().with_(boundary__steps=150, boundary__batch_size=64, boundary__fit_draws=4)

    def with_(self, **changes: Any) -> NICEConfig:
        """Returns a copy with settings changed, those of components as ``boundary__steps=...``.

        Example:
            >>> NICEConfig().with_(score="gate", boundary__steps=50).boundary.steps
            50
        """
        parts: dict[str, dict[str, Any]] = {"boundary": {}, "attribution": {}}
        own: dict[str, Any] = {}
        for key, value in changes.items():
            part, _, name = key.partition("__")
            if name and part in parts:
                parts[part][name] = value
            else:
                own[key] = value
        for part, values in parts.items():
            if values:
                _check_names(type(getattr(self, part)), values, part)
                own[part] = replace(own.get(part, getattr(self, part)), **values)
        _check_names(type(self), own, "NICEConfig")
        return replace(self, **own)

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as plain values, nested by component."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> NICEConfig:
        """Builds settings from plain values; unknown names are errors."""
        values = dict(values)
        for part, kind in (("boundary", BoundaryConfig), ("attribution", AttributionConfig)):
            if part in values:
                if not isinstance(values[part], dict):
                    raise ConfigError(f"`{part}` must be a table (got {values[part]!r}).")
                _check_names(kind, values[part], part)
                values[part] = kind(**values[part])
        _check_names(cls, values, "NICEConfig")
        return cls(**values)

    def to_toml(self) -> str:
        """Returns the settings as TOML text."""
        plain = self.to_dict()
        tables = [key for key, value in plain.items() if isinstance(value, dict)]
        lines = [f"{k} = {_toml(v)}" for k, v in plain.items() if k not in tables]
        for table in tables:
            lines += ["", f"[{table}]", *(f"{k} = {_toml(v)}" for k, v in plain[table].items())]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, path: str | Path) -> NICEConfig:
        """Reads settings from a TOML file; names left out keep their defaults."""
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"Cannot read settings from {path}: {error}") from error
        return cls.from_dict(values)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return repr(value)


def _check_names(kind: type[Any], values: dict[str, Any], where: str) -> None:
    known = [f.name for f in fields(kind)]
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ConfigError(f"Unknown setting(s) {unknown} in {where}; known are {known}.")


def _one_of(config: object, name: str, known: tuple[str, ...]) -> None:
    if getattr(config, name) not in known:
        raise ConfigError(f"`{name}` must be one of {known} (got {getattr(config, name)!r}).")


def _count(config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if type(value) is not int or value < 1:
            raise ConfigError(f"`{name}` must be a whole number of at least 1 (got {value!r}).")


def _at_least(config: object, lowest: int, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int | float) or not value >= lowest:
            raise ConfigError(f"`{name}` must be at least {lowest} (got {value!r}).")


def _inside(config: object, low: float, high: float, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int | float) or not low < value < high:
            raise ConfigError(f"`{name}` must lie between {low} and {high} (got {value!r}).")


def _positive(config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, int | float) or not value > 0:
            raise ConfigError(f"`{name}` must be a positive number (got {value!r}).")
