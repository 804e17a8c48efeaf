"""Traces of ours: what their nodes have, what their pods ask for, and the most that could be placed."""
