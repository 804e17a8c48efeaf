"""Scale-up: how many nodes to add to which groups, so that pending pods get a place."""
