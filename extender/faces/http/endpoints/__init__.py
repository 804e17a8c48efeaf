"""Endpoints, a module for each kind."""
