"""Templates of nodes that do not exist yet: written ones, or learned from a node of the same group."""
