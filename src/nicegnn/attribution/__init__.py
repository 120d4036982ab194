"""Attribution of the fall of risk to bonds, along a joint path or bond by bond."""
