"""Bind, and claims that are allocated without a scheduler's bind."""
