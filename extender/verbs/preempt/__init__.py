"""Preempt, and which pods of a node become victims."""
