"""Pictures of a cluster, as SVG: the command line and load tests draw with it."""
