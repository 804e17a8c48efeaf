"""Pods per second on a real control plane: the in-tree plugin, dra-extender, and an extender that decides nothing."""
