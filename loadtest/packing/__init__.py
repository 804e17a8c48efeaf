"""How much of a cluster each policy can allocate: pods arrive until they ask for more than the cluster has."""
