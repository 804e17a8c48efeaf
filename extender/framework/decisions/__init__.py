"""Decisions at the cost of what changed: what was decided before, for whom it holds, and what is left to decide."""
