"""Extended resources that are served by devices (KEP-5004)."""
