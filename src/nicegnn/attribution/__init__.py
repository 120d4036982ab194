"""Attribution: each bond's share in the fall of risk, along a joint path or bond by bond."""
