"""What people ask: why a pod gets no devices, what would happen, what the cluster looks like. None of it writes."""
