"""Explainers and explanations; NICE itself."""
