"""The error that metrics raise on purpose."""

from __future__ import annotations

from nicegnn.errors import NicegnnError


class MetricError(NicegnnError, ValueError):
    """A metric was asked for with arguments it is not defined for."""
