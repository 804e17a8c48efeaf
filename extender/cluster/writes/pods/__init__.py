"""Writes of pods, and evictions."""
