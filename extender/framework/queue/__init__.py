"""Rejected pods: which change wakes which pod, and in which order."""
