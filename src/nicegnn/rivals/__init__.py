"""Rival explainers, one method per file, and the registry of all explainers."""
