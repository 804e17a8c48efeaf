"""Limits on what callers may send, and how fast."""
