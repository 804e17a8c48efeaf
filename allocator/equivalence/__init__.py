"""Nodes that get the same answer: what a decision depends on, names aside."""
