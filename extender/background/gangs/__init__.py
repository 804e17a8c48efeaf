"""Devices that are kept for the members of a gang together."""
