"""Tables over snapshots: what a running service shows to people and programs."""
