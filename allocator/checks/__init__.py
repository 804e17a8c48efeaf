"""What can speak against a device: one module for each feature, and one ordered table of them."""
