"""Studies: what is varied and what is measured; the benchmark's runner runs them."""
