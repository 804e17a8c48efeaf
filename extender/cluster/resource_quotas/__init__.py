"""ResourceQuotas: what the claims and pods of a namespace ask for, as an API server counts it."""
