"""Servers that play an API server."""
