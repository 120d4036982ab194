"""Stochastic Restoration Boundary (SRB): the smallest restoration that keeps the prediction."""
