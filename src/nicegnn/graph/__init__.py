"""Graphs as explainers see them: checked batches, bonds, mini-batches, computation graphs."""
