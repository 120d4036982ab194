"""Figures of results, each a function over stored rows that returns a matplotlib figure."""
