"""Device preemption: pods of lower priority are evicted for a pod that fits nowhere for want of devices."""
