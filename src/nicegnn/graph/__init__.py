"""Graphs for explainers: checked batches, bonds, mini-batches."""
