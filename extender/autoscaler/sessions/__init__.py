"""The sessions of autoscalers: those that this replica keeps, and calls for those of other replicas."""
