"""Evictions for pods of higher priority, from the choice of victims to the end of a nomination."""
