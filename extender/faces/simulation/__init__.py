"""A cluster in memory as a library: workloads become pods, pods get nodes, one after the other."""
