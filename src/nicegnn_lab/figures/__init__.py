"""Figures over stored rows."""
