"""Wakes rejected pods whose devices are free now, and finds those that nobody remembers."""
