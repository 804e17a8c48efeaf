"""The buckets of histograms, in seconds."""

from typing import Final

CALL_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Buckets for times of calls."""

WAITING_SECONDS: Final = (1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400)
"""Buckets for times that pods wait. Times of creation are whole seconds, and pods may wait for days."""
