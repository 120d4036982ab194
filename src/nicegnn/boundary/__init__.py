"""Stochastic Restoration Boundary (SRB): how little must be restored."""
