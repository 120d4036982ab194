"""Errors that nicegnn raises; each message says what was expected, what came and what to do."""

from __future__ import annotations


class NicegnnError(Exception):
    """Base of all errors raised by nicegnn itself."""


class ShortCutEnds(Exception):
    """Ends a pass of a model that a short cut watches. It never leaves the package."""


class InterventionError(NicegnnError, RuntimeError):
    """An intervention cannot reach all messages of the model."""


class GraphError(NicegnnError, ValueError):
    """A graph handed to nicegnn is malformed."""


class TargetError(NicegnnError, ValueError):
    """The target model cannot be called or read as asked."""


class ConfigError(NicegnnError, ValueError):
    """A setting has an invalid value."""


class NotFittedError(NicegnnError, RuntimeError):
    """A fit is missing, or was made for another model or other settings."""


class StoreError(NicegnnError, RuntimeError):
    """A file cannot be read, or does not belong to the model it is loaded for."""


class MetricError(NicegnnError, ValueError):
    """A metric is not defined for these arguments."""
