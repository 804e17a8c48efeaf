"""`kubectl dra`: what dra-extender knows of a cluster, for who works with kubectl."""
