"""`dra-extender demo`: a cluster in memory in which pods come, wait, run, are evicted and end."""
