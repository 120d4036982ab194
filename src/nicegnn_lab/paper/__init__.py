"""Every number of the paper, once."""
