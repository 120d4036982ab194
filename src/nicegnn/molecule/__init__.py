"""Molecules: SMILES to graphs, and pictures of bonds with colours."""
