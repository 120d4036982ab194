"""What a benchmark runs and what it measures: settings with a meaning beside each default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from nicegnn.errors import ConfigError
from nicegnn.metrics import PROTOCOLS, RATIOS, REMOVALS, get_protocol

PARTS = ("test", "valid")
EXPLAINED = ("label", "predicted")


@dataclass(frozen=True)
class MetricConfig:
    """What is computed from scores; a change needs no new explanations."""

    protocols: tuple[str, ...] = ("paper", "strict")  # agreement with the truth, see `PROTOCOLS`
    top: float = 0.3  # share of a graph's bonds that counts as selected
    removals: tuple[str, ...] = REMOVALS  # how bonds are removed for fidelity; () for none
    ratios: tuple[float, ...] = RATIOS  # shares of bonds of the fidelity curves, rising
    num_draws: int = 16  # noise draws of removal "nc"

    def __post_init__(self) -> None:
        for name in self.protocols:
            get_protocol(name)
        unknown = sorted(set(self.removals) - set(REMOVALS))
        if unknown:
            raise ConfigError(f"`removals` must be of {REMOVALS} (got {unknown}).")
        if not 0 < self.top <= 1:
            raise ConfigError(f"`top` must be a share in (0, 1] (got {self.top!r}).")
        ratios = tuple(float(ratio) for ratio in self.ratios)
        if (
            not ratios
            or list(ratios) != sorted(set(ratios))
            or not 0 < ratios[0] <= ratios[-1] <= 1
        ):
            raise ConfigError(f"`ratios` must be rising shares in (0, 1] (got {self.ratios!r}).")
        if type(self.num_draws) is not int or self.num_draws < 1:
            raise ConfigError(f"`num_draws` must be at least 1 (got {self.num_draws!r}).")
        # one order for both, so that equal settings are equal whatever order they were given in
        set_ = object.__setattr__
        set_(self, "protocols", tuple(name for name in PROTOCOLS if name in self.protocols))
        set_(self, "removals", tuple(name for name in REMOVALS if name in self.removals))
        set_(self, "ratios", ratios)

    def identity(self) -> dict[str, Any]:
        """Returns all that can change the numbers, as plain values."""
        plain = {key: _plain(value) for key, value in asdict(self).items()}
        if not self.removals:
            plain["ratios"] = []
        if "nc" not in self.removals:
            plain["num_draws"] = 0
        return plain


@dataclass(frozen=True)
class BenchConfig:
    """Which explainers run on which graphs; every combination with every seed is a cell.

    Settings of explainers are tables by name, ``{"pgexplainer": {"steps": 100}}``; a table for one
    mechanism, ``"pgexplainer+nc"``, goes on top of it. See `nicegnn.bench.settings`.
    """

    datasets: tuple[str, ...]  # names of `DATASETS` with true bonds
    explainers: tuple[str, ...]  # names of `EXPLAINERS`, with "+nc" or "+em" for a mechanism
    targets: tuple[str, ...] = ("gin",)  # names of `TARGETS`
    seeds: tuple[int, ...] = (0,)  # seeds of the explainers
    out: Path = Path("results/bench")  # folder of scores, rows and failures
    targets_folder: Path = Path("results/targets")  # trained targets, see `nicegnn train`
    part: str = "test"  # graphs that are explained: "test", or "valid" to choose settings on
    explained: str = "label"  # class to explain: the "label", whose truth is known, or "predicted"
    max_graphs: int | None = None  # most graphs to explain, drawn once for all; none for all
    fit_graphs: int | None = None  # most training graphs to fit on, drawn once; none for all
    device: str | None = None  # "cpu" or "cuda"; none for what is there
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of explainers
    metrics: MetricConfig = field(default_factory=MetricConfig)  # what is computed from scores

    def __post_init__(self) -> None:
        for name in ("datasets", "explainers", "targets", "seeds"):
            values = _once(getattr(self, name))
            if not values:
                raise ConfigError(f"`{name}` must name at least one (got none).")
            object.__setattr__(self, name, values)
        if not all(type(seed) is int for seed in self.seeds):
            raise ConfigError(f"`seeds` must be whole numbers (got {self.seeds!r}).")
        if self.part not in PARTS:
            raise ConfigError(f"`part` must be one of {PARTS} (got {self.part!r}).")
        if self.explained not in EXPLAINED:
            raise ConfigError(f"`explained` must be one of {EXPLAINED} (got {self.explained!r}).")
        try:
            torch.device(self.device or "cpu")
        except RuntimeError:
            raise ConfigError(f"`device` must be 'cpu' or 'cuda' (got {self.device!r}).") from None
        for name in ("max_graphs", "fit_graphs"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigError(f"`{name}` must be at least 1, or none for all (got {value!r}).")
        for name in ("out", "targets_folder"):  # absolute: workers may stand in another folder
            object.__setattr__(self, name, Path(getattr(self, name)).expanduser().absolute())

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as plain values."""
        return {key: _plain(value) for key, value in asdict(self).items()}


def _once(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys((values,) if isinstance(values, str | int) else values))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
