"""Settings from a file, the environment and flags."""
