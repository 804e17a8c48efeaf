"""Nominated pods: what is held for them on their nodes, and what other pods find beside it."""
