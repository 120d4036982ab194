"""Every number of the paper, once, and its claims."""
