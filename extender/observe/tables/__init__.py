"""What there is to see of a running service: tables over snapshots, for people and for their programs."""
