"""A cluster as the extender knows it: objects, state and snapshots, the API server, and what is written to it."""
