"""What the file of a fit says of its mechanism."""

from __future__ import annotations

from nicegnn.intervention.intervene import Mechanism


def mechanism_name(mechanism: Mechanism) -> str:
    """Returns the name of a mechanism, the same in every process."""
    text = repr(mechanism)
    if " at 0x" not in text:
        return text
    named = mechanism if hasattr(mechanism, "__qualname__") else type(mechanism)
    return f"{named.__module__}.{named.__qualname__}"
