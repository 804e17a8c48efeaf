"""The commands of `kubectl dra`."""
