"""What can speak against a device: one module per feature, and one ordered table."""
