"""Workloads to pods: what the controllers of kube-controller-manager and of JobSet would make of them."""
