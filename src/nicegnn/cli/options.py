"""Lists on a command line: an option repeated, or its values with commas between them."""

from __future__ import annotations

from collections.abc import Sequence

from nicegnn.errors import ConfigError


def split_commas(values: Sequence[str] | None) -> list[str]:
    """Returns all values in order; none for an option that was not given.

    Example:
        >>> split_commas(["a,b", "c"]), split_commas(None)
        (['a', 'b', 'c'], [])
    """
    parts = [part.strip() for value in values or [] for part in value.split(",")]
    return [part for part in parts if part]


def split_seeds(values: Sequence[str] | None) -> tuple[int, ...]:
    """Returns the seeds that were given, or seed 0."""
    return tuple(_whole(text) for text in split_commas(values)) or (0,)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"`--seed` must be a whole number (got {text!r}).") from None
