"""One hostile tenant beside nine ordinary ones on a real control plane: what the nine get with it and without it."""
