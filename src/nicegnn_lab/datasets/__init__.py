"""Molecule graphs: benchmarks, rules that know the true explanation, generated molecules."""
