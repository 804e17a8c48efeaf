"""A real control plane, and the programs that run on it."""
