"""The scheduling cycle: one try to place one pod, by its claims, the devices that are kept for others, and plugins."""
