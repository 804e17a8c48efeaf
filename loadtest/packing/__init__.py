"""How much of a cluster each policy can allocate: pods of a trace arrive until more is asked than there is."""
