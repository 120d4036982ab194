"""Rival explainers, one method per file; importing this package lists them beside the product's."""

from nicegnn.explain.registry import (
    EXPLAINERS,
    Entry,
    find_entry,
    get_explainer,
    list_explainers,
    list_file,
)

__all__ = ["EXPLAINERS", "Entry", "find_entry", "get_explainer", "list_explainers"]

list_file("nicegnn_lab.rivals")
