"""Interventions on messages: masking, noise, and what the target answers under them."""
