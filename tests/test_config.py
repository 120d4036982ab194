"""Settings: what they accept, what they refuse, and that TOML brings them back."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import pytest

from nicegnn.config import (
    BoundaryConfig,
    Count,
    Fraction,
    NICEConfig,
    NotNegative,
    Positive,
    Settings,
    Whole,
    check_number,
)
from nicegnn.errors import ConfigError

OTHER_WORDS = {
    "anchor": "clean",
    "quadrature": "riemann",
    "mechanism": "em",
    "path": "joint",
}


def unlike(default: Any) -> Any:
    """Returns settings of which none has its default value."""
    changes: dict[str, Any] = {}
    for one in fields(default):
        value = getattr(default, one.name)
        if isinstance(value, bool):
            changes[one.name] = not value
        elif value is None:
            changes[one.name] = 7
        elif isinstance(value, str):
            word = OTHER_WORDS[one.name]
            changes[one.name] = "propagated" if word == value else word
        elif isinstance(value, int):
            changes[one.name] = value + 3
        elif isinstance(value, float):
            changes[one.name] = value / 3 + 1e-5
        else:
            changes[one.name] = unlike(value)
    return replace(default, **changes)


EVERYTHING = unlike(NICEConfig())


@pytest.mark.parametrize(
    "config", [NICEConfig(), NICEConfig.paper(), EVERYTHING], ids=["default", "paper", "everything"]
)
def test_toml_round_trip(config, tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text(config.to_toml(), encoding="utf-8")
    assert NICEConfig.from_toml(path) == config
    assert NICEConfig.from_toml(str(path)) == config
    assert NICEConfig.from_dict(config.to_dict()) == config


def test_paper_settings_are_the_papers():
    """Appendix E: N = 16, T = 16 right endpoints, beta = 0.1, lambda = 1, Adam 1e-3."""
    paper = NICEConfig.paper()
    boundary, attribution = paper.boundary, paper.attribution
    assert (boundary.penalty, boundary.start) == (1, 0.5)
    assert (boundary.num_draws, boundary.beta, boundary.learning_rate) == (16, 0.1, 1e-3)
    assert (attribution.num_draws, attribution.num_nodes) == (16, 16)
    assert (attribution.path, attribution.quadrature) == ("joint", "riemann")
    assert (paper.mechanism, paper.anchor, NICEConfig.paper("propagated").anchor) == (
        "nc",
        "clean",
        "propagated",
    )


BAD: list[tuple[type, str, Any]] = [
    (NICEConfig, "mechanism", "noise"),
    (NICEConfig, "undirected", None),
    (NICEConfig, "chunk_edges", 0),
    (NICEConfig, "chunk_edges", "all"),
    (NICEConfig, "batch_size", 0),
    (BoundaryConfig, "beta", float("nan")),
    (BoundaryConfig, "start", 1.0),
    (BoundaryConfig, "learning_rate", "fast"),
]


@pytest.mark.parametrize(
    ("kind", "name", "value"), BAD, ids=[f"{name}-{value}" for _, name, value in BAD]
)
def test_bad_values_are_refused_by_name(kind, name, value):
    with pytest.raises(ConfigError, match=f"`{name}` must"):
        kind(**{name: value})
    with pytest.raises(ConfigError, match=f"`{name}` must"):
        replace(kind(), **{name: value})


def test_with_changes_own_and_component_settings_and_leaves_the_original():
    config = NICEConfig()
    changed = config.with_(seed=4, boundary__steps=9, attribution__num_nodes=3)
    assert (changed.seed, changed.boundary.steps, changed.attribution.num_nodes) == (4, 9, 3)
    assert changed.boundary == replace(config.boundary, steps=9)
    assert changed.attribution == replace(config.attribution, num_nodes=3)
    assert config == NICEConfig()


@pytest.mark.parametrize(
    "text",
    [
        "sead = 1",
        "[boundary]\nstep = 1",
        "[gates]\nsteps = 1",
        "[boundary]\nsteps = 0",
        "[boundary]\nsteps = 'many'",
        "boundary = 5",
        "seed = ",
        "\xff",
    ],
    ids=["unknown", "inside", "table", "value", "type", "no-table", "syntax", "bytes"],
)
def test_bad_files_are_refused(text, tmp_path):
    path = tmp_path / "settings.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError):
        NICEConfig.from_toml(path)


# --- what all settings share -------------------------------------------------------------------


@dataclass(frozen=True)
class Inner(Settings):
    pace: Literal["slow", "fast"] = "slow"


@dataclass(frozen=True)
class Outer(Settings):
    number: float = 1
    is_on: bool = True
    names: tuple[str, ...] = ()
    inner: Inner = field(default_factory=Inner)


@dataclass(frozen=True)
class Longer(Outer):
    more: str = "words"


def test_any_settings_can_be_nested_and_brought_back(tmp_path):
    changed = Longer().with_(more="other", inner__pace="fast", number=2.5, names=["a", "b"])
    assert changed.names == ("a", "b")
    assert changed.to_dict() == {
        "number": 2.5,
        "is_on": True,
        "names": ("a", "b"),
        "inner": {"pace": "fast"},
        "more": "other",
    }
    assert Longer.from_dict(changed.to_dict()) == changed
    (tmp_path / "longer.toml").write_text(changed.to_toml())
    assert Longer.from_toml(tmp_path / "longer.toml") == changed


def test_words_and_switches_are_checked_without_being_asked():
    with pytest.raises(ConfigError, match=r"`pace` must be one of \('slow', 'fast'\) \(got 'so'\)"):
        Outer().with_(inner__pace="so")
    with pytest.raises(ConfigError, match=r"`is_on` must be one of \(True, False\) \(got 'no'\)"):
        Longer(is_on="no")
    with pytest.raises(ConfigError, match=r"Unknown setting\(s\) \['step'\] of Inner"):
        Outer.from_dict({"inner": {"step": 1}})


@pytest.mark.parametrize(
    ("kind", "good", "bad", "words"),
    [
        (Count, [1, 7], [0, 2.0, True, None, "1", 10**30], "be a whole number of at least 1"),
        (Whole, [0, 7], [-1, 2.0, True], "be a whole number of at least 0"),
        (NotNegative, [0, 2.5], [-0.1, "1", math.nan, True, math.inf], "be at least 0"),
        (Positive, [1e-9, 3], [0, -1, math.nan], "be a positive number"),
        (Fraction, [0.5], [0, 1, math.nan, None], "lie between 0 and 1"),
    ],
)
def test_numbers_say_the_name_what_is_expected_and_what_came(kind, good, bad, words):
    for value in good:
        check_number("x", value, kind)
    for value in bad:
        with pytest.raises(ConfigError) as error:
            check_number("x", value, kind)
        assert str(error.value) == f"`x` must {words} (got {value!r})."
