"""Metrics of explanations, batched over graphs; undefined values are nan."""
