"""Writes of claims."""
