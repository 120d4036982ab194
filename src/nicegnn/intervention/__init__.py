"""Interventions on messages: masking, noise, and the target's answers under them."""
