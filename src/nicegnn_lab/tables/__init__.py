"""Tables over stored rows."""
