"""Rival explainers, one method per file; `nicegnn.registry` knows all of them by name."""
