"""The running service."""
